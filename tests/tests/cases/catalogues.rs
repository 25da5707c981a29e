//! What is asked for, what names become, which schemas pass, and what stays disabled.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{AppEra, json::tree};

use crate::support::Case;

#[tokio::test]
async fn rw_31_what_is_not_declared_is_not_asked_and_the_app_still_gets_a_list() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    case.traygate.cli(&["disable", "ok0"]).await?.ok()?;
    case.add("t", "no-prompts").await?;
    let app = case.app(AppEra::Legacy).await?;
    ensure!(!app.tools().await?.is_empty());
    for kind in [CapabilityType::Prompt, CapabilityType::Resource, CapabilityType::Template] {
        ensure!(app.list(kind).await?.is_empty(), "{kind}");
    }
    for (method, params) in [
        ("prompts/get", json!({"name": "t__nothing"})),
        ("resources/read", json!({"uri": "mem://nothing"})),
    ] {
        let error = app.request(method, params).await?.error()?;
        ensure!([-32602, -32002].contains(&error.code), "{method}: {error:?}");
    }
    for method in ["prompts/list", "resources/list", "resources/templates/list"] {
        ensure!(case.count("t", "recv", Some(method))? == 0, "{method}");
    }
    case.add("u", "ok").await?;
    case.traygate.state("u", "ready").await?;
    ensure!(!app.list(CapabilityType::Prompt).await?.is_empty(), "without a new session");
    case.traygate.cli(&["enable", "ok0"]).await?.ok()?;
    case.traygate.state("ok0", "ready").await?;
    case.end(&["t", "u"]).await
}

#[tokio::test]
async fn rw_33_equal_names_reach_their_own_server_whatever_the_order() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    case.add_with("one", "ok", &["--name", "alpha"]).await?;
    case.add_with("two", "dup-names", &["--name", "alpha"]).await?;
    let mut names = Vec::new();
    for round in 0..3 {
        if round > 0 {
            // The order in which they come up is the machine's; the list's is the user's.
            case.traygate.restart().await?;
        }
        let app = case.app(AppEra::Legacy).await?;
        let tools = app.tools().await?;
        let of = |name: &str| tools.iter().filter(|tool| *tool == name).count();
        ensure!((of("two__echo"), of("two__Echo")) == (1, 1), "{tools:?}");
        for (upstream, tool) in [("one", "one__echo"), ("two", "two__echo")] {
            let before = case.count(upstream, "recv", Some("tools/call"))?;
            app.call(tool, json!({"text": "x"})).await?.result()?;
            ensure!(case.count(upstream, "recv", Some("tools/call"))? == before + 1, "{tool}");
        }
        if round == 0 {
            names = tools;
        } else {
            ensure!(names == tools, "{names:?} differs from {tools:?}");
        }
    }
    let view = case.traygate.upstream("two").await?;
    ensure!(
        view.catalogues.iter().any(|c| c.warnings.iter().any(|w| w.contains("echo"))),
        "{view:?}"
    );
    let refused = case.traygate.cli(&["add", "one", "--no-test", "--", "true"]).await?;
    ensure!(refused.code == Some(1), "an equal name is refused");
    case.end(&["one"]).await
}

#[tokio::test]
async fn rw_36_schemas_pass_unchanged_and_impossible_ones_cost_their_tool() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    case.add("w", "weird-schemas").await?;
    let view = format!("{}/w", case.traygate.endpoint());
    let app = traygate_tests::App::connect(AppEra::Modern, &view, &case.token).await?;
    let tools = app.list(CapabilityType::Tool).await?;
    let tools: Vec<Value> = tools.iter().map(|tool| tree(tool)).collect();
    ensure!(tools.len() >= 28, "{} tools", tools.len());
    for name in [
        "ok_plain",
        "ref_defs",
        "ref_dangling",
        "anyof_nullable",
        "draft2020",
        "output_dangling",
        "regex_invalid",
    ] {
        ensure!(tools.iter().any(|tool| tool["name"] == name), "{name} is missing");
    }
    // Of what is listed, the server's own text: `traygate show --live` tells what came.
    let live = case.traygate.cli(&["show", "w", "--live", "--json"]).await?.ok()?;
    let live: Value = serde_json::from_str(&live)?;
    for tool in &tools {
        let items = live["items"].as_array().context("items")?;
        let item = items.iter().find(|item| item["key"] == tool["name"]).context("an item")?;
        ensure!(item["item"]["inputSchema"] == tool["inputSchema"], "{}", tool["name"]);
    }
    for tool in &tools {
        let name = tool["name"].as_str().context("a name")?;
        app.call(name, json!({})).await?;
    }
    ensure!(case.count("w", "recv", Some("tools/call"))? >= 28);
    case.end(&["w"]).await
}

#[tokio::test]
async fn rw_38_disabled_stays_disabled_over_restarts_outages_and_changed_lists() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    let file = case.directory.path().join("tools.json");
    std::fs::write(&file, r#"["one","two","three"]"#)?;
    let path = file.display().to_string();
    case.add_with("u", "ok", &["--tools-file", &path]).await?;
    let app = case.app(AppEra::Legacy).await?;
    ensure!(app.tools().await?.contains(&"u__two".to_owned()), "enabled at first");
    let mut app = case.app(AppEra::Legacy).await?;
    app.tools().await?;
    let mut ears = app.listen().await?;
    case.traygate.cli(&["disable", "u/tool/two"]).await?.ok()?;
    ears.hear("notifications/tools/list_changed", Duration::from_secs(1)).await?;
    let of_tools = |notice: &Value| notice["method"] == "notifications/tools/list_changed";
    ensure!(!ears.heard().iter().any(of_tools), "one notice a toggle");
    case.traygate.kill()?;
    for (tools, four) in [
        (r#"["one","two","three"]"#, false),
        (r#"["one","three","four"]"#, true),
        (r#"["one","two","four"]"#, true),
    ] {
        std::fs::write(&file, tools)?;
        case.traygate.serve().await?;
        let app = case.app(AppEra::Legacy).await?;
        let begun = Instant::now();
        let mut seen = Vec::new();
        while begun.elapsed() < Duration::from_secs(2) {
            seen = app.tools().await?;
            ensure!(!seen.contains(&"u__two".to_owned()), "two is listed: {seen:?}");
            // The case polls each 50 ms.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(seen.contains(&"u__four".to_owned()) == four, "{seen:?}");
        case.traygate.stop().await?;
    }
    case.traygate.serve().await?;
    case.end(&["u"]).await
}
