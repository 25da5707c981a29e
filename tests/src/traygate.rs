//! The real product in a directory of its own: `traygate serve` and its command line.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use traygate_gateway::{api::RunFile, paths::Paths};

use crate::{DEADLINE, process};

pub struct Traygate {
    pub home: TempDir,
    /// Marks every process of this test.
    pub mark: String,
    pub port: u16,
    host: Option<Child>,
    pub(crate) http: reqwest::Client,
}

/// How a command of the command line ended.
#[derive(Clone, Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The output, if it went well.
    pub fn ok(self) -> Result<String> {
        ensure!(self.code == Some(0), "exit {:?}: {}{}", self.code, self.stdout, self.stderr);
        Ok(self.stdout)
    }
}

impl Traygate {
    /// A host on a fresh home.
    pub async fn start() -> Result<Self> {
        let mut traygate = Self::unstarted()?;
        traygate.serve().await?;
        Ok(traygate)
    }

    /// A fresh home, without a host.
    pub fn unstarted() -> Result<Self> {
        Ok(Self {
            home: tempfile::tempdir()?,
            mark: uuid::Uuid::new_v4().to_string(),
            port: free_port()?,
            host: None,
            http: reqwest::Client::builder().no_proxy().timeout(DEADLINE).build()?,
        })
    }

    pub fn paths(&self) -> Paths {
        Paths::below(self.home.path())
    }

    /// The command line's program in this home, ready for its arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(process::binary("traygate"));
        command.env("TRAYGATE_HOME", self.home.path()).env(process::MARK, &self.mark);
        // What this machine's user has in the start-up files of a shell is no part of a test.
        command.env("SHELL", "/bin/sh").env("HOME", self.home.path());
        command
    }

    /// Starts the host and waits until it answers. Another port is taken only if the host says that
    /// this one is busy: between choosing it and binding it, somebody else may have come.
    pub async fn serve(&mut self) -> Result<()> {
        self.serve_with(&[]).await
    }

    /// `serve`, with more in the host's own environment.
    pub async fn serve_with(&mut self, env: &[(&str, &str)]) -> Result<()> {
        for _ in 0..5 {
            match self.try_serve(env).await {
                Err(error) if error.to_string().contains("in use") => self.port = free_port()?,
                done => return done,
            }
        }
        bail!("five free ports were all taken meanwhile")
    }

    async fn try_serve(&mut self, env: &[(&str, &str)]) -> Result<()> {
        let log = self.home.path().join("serve.log");
        let output = std::fs::File::options().create(true).append(true).open(&log)?;
        let host = self
            .command()
            .args(["serve", "--port", &self.port.to_string()])
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("traygate serve")?;
        let pid = host.id();
        let host = self.host.insert(host);
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            if let Some(status) = host.try_wait()? {
                let said = std::fs::read_to_string(&log)?;
                self.host = None;
                bail!("traygate serve ended with {status}: {said}");
            }
            let run_file = Paths::below(self.home.path()).run_file();
            let run: Option<RunFile> = std::fs::read(run_file)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok())
                .filter(|run: &RunFile| run.pid == pid);
            if let Some(run) = run {
                let status = self
                    .http
                    .get(format!("http://127.0.0.1:{}/control/v1/status", run.port))
                    .bearer_auth(run.token)
                    .send()
                    .await;
                if status.is_ok_and(|status| status.status() == 200) {
                    return Ok(());
                }
            }
            ensure!(tokio::time::Instant::now() < deadline, "traygate serve isn't ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the host has printed so far, over all its starts.
    pub fn host_log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.home.path().join("serve.log"))?)
    }

    /// # Panics
    /// If no host runs.
    pub fn pid(&self) -> u32 {
        self.host.as_ref().expect("a running host").id()
    }

    pub fn run_file(&self) -> Result<RunFile> {
        let text = std::fs::read(self.paths().run_file()).context("the run file")?;
        Ok(serde_json::from_slice(&text)?)
    }

    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn endpoint(&self) -> String {
        format!("{}/mcp", self.origin())
    }

    pub fn view(&self, upstream: &str) -> String {
        format!("{}/mcp/{upstream}", self.origin())
    }

    /// Ends the host as a crash does.
    pub fn kill(&mut self) -> Result<()> {
        let mut host = self.host.take().context("no host runs")?;
        host.kill()?;
        host.wait()?;
        Ok(())
    }

    /// Ends the host in good order.
    pub async fn stop(&mut self) -> Result<()> {
        let mut host = self.host.take().context("no host runs")?;
        process::signal(host.id(), "TERM")?;
        let ended = process::until("the host ends", || !matches!(host.try_wait(), Ok(None))).await;
        if ended.is_err() {
            host.kill()?;
            host.wait()?;
        }
        ended
    }

    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.serve().await
    }

    /// Every process that carries this test's mark ends by itself, but those of the test.
    pub async fn assert_no_orphans(&self) -> Result<()> {
        let gone = process::until("all children end", || process::marked(&self.mark).is_empty());
        gone.await.with_context(|| format!("left behind: {:?}", process::marked(&self.mark)))
    }

    /// Runs one command to its end.
    pub async fn cli(&self, args: &[&str]) -> Result<Ran> {
        self.cli_with(args, &[]).await
    }

    pub async fn cli_with(&self, args: &[&str], env: &[(&str, &str)]) -> Result<Ran> {
        let mut command = self.command();
        command.args(args).envs(env.iter().copied()).stdin(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        let output = command.kill_on_drop(true).output();
        let output = tokio::time::timeout(3 * DEADLINE, output)
            .await
            .with_context(|| format!("traygate {args:?} did not end"))??;
        Ok(Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl Drop for Traygate {
    fn drop(&mut self) {
        if let Some(mut host) = self.host.take() {
            // In good order first, so that its children end too; a test's failure must not hang.
            let _ = process::signal(host.id(), "TERM");
            for _ in 0..100 {
                if !matches!(host.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = host.kill();
            let _ = host.wait();
        }
        for (pid, _) in process::marked(&self.mark) {
            let _ = process::signal(pid, "KILL");
        }
        // Shown with a failed test only.
        if let Ok(log) = self.host_log() {
            eprintln!("the host's log:\n{log}");
        }
    }
}

/// A port that nobody listens on at this moment.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The mode of a file, such as 0o600.
pub fn mode(path: &Path) -> Result<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    Ok(metadata.permissions().mode() & 0o777)
}
