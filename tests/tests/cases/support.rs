//! A host with misbehaving servers behind it.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use traygate_gateway::definition::{Definition, Transport, UpstreamSettings};
use traygate_tests::{App, AppEra, Traygate};

/// A correct server must answer within this during every case.
const ALWAYS: Duration = Duration::from_secs(1);

/// Which of the scriptable servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Stdio,
    Http,
}

/// One case: the host, an app, and the correct upstream `ok0`.
pub struct Case {
    pub traygate: Traygate,
    pub token: String,
    servers: PathBuf,
    pub directory: tempfile::TempDir,
    https: Vec<tokio::process::Child>,
}

/// How a running `badhttp.py` is told what to do.
pub struct Switch(String);

impl Switch {
    /// `mutate?op=add&name=x1`, `notify?kind=tools`, `mode` with the new mode as its body.
    pub async fn turn(&self, what: &str, body: &str) -> Result<()> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let request = client.post(format!("{}/__admin/{what}", self.0)).body(body.to_owned());
        let answer = request.timeout(Duration::from_secs(10)).send().await?;
        ensure!(answer.status().is_success(), "{what}: {}", answer.status());
        Ok(())
    }
}

impl Case {
    /// `None`, with a line that says so, where the cases are absent.
    pub async fn start() -> Result<Option<Self>> {
        let Some(case) = Self::unstarted()? else { return Ok(None) };
        let mut case = case;
        case.serve_with(&[]).await?;
        Ok(Some(case))
    }

    /// Starts the host with more in its environment, for a case that begins unstarted.
    pub async fn serve_with(&mut self, env: &[(&str, &str)]) -> Result<()> {
        self.traygate.serve_with(env).await?;
        self.token = self.traygate.token("case").await?;
        self.add("ok0", "ok").await
    }

    /// The program that misbehaves.
    pub fn server(&self) -> PathBuf {
        self.servers.join("badserver.py")
    }

    /// Adds this copy of `badserver.py` without a shell or a command line in between.
    pub async fn add_definition(
        &self,
        name: &str,
        server: &Path,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<()> {
        let log = self.log(name).display().to_string();
        let server = server.display().to_string();
        let first = [server.as_str(), "--mode", "ok", "--log", &log];
        let own = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let definition = Definition {
            name: name.to_owned().try_into()?,
            transport: Transport::Stdio {
                command: "python3".to_owned(),
                args: first.iter().chain(args).map(|arg| (*arg).to_owned()).collect(),
                env: own(env),
                cwd: None,
            },
            enabled: true,
            settings: UpstreamSettings::default(),
        };
        self.traygate.add(&definition).await
    }

    /// How an upstream is reached now.
    pub async fn transport(&self, name: &str) -> Result<Transport> {
        let route = format!("/upstreams/{name}/definition");
        let none = None::<&()>;
        let definition: Definition =
            self.traygate.control(reqwest::Method::GET, &route, none).await?;
        Ok(definition.transport)
    }

    pub fn unstarted() -> Result<Option<Self>> {
        let Some(cases) = std::env::var_os("TRAYGATE_CASES") else {
            println!("the cases are absent: `make cases CASES=<directory>` runs them");
            return Ok(None);
        };
        Ok(Some(Self {
            traygate: Traygate::unstarted()?,
            token: String::new(),
            servers: Path::new(&cases).join("servers"),
            directory: tempfile::tempdir()?,
            https: Vec::new(),
        }))
    }

    /// Where a server logs what it received.
    pub fn log(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.log"))
    }

    /// Adds `badserver.py` in this mode.
    pub async fn add(&self, name: &str, mode: &str) -> Result<()> {
        self.add_with(name, mode, &[]).await
    }

    pub async fn add_with(&self, name: &str, mode: &str, options: &[&str]) -> Result<()> {
        let server = self.server().display().to_string();
        let log = self.log(name).display().to_string();
        let mut args =
            vec!["add", name, "--no-test", "--", "python3", &server, "--mode", mode, "--log", &log];
        args.extend(options);
        self.traygate.cli(&args).await?.ok().map(drop)
    }

    /// An app that sees this upstream alone, under its own names.
    pub async fn app_of(&self, era: AppEra, upstream: &str) -> Result<App> {
        App::connect(era, &self.traygate.view(upstream), &self.token).await
    }

    /// Starts `badhttp.py` in this mode, adds its address, and returns its switch.
    pub async fn add_http(&mut self, name: &str, mode: &str) -> Result<Switch> {
        self.add_http_with(name, mode, &[]).await
    }

    pub async fn add_http_with(
        &mut self,
        name: &str,
        mode: &str,
        options: &[&str],
    ) -> Result<Switch> {
        let log = self.log(name).display().to_string();
        let options: Vec<_> = ["--log", &log].iter().chain(options).copied().collect();
        let url = self.http(mode, &options).await?;
        self.traygate.cli(&["add", name, "--no-test", "--url", &url]).await?.ok()?;
        Ok(Switch(url.trim_end_matches("/mcp").to_owned()))
    }

    /// Every mode that a server has, also those that its help doesn't tell.
    pub async fn modes(&self, server: Server) -> Result<Vec<String>> {
        let module = match server {
            Server::Stdio => "badserver",
            Server::Http => "badhttp",
        };
        let list = format!("import {module}; print(*{module}.MODES)");
        let output = tokio::process::Command::new("python3")
            .args(["-B", "-c", &list])
            .current_dir(&self.servers)
            .output()
            .await?;
        let text = String::from_utf8(output.stdout)?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    pub async fn add_server(&mut self, server: Server, name: &str, mode: &str) -> Result<()> {
        match server {
            Server::Stdio => self.add(name, mode).await,
            Server::Http => self.add_http(name, mode).await.map(drop),
        }
    }

    /// What the host holds of the machine's memory, in bytes.
    pub fn memory(&self) -> Result<usize> {
        self.status("VmRSS:")
    }

    /// The most that it ever held.
    pub fn peak_memory(&self) -> Result<usize> {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> Result<usize> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.traygate.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("a size")?;
        Ok(kib.parse::<usize>()? << 10)
    }

    /// Which part of a processor the host uses while this much time passes.
    pub async fn busy(&self, time: Duration) -> Result<f64> {
        let before = self.ticks()?;
        tokio::time::sleep(time).await;
        Ok((self.ticks()? - before) as f64 / 100.0 / time.as_secs_f64())
    }

    /// Processor time used so far, in hundredths of a second.
    fn ticks(&self) -> Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.traygate.pid()))?;
        let (_, fields) = stat.rsplit_once(')').context("a stat line")?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
    }

    /// Starts `badhttp.py` and returns its address.
    pub async fn http(&mut self, mode: &str, options: &[&str]) -> Result<String> {
        let mut server = tokio::process::Command::new("python3")
            .arg(self.servers.join("badhttp.py"))
            .args(["--mode", mode])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = server.stdout.take().context("its output")?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = tokio::time::timeout(Duration::from_secs(10), lines.next_line()).await??;
        self.https.push(server);
        let ready = ready.context("badhttp.py says nothing")?;
        Ok(ready.strip_prefix("READY ").context(ready.clone())?.to_owned())
    }

    pub async fn app(&self, era: AppEra) -> Result<App> {
        App::connect(era, &self.traygate.endpoint(), &self.token).await
    }

    /// What a server logged: entries of this event, of this method where one is given.
    pub fn count(&self, name: &str, event: &str, method: Option<&str>) -> Result<usize> {
        let text = std::fs::read_to_string(self.log(name)).unwrap_or_default();
        let entries = text.lines().map(serde_json::from_str::<Value>);
        let entries: Vec<Value> = entries.collect::<Result<_, _>>().context(text.clone())?;
        let counts = |entry: &&Value| {
            entry["ev"] == event && method.is_none_or(|method| entry["method"] == method)
        };
        Ok(entries.iter().filter(counts).count())
    }

    /// What holds after every case: the host lives, the correct upstream answers at once, the
    /// servers saw no fault of Traygate's, and nobody is left after the end.
    pub async fn end(mut self, correct: &[&str]) -> Result<()> {
        let begun = Instant::now();
        let app = self.app(AppEra::Legacy).await?;
        app.call("ok0__echo", json!({"text": "still here"})).await?.result()?;
        ensure!(begun.elapsed() < ALWAYS, "ok0 took {:?}", begun.elapsed());
        for name in correct.iter().chain(&["ok0"]) {
            ensure!(
                self.count(name, "violation", None)? == 0,
                "{name} saw a violation of the protocol"
            );
        }
        self.traygate.stop().await?;
        self.traygate.assert_no_orphans().await
    }
}
