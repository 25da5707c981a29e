//! The fake upstream itself, seen by the raw apps without anything between: what the other tests
//! rely on.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{
    App, AppEra, DEADLINE, Fake, FakeOptions,
    app::{LegacyApp, LegacyOptions, ModernApp, StdioApp},
    fake::{
        content::{RICH, TOOLS},
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
    json::{assert_carries, tree},
    process, sdk,
};

async fn behind_url(flags: &str) -> Result<Fake> {
    Fake::start("fake", FakeOptions::http(FakeEra::Dual).with(flags)).await
}

fn on_stdio(fake: &Fake) -> Result<StdioApp> {
    let mut command = std::process::Command::new(Fake::program());
    command.args(fake.args());
    StdioApp::start(command)
}

#[tokio::test]
async fn both_eras_see_the_same_fake_behind_one_url() -> Result<()> {
    for flags in ["--answers json --page-size 3", "--answers sse --page-size 5 --cursors empty"] {
        let fake = behind_url(flags).await?;
        for era in AppEra::ALL {
            let app = App::connect(era, fake.url(), "").await?;
            assert_eq!(app.tools().await?, TOOLS, "{era:?}, {flags}");
            for kind in CapabilityType::ALL {
                assert!(!app.keys(kind).await?.is_empty(), "{kind}s in {era:?}");
            }
            let rich = app.call("rich", json!({})).await?.result()?;
            assert_carries(rich.get(), RICH);
            let error = app.call("rpc-error", json!({})).await?.error()?;
            assert_eq!(error.code, 4242);
            let error = app.call("nothing", json!({})).await?.error()?;
            assert_eq!(error.code, -32602, "an unknown tool");
        }
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_legacy_app_is_asked_during_its_call_and_hears_of_changes() -> Result<()> {
    let fake = behind_url("").await?;
    let options = LegacyOptions {
        capabilities: json!({"elicitation": {}}),
        answer: Arc::new(|method, _| match method {
            "elicitation/create" => Ok(json!({"action": "accept", "content": {"name": "ada"}})),
            _ => Err(-32601),
        }),
        ..LegacyOptions::default()
    };
    let app = LegacyApp::connect_with(fake.url(), "", options).await?;
    let asked = app.request("tools/call", json!({"name": "ask"})).await?.result()?;
    assert_eq!(tree(&asked)["structuredContent"]["answer"]["content"]["name"], "ada");
    let mut ears = app.listen().await?;
    assert_eq!(fake.announce("tools").await?, 1);
    ears.hear("notifications/tools/list_changed", DEADLINE).await?;
    assert_eq!(app.close().await?, 200);
    assert_eq!(app.post("{}").await?.status(), 404, "the session has ended");
    fake.assert_no_violations()
}

#[tokio::test]
async fn a_modern_app_is_asked_by_the_end_of_its_call_and_hears_of_changes() -> Result<()> {
    let fake = behind_url("").await?;
    let app = ModernApp::new(fake.url(), "")?;
    let refused = app.request("tools/call", json!({"name": "ask"})).await?;
    assert_eq!((refused.status, refused.error()?.code), (400, -32021));
    let app = app.able(json!({"elicitation": {}}));
    let asked = tree(&app.request("tools/call", json!({"name": "ask"})).await?.result()?);
    assert_eq!(asked["resultType"], "input_required");
    let retry = json!({
        "name": "ask",
        "requestState": asked["requestState"],
        "inputResponses": {"answer": {"action": "accept", "content": {"name": "ada"}}},
    });
    let answered = tree(&app.request("tools/call", retry).await?.result()?);
    assert_eq!(answered["structuredContent"]["answer"]["content"]["name"], "ada");
    let mut listening = app.listen(json!({"toolsListChanged": true})).await?;
    fake.announce("prompts").await?;
    fake.announce("tools").await?;
    listening.ears.hear("notifications/tools/list_changed", DEADLINE).await?;
    assert!(listening.ears.heard().is_empty(), "prompts were not asked for");
    listening.ears.close();
    process::until("the listener is forgotten", || fake.events("cancelled").is_ok_and(|n| n == 1))
        .await?;
    fake.assert_no_violations()
}

#[tokio::test]
async fn what_a_client_does_wrong_stands_in_the_log() -> Result<()> {
    let fake = behind_url("").await?;
    let app = ModernApp::new(fake.url(), "")?;
    let text = app.message("tools/call", json!({"name": "echo"})).1;
    let headers = ModernApp::headers("tools/call", &json!({"name": "another"}));
    assert_eq!(app.post(&text, &headers).await?.status(), 400);
    assert_eq!(app.post("[]", &[]).await?.status(), 400);
    assert_eq!(fake.events("violation")?, 2);
    Ok(())
}

#[tokio::test]
async fn armed_failures_come_once_and_outlive_the_process() -> Result<()> {
    let mut fake = behind_url("").await?;
    let app = ModernApp::new(fake.url(), "")?;
    fake.arm(Failure::DieBeforeAnswer, "tools/call")?;
    fake.arm_with(&Arm::new(Failure::Error, "tools/call").code(77))?;
    let call = || app.request("tools/call", json!({"name": "counter", "arguments": {}}));
    assert!(call().await.is_err(), "the connection breaks");
    process::until("it is dead", || fake.alive().is_ok_and(|alive| alive.is_empty())).await?;
    fake.kill()?;
    fake.revive().await?;
    assert_eq!(call().await?.error()?.code, 77);
    call().await?.result()?;
    assert_eq!(fake.ran("counter")?, 2, "once before it died, once now");
    Ok(())
}

#[tokio::test]
async fn a_cancelled_call_is_seen_to_be_cancelled() -> Result<()> {
    let fake = behind_url("").await?;
    let slow = json!({"name": "slow", "arguments": {"ms": 60_000}});
    let legacy = LegacyApp::connect(fake.url(), "").await?;
    let (id, call) = legacy.begin("tools/call", &slow);
    fake.asked("tools/call").await?;
    legacy.cancel(id).await?;
    process::until("a cancellation", || fake.cancelled().is_ok_and(|n| n == 1)).await?;
    call.abort();
    let modern = ModernApp::new(fake.url(), "")?;
    let call = modern.begin("tools/call", slow);
    process::until("a second call", || fake.count("tools/call").is_ok_and(|n| n == 2)).await?;
    call.abort();
    process::until("another", || fake.cancelled().is_ok_and(|n| n == 2)).await?;
    fake.assert_no_violations()
}

#[tokio::test]
async fn stdio_speaks_both_eras_in_one_process() -> Result<()> {
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Dual)).await?;
    let mut app = on_stdio(&fake)?;
    let discovered = app.modern("server/discover", json!({})).await?.result()?;
    assert_eq!(tree(&discovered)["supportedVersions"], json!(["2026-07-28"]));
    let opened = app.initialize().await?;
    assert_eq!(opened["protocolVersion"], "2025-11-25");
    let echoed = app.request("tools/call", json!({"name": "echo", "arguments": {"a": 1}})).await?;
    assert_eq!(tree(&echoed.result()?)["structuredContent"]["arguments"], json!({"a": 1}));
    let modern = app.modern("tools/call", json!({"name": "add", "arguments": {"a": 1, "b": 2}}));
    assert_eq!(tree(&modern.await?.result()?)["structuredContent"]["sum"], 3.0);
    fake.announce_to_listeners("tools").await?;
    app.ears.hear("notifications/tools/list_changed", DEADLINE).await?;
    assert_eq!(fake.alive()?.len(), 1);
    assert_eq!(app.quit().await?, Some(0));
    fake.assert_no_violations()
}

#[tokio::test]
async fn a_real_server_answers_the_raw_app_on_stdio() -> Result<()> {
    let mut command = std::process::Command::new("node");
    command.arg(sdk::node_server("server-everything")).arg("stdio");
    let mut app = StdioApp::start(command)?;
    app.initialize().await?;
    let tools = tree(&app.request("tools/list", json!({})).await?.result()?);
    let names: Vec<_> =
        tools["tools"].as_array().context("tools")?.iter().map(|t| &t["name"]).collect();
    assert!(names.contains(&&json!("echo")), "{names:?}");
    app.quit().await?;
    let mut command = std::process::Command::new(sdk::python());
    command.arg(sdk::python_server());
    let mut app = StdioApp::start(command)?;
    app.initialize().await?;
    let call = json!({"name": "multiply", "arguments": {"a": 6, "b": 7}});
    let product = tree(&app.request("tools/call", call).await?.result()?);
    assert_eq!(product["content"][0]["text"], "42");
    app.quit().await?;
    Ok(())
}

#[tokio::test]
async fn the_official_clients_find_nothing_wrong_with_the_fake() -> Result<()> {
    let fake = behind_url("--page-size 7").await?;
    let plan = json!({
        "call": [{"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "ask"}, {"name": "rpc-error"}],
        "get": [{"name": "greet", "arguments": {"name": "ada"}}],
        "read": ["fake://fake/text"],
    });
    for client in sdk::Sdk::ALL {
        let report = client.run(fake.url(), "", &plan).await?;
        assert_eq!(report["tools"], json!(TOOLS), "{client:?}");
        let version = if client.is_modern() { "2026-07-28" } else { "2025-11-25" };
        assert_eq!(report["version"], version, "{client:?}");
        let answer: &Value = &report["called"][1]["structuredContent"]["answer"];
        assert_eq!(answer["content"]["name"], "ada", "{client:?}");
        assert_eq!(report["called"][2]["error"]["code"], 4242, "{client:?}");
    }
    fake.assert_no_violations()
}

#[tokio::test]
async fn the_old_transport_answers_on_its_stream() -> Result<()> {
    use traygate_tests::app::{Body, body};
    let options =
        FakeOptions::new(traygate_tests::fake::options::FakeTransport::Sse, FakeEra::Legacy);
    let fake = Fake::start("fake", options).await?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let stream = http.get(fake.url()).header("accept", "text/event-stream").send().await?;
    let mut stream: Body = body(stream).await?;
    let endpoint = stream.soon().await?.context("the endpoint")?;
    let url = fake.url().replace("/sse", &endpoint);
    let params = json!({
        "protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    });
    let text = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let posted =
        http.post(url).body(text.to_string()).timeout(Duration::from_secs(10)).send().await?;
    assert_eq!(posted.status(), 202);
    let answer: Value = serde_json::from_str(&stream.soon().await?.context("an answer")?)?;
    assert_eq!(answer["result"]["protocolVersion"], "2024-11-05");
    Ok(())
}

#[tokio::test]
async fn the_processes_of_a_test_are_found_by_their_mark() -> Result<()> {
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mark = uuid::Uuid::new_v4().to_string();
    let mut command = std::process::Command::new(Fake::program());
    command.args(fake.args()).env(process::MARK, &mark);
    let mut app = StdioApp::start(command)?;
    app.initialize().await?;
    app.request("tools/call", json!({"name": "spawn"})).await?.result()?;
    process::until("both run", || process::marked(&mark).len() == 2).await?;
    app.quit().await?;
    let left = process::marked(&mark);
    let [(grandchild, command)] = left.as_slice() else { panic!("{left:?}") };
    assert!(command.contains("sleep"), "the grandchild outlives its parent: {command}");
    process::signal(*grandchild, "KILL")?;
    process::until("none is left", || process::marked(&mark).is_empty()).await
}
