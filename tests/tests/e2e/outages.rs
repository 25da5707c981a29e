//! One broken upstream never costs another, and everybody is told which one it is.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;
use traygate_gateway::definition::{Definition, HttpFlavour, Transport, UpstreamSettings};
use traygate_tests::{
    App, AppEra, DEADLINE, FakeOptions, Traygate,
    fake::{
        content::TOOLS,
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
    json::tree,
    traygate::free_port,
};

use crate::{app, code_of, host_with};

/// A list may wait this long for who is slow (the default `list_budget`), and some for the machine.
const BUDGET: Duration = Duration::from_millis(6500);

fn defined(name: &str, transport: Transport) -> Result<Definition> {
    let settings = UpstreamSettings::default();
    Ok(Definition { name: name.to_owned().try_into()?, transport, enabled: true, settings })
}

fn program(command: &str, args: &[&str]) -> Transport {
    Transport::Stdio {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: std::collections::BTreeMap::default(),
        cwd: None,
    }
}

async fn add_broken(traygate: &Traygate) -> Result<()> {
    let url = format!("http://127.0.0.1:{}/mcp", free_port()?);
    let headers = std::collections::BTreeMap::default();
    let nobody = Transport::Http { url, headers, flavour: HttpFlavour::default() };
    traygate.add(&defined("refuses", nobody)?).await?;
    traygate.add(&defined("silent", program("sleep", &["600"]))?).await?;
    traygate
        .add(&defined("exits", program("sh", &["-c", "echo the last words >&2; exit 7"]))?)
        .await?;
    traygate.add(&defined("missing", program("no-such-command-anywhere", &[]))?).await
}

#[tokio::test]
async fn four_broken_upstreams_delay_a_list_by_no_more_than_its_budget() -> Result<()> {
    let traygate = Traygate::start().await?;
    add_broken(&traygate).await?;
    let _well = traygate.add_fake("well", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let begun = Instant::now();
    let result = tree(&app.request("tools/list", json!({})).await?.result()?);
    assert!(begun.elapsed() < BUDGET, "{:?}", begun.elapsed());
    assert_eq!(result["tools"].as_array().map(Vec::len), Some(TOOLS.len()), "the healthy part");
    let missing = result["_meta"]["traygate/unavailable"].to_string();
    for upstream in ["refuses", "silent", "exits", "missing"] {
        assert!(missing.contains(upstream), "{upstream} in {missing}");
    }
    assert!(!missing.contains("well"), "{missing}");
    let begun = Instant::now();
    app.tools().await?;
    assert!(begun.elapsed() < Duration::from_secs(2), "who is known to be down costs nothing");
    Ok(())
}

#[tokio::test]
async fn when_all_are_down_the_list_is_empty_and_says_so() -> Result<()> {
    let traygate = Traygate::start().await?;
    add_broken(&traygate).await?;
    let token = traygate.token("app").await?;
    for era in AppEra::ALL {
        let app = app(&traygate, era, &token).await?;
        let result = tree(&app.request("tools/list", json!({})).await?.result()?);
        assert_eq!(result["tools"], json!([]), "{era:?}");
        assert!(result["_meta"]["traygate/unavailable"].to_string().contains("exits"), "{result}");
    }
    let view = App::connect(AppEra::Modern, &traygate.view("exits"), &token).await?;
    let refused = view.request("tools/list", json!({})).await?;
    assert_eq!(code_of(refused)["code"], "UPSTREAM_UNAVAILABLE", "a view has nothing else to give");
    Ok(())
}

#[tokio::test]
async fn a_person_is_told_why_an_upstream_does_not_start() -> Result<()> {
    let traygate = Traygate::start().await?;
    add_broken(&traygate).await?;
    let token = traygate.token("app").await?;
    app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    let missing = traygate.state("missing", "misconfigured").await?;
    let reason = missing.state.reason().context("a reason")?;
    assert!(reason.contains("no-such-command-anywhere"), "which command: {reason}");
    assert!(reason.contains("/bin"), "which PATH was searched: {reason}");
    let exits = traygate.state("exits", "unavailable").await?;
    let reason = exits.state.reason().context("a reason")?;
    assert!(reason.contains("the last words"), "its last words: {reason}");
    let refuses = traygate.state("refuses", "unavailable").await?;
    let reason = refuses.state.reason().context("a reason")?;
    assert!(reason.contains("127.0.0.1"), "where it was looked for: {reason}");
    Ok(())
}

#[tokio::test]
async fn a_late_upstream_is_announced_when_it_comes() -> Result<()> {
    let slow = FakeOptions::stdio(FakeEra::Modern).with("--delay-start 7000");
    let (traygate, _fake, token) = host_with("late", slow).await?;
    for era in AppEra::ALL {
        let mut app = app(&traygate, era, &token).await?;
        let mut ears = app.listen().await?;
        if !app.tools().await?.is_empty() {
            // The first app's wait has brought it up.
            continue;
        }
        ears.hear("notifications/tools/list_changed", DEADLINE).await?;
        assert_eq!(app.tools().await?.len(), TOOLS.len());
    }
    Ok(())
}

#[tokio::test]
async fn a_call_to_a_dead_upstream_is_a_result_that_a_model_can_read() -> Result<()> {
    let (traygate, mut fake, token) = host_with("fake", FakeOptions::http(FakeEra::Modern)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("fake__echo", json!({})).await?;
    fake.kill()?;
    let answer = app.call("fake__echo", json!({})).await?;
    let result = tree(&answer.clone().result()?);
    assert_eq!(result["isError"], true, "{result}");
    assert!(result["content"][0]["text"].to_string().contains("fake"), "{result}");
    assert!(result.get("structuredContent").is_none(), "no output schema is violated");
    let error = code_of(answer);
    assert_eq!(error["code"], "UPSTREAM_UNAVAILABLE", "{error}");
    assert_eq!((&error["upstream"], &error["retryable"]), (&json!("fake"), &json!(true)));
    let read = app.request("resources/read", json!({"uri": "fake://fake/text"})).await?;
    let error = read.clone().error()?;
    assert!(!(-32099..=-32000).contains(&error.code), "outside the reserved range: {}", error.code);
    assert_eq!(code_of(read)["code"], "UPSTREAM_UNAVAILABLE");
    fake.revive().await?;
    app.call_text("fake__echo", json!({})).await?;
    Ok(())
}

#[tokio::test]
async fn a_hanging_list_of_one_leaves_the_others_list_whole() -> Result<()> {
    let (traygate, hangs, token) = host_with("hangs", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let _well = traygate.add_fake("well", FakeOptions::stdio(FakeEra::Legacy)).await?;
    hangs.arm_with(&Arm::new(Failure::Hang, "tools/list").for_ever())?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let begun = Instant::now();
    let tools = app.tools().await?;
    assert!(begun.elapsed() < BUDGET, "{:?}", begun.elapsed());
    assert!(tools.iter().all(|tool| tool.starts_with("well__")), "{tools:?}");
    assert_eq!(tools.len(), TOOLS.len());
    Ok(())
}

#[tokio::test]
async fn one_link_that_dies_in_a_call_leaves_the_others_calls_alone() -> Result<()> {
    let (traygate, dies, token) = host_with("dies", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let well = traygate.add_fake("well", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = traygate_tests::app::LegacyApp::connect(&traygate.endpoint(), &token).await?;
    let slow = json!({"name": "well__slow", "arguments": {"ms": 2000}});
    let (_, call) = app.begin("tools/call", &slow);
    well.asked("tools/call").await?;
    dies.arm(Failure::DieBeforeAnswer, "tools/call")?;
    let params = json!({"name": "dies__counter", "arguments": {}});
    let answer = app.request("tools/call", params).await?;
    let code = code_of(answer);
    assert_eq!(code["code"], "OUTCOME_UNKNOWN", "it may have run: {code}");
    assert_eq!(dies.ran("counter")?, 1, "and it is not run twice");
    call.await??.result()?;
    Ok(())
}

#[tokio::test]
async fn an_upstream_that_wants_a_sign_in_is_not_the_endpoints_401() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::http(FakeEra::Modern)).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    app.tools().await?;
    fake.arm_with(&Arm::new(Failure::HttpStatus, "tools/call").code(401))?;
    let answer = app.call("fake__counter", json!({})).await?;
    assert_eq!(answer.status, 200);
    assert_eq!(code_of(answer)["code"], "UPSTREAM_NEEDS_SIGN_IN");
    Ok(())
}

#[tokio::test]
async fn a_silent_call_times_out_and_its_upstream_is_told() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(era)).await?;
        let app = app(&traygate, AppEra::Legacy, &token).await?;
        app.tools().await?;
        traygate.set("fake", "call_idle_timeout", "1").await?;
        fake.arm(Failure::Hang, "tools/call")?;
        let answer = app.call("fake__echo", json!({})).await?;
        assert_eq!(code_of(answer)["code"], "UPSTREAM_TIMEOUT", "{era:?}");
        traygate_tests::process::until("a cancellation", || fake.cancelled().is_ok_and(|n| n == 1))
            .await?;
        let params = json!({"n": 5, "ms": 500});
        app.call_text("fake__echo", json!({})).await.context("the link stays")?;
        assert_eq!(fake.events("start")?, fake.alive()?.len(), "in the same process");
        let progress = json!({
            "name": "fake__progress", "arguments": params, "_meta": {"progressToken": 1},
        });
        app.request("tools/call", progress).await?.result().context("progress begins it anew")?;
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_met_a_forgotten_session_is_asked_once_more() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::http(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("fake__counter", json!({})).await?;
    fake.arm(Failure::DropSession, "tools/call")?;
    app.call_text("fake__counter", json!({})).await.context("it certainly did not run")?;
    assert_eq!(fake.ran("counter")?, 2);
    fake.assert_no_violations()
}
