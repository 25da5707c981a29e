//! A fake upstream as a test holds it: its log, its switch, and its process where the test runs it.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json, value::RawValue};
use tempfile::TempDir;

use crate::{
    DEADLINE,
    fake::{
        control_dir::{Arm, ControlDir, Failure, LogEntry},
        options::{FakeEra, FakeTransport},
        server::ListenEnd,
    },
    process,
};

/// What kind of upstream a test wants.
#[derive(Clone, Debug)]
pub struct FakeOptions {
    pub transport: FakeTransport,
    pub era: FakeEra,
    pub args: Vec<String>,
}

impl FakeOptions {
    pub fn new(transport: FakeTransport, era: FakeEra) -> Self {
        Self { transport, era, args: Vec::new() }
    }

    pub fn stdio(era: FakeEra) -> Self {
        Self::new(FakeTransport::Stdio, era)
    }

    pub fn http(era: FakeEra) -> Self {
        Self::new(FakeTransport::Http, era)
    }

    /// Further flags of `fake-upstream`, as on its command line: `--page-size 2 --bad-tool`.
    #[must_use]
    pub fn with(mut self, flags: &str) -> Self {
        self.args.extend(flags.split_whitespace().map(str::to_owned));
        self
    }

    /// One flag whose value may hold anything.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.args.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Every transport in every era that it has.
    pub fn all() -> Vec<Self> {
        use FakeEra::{Legacy, Modern};
        use FakeTransport::{Http, Sse, Stdio};
        [(Stdio, Legacy), (Stdio, Modern), (Http, Legacy), (Http, Modern), (Sse, Legacy)]
            .map(|(transport, era)| Self::new(transport, era))
            .into()
    }
}

pub struct Fake {
    pub name: String,
    pub options: FakeOptions,
    pub dir: ControlDir,
    /// http and sse: the test runs it. A stdio fake is the gateway's child.
    process: Option<(Child, String)>,
    _files: TempDir,
}

impl Fake {
    /// Ready to be added; behind a URL it already runs.
    pub async fn start(name: &str, options: FakeOptions) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let dir = ControlDir::at(files.path())?;
        let name = name.to_owned();
        let mut fake = Self { name, options, dir, process: None, _files: files };
        if fake.options.transport != FakeTransport::Stdio {
            fake.run(0).await?;
        }
        Ok(fake)
    }

    pub fn program() -> PathBuf {
        process::binary("fake-upstream")
    }

    /// Its command line after the program.
    pub fn args(&self) -> Vec<String> {
        let word = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let mut args = vec![
            "--transport".to_owned(),
            word(&self.options.transport),
            "--era".to_owned(),
            word(&self.options.era),
            "--control-dir".to_owned(),
            self.dir.path().display().to_string(),
        ];
        args.extend(self.options.args.iter().cloned());
        args
    }

    async fn run(&mut self, port: u16) -> Result<()> {
        let output = self.dir.path().join("stdout");
        let mut child = Command::new(Self::program())
            .args(self.args())
            .args(["--port", &port.to_string()])
            .arg("--while-stdin-is-open")
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&output)?)
            .stderr(std::fs::File::create(self.dir.path().join("stderr"))?)
            .spawn()
            .context("the fake upstream")?;
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let text = std::fs::read_to_string(&output)?;
            let ready = text.lines().find_map(|line| line.strip_prefix("READY "));
            if let (Some(url), true) = (ready, text.ends_with('\n')) {
                self.process = Some((child, url.to_owned()));
                return Ok(());
            }
            if let Some(status) = child.try_wait()? {
                let said = std::fs::read_to_string(self.dir.path().join("stderr"))?;
                bail!("the fake upstream {} ended with {status}: {said}", self.name);
            }
            ensure!(tokio::time::Instant::now() < deadline, "{} isn't ready", self.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// # Panics
    /// If it isn't behind a URL.
    pub fn url(&self) -> &str {
        &self.process.as_ref().expect("a fake behind a URL").1
    }

    /// Ends the process that serves a URL, as a crash does.
    pub fn kill(&mut self) -> Result<()> {
        let (child, _) = self.process.as_mut().context("only a fake behind a URL is the test's")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Serves the same URL again, in a new process.
    pub async fn revive(&mut self) -> Result<()> {
        let url = self.url().to_owned();
        let port = url.split(':').nth(2).and_then(|rest| rest.split('/').next());
        let port = port.and_then(|port| port.parse().ok()).context("its port")?;
        self.run(port).await
    }

    pub fn arm(&self, what: Failure, method: &str) -> Result<()> {
        self.arm_with(&Arm::new(what, method))
    }

    pub fn arm_with(&self, arm: &Arm) -> Result<()> {
        Ok(self.dir.arm(arm)?)
    }

    pub fn disarm(&self) -> Result<()> {
        Ok(self.dir.disarm()?)
    }

    pub fn log(&self) -> Result<Vec<LogEntry>> {
        Ok(self.dir.log()?)
    }

    /// How many requests or notifications of this method came.
    pub fn count(&self, method: &str) -> Result<usize> {
        Ok(self.messages(method)?.len())
    }

    pub fn messages(&self, method: &str) -> Result<Vec<LogEntry>> {
        let mut log = self.log()?;
        log.retain(|entry| entry.event == "message" && entry.method.as_deref() == Some(method));
        Ok(log)
    }

    /// How often something else than a message stands in the log.
    pub fn events(&self, event: &str) -> Result<usize> {
        Ok(self.log()?.iter().filter(|entry| entry.event == event).count())
    }

    /// How many calls the client has given up.
    pub fn cancelled(&self) -> Result<usize> {
        let call = |entry: &&LogEntry| {
            entry.event == "cancelled" && entry.method.as_deref() == Some("tools/call")
        };
        Ok(self.log()?.iter().filter(call).count())
    }

    /// How often a tool with a side effect ran.
    pub fn ran(&self, tool: &str) -> Result<usize> {
        let ran = |entry: &&LogEntry| entry.event == "ran" && entry.what.as_deref() == Some(tool);
        Ok(self.log()?.iter().filter(ran).count())
    }

    /// Waits until the log says so.
    pub async fn logged(&self, what: &str, holds: impl Fn(&LogEntry) -> bool) -> Result<LogEntry> {
        let mut found = None;
        process::until(&format!("{}'s log: {what}", self.name), || {
            found = self.log().ok().and_then(|log| log.into_iter().find(|entry| holds(entry)));
            found.is_some()
        })
        .await?;
        found.context("just found")
    }

    /// Waits until a message of this method has come.
    pub async fn asked(&self, method: &str) -> Result<LogEntry> {
        self.logged(method, |entry| entry.method.as_deref() == Some(method)).await
    }

    /// The gateway kept every rule that this fake knows.
    pub fn assert_no_violations(&self) -> Result<()> {
        let log = self.log()?;
        let broken: Vec<_> = log.iter().filter(|entry| entry.event == "violation").collect();
        ensure!(broken.is_empty(), "{} saw violations: {broken:#?}", self.name);
        Ok(())
    }

    /// The live processes of this fake.
    pub fn alive(&self) -> Result<Vec<u32>> {
        Ok(self.dir.alive()?.into_keys().collect())
    }

    /// Replaces one of its lists; `announce` tells the world.
    pub fn set_list(&self, member: &str, items: &[Value]) -> Result<()> {
        let items: Vec<Box<RawValue>> =
            items.iter().map(serde_json::value::to_raw_value).collect::<Result<_, _>>()?;
        self.set_raw_list(member, &items)
    }

    /// The same, byte for byte.
    pub fn set_raw_list(&self, member: &str, items: &[Box<RawValue>]) -> Result<()> {
        Ok(self.dir.set_list(member, items)?)
    }

    /// What the results of a method say about their reuse, page by page: `"ttlMs":-1`.
    pub fn set_hints(&self, method: &str, pages: &[&str]) -> Result<()> {
        Ok(self.dir.set_hints(method, pages)?)
    }

    /// Sends `list_changed` of `tools`, `prompts` or `resources`, or updated of a URI, to all who
    /// want it; returns how many that were.
    pub async fn announce(&self, what: &str) -> Result<u64> {
        self.control("announce", &json!({"what": what}), "told").await
    }

    /// Ends all subscriptions; returns how many that were.
    pub async fn end_listens(&self, how: ListenEnd) -> Result<u64> {
        self.control("end-listens", &json!({"how": how}), "ended").await
    }

    /// Asks each living process; the sum of what they answered.
    async fn control(&self, route: &str, body: &Value, counted: &str) -> Result<u64> {
        let mut sum = 0;
        for address in self.dir.alive()?.values() {
            let answer = reqwest::Client::builder()
                .no_proxy()
                .build()?
                .post(format!("{address}/{route}"))
                .header("content-type", "application/json")
                .body(body.to_string())
                .timeout(DEADLINE)
                .send()
                .await
                .context("the fake's control API")?;
            let answer: Value = serde_json::from_str(&answer.text().await?)?;
            sum += answer[counted].as_u64().unwrap_or_default();
        }
        Ok(sum)
    }

    /// `announce`, once somebody listens.
    pub async fn announce_to_listeners(&self, what: &str) -> Result<()> {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while self.announce(what).await? == 0 {
            ensure!(tokio::time::Instant::now() < deadline, "nobody listens to {}", self.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.process {
            // It may have died on purpose.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
