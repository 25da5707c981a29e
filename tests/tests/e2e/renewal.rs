//! HTTP sessions that a server forgot, and what else a server behind a URL may answer.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use traygate_tests::{
    FakeOptions,
    fake::{
        control_dir::{Arm, Failure, LogEntry},
        options::{FakeEra, FakeTransport},
    },
    process,
};

use crate::{
    code_of,
    healing::{Case, described, unavailable},
    journal::story,
};

fn legacy() -> FakeOptions {
    FakeOptions::http(FakeEra::Legacy)
}

fn old() -> FakeOptions {
    FakeOptions::new(FakeTransport::Sse, FakeEra::Legacy)
}

fn error(code: i64, words: &str) -> String {
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": words}}).to_string()
}

/// The ways in which servers say that they don't know a session.
fn forgotten(options: &FakeOptions) -> Vec<Arm> {
    let status = |status, text: &str| Arm::status(status, "tools/call").text(text);
    if options.transport == FakeTransport::Sse {
        return vec![
            status(404, "Could not find session ID"),
            status(400, "Could not find session ID"),
            status(200, &error(-32_001, "Session not found")),
        ];
    }
    let coded =
        [-32_600, -32_001, -32_015].map(|code| status(400, &error(code, "Session not found")));
    let mut all = vec![
        Arm::new(Failure::DropSession, "tools/call"),
        status(404, &error(-32_001, "Session not found")),
        status(503, "session expired"),
        Arm::new(Failure::Error, "tools/call").code(-32_001).text("Session not found"),
    ];
    all.extend(coded);
    all
}

#[tokio::test]
async fn a_call_that_met_a_forgotten_session_is_made_on_a_new_one_in_which_all_is_restored()
-> Result<()> {
    for options in [legacy(), old()] {
        let case = Case::new(options.clone()).await?;
        case.app.request("logging/setLevel", json!({"level": "info"})).await?.result()?;
        case.fake.asked("logging/setLevel").await?;
        for (round, arm) in forgotten(&options).into_iter().enumerate() {
            let what = format!("{}: {arm:?}", described(&options));
            let (links, levels) = (case.links()?, case.fake.count("logging/setLevel")?);
            case.fake.arm_with(&arm)?;
            case.app.call_text("fake__counter", json!({})).await.with_context(|| what.clone())?;
            assert_eq!(case.fake.ran("counter")?, round + 1, "{what}: once");
            assert_eq!(case.links()?, links + 1, "{what}: a new session");
            process::until(&format!("{what}: the log level is restored"), || {
                case.fake.count("logging/setLevel").is_ok_and(|now| now == levels + 1)
            })
            .await?;
        }
        case.fake.assert_no_violations()?;
        let story = story(&case.traygate, &["fake"], &["a new one was opened"]).await?;
        ensure!(!story.contains("lost"), "nothing was lost: {story}");
    }
    Ok(())
}

#[tokio::test]
async fn a_call_under_way_is_neither_cut_nor_run_again_when_another_request_is_told_so()
-> Result<()> {
    for options in [legacy(), old()] {
        let case = Case::new(options).await?;
        let what = described(&case.fake.options);
        let links = case.links()?;
        let slow = case.app.call("fake__slow", json!({"ms": 1500}));
        let read = async {
            case.fake.asked("tools/call").await?;
            let words = "Could not find session ID";
            case.fake.arm_with(&Arm::status(404, "resources/read").text(words))?;
            case.read().await?.result()
        };
        let (slow, read) = tokio::join!(slow, read);
        read.with_context(|| format!("{what}: it was asked once more"))?;
        slow?.result().with_context(|| format!("{what}: its answer came all the same"))?;
        assert_eq!((case.fake.ran("slow")?, case.links()?), (1, links + 1), "{what}");
        assert_eq!(case.fake.count("tools/call")?, 1, "{what}: it was sent once");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_never_knows_its_session_is_asked_twice_and_then_unavailable() -> Result<()> {
    let case = Case::new(legacy()).await?;
    let links = case.links()?;
    case.fake.arm_with(&Arm::new(Failure::DropSession, "tools/call").for_ever())?;
    unavailable(case.app.call("fake__counter", json!({})).await?)?;
    assert_eq!(case.fake.count("tools/call")?, 2);
    assert!(case.links()? <= links + 2);
    case.fake.disarm()?;
    case.app.call_text("fake__counter", json!({})).await.context("the next request revives it")?;
    Ok(())
}

/// Some servers give a session few requests.
#[tokio::test]
async fn the_lists_of_a_new_session_are_read_after_the_call_that_brought_it_about() -> Result<()> {
    const ANSWERS_AFTER: u64 = 200;
    let case = Case::new(legacy()).await?;
    case.fake.arm_with(&Arm::new(Failure::DropSession, "tools/call"))?;
    case.fake.arm_with(&Arm::new(Failure::Slow, "tools/call").ms(ANSWERS_AFTER))?;
    case.app.call_text("fake__counter", json!({})).await?;
    let asked = || -> Result<(u64, u64)> {
        let log = case.fake.log()?;
        let is = |method: &'static str| {
            move |entry: &LogEntry| entry.method.as_deref().is_some_and(|m| m.ends_with(method))
        };
        let opened = log.iter().rposition(is("initialize")).context("a new session")?;
        let new = &log[opened..];
        let at = |method| new.iter().find(|entry| is(method)(entry)).map(|entry| entry.at);
        Ok((at("tools/call").context("the call")?, at("/list").context("a list")?))
    };
    process::until("the lists are read again", || asked().is_ok()).await?;
    let (called, listed) = asked()?;
    ensure!(listed >= called + ANSWERS_AFTER, "called at {called}, listed at {listed}");
    Ok(())
}

#[tokio::test]
async fn an_old_session_has_ended_before_a_new_one_is_asked_for() -> Result<()> {
    let case = Case::new(legacy()).await?;
    case.fake.arm_with(&Arm::status(500, "resources/read"))?;
    case.read().await?.result()?;
    let log = case.fake.log()?;
    let ended = log.iter().position(|entry| entry.event == "delete").context("it is ended")?;
    let opened = log
        .iter()
        .rposition(|entry| entry.method.as_deref() == Some("initialize"))
        .context("a new one is opened")?;
    assert!(ended < opened, "a server that takes one session at a time accepts the new one");
    Ok(())
}

#[tokio::test]
async fn a_modern_404_that_names_the_method_is_an_answer() -> Result<()> {
    let case = Case::new(FakeOptions::http(FakeEra::Modern)).await?;
    let links = case.links()?;
    let body = error(-32_601, "Method not found");
    case.fake.arm_with(&Arm::status(404, "completion/complete").text(&body))?;
    let refused = case.harmless("completion/complete").await?.error()?;
    assert_eq!((refused.code, case.links()?), (-32_601, links));
    Ok(())
}

#[tokio::test]
async fn any_other_status_costs_the_link_and_is_told_in_words() -> Result<()> {
    let page = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
    for options in [legacy(), FakeOptions::http(FakeEra::Modern), old()] {
        let case = Case::new(options.clone()).await?;
        for (status, text) in [(500, "oops"), (502, page), (400, "what?"), (405, "")] {
            let what = format!("{}: {status}", described(&options));
            let links = case.links()?;
            case.fake.arm_with(&Arm::status(status, "resources/read").text(text))?;
            case.read().await?.result().with_context(|| what.clone())?;
            assert_eq!(case.links()?, links + 1, "{what}: a fresh link");
            case.fake.arm_with(&Arm::status(status, "tools/call").text(text))?;
            let answer = case.app.call("fake__counter", json!({})).await?;
            let words = format!("{:?}", answer.clone());
            assert_eq!(code_of(answer)["code"], "OUTCOME_UNKNOWN", "{what}");
            ensure!(words.contains(&status.to_string()), "{what}: {words}");
            ensure!(!words.contains("<html"), "{what}: no markup: {words}");
            process::until("it is connected anew with nobody's help", || {
                case.links().is_ok_and(|now| now == links + 2)
            })
            .await?;
        }
        assert_eq!(case.fake.ran("counter")?, 0, "and nothing was made twice");
    }
    Ok(())
}

#[tokio::test]
async fn a_failing_upstream_is_a_503_of_the_control_api_and_an_error_of_the_command_line()
-> Result<()> {
    let mut case = Case::new(FakeOptions::http(FakeEra::Modern)).await?;
    case.fake.arm(Failure::Cut, "tools/list")?;
    case.traygate.cli(&["refresh", "fake"]).await?.ok().context("it heals like an app's list")?;
    case.fake.kill()?;
    let route = "/upstreams/fake/refresh";
    let (status, text) = case.traygate.control_raw(reqwest::Method::POST, route, None).await?;
    assert_eq!(status, 503, "{text}");
    ensure!(text.contains("UPSTREAM_UNAVAILABLE") && text.contains("fake"), "{text}");
    let refresh = case.traygate.cli(&["refresh", "fake"]).await?;
    ensure!(refresh.code != Some(0) && refresh.stderr.contains("fake"), "{refresh:?}");
    let known = case.traygate.capabilities("fake").await?;
    ensure!(!format!("{known:?}").is_empty(), "its known names stay");
    let shown = case.traygate.cli(&["show", "fake"]).await?.ok()?;
    ensure!(shown.contains("echo"), "an outage isn't an empty list: {shown}");
    case.fake.revive().await?;
    case.traygate.cli(&["refresh", "fake"]).await?.ok().context("by hand it is revived at once")?;
    Ok(())
}
