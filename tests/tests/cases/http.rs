//! The old HTTP+SSE transport, redirects and addresses, and what a modern server demands.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{
    App, AppEra,
    app::{ModernApp, body},
};

use crate::support::Case;

#[tokio::test]
async fn rw_58_redirects_stay_within_the_origin_and_localhost_is_found() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    let log = case.log("x").display().to_string();
    let elsewhere = case.http("ok", &["--log", &log]).await?;
    let secret = "Authorization: Bearer secret-of-the-user";
    for (name, mode) in [
        ("r", "redirect".to_owned()),
        ("m", "redirect-301".to_owned()),
        ("l", "redirect-loop".to_owned()),
        ("c", format!("redirect-cross:{elsewhere}")),
    ] {
        let log = case.log(name).display().to_string();
        let url = case.http(&mode, &["--log", &log]).await?;
        case.traygate
            .cli(&["add", name, "--no-test", "--url", &url, "--header", secret])
            .await?
            .ok()?;
    }
    let app = case.app(AppEra::Modern).await?;
    case.traygate.state("r", "ready").await?;
    app.call_text("r__echo", json!({"text": "x"})).await?;
    for (name, words) in [("m", "/mcp/"), ("l", "circle"), ("c", "another origin")] {
        let view = case.traygate.state(name, "unavailable").await?;
        let why = view.state.reason().unwrap_or_default();
        ensure!(why.contains(words), "{name}: {why}");
    }
    ensure!(case.count("x", "recv", None)? == 0, "nothing went to the other origin");
    let port = elsewhere.rsplit(':').next().context("a port")?;
    let begun = Instant::now();
    let url = format!("http://localhost:{port}");
    case.traygate.cli(&["add", "lo", "--no-test", "--url", &url]).await?.ok()?;
    case.traygate.state("lo", "ready").await?;
    ensure!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    case.end(&["r", "x"]).await
}

#[tokio::test]
async fn rw_59_the_old_transport_in_all_its_forms() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    let log = case.log("a").display().to_string();
    let url = case.http("legacy-sse", &["--log", &log]).await?;
    case.traygate.cli(&["add", "a", "--no-test", "--url", &url]).await?.ok()?;
    let begun = Instant::now();
    for (name, mode) in [
        ("abs", "legacy-sse-abs"),
        ("rel", "legacy-sse-relative"),
        ("crlf", "legacy-sse-crlf"),
        ("none", "legacy-sse-noendpoint"),
        ("evil", "legacy-sse-evil"),
    ] {
        case.add_http(name, mode).await?;
    }
    for (name, words) in [("evil", "another origin"), ("none", "no endpoint event")] {
        let view = case.traygate.state(name, "unavailable").await?;
        let why = view.state.reason().unwrap_or_default();
        ensure!(why.contains(words), "{name}: {why}");
    }
    ensure!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let app = case.app(AppEra::Legacy).await?;
    for name in ["a", "abs", "rel", "crlf"] {
        case.traygate.state(name, "ready").await?;
        app.call_text(&format!("{name}__echo"), json!({"text": "x"})).await.context(name)?;
        app.call(&format!("{name}__progress"), json!({})).await?.result().context(name)?;
        // The app can't be asked, so the server is told so, and answers all the same.
        app.call(&format!("{name}__ask"), json!({})).await?;
    }
    let origin = url.rsplit_once('/').context("a path")?.0;
    reqwest::Client::new().post(format!("{origin}/__admin/drop")).send().await?;
    app.call_text("a__echo", json!({"text": "again"})).await?;
    case.end(&["a", "abs", "rel", "crlf"]).await
}

#[tokio::test]
async fn rw_60_modern_servers_get_what_they_demand_under_their_own_names() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    for (name, mode) in [
        ("m", "modern-2026"),
        ("d", "modern-dual"),
        ("e", "modern-sse"),
        ("w", "modern-2026+weird-names"),
    ] {
        case.add_http(name, mode).await?;
    }
    case.add("s", "modern").await?;
    for name in ["m", "d", "e", "w", "s"] {
        case.traygate.state(name, "ready").await?;
        for era in AppEra::ALL {
            everything(&case.app_of(era, name).await?).await.context(name)?;
        }
    }
    let app = case.app(AppEra::Modern).await?;
    for tool in app.tools().await?.iter().filter(|tool| tool.starts_with("w__")) {
        app.call(tool, json!({})).await?.result().context(tool.clone())?;
    }
    refuses_what_breaks_the_rules(&case).await?;
    case.end(&["m", "d", "e", "w", "s"]).await
}

/// Gets, reads and completes whatever is listed, and calls what needs nothing.
async fn everything(app: &App) -> Result<()> {
    for tool in app.tools().await? {
        // Mirrored parameters are another case.
        if matches!(tool.as_str(), "echo" | "add" | "links") {
            let arguments = json!({"text": "\u{4e16}", "a": 1, "b": 2});
            app.call(&tool, arguments).await?.result().context(tool)?;
        }
    }
    for prompt in app.keys(CapabilityType::Prompt).await? {
        let params = json!({"name": prompt, "arguments": {"who": "ada", "name": "ada"}});
        app.request("prompts/get", params).await?.result().context(prompt)?;
    }
    for uri in app.keys(CapabilityType::Resource).await? {
        app.request("resources/read", json!({"uri": uri})).await?.result().context(uri)?;
    }
    Ok(())
}

async fn refuses_what_breaks_the_rules(case: &Case) -> Result<()> {
    let app = ModernApp::new(&case.traygate.endpoint(), &case.token)?;
    let params = json!({"name": "m__echo", "arguments": {"text": "x"}});
    let (_, text) = app.message("tools/call", params.clone());
    let headers = ModernApp::headers("tools/call", &params);
    let with = |name: &str, value: &str| {
        let mut headers = headers.clone();
        for header in &mut headers {
            if header.0 == name {
                value.clone_into(&mut header.1);
            }
        }
        headers
    };
    let unknown = text.replace("tools/call", "tools/nothing");
    let other_version = text.replace("\"2026-07-28\"", "\"2031-01-01\"");
    let bare = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string();
    for (what, text, headers, status, code) in [
        ("another method", &text, with("mcp-method", "tools/list"), 400, -32020),
        ("another name", &text, with("mcp-name", "ok0__echo"), 400, -32020),
        (
            "an unknown version",
            &other_version,
            with("mcp-protocol-version", "2031-01-01"),
            400,
            -32022,
        ),
        ("an unknown method", &unknown, with("mcp-method", "tools/nothing"), 404, -32601),
        ("no _meta", &bare, with("mcp-method", "tools/list"), 400, -32602),
    ] {
        let response = app.post(text, &headers).await?;
        let found = response.status().as_u16();
        let said: Value =
            serde_json::from_str(&body(response).await?.soon().await?.context("a body")?)?;
        ensure!(found == status && said["error"]["code"] == code, "{what} got {found} {said}");
    }
    let http = reqwest::Client::new();
    for method in [reqwest::Method::GET, reqwest::Method::DELETE] {
        let answer = http
            .request(method.clone(), case.traygate.endpoint())
            .bearer_auth(&case.token)
            .header("accept", "text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .send()
            .await?;
        ensure!(answer.status() == 405, "{method}: {}", answer.status());
    }
    let one = case.app(AppEra::Legacy).await?.request("tools/nothing", json!({})).await?.error()?;
    ensure!(one.code == -32601, "{one:?}");
    Ok(())
}
