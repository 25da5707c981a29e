//! Long lists, pages on both sides, and names that no app would take.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{AppEra, json::tree};

use crate::support::Case;

#[tokio::test]
async fn rw_28_ten_servers_of_five_hundred_tools_are_read_once() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    let many: Vec<_> = (0..10).map(|number| format!("a{number}")).collect();
    for name in &many {
        case.add(name, "huge-list:500:2000").await?;
    }
    for name in &many {
        case.traygate.state(name, "ready").await?;
    }
    let apps = try_join_all((0..5).map(|_| case.app(AppEra::Legacy))).await?;
    let begun = Instant::now();
    apps[0].tools().await?;
    println!("5,000 tools for the first time: {:?}", begun.elapsed());
    let own = case.app_of(AppEra::Modern, "a0").await?;
    ensure!(own.tools().await?.len() == 500);
    let mut slowest = Duration::ZERO;
    // The case has fifty lists; the apps here take longer to read ten megabytes than the host.
    for _ in 0..2 {
        let asked = Instant::now();
        for tools in try_join_all(apps.iter().map(traygate_tests::App::tools)).await? {
            let distinct: BTreeSet<_> = tools.iter().filter(|name| name.starts_with('a')).collect();
            ensure!(distinct.len() == 5_000, "{} tools", distinct.len());
        }
        slowest = slowest.max(asked.elapsed());
    }
    println!("5,000 tools for five apps at once, at worst: {slowest:?}");
    for name in &many {
        ensure!(case.count(name, "recv", Some("tools/list"))? == 1, "{name} was read once");
    }
    apps[0].call("a0__tool_00499", json!({})).await?.result()?;
    case.add("z", "huge-list:5000:200").await?;
    case.traygate.state("z", "ready").await?;
    ensure!(case.app_of(AppEra::Legacy, "z").await?.tools().await?.len() == 5_000);
    println!(
        "the host holds {} MiB, and {} at its peak",
        case.memory()? >> 20,
        case.peak_memory()? >> 20
    );
    ensure!(case.memory()? < 500 << 20, "{} MiB", case.memory()? >> 20);
    case.end(&["a0", "a9"]).await
}

#[tokio::test]
async fn rw_29_all_pages_are_read_and_every_walk_ends() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    // Upstream, mode, its tools, and how often it may be asked.
    let table = [
        ("p", "paged:25:10", 25, 3),
        ("e", "cursor-empty", 0, 2),
        ("n", "cursor-null", 0, 1),
        ("l", "cursor-loop", 0, 3),
        ("c", "cursor-cycle", 0, 3),
        ("x", "cursor-error", 0, 4),
        ("w", "cursor-endless", 0, 100),
    ];
    for (name, mode, ..) in table {
        case.add(name, mode).await?;
    }
    let all = {
        let app = case.app_of(AppEra::Legacy, "ok0").await?;
        app.tools().await?
    };
    for (name, mode, tools, most) in table {
        case.traygate.state(name, "ready").await?;
        let app = case.app_of(AppEra::Modern, name).await?;
        let begun = Instant::now();
        let mut found = app.tools().await?;
        // What takes longer than one list may is there in the next one.
        while found.is_empty() && begun.elapsed() < Duration::from_secs(20) {
            found = app.tools().await?;
        }
        let distinct: BTreeSet<_> = found.iter().collect();
        ensure!(distinct.len() == found.len(), "{mode}: a name is listed twice");
        match (name, tools) {
            ("w", _) => ensure!(found.len() >= 100, "{mode}: {}", found.len()),
            (_, 0) if name == "x" => ensure!(!found.is_empty(), "{mode}"),
            (_, 0) => ensure!(found == all, "{mode}: {found:?}"),
            (_, tools) => ensure!(found.len() == tools, "{mode}: {}", found.len()),
        }
        let asked = case.count(name, "recv", Some("tools/list"))?;
        ensure!(asked <= most, "{mode}: asked {asked} times");
        let view = case.traygate.upstream(name).await?;
        let warnings: Vec<_> = view.catalogues.iter().flat_map(|list| &list.warnings).collect();
        let warned = matches!(name, "l" | "c" | "x" | "w");
        ensure!(warnings.is_empty() != warned, "{mode}: {warnings:?}");
        ensure!(warnings.len() <= 2, "{mode}: {warnings:?}");
    }
    case.end(&["p", "e", "n"]).await
}

#[tokio::test]
async fn rw_30_the_endpoints_own_cursors_end_and_outlive_a_change() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    case.traygate.cli(&["disable", "ok0"]).await?.ok()?;
    let file = case.directory.path().join("tools.json");
    let names: Vec<_> = (0..325).map(|number| format!("tool-{number:03}")).collect();
    std::fs::write(&file, json!(names[..25]).to_string())?;
    case.add_with("a", "paged:25:10", &["--tools-file", &file.display().to_string()]).await?;
    case.add("b", "huge-list:300:100").await?;
    case.traygate.cli(&["config", "list_page", "40"]).await?.ok()?;
    for name in ["a", "b"] {
        case.traygate.state(name, "ready").await?;
    }
    let app = case.app(AppEra::Legacy).await?;
    for kind in CapabilityType::ALL {
        let keys = app.keys(kind).await?;
        let distinct: BTreeSet<_> = keys.iter().collect();
        ensure!(distinct.len() == keys.len(), "a {kind} came twice");
        if kind == CapabilityType::Tool {
            ensure!(keys.len() == 325, "{}", keys.len());
        }
    }
    for cursor in ["nonsense", "MTA=", ""] {
        let error = app.request("tools/list", json!({"cursor": cursor})).await?.error()?;
        ensure!(error.code == -32602, "{cursor}: {error:?}");
    }
    // A walk over which the first list shrinks by what was seen last, and by much of the rest.
    let first = tree(&app.request("tools/list", json!({})).await?.result()?);
    let mut seen = own_names(&first);
    std::fs::write(&file, json!(names[..5]).to_string())?;
    case.traygate.cli(&["refresh", "a"]).await?.ok()?;
    let mut cursor = first["nextCursor"].clone();
    while !cursor.is_null() {
        let page = tree(&app.request("tools/list", json!({"cursor": cursor})).await?.result()?);
        seen.extend(own_names(&page));
        cursor = page["nextCursor"].clone();
        if seen.len() < 100 {
            case.traygate.cli(&["disable", "a"]).await?.ok()?;
        }
    }
    let of_b: Vec<_> = seen.iter().filter(|name| name.starts_with("b__")).collect();
    let distinct: BTreeSet<_> = of_b.iter().collect();
    ensure!((of_b.len(), distinct.len()) == (300, 300), "{} of b", of_b.len());
    case.traygate.cli(&["enable", "ok0"]).await?.ok()?;
    case.traygate.state("ok0", "ready").await?;
    case.end(&["a", "b"]).await
}

fn own_names(page: &Value) -> Vec<String> {
    let tools = page["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn rw_34_odd_names_are_valid_distinct_and_lead_back() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    let name = "a-long-server-name-for-testing";
    case.add(name, "weird-names").await?;
    case.traygate.state(name, "ready").await?;
    let mut by_era = Vec::new();
    for era in AppEra::ALL {
        let app = case.app(era).await?;
        let tools = app.tools().await?;
        let tools: Vec<_> = tools.into_iter().filter(|tool| tool.starts_with("a-long")).collect();
        let valid = |tool: &&String| {
            tool.len() <= 64
                && tool.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        };
        ensure!(tools.iter().filter(valid).count() == tools.len(), "{tools:?}");
        ensure!(tools.iter().collect::<BTreeSet<_>>().len() == tools.len(), "{tools:?}");
        let mut originals = BTreeSet::new();
        for tool in &tools {
            let result = tree(&app.call(tool, json!({})).await?.result()?);
            let own = result["structuredContent"]["name"].as_str().context(result.to_string())?;
            originals.insert(own.to_owned());
        }
        ensure!(originals.len() == tools.len(), "every call reached a tool of its own");
        by_era.push(tools);
    }
    ensure!(by_era[0] == by_era[1], "the names are the same in both eras");
    let view = case.traygate.upstream(name).await?;
    let warnings: Vec<_> = view.catalogues.iter().flat_map(|list| &list.warnings).collect();
    ensure!(warnings.iter().any(|said| said.contains("empty name")), "{warnings:?}");
    ensure!(by_era[0].len() >= 33, "{} names: {warnings:?}", by_era[0].len());
    let shown = case.traygate.cli(&["show", name]).await?.ok()?;
    ensure!(shown.contains("__proto__"), "the original is shown: {shown}");
    case.end(&[name]).await
}
