//! One suite of assertions over every transport and both eras of upstreams, in both eras of apps.

use anyhow::{Context as _, Result};
use serde_json::{json, value::RawValue};
use traygate_gateway::{capability::CapabilityType, definition::Era};
use traygate_tests::{
    App, AppEra, Fake, FakeOptions, Traygate,
    fake::{
        content::{self, RICH, RICH_TOOL, RPC_ERROR_DATA, TOOLS},
        options::{FakeEra, FakeTransport},
    },
    json::{assert_carries, tree},
};

use crate::{app, code_of, host_with};

async fn suite(options: FakeOptions) -> Result<()> {
    // Small pages: whatever is listed below has come over several.
    let era = options.era;
    let (traygate, fake, token) = host_with("fake", options.with("--page-size 2")).await?;
    for app_era in AppEra::ALL {
        let about =
            format!("{:?} upstream over {:?}, {app_era:?} app", era, fake.options.transport);
        let app = app(&traygate, app_era, &token).await?;
        lists_everything(&app).await.context(about.clone())?;
        carries_the_bytes(&app).await.context(about.clone())?;
        passes_errors_on(&app).await.context(about.clone())?;
        gets_reads_and_completes(&app).await.context(about.clone())?;
        refuses_what_is_off(&app, &traygate, &fake).await.context(about)?;
    }
    let found = traygate.upstream("fake").await?.era;
    let wanted = if era == FakeEra::Legacy { Era::Legacy } else { Era::Modern };
    assert_eq!(found, Some(wanted), "the app's era never decides the upstream's");
    if era != FakeEra::Legacy {
        assert_eq!(fake.count("initialize")?, 0, "who speaks the modern era needs no handshake");
    }
    fake.assert_no_violations()
}

async fn lists_everything(app: &App) -> Result<()> {
    let tools: Vec<_> = TOOLS.iter().map(|name| format!("fake__{name}")).collect();
    assert_eq!(app.tools().await?, tools, "all pages, in the upstream's order");
    assert_eq!(app.keys(CapabilityType::Prompt).await?, ["fake__greet", "fake__plain"]);
    let uris = ["fake://fake/text", "fake://fake/blob"];
    assert_eq!(app.keys(CapabilityType::Resource).await?, uris, "URIs pass unchanged");
    assert_eq!(app.keys(CapabilityType::Template).await?, ["fake://fake/item/{id}"]);
    Ok(())
}

async fn carries_the_bytes(app: &App) -> Result<()> {
    let listed = app.list(CapabilityType::Tool).await?;
    let is_rich = |tool: &RawValue| tree(tool)["name"] == "fake__rich";
    let rich = listed.iter().find(|tool| is_rich(tool)).context("the rich tool")?;
    assert_carries(rich.get(), &format!(r#"{{"name":"fake__rich",{RICH_TOOL}}}"#));
    let result = app.call("fake__rich", json!({})).await?.result()?;
    assert_carries(result.get(), RICH);
    let arguments = json!({"zeta": "é\n\"", "alpha": [1, 2.5, null, {"deep": {"er": []}}]});
    let echoed = app.call("fake__echo", arguments.clone()).await?.result()?;
    let echoed = &tree(&echoed)["structuredContent"];
    assert_eq!(echoed["arguments"], arguments);
    assert_eq!(echoed["params"]["name"], "echo", "the upstream knows its own name only");
    Ok(())
}

async fn passes_errors_on(app: &App) -> Result<()> {
    let error = app.call("fake__rpc-error", json!({})).await?.error()?;
    assert_eq!((error.code, error.message.as_str()), (4242, "refused on purpose"));
    assert_eq!(error.data.context("data")?.get(), RPC_ERROR_DATA, "to the digit");
    let failed = tree(&app.call("fake__fail", json!({})).await?.result()?);
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["content"][0]["text"], "it failed on purpose");
    Ok(())
}

async fn gets_reads_and_completes(app: &App) -> Result<()> {
    let params = json!({"name": "fake__greet", "arguments": {"name": "ada", "style": "warm"}});
    let got = tree(&app.request("prompts/get", params).await?.result()?);
    assert_eq!(got["messages"][0]["content"]["text"], "Greet ada in a warm way");
    assert_eq!(got["x-unknown"], json!({"kept": true}));
    for (uri, text) in
        [("fake://fake/text", "the text of fake"), ("fake://fake/item/42", "item 42")]
    {
        let read = app.request("resources/read", json!({"uri": uri})).await?.result()?;
        assert_eq!(tree(&read)["contents"][0]["text"], text, "{uri}");
    }
    let missing = app.request("resources/read", json!({"uri": "fake://fake/none"})).await?;
    assert!([-32602, -32002].contains(&missing.error()?.code));
    let prompt = json!({"type": "ref/prompt", "name": "fake__greet"});
    let template = json!({"type": "ref/resource", "uri": "fake://fake/item/{id}"});
    for (reference, argument, value, values) in
        [(prompt, "name", "a", json!(["ada", "alan"])), (template, "id", "1", json!(["1", "10"]))]
    {
        let params = json!({"ref": reference, "argument": {"name": argument, "value": value}});
        let completed = app.request("completion/complete", params).await?.result()?;
        assert_eq!(tree(&completed)["completion"]["values"], values);
    }
    Ok(())
}

async fn refuses_what_is_off(app: &App, traygate: &Traygate, fake: &Fake) -> Result<()> {
    let unknown = app.call("fake__nothing", json!({})).await?;
    let error = unknown.clone().error()?;
    assert_eq!(error.code, -32602);
    assert_eq!(code_of(unknown)["code"], "UNKNOWN_CAPABILITY", "{}", error.message);
    let before = fake.count("tools/call")?;
    traygate.toggle("fake", CapabilityType::Tool, "counter", false).await?;
    assert!(!app.tools().await?.contains(&"fake__counter".to_owned()), "it isn't listed");
    let refused = app.call("fake__counter", json!({})).await?;
    let error = refused.clone().error()?;
    assert_eq!(error.code, -32602);
    assert!(error.message.contains("disabled"), "it says which of both it is: {}", error.message);
    let data = code_of(refused);
    assert_eq!((&data["code"], &data["upstream"]), (&json!("CAPABILITY_DISABLED"), &json!("fake")));
    assert_eq!(fake.count("tools/call")?, before, "the upstream never saw either");
    traygate.toggle("fake", CapabilityType::Tool, "counter", true).await?;
    app.call_text("fake__counter", json!({})).await?;
    Ok(())
}

#[tokio::test]
async fn a_legacy_upstream_over_stdio_serves_both_eras_of_apps() -> Result<()> {
    suite(FakeOptions::stdio(FakeEra::Legacy)).await
}

#[tokio::test]
async fn a_modern_upstream_over_stdio_serves_both_eras_of_apps() -> Result<()> {
    suite(FakeOptions::stdio(FakeEra::Modern)).await
}

#[tokio::test]
async fn a_legacy_upstream_over_http_serves_both_eras_of_apps() -> Result<()> {
    suite(FakeOptions::http(FakeEra::Legacy)).await
}

#[tokio::test]
async fn a_legacy_upstream_that_answers_in_event_streams_serves_both_eras_of_apps() -> Result<()> {
    suite(FakeOptions::http(FakeEra::Legacy).with("--answers sse")).await
}

#[tokio::test]
async fn a_modern_upstream_over_http_serves_both_eras_of_apps() -> Result<()> {
    suite(FakeOptions::http(FakeEra::Modern)).await
}

#[tokio::test]
async fn a_modern_upstream_that_answers_in_event_streams_serves_both_eras_of_apps() -> Result<()> {
    suite(FakeOptions::http(FakeEra::Modern).with("--answers sse")).await
}

#[tokio::test]
async fn an_upstream_of_the_old_transport_serves_both_eras_of_apps() -> Result<()> {
    suite(FakeOptions::new(FakeTransport::Sse, FakeEra::Legacy)).await
}

#[tokio::test]
async fn an_upstream_of_both_eras_is_spoken_to_in_the_newer() -> Result<()> {
    suite(FakeOptions::stdio(FakeEra::Dual)).await?;
    suite(FakeOptions::http(FakeEra::Dual)).await
}

#[tokio::test]
async fn a_legacy_server_that_exits_at_a_probe_is_started_anew() -> Result<()> {
    let options = FakeOptions::stdio(FakeEra::Legacy).with("--probe exit --noise");
    let (traygate, fake, token) = host_with("fake", options).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    assert_eq!(app.call_text("fake__echo", json!({})).await?, "{}");
    assert_eq!(fake.alive()?.len(), 1);
    fake.assert_no_violations()
}

#[tokio::test]
async fn a_legacy_server_that_is_silent_at_a_probe_is_initialized_in_the_same_process() -> Result<()>
{
    let options = FakeOptions::stdio(FakeEra::Legacy).with("--probe silent");
    let (traygate, fake, token) = host_with("fake", options).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    // The probe's patience is longer than a list's.
    app.tools().await?;
    traygate.state("fake", "ready").await?;
    assert_eq!(app.call_text("fake__echo", json!({})).await?, "{}");
    assert_eq!(fake.events("start")?, 1, "no second process");
    Ok(())
}

#[tokio::test]
async fn an_era_once_found_is_not_probed_for_again() -> Result<()> {
    let options = FakeOptions::stdio(FakeEra::Legacy).with("--probe exit");
    let (mut traygate, fake, token) = host_with("fake", options).await?;
    app(&traygate, AppEra::Legacy, &token).await?.call_text("fake__echo", json!({})).await?;
    assert_eq!(fake.events("probed")?, 1);
    traygate.restart().await?;
    app(&traygate, AppEra::Legacy, &token).await?.call_text("fake__echo", json!({})).await?;
    assert_eq!(fake.events("probed")?, 1, "the store remembers it");
    Ok(())
}

#[tokio::test]
async fn every_revision_of_the_legacy_era_is_spoken_to_upstreams_and_apps() -> Result<()> {
    use traygate_tests::app::{LegacyApp, LegacyOptions};
    for revision in traygate_tests::fake::checks::LEGACY {
        let options = FakeOptions::http(FakeEra::Legacy).flag("--revision", revision);
        let (traygate, fake, token) = host_with("fake", options).await?;
        let options = LegacyOptions { version: revision.to_owned(), ..LegacyOptions::default() };
        let app = LegacyApp::connect_with(&traygate.endpoint(), &token, options).await?;
        assert_eq!(app.version, revision, "the app's revision is taken up");
        let app = App::Legacy(app);
        assert_eq!(app.call_text("fake__add", json!({"a": 1, "b": 2})).await?, "3");
        let version = traygate.upstream("fake").await?.protocol_version;
        assert_eq!(version.as_deref(), Some(revision));
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn an_app_that_initializes_with_the_modern_revision_is_negotiated_down() -> Result<()> {
    use traygate_tests::app::{LegacyApp, LegacyOptions};
    let traygate = Traygate::start().await?;
    let token = traygate.token("app").await?;
    let options = LegacyOptions { version: "2026-07-28".to_owned(), ..LegacyOptions::default() };
    let app = LegacyApp::connect_with(&traygate.endpoint(), &token, options).await?;
    assert_eq!(app.version, "2025-11-25");
    Ok(())
}

#[tokio::test]
async fn discovery_names_traygate_and_an_unsupported_version_lists_modern_ones_only() -> Result<()>
{
    use traygate_tests::app::ModernApp;
    let traygate = Traygate::start().await?;
    let app = ModernApp::new(&traygate.endpoint(), &traygate.token("app").await?)?;
    let discovered = tree(&app.request("server/discover", json!({})).await?.result()?);
    let versions = discovered["supportedVersions"].as_array().context("versions")?;
    assert!(versions.contains(&json!("2026-07-28")), "{versions:?}");
    assert!(discovered["ttlMs"].is_u64() && discovered["cacheScope"].is_string(), "{discovered}");
    let params = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}});
    let text = app.message("tools/list", params).1;
    let headers = [
        ("mcp-protocol-version", "2099-01-01".to_owned()),
        ("mcp-method", "tools/list".to_owned()),
    ];
    let response = app.post(&text, &headers).await?;
    assert_eq!(response.status(), 400);
    let refused: serde_json::Value = serde_json::from_str(&response.text().await?)?;
    assert_eq!(refused["error"]["code"], -32022);
    let supported = refused["error"]["data"]["supported"].as_array().context("supported")?;
    assert!(supported.iter().all(|version| version.as_str() >= Some("2026-07-28")), "{refused}");
    Ok(())
}

#[tokio::test]
async fn an_upstream_is_not_asked_for_what_it_does_not_have() -> Result<()> {
    let options = FakeOptions::stdio(FakeEra::Legacy).with("--no-prompts --no-resources");
    let (traygate, fake, token) = host_with("fake", options).await?;
    let other = traygate.add_fake("other", FakeOptions::stdio(FakeEra::Modern)).await?;
    // A link that comes up while an app listens is read once unasked.
    traygate.state("other", "ready").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    assert_eq!(app.keys(CapabilityType::Prompt).await?, ["other__greet", "other__plain"]);
    assert_eq!(app.keys(CapabilityType::Resource).await?.len(), 2);
    for method in ["prompts/list", "resources/list", "resources/templates/list"] {
        assert_eq!(fake.count(method)?, 0, "{method}");
        assert!(other.count(method)? <= 1, "{method}");
    }
    Ok(())
}

#[tokio::test]
async fn one_bad_tool_costs_that_tool_and_is_said() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        let (traygate, _fake, token) =
            host_with("fake", FakeOptions::stdio(era).with("--bad-tool")).await?;
        let app = app(&traygate, AppEra::Legacy, &token).await?;
        let tools: Vec<_> = TOOLS.iter().map(|name| format!("fake__{name}")).collect();
        assert_eq!(app.tools().await?, tools);
        let view = traygate.upstream("fake").await?;
        let warnings: Vec<_> = view.catalogues.iter().flat_map(|c| &c.warnings).collect();
        assert!(warnings.iter().any(|warning| warning.contains("bad")), "{warnings:?}");
    }
    Ok(())
}

#[tokio::test]
async fn pages_end_at_a_repeated_cursor_and_not_at_an_empty_one() -> Result<()> {
    let (traygate, _fake, token) = host_with(
        "fake",
        FakeOptions::stdio(FakeEra::Legacy).with("--page-size 2 --cursors empty"),
    )
    .await?;
    let stuck = FakeOptions::stdio(FakeEra::Legacy).with("--page-size 2 --cursors stuck");
    let stuck = traygate.add_fake("stuck", stuck).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let tools = app.tools().await?;
    let of = |name: &str| tools.iter().filter(|tool| tool.starts_with(name)).count();
    assert_eq!((of("fake__"), of("stuck__")), (TOOLS.len(), 2), "{tools:?}");
    assert!(stuck.count("tools/list")? <= 3, "it gives up at the first repetition");
    let view = traygate.upstream("stuck").await?;
    assert!(view.catalogues.iter().any(|catalogue| !catalogue.warnings.is_empty()), "{view:?}");
    Ok(())
}

#[tokio::test]
async fn many_tools_reach_an_app_whole() -> Result<()> {
    let options = FakeOptions::stdio(FakeEra::Modern).with("--tools 1500 --page-size 100");
    let (traygate, _fake, token) = host_with("fake", options).await?;
    for era in AppEra::ALL {
        let tools = app(&traygate, era, &token).await?.tools().await?;
        assert_eq!(tools.len(), content::TOOLS.len() + 1500, "{era:?}");
        assert_eq!(tools.last().map(String::as_str), Some("fake__tool-1500"));
    }
    Ok(())
}

#[tokio::test]
async fn a_list_that_changes_between_two_pages_loses_and_repeats_nothing() -> Result<()> {
    let options = FakeOptions::stdio(FakeEra::Legacy).with("--tools 20");
    let (traygate, fake, token) = host_with("fake", options).await?;
    traygate.cli(&["config", "list_page", "10"]).await?.ok()?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let names = app.tools().await?;
    let page = tree(&app.request("tools/list", json!({})).await?.result()?);
    // What the first page ended with goes, and some that were before it.
    let own = |name: &String| name.strip_prefix("fake__").map(|own| content::tool("", own));
    let left: Vec<_> = names[..5].iter().chain(&names[11..]).filter_map(own).collect();
    fake.set_raw_list("tools", &left)?;
    traygate.cli(&["refresh", "fake"]).await?.ok()?;
    let mut seen = Vec::new();
    let mut cursor = page["nextCursor"].clone();
    while !cursor.is_null() {
        let page = tree(&app.request("tools/list", json!({"cursor": cursor})).await?.result()?);
        let tools = page["tools"].as_array().into_iter().flatten();
        seen.extend(tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)));
        cursor = page["nextCursor"].clone();
    }
    assert_eq!(seen, names[11..]);
    Ok(())
}
