//! How programs start, what they are given, and that none is left behind.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use traygate_tests::{AppEra, app::LegacyApp, fake::control_dir::is_running, json::tree, process};

use crate::support::Case;

#[tokio::test]
async fn rw_11_a_server_that_exits_at_once_is_told_with_its_words_and_not_in_a_frenzy() -> Result<()>
{
    let Some(case) = Case::start().await? else { return Ok(()) };
    let modes = [("a", "exit-with-stderr:7"), ("b", "exit-silent"), ("c", "exit-after-init")];
    for (name, mode) in modes {
        case.add(name, mode).await?;
    }
    let begun = Instant::now();
    let told = case.traygate.state("a", "unavailable").await?;
    let why = told.state.reason().context("a reason")?;
    ensure!(why.contains("environment variable BAD_API_KEY is not set"), "{why}");
    ensure!(why.contains("code 7"), "{why}");
    let silent = case.traygate.state("b", "unavailable").await?;
    let why = silent.state.reason().context("a reason")?;
    ensure!(why.contains("code 0"), "{why}");
    // The case counts over two minutes.
    tokio::time::sleep_until((begun + Duration::from_mins(2)).into()).await;
    for (name, _) in modes {
        let starts = case.count(name, "start", None)?;
        ensure!((2..=10).contains(&starts), "{name} was started {starts} times");
    }
    case.end(&["a", "b", "c"]).await
}

#[tokio::test]
async fn rw_12_a_slow_start_is_waited_for_and_a_silent_one_ends() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    // The case's limit of 2 s is below the default budget.
    case.traygate.cli(&["config", "list_budget", "0.9"]).await?.ok()?;
    case.add("slow", "slow-start:75").await?;
    case.add("dead", "never-init").await?;
    case.add("lazy", "slow-init:45").await?;
    case.traygate.restart().await?;
    let starts = case.count("slow", "start", None)?;
    let begun = Instant::now();
    let app = LegacyApp::connect(&case.traygate.endpoint(), &case.token).await?;
    let listed = tree(&app.request("tools/list", json!({})).await?.result()?);
    ensure!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    ensure!(listed["tools"].to_string().contains("ok0__echo"), "{listed}");
    let call = json!({"name": "ok0__echo", "arguments": {"text": "x"}});
    app.request("tools/call", call).await?.result()?;
    let mut ears = app.listen().await?;
    let said = async {
        loop {
            let view = case.traygate.upstream("slow").await?;
            ensure!(view.state.word() == "connecting", "{view:?}");
            if view.progress.as_deref().is_some_and(|said| said.contains("downloading")) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), said).await.context("what it says")??;
    let dead_pids = pids(&case, "dead")?;
    loop {
        let left = Duration::from_secs(90).checked_sub(begun.elapsed()).context("90 s are over")?;
        ears.hear("notifications/tools/list_changed", left).await?;
        let listed = tree(&app.request("tools/list", json!({})).await?.result()?);
        if listed["tools"].to_string().contains("slow__echo") {
            break;
        }
    }
    let call = json!({"name": "slow__echo", "arguments": {"text": "x"}});
    app.request("tools/call", call).await?.result()?;
    case.traygate.state("lazy", "ready").await?;
    ensure!(case.count("slow", "start", None)? == starts + 1, "it was started once");
    let dead = case.traygate.state("dead", "unavailable").await?;
    let why = dead.state.reason().context("a reason")?;
    ensure!(why.contains("did not answer initialize"), "{why}");
    // It is tried again, in a process of its own.
    process::until("its process is gone", || !dead_pids.iter().any(|pid| is_running(*pid))).await?;
    case.end(&[]).await
}

#[tokio::test]
async fn rw_18_old_servers_that_can_not_take_a_modern_first_message() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    let modes = [
        ("x", "exit-on-discover"),
        ("i", "ignore-discover"),
        ("e", "discover-error:-32602"),
        ("t", "strict-init"),
        ("m", "modern"),
        ("d", "dual"),
    ];
    for (name, mode) in modes {
        case.add(name, mode).await?;
    }
    let begun = Instant::now();
    for (name, _) in modes {
        case.traygate.state(name, "ready").await?;
    }
    ensure!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    let app = case.app(AppEra::Legacy).await?;
    for (name, _) in modes {
        app.call(&format!("{name}__echo"), json!({"text": "x"})).await?.result()?;
    }
    ensure!(case.count("x", "start", None)? <= 2);
    let probes = case.count("i", "recv", Some("server/discover"))?;

    case.traygate.restart().await?;
    let begun = Instant::now();
    let app = case.app(AppEra::Modern).await?;
    app.call("i__echo", json!({"text": "x"})).await?.result()?;
    ensure!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    for (name, _) in modes {
        case.traygate.state(name, "ready").await?;
        app.call(&format!("{name}__echo"), json!({"text": "x"})).await?.result()?;
    }
    ensure!(case.count("i", "recv", Some("server/discover"))? == probes, "the era is remembered");
    ensure!(case.count("x", "start", None)? <= 3, "and so it is for x");
    ensure!(case.count("m", "recv", Some("initialize"))? == 0, "m is modern");
    case.end(&["x", "i", "e", "t", "m", "d"]).await
}

/// Every process that a server was, by its log.
fn pids(case: &Case, name: &str) -> Result<Vec<u32>> {
    let text = fs::read_to_string(case.log(name)).unwrap_or_default();
    let entries = text.lines().map(serde_json::from_str::<Value>);
    let entries: Vec<Value> = entries.collect::<Result<_, _>>()?;
    let starts = entries.iter().filter(|entry| entry["ev"] == "start");
    Ok(starts.filter_map(|entry| entry["pid"].as_u64()).map(|pid| pid as u32).collect())
}

async fn all_gone(case: &Case, names: &[&str]) -> Result<()> {
    for name in names {
        let pids = pids(case, name)?;
        ensure!(!pids.is_empty(), "{name} was never started");
        let gone = || !pids.iter().any(|pid| is_running(*pid));
        let within = Duration::from_secs(10);
        let looked = async {
            while !gone() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let left = || format!("{name}: {pids:?} after 10 s");
        tokio::time::timeout(within, looked).await.with_context(left)?;
    }
    Ok(())
}

#[tokio::test]
async fn rw_21_no_orphan_after_a_quit_a_crash_or_a_switch() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    case.add("a", "ok").await?;
    case.add("w", "wrapper+ignore-eof").await?;
    let script = format!(
        "python3 {} --mode ignore-eof --log {}; true",
        case.server().display(),
        case.log("s").display()
    );
    case.traygate.cli(&["add", "s", "--no-test", "--", "sh", "-c", &script]).await?.ok()?;
    let names = ["a", "w", "s"];
    let call_all = async |case: &Case| -> Result<()> {
        let app = case.app(AppEra::Legacy).await?;
        for name in names {
            app.call(&format!("{name}__echo"), json!({"text": "x"})).await?.result()?;
        }
        Ok(())
    };
    call_all(&case).await?;
    case.traygate.stop().await?;
    all_gone(&case, &names).await.context("after a quit")?;

    case.traygate.serve().await?;
    call_all(&case).await?;
    case.traygate.kill()?;
    all_gone(&case, &names).await.context("after a crash")?;

    case.traygate.serve().await?;
    call_all(&case).await?;
    case.traygate.cli(&["disable", "w"]).await?.ok()?;
    all_gone(&case, &["w"]).await.context("after a switch")?;
    case.end(&["a"]).await
}

#[tokio::test]
async fn rw_23_one_process_whatever_the_number_of_apps_and_reloads() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    case.add("u", "ok").await?;
    let app = async |number: usize| -> Result<Vec<Value>> {
        let app = LegacyApp::connect(&case.traygate.endpoint(), &case.token).await?;
        let mut seen = Vec::new();
        for _ in 0..5 {
            let call = json!({"name": "u__argv", "arguments": {}});
            let result = tree(&app.request("tools/call", call).await?.result()?);
            seen.push(argv(&result)?["pid"].clone());
        }
        if number.is_multiple_of(2) {
            app.close().await?;
        }
        Ok(seen)
    };
    let seen: Vec<Value> = try_join_all((0..20).map(app)).await?.concat();
    ensure!(seen.len() == 100 && seen.iter().all(|pid| *pid == seen[0]), "{seen:?}");
    for _ in 0..20 {
        case.traygate.cli(&["disable", "u/tool/echo"]).await?.ok()?;
        case.traygate.cli(&["enable", "u/tool/echo"]).await?.ok()?;
    }
    ensure!(case.count("u", "start", None)? == 1);
    let first = pids(&case, "u")?[0];
    let mut transport = case.transport("u").await?;
    let traygate_gateway::definition::Transport::Stdio { args, .. } = &mut transport else {
        anyhow::bail!("u is a program");
    };
    args.push("edited".to_owned());
    let change = traygate_gateway::api::Change { transport: Some(transport), ..Default::default() };
    case.traygate.change("u", &change).await?;
    case.traygate.state("u", "ready").await?;
    ensure!(case.count("u", "start", None)? == 2);
    process::until("the first one is gone", || !is_running(first)).await?;
    case.end(&["u"]).await
}

/// What the tool `argv` tells.
fn argv(result: &Value) -> Result<Value> {
    if result["structuredContent"].is_object() {
        return Ok(result["structuredContent"].clone());
    }
    let text = result["content"][0]["text"].as_str().context("a text")?;
    serde_json::from_str(text).with_context(|| text.to_owned())
}

fn executable(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

#[tokio::test]
async fn rw_24_commands_and_their_interpreters_are_found_as_in_a_terminal() -> Result<()> {
    let Some(mut case) = Case::unstarted()? else { return Ok(()) };
    let home = case.directory.path().join("home");
    let bin = case.directory.path().join("bin");
    fs::create_dir_all(&home)?;
    fs::create_dir_all(&bin)?;
    let server = format!(
        "#!/bin/sh\nexec python3 {} --mode ok --log {}\n",
        case.server().display(),
        case.log("u").display()
    );
    executable(&bin.join("fakenode"), &server)?;
    executable(&bin.join("fakenpx"), "#!/usr/bin/env fakenode\n")?;
    fs::write(home.join(".profile"), format!("export PATH={}:$PATH\n", bin.display()))?;
    let home = home.display().to_string();
    case.serve_with(&[("HOME", &home), ("PATH", "/usr/bin:/bin")]).await?;
    case.traygate.cli(&["add", "u", "--no-test", "--", "fakenpx", "-y", "pkg"]).await?.ok()?;
    case.traygate.cli(&["add", "n", "--no-test", "--", "no-such-command-xyz"]).await?.ok()?;
    let app = case.app(AppEra::Legacy).await?;
    let seen = argv(&tree(&app.call("u__argv", json!({})).await?.result()?))?;
    ensure!(seen.to_string().contains(&bin.display().to_string()), "{seen}");
    let missing = case.traygate.state("n", "misconfigured").await?;
    let why = missing.state.reason().context("a reason")?;
    ensure!(why.contains("no-such-command-xyz"), "{why}");
    ensure!(why.contains(&format!("{}:", bin.display())) && why.contains("/usr/bin"), "{why}");
    case.end(&["u"]).await
}

#[tokio::test]
async fn rw_25_variables_and_quotes_arrive_as_people_mean_them() -> Result<()> {
    let Some(mut case) = Case::unstarted()? else { return Ok(()) };
    let home = case.directory.path().join("home");
    fs::create_dir_all(&home)?;
    let home = home.display().to_string();
    case.serve_with(&[("GW_T", "v 1"), ("HOME", &home)]).await?;
    let given = ["--", "${GW_T}", "~/x", "${NOPE:-d}", "a b", "$(id)", "*", ";"];
    case.add_definition("u", &case.server(), &given, &[("K1", "${GW_T}"), ("K2", "${env:GW_T}")])
        .await?;
    case.add_definition("missing", &case.server(), &["${GW_MISSING}"], &[]).await?;
    let spaced = case.directory.path().join("dir with space");
    fs::create_dir(&spaced)?;
    for file in ["badserver.py", "mcpcore.py"] {
        fs::copy(case.server().with_file_name(file), spaced.join(file))?;
    }
    case.add_definition("spaced", &spaced.join("badserver.py"), &[], &[]).await?;

    let app = case.app(AppEra::Legacy).await?;
    let seen = argv(&tree(&app.call("u__argv", json!({})).await?.result()?))?;
    let args = seen["argv"].as_array().context("argv")?;
    let inside = format!("{home}/x");
    let expected = ["v 1", inside.as_str(), "d", "a b", "$(id)", "*", ";"].map(Value::from);
    ensure!(args.ends_with(&expected), "{args:?}");
    for name in ["K1", "K2", "PATH", "HOME"] {
        let got = app.call("u__env", json!({"name": name})).await?.result()?;
        let got = tree(&got)["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        let is_right = if name.starts_with('K') { got.contains("v 1") } else { got.len() > 1 };
        ensure!(is_right, "{name} is {got:?}");
    }
    let missing = case.traygate.state("missing", "misconfigured").await?;
    let why = missing.state.reason().context("a reason")?;
    ensure!(why.starts_with("GW_MISSING is not set (args)"), "{why}");
    ensure!(case.count("missing", "start", None)? == 0, "nothing was started");
    app.call("spaced__echo", json!({"text": "x"})).await?.result()?;
    ensure!(!case.traygate.host_log()?.contains("v 1"), "no value is logged");
    let lines = case.traygate.cli(&["logs", "u"]).await?.ok()?;
    ensure!(!lines.contains("v 1"), "{lines}");
    case.end(&["u", "spaced"]).await
}

#[tokio::test]
async fn rw_25_a_url_and_its_headers_are_filled_in_and_a_missing_variable_named() -> Result<()> {
    let Some(mut case) = Case::unstarted()? else { return Ok(()) };
    let log = case.log("h").display().to_string();
    let url = case.http("ok", &["--log", &log]).await?;
    case.serve_with(&[("GW_URL", url.as_str()), ("GW_KEY", "key-of-the-host")]).await?;
    let add = ["add", "h", "--no-test", "--url", "${GW_URL}", "--header", "X-Key: ${GW_KEY}"];
    case.traygate.cli(&add).await?.ok()?;
    let add = ["add", "m", "--no-test", "--url", &url, "--header", "Authorization: Bearer $GW_NO"];
    case.traygate.cli(&add).await?.ok()?;
    case.traygate.cli(&["enable", "h"]).await?.ok()?;
    case.traygate.cli(&["enable", "m"]).await?.ok()?;
    case.traygate.state("h", "ready").await?;
    let app = case.app(AppEra::Modern).await?;
    app.call("h__echo", json!({"text": "x"})).await?.result()?;
    let missing = case.traygate.state("m", "misconfigured").await?;
    let why = missing.state.reason().context("a reason")?;
    ensure!(why.starts_with("GW_NO is not set (header Authorization)"), "{why}");
    ensure!(!case.traygate.host_log()?.contains("key-of-the-host"), "no value is logged");
    case.end(&["h"]).await
}
