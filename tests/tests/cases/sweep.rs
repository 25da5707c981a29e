//! Every mode of the misbehaving servers as an upstream of its own: either it works, or a person
//! reads one clear sentence; the correct upstream answers at once all the while.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use serde_json::{Value, json};
use traygate_gateway::api::{State, UpstreamView};
use traygate_tests::{App, AppEra, json::tree};

use crate::support::{Case, Server};

/// How many of them are upstreams at once.
const GROUP: usize = 24;
/// How long the slowest may take until it works or says what is wrong.
const PATIENCE: Duration = Duration::from_secs(100);
/// How long a call may take here; the servers that never answer would have five minutes.
const CALL: &str = "10";
/// A page of what a person reads, beside the test's own files.
const TABLE: &str = "TRAYGATE_SWEEP";

/// One mode on its way through the sweep.
struct Swept {
    server: Server,
    mode: String,
    name: String,
    state: State,
    warnings: Vec<String>,
    called: String,
}

#[tokio::test]
async fn every_mode_works_or_says_what_is_wrong_and_disturbs_nobody() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    case.traygate.cli(&["config", "list_budget", "0.9"]).await?.ok()?;
    let app = case.app(AppEra::Modern).await?;
    let mut rows = Vec::new();
    for server in [Server::Stdio, Server::Http] {
        let modes = case.modes(server).await?;
        ensure!(modes.len() > 80, "{server:?} has {} modes", modes.len());
        for (number, group) in modes.chunks(GROUP).enumerate() {
            rows.extend(case.sweep(server, number, group, &app).await?);
        }
    }
    report(&rows)?;
    for row in &rows {
        if let Some(reason) = row.state.reason() {
            ensure!(reason.len() > 15, "{:?} {}: {reason:?} says nothing", row.server, row.mode);
        }
        let settled = !matches!(row.state, State::Connecting | State::Idle);
        ensure!(settled, "{:?} {} never came to anything", row.server, row.mode);
    }
    ensure!(case.memory()? < 400 << 20, "the host holds {} MiB", case.memory()? >> 20);
    case.end(&[]).await
}

impl Case {
    /// One group of modes, from the first `add` to the last `remove`.
    async fn sweep(
        &mut self,
        server: Server,
        number: usize,
        modes: &[String],
        app: &App,
    ) -> Result<Vec<Swept>> {
        let mut names = Vec::new();
        for (at, mode) in modes.iter().enumerate() {
            let kind = if server == Server::Stdio { 's' } else { 'h' };
            let name = format!("{kind}{number}-{at}");
            // Without an address that one redirects to nowhere.
            let argument = if mode == "redirect-cross" { ":http://127.0.0.1:9/mcp" } else { "" };
            self.add_server(server, &name, &format!("{mode}{argument}")).await?;
            self.traygate.set(&name, "call_idle_timeout", CALL).await?;
            names.push(name);
        }
        let settled = self.settled(&names);
        let called = async {
            let views = settled.await?;
            let calls = views.into_iter().map(|view| async move {
                let called = called(app, &view).await;
                (view, called)
            });
            anyhow::Ok(join_all(calls).await)
        };
        let done = tokio::select! {
            done = called => done?,
            slow = self.watch(app) => return Err(slow),
        };
        let mut rows = Vec::new();
        for ((mode, name), (view, called)) in modes.iter().zip(&names).zip(done) {
            // What a call did to it belongs to what a person reads.
            let now = self.traygate.upstream(name).await?;
            let view = if now.state.reason().is_some() { now } else { view };
            let warnings = view.catalogues.into_iter().flat_map(|list| list.warnings).collect();
            rows.push(Swept {
                server,
                mode: mode.clone(),
                name: name.clone(),
                state: view.state,
                warnings,
                called,
            });
        }
        for name in &names {
            self.traygate.cli(&["remove", name]).await?.ok()?;
        }
        Ok(rows)
    }

    /// The upstreams once each of them works or says what is wrong.
    async fn settled(&self, names: &[String]) -> Result<Vec<UpstreamView>> {
        let begun = Instant::now();
        loop {
            let snapshot = self.traygate.snapshot().await?;
            let mut views: Vec<_> = snapshot.upstreams.into_iter().collect();
            views.retain(|view| names.iter().any(|name| *name == view.name.to_string()));
            let open = views.iter().any(|view| matches!(view.state, State::Connecting));
            if !open || begun.elapsed() > PATIENCE {
                ensure!(views.len() == names.len(), "{} of {}", views.len(), names.len());
                return Ok(views);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Ends only if the correct upstream is ever slow.
    async fn watch(&self, app: &App) -> anyhow::Error {
        loop {
            let asked = Instant::now();
            let answer = app.call("ok0__echo", json!({"text": "x"})).await;
            let took = asked.elapsed();
            match answer.and_then(traygate_tests::app::Answer::result) {
                Err(error) => return error.context("ok0"),
                Ok(_) if took > Duration::from_secs(1) => return anyhow::anyhow!("ok0: {took:?}"),
                Ok(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

/// What an app gets from the tool that every one of them has.
async fn called(app: &App, view: &UpstreamView) -> String {
    let tool = format!("{}__echo", view.name);
    let answer = match app.call(&tool, json!({"text": "swept"})).await {
        Ok(answer) => answer,
        Err(error) => return format!("{error:#}"),
    };
    match answer.outcome {
        // Some modes have other tools, or none.
        Err(error) if error.message.contains("unknown tool") => "it has no such tool".to_owned(),
        Err(error) => format!("error {}: {}", error.code, error.message),
        Ok(result) => {
            let result: Value = tree(&result);
            let text = result["content"][0]["text"].as_str().unwrap_or_default();
            let failed = if result["isError"] == true { "failed: " } else { "" };
            format!("{failed}{}", text.chars().take(400).collect::<String>())
        }
    }
}

/// The table of what a person reads: printed, and written where the caller wants it.
fn report(rows: &[Swept]) -> Result<()> {
    let mut table = "| server | mode | state | what a person reads | warnings | a call of `echo` |\n|---|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let reason = row.state.reason().map(|why| format!("{}: {why}", row.name));
        writeln!(
            table,
            "| {:?} | {} | {} | {} | {} | {} |",
            row.server,
            row.mode,
            row.state.word(),
            cell(&reason.unwrap_or_default()),
            cell(&row.warnings.join(" / ")),
            cell(&row.called),
        )?;
    }
    println!("{table}");
    if let Some(file) = std::env::var_os(TABLE) {
        std::fs::write(&file, &table).context("the table")?;
    }
    Ok(())
}
