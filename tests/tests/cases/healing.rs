//! Servers that die, forget their session, want a sign-in, or answer with anything but MCP.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use traygate_tests::{AppEra, json::tree};

use crate::support::Case;

#[tokio::test]
async fn rw_14_a_server_that_dies_is_started_again_and_a_second_death_is_told() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    let state = |name: &str| case.directory.path().join(format!("{name}.state"));
    let d = state("d").display().to_string();
    let f = state("f").display().to_string();
    case.add_with("d", "die-after-list", &["--state", &d]).await?;
    case.add_with("f", "flaky:3", &["--state", &f]).await?;
    let app = case.app(AppEra::Modern).await?;
    app.tools().await?;
    app.call_text("d__echo", json!({"text": "x"})).await.context("d answers")?;
    let starts = case.count("d", "start", None)?;
    ensure!((2..=3).contains(&starts), "d was started {starts} times");
    let mut works = false;
    for attempt in 0..8 {
        let before = case.count("f", "start", None)?;
        let begun = Instant::now();
        let answer = tree(&app.call("f__echo", json!({"text": "x"})).await?.result()?);
        if answer["isError"] != true {
            works = true;
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(5), "attempt {attempt}");
        ensure!(case.count("f", "start", None)? <= before + 2, "attempt {attempt}");
    }
    ensure!(works, "it works in the end");
    case.end(&["d"]).await
}

#[tokio::test]
async fn rw_50_forgotten_sessions_are_renewed_whatever_the_server_says() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    for (name, mode) in [
        ("a", "session-expire:6"),
        ("b", "session-expire-400:6"),
        ("c", "session-expire-200:6"),
        ("d", "session-idle:1"),
    ] {
        case.add_http(name, mode).await?;
    }
    let app = case.app(AppEra::Legacy).await?;
    for name in ["a", "b", "c"] {
        for n in 0..30 {
            let text = format!("{name}{n}");
            app.call_text(&format!("{name}__echo"), json!({"text": text})).await?;
        }
    }
    for _ in 0..3 {
        app.call_text("d__echo", json!({"text": "x"})).await?;
        // The case's server forgets a session that was idle for so long.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    app.call_text("d__echo", json!({"text": "x"})).await?;
    case.end(&["a", "b", "c", "d"]).await
}

#[tokio::test]
async fn rw_52_a_sign_in_is_asked_for_in_words_and_without_a_frenzy() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    for (name, mode) in [
        ("o", "401-oauth"),
        ("b", "401-bare"),
        ("n", "401-always"),
        ("z", "403-always"),
        ("f", "403-scope"),
    ] {
        case.add_http(name, mode).await?;
    }
    let log = case.log("s").display().to_string();
    let url = case.http("401-static:abcdef", &["--log", &log]).await?;
    let header = "Authorization: Bearer abcdef";
    let add = ["add", "s", "--no-test", "--url", &url, "--header", header];
    case.traygate.cli(&add).await?.ok()?;
    for name in ["o", "b", "n"] {
        let view = case.traygate.state(name, "needs sign-in").await?;
        let why = view.state.reason().unwrap_or_default();
        ensure!(why.contains("401"), "{name}: {why}");
    }
    let view = case.traygate.state("z", "unavailable").await?;
    ensure!(view.state.reason().is_some_and(|why| why.contains("403")), "{:?}", view.state);
    case.traygate.state("s", "ready").await?;
    let app = case.app(AppEra::Modern).await?;
    app.call_text("s__echo", json!({"text": "x"})).await.context("the header is sent")?;
    let refused = tree(&app.call("f__counter", json!({})).await?.result()?);
    ensure!(
        refused["_meta"]["traygate/error"]["code"] == "UPSTREAM_NEEDS_SIGN_IN",
        "insufficient scope: {refused}"
    );
    for _ in 0..10 {
        app.tools().await?;
    }
    let asked = case.count("n", "recv", None)?;
    ensure!(asked <= 20, "one that wants a sign-in is left alone: {asked}");
    case.end(&["s"]).await
}

#[tokio::test]
async fn rw_54_what_is_no_answer_is_told_in_words_and_not_repeated() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    for (name, mode) in [
        ("one", "500-once"),
        ("two", "500-always"),
        ("html", "502-html"),
        ("three", "503-retry:2"),
        ("four", "429:1"),
        ("page", "html-200"),
        ("cut", "bad-json"),
        ("empty", "empty-200"),
        ("five", "500-calls"),
        ("six", "500-relist"),
    ] {
        case.add_http(name, mode).await?;
    }
    let app = case.app(AppEra::Modern).await?;
    for works in ["one", "three", "four"] {
        let deadline = Instant::now() + Duration::from_secs(40);
        while app.call_text(&format!("{works}__echo"), json!({"text": "x"})).await.is_err() {
            ensure!(Instant::now() < deadline, "{works} doesn't work in the end");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    for down in ["two", "html", "page", "cut", "empty"] {
        let view = case.traygate.state(down, "unavailable").await?;
        let why = view.state.reason().unwrap_or_default();
        ensure!(!why.is_empty() && !why.contains('<'), "{down}: {why}");
    }
    for _ in 0..5 {
        let failed = tree(&app.call("five__counter", json!({})).await?.result()?);
        ensure!(failed["isError"] == true && !failed.to_string().contains("<html"), "{failed}");
    }
    let calls = case.count("five", "recv", Some("tools/call"))?;
    ensure!(calls == 5, "none was replayed: {calls}");
    let before = app.tools().await?.iter().filter(|name| name.starts_with("six__")).count();
    ensure!(
        case.traygate.cli(&["refresh", "six"]).await?.code != Some(0),
        "it says that it failed"
    );
    let after = app.tools().await?.iter().filter(|name| name.starts_with("six__")).count();
    ensure!(before > 0 && before == after, "six keeps its tools: {before} and {after}");
    let asked = case.count("two", "recv", None)?;
    ensure!(asked <= 60, "it is tried, not hammered: {asked}");
    case.end(&["one", "three", "four"]).await
}

#[tokio::test]
async fn rw_56_the_optional_stream_never_costs_a_call_or_a_session() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    let names = ["g405", "hang", "drop", "g409", "once", "less"];
    let modes = ["get-405", "get-hang", "drop-get", "get-409", "get-once", "stateless"];
    for (name, mode) in names.into_iter().zip(modes) {
        case.add_http(name, mode).await?;
    }
    let app = case.app(AppEra::Modern).await?;
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        for name in names {
            let begun = Instant::now();
            app.call_text(&format!("{name}__echo"), json!({"text": "x"})).await.context(name)?;
            ensure!(begun.elapsed() < Duration::from_secs(2), "{name}: {:?}", begun.elapsed());
        }
        // The case calls each second.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for name in names {
        let sessions = case.count(name, "recv", Some("initialize"))?;
        ensure!(sessions == 1, "{name}: {sessions} sessions");
    }
    case.end(&["g405", "drop", "once", "less"]).await
}
