//! Sessions that apps open and never close.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use serde_json::json;
use traygate_tests::{DEADLINE, FakeOptions, app::LegacyApp, fake::options::FakeEra};

use crate::host_with;

/// Kilobytes of memory that a process holds.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// Opens sessions as an app does that forgets each.
async fn abandon(count: usize, endpoint: &str, token: &str) -> Result<()> {
    // One client: making one for each would cost more than all sessions.
    let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build()?;
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "forgetful", "version": "1"},
        },
    })
    .to_string();
    let open = || async {
        let request = http
            .post(endpoint)
            .bearer_auth(token)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(initialize.clone());
        let answer = request.send().await?;
        ensure!(answer.headers().contains_key("mcp-session-id"), "{}", answer.status());
        answer.bytes().await.map(drop).context("its answer")
    };
    let mut opened = stream::iter((0..count).map(|_| open())).buffer_unordered(8);
    while let Some(opened) = opened.next().await {
        opened?;
    }
    Ok(())
}

#[tokio::test]
async fn ten_thousand_abandoned_sessions_cost_nothing_and_one_that_listens_stays() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let listens = LegacyApp::connect(&traygate.endpoint(), &token).await?;
    let mut ears = listens.listen().await?;
    let idle = LegacyApp::connect(&traygate.endpoint(), &token).await?;
    listens.request("tools/list", json!({})).await?.result()?;
    abandon(1_000, &traygate.endpoint(), &token).await?;
    let early = resident(traygate.pid())?;
    abandon(9_000, &traygate.endpoint(), &token).await?;
    let late = resident(traygate.pid())?;
    println!("{early} kB after 1,000 sessions, {late} kB after 10,000");
    // The allocator takes some thousands to settle. Kept, they would cost forty times as much.
    assert!(late < early + 24 * 1024, "{early} kB grew to {late} kB");
    let open = traygate.snapshot().await?.apps[0].connections;
    assert!(open <= 300, "{open} sessions are open");

    let gone = idle.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await?;
    assert_eq!(gone.status(), 404, "the longest idle one was the first to go");
    listens.request("tools/list", json!({})).await?.result().context("it listens all the time")?;
    traygate.cli(&["disable", "fake/tool/echo"]).await?.ok()?;
    ears.hear("notifications/tools/list_changed", DEADLINE).await?;
    Ok(())
}

#[tokio::test]
async fn a_session_with_a_call_under_way_is_not_the_one_that_makes_room() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let calls = LegacyApp::connect(&traygate.endpoint(), &token).await?;
    let slow = json!({"name": "fake__slow", "arguments": {"ms": 3_000}});
    let (_, call) = calls.begin("tools/call", &slow);
    fake.asked("tools/call").await?;
    abandon(300, &traygate.endpoint(), &token).await?;
    let answer = tokio::time::timeout(DEADLINE + Duration::from_secs(3), call).await???;
    answer.result()?;
    Ok(())
}
