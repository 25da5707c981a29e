//! The command line as a person and a script use it.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{
    AppEra, Fake, FakeOptions, Traygate,
    app::StdioApp,
    fake::{content::TOOLS, options::FakeEra},
    json::tree,
};

use crate::{app, host_with};

fn json_of(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("no JSON: {text}"))
}

#[tokio::test]
async fn a_person_adds_lists_calls_and_removes_a_server() -> Result<()> {
    let traygate = Traygate::start().await?;
    let fake = Fake::start("files", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let program = Fake::program().display().to_string();
    let mark = format!("{}={}", traygate_tests::process::MARK, traygate.mark);
    let mut add = vec!["add", "files", "--env", &mark, "--", &program];
    let args = fake.args();
    add.extend(args.iter().map(String::as_str));
    traygate.cli(&add).await?.ok()?;
    assert_eq!(fake.events("start")?, 1, "what was just added is started once");
    let listed = json_of(&traygate.cli(&["list", "--json"]).await?.ok()?)?;
    assert!(listed.to_string().contains("files"), "{listed}");
    let tested = traygate.cli(&["test", "files"]).await?.ok()?;
    assert!(tested.contains(&TOOLS.len().to_string()), "how many tools were found: {tested}");
    let called = traygate.cli(&["call", "files__add", r#"{"a":1,"b":2}"#]).await?.ok()?;
    assert!(called.contains('3'), "{called}");
    let shown = traygate.cli(&["show", "files"]).await?.ok()?;
    assert!(shown.contains("echo"), "{shown}");
    traygate.cli(&["remove", "files"]).await?.ok()?;
    assert!(!traygate.cli(&["list", "--json"]).await?.ok()?.contains("\"files\""));
    Ok(())
}

#[tokio::test]
async fn toggles_on_the_command_line_reach_apps() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    traygate.cli(&["disable", "fake/tool/echo"]).await?.ok()?;
    assert!(!app.tools().await?.contains(&"fake__echo".to_owned()));
    traygate.cli(&["enable", "fake/tool/echo"]).await?.ok()?;
    assert!(app.tools().await?.contains(&"fake__echo".to_owned()));
    traygate.cli(&["disable", "fake/resource/fake://fake/text"]).await?.ok()?;
    assert_eq!(app.keys(CapabilityType::Resource).await?, ["fake://fake/blob"]);
    traygate.cli(&["disable", "fake"]).await?.ok()?;
    assert!(app.tools().await?.is_empty());
    traygate.cli(&["enable", "fake"]).await?.ok()?;
    traygate.cli(&["rename", "fake", "better"]).await?.ok()?;
    assert!(app.tools().await?.contains(&"better__echo".to_owned()));
    traygate.cli(&["set", "better", "auto_enable_new_capabilities=false"]).await?.ok()?;
    assert!(!traygate.upstream("better").await?.settings.auto_enable_new_capabilities);
    Ok(())
}

#[tokio::test]
async fn exit_codes_tell_scripts_what_happened() -> Result<()> {
    let mut traygate = Traygate::unstarted()?;
    let unreachable = traygate.cli(&["status"]).await?;
    assert_eq!(unreachable.code, Some(3), "no host runs: {unreachable:?}");
    traygate.serve().await?;
    assert_eq!(traygate.cli(&["status"]).await?.code, Some(0));
    assert_eq!(traygate.cli(&["no-such-command"]).await?.code, Some(2));
    assert_eq!(traygate.cli(&["add"]).await?.code, Some(2));
    let unknown = traygate.cli(&["show", "nobody"]).await?;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("nobody"), "{}", unknown.stderr);
    let invalid = traygate.cli(&["add", "Not A Name", "--", "true"]).await?;
    assert!(matches!(invalid.code, Some(1 | 2)), "{invalid:?}");
    assert!(traygate.cli(&["--help"]).await?.ok()?.contains("serve"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(traygate.cli(&["completions", shell]).await?.ok()?.contains("traygate"), "{shell}");
    }
    Ok(())
}

#[tokio::test]
async fn a_token_is_told_once_and_works_until_it_is_revoked() -> Result<()> {
    let traygate = Traygate::start().await?;
    let token = json_of(&traygate.cli(&["token", "new", "claude", "--json"]).await?.ok()?)?;
    let token = token["token"].as_str().context("the token")?.to_owned();
    app(&traygate, AppEra::Modern, &token).await?.tools().await?;
    let listed = traygate.cli(&["token", "list"]).await?.ok()?;
    assert!(listed.contains("claude") && !listed.contains(&token), "{listed}");
    traygate.cli(&["token", "revoke", "claude"]).await?.ok()?;
    assert!(app(&traygate, AppEra::Modern, &token).await?.tools().await.is_err());
    Ok(())
}

#[tokio::test]
async fn an_export_brings_definitions_and_choices_to_another_home() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::http(FakeEra::Legacy)).await?;
    app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    traygate.toggle("fake", CapabilityType::Tool, "echo", false).await?;
    let exported = traygate.cli(&["export"]).await?.ok()?;
    let other = Traygate::start().await?;
    let file = other.home.path().join("export.json");
    std::fs::write(&file, &exported)?;
    other.cli(&["import", &file.display().to_string()]).await?.ok()?;
    let token = other.token("app").await?;
    let tools = app(&other, AppEra::Legacy, &token).await?.tools().await?;
    assert!(tools.contains(&"fake__add".to_owned()), "{tools:?}");
    assert!(!tools.contains(&"fake__echo".to_owned()), "the choice came along: {tools:?}");
    Ok(())
}

#[tokio::test]
async fn a_snippet_from_a_readme_is_understood() -> Result<()> {
    let traygate = Traygate::start().await?;
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let snippet = json!({"mcpServers": {"My Files": {
        "command": Fake::program(), "args": fake.args(),
        "env": {traygate_tests::process::MARK: traygate.mark},
    }}});
    traygate.cli(&["add", "--json", &snippet.to_string()]).await?.ok()?;
    let token = traygate.token("app").await?;
    let tools = app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    assert!(tools.contains(&"my-files__echo".to_owned()), "{tools:?}");
    Ok(())
}

#[tokio::test]
async fn the_bridge_speaks_stdio_in_both_eras_for_the_running_host() -> Result<()> {
    let (traygate, fake, _) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut command = traygate.command();
    command.arg("stdio");
    let mut legacy = StdioApp::start(command)?;
    let opened = legacy.initialize().await?;
    assert_eq!(opened["protocolVersion"], "2025-11-25");
    let listed = tree(&legacy.request("tools/list", json!({})).await?.result()?);
    assert_eq!(listed["tools"].as_array().map(Vec::len), Some(TOOLS.len()));
    let call = json!({"name": "fake__rich", "arguments": {}});
    let rich = legacy.request("tools/call", call).await?.result()?;
    traygate_tests::json::assert_carries(rich.get(), traygate_tests::fake::content::RICH);
    traygate.toggle("fake", CapabilityType::Tool, "echo", false).await?;
    legacy.ears.hear("notifications/tools/list_changed", traygate_tests::DEADLINE).await?;
    assert_eq!(legacy.quit().await?, Some(0));
    let mut command = traygate.command();
    command.arg("stdio");
    let mut modern = StdioApp::start(command)?;
    let discovered = tree(&modern.modern("server/discover", json!({})).await?.result()?);
    assert!(discovered["supportedVersions"].to_string().contains("2026-07-28"), "{discovered}");
    let call = json!({"name": "fake__add", "arguments": {"a": 1, "b": 2}});
    let sum = tree(&modern.modern("tools/call", call).await?.result()?);
    assert_eq!(sum["structuredContent"]["sum"], 3.0);
    modern.quit().await?;
    assert_eq!(fake.alive()?.len(), 1, "all of them share one process");
    Ok(())
}

#[tokio::test]
async fn a_paused_gateway_lists_but_uses_nothing() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    traygate.cli(&["pause"]).await?.ok()?;
    assert_eq!(app.tools().await?.len(), TOOLS.len(), "lists stay");
    let refused = app.call("fake__counter", json!({})).await?;
    assert_eq!(crate::code_of(refused)["code"], "PAUSED");
    assert_eq!(fake.ran("counter")?, 0);
    traygate.cli(&["resume"]).await?.ok()?;
    app.call_text("fake__counter", json!({})).await?;
    Ok(())
}
