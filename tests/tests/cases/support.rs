//! A host with misbehaving servers behind it.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use traygate_tests::{App, AppEra, Traygate};

/// A correct server must answer within this during every case.
const ALWAYS: Duration = Duration::from_secs(1);

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
        case.traygate.serve().await?;
        case.token = case.traygate.token("case").await?;
        case.add("ok0", "ok").await?;
        Ok(Some(case))
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
        let server = self.servers.join("badserver.py").display().to_string();
        let log = self.log(name).display().to_string();
        let mut args =
            vec!["add", name, "--no-test", "--", "python3", &server, "--mode", mode, "--log", &log];
        args.extend(options);
        self.traygate.cli(&args).await?.ok().map(drop)
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
