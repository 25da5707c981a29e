//! What lists cost: warm, cold with many askers at once, and in memory.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use traygate_tests::{App, AppEra, Fake, FakeOptions, Traygate, fake::options::FakeEra};

use super::resident;

const UPSTREAMS: usize = 10;
const ASKERS: usize = 50;
/// Of one tool, as JSON.
const TOOL: usize = 1024;
/// Enough of them that the rest of the process doesn't count.
const KEPT: usize = 20_000;

pub async fn measure(rounds: usize, requests: usize) -> Result<()> {
    let mut host = Traygate::start().await?;
    let mut fakes = Vec::new();
    for at in 0..UPSTREAMS {
        // Twenty of its own and 80 more.
        let options = FakeOptions::stdio(FakeEra::Modern).with("--tools 80 --ttl 3600000");
        fakes.push(host.add_fake(&format!("u{at}"), options).await?);
    }
    for fake in &fakes {
        host.state(&fake.name, "ready").await?;
    }
    let token = host.token("askers").await?;
    let endpoint = host.endpoint();
    let askers = (0..ASKERS).map(|_| App::connect(AppEra::Modern, &endpoint, &token));
    let askers = try_join_all(askers).await?;
    let begun = Instant::now();
    try_join_all(askers.iter().map(App::tools)).await?;
    let cold = begun.elapsed();
    let reads = fakes.iter().map(|fake| fake.count("tools/list")).collect::<Result<Vec<_>>>()?;
    println!("{ASKERS} cold lists at once: {:.0} ms, reads per upstream: {reads:?}", millis(cold));

    let warm = warm(&askers[0], rounds * requests).await?;
    let after: usize = fakes.iter().map(|fake| fake.count("tools/list")).sum::<Result<usize>>()?;
    println!(
        "warm list of 1,000 tools from {UPSTREAMS} upstreams: {:.2} ms, and {} reads",
        millis(warm),
        after - reads.iter().sum::<usize>()
    );
    host.stop().await?;
    memory().await
}

/// The median of one list after the other, seen by an app.
async fn warm(app: &App, times: usize) -> Result<Duration> {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        app.request("tools/list", json!({})).await?.result()?;
        took.push(begun.elapsed());
    }
    took.sort();
    Ok(took[times / 2])
}

/// What the process grows by for each tool that it keeps.
async fn memory() -> Result<()> {
    let mut host = Traygate::start().await?;
    let options = FakeOptions::stdio(FakeEra::Modern).with("--ttl 3600000 --page-size 500");
    let fake = host.add_fake("big", options).await?;
    host.cli(&["config", "list_budget", "60"]).await?.ok()?;
    let few: Vec<_> = (0..500).map(tool).collect();
    let before = keeps(&host, &fake, &few).await?;
    let many: Vec<_> = (0..KEPT + few.len()).map(tool).collect();
    let after = keeps(&host, &fake, &many).await?;
    let each = (after - before) * 1024.0 / KEPT as f64;
    println!("memory per kept tool of {TOOL} bytes of JSON: {each:.2} KiB");
    host.stop().await
}

/// The memory that the host takes, in MiB, once it keeps these.
async fn keeps(host: &Traygate, fake: &Fake, tools: &[Value]) -> Result<f64> {
    fake.set_list("tools", tools)?;
    host.cli(&["refresh", "big"]).await?.ok()?;
    let view = host.upstream("big").await?;
    ensure!(view.catalogues.iter().any(|it| it.total == tools.len()), "{:?}", view.catalogues);
    resident(host.pid())
}

fn tool(number: usize) -> Value {
    let mut tool = json!({
        "name": format!("tool-{number:06}"), "description": "",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    });
    let missing = TOOL - tool.to_string().len();
    tool["description"] = "d".repeat(missing).into();
    tool
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
