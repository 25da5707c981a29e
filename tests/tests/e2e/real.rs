//! Real servers from their registries behind the endpoint, used by the official SDKs' clients.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use traygate_tests::{
    Traygate,
    app::StdioApp,
    json::tree,
    sdk::{self, Sdk},
};

async fn with_real_servers() -> Result<(Traygate, tempfile::TempDir)> {
    let traygate = Traygate::start().await?;
    let files = tempfile::tempdir()?;
    std::fs::write(files.path().join("hello.txt"), "hello from a file")?;
    let directory = files.path().canonicalize()?.display().to_string();
    let memory = format!("MEMORY_FILE_PATH={}", files.path().join("memory.jsonl").display());
    let script = |name: &str| sdk::node_server(name).display().to_string();
    let (everything, filesystem, remembers) =
        (script("server-everything"), script("server-filesystem"), script("server-memory"));
    let python = sdk::python().display().to_string();
    let python_server = sdk::python_server().display().to_string();
    for add in [
        &["add", "everything", "--", "node", &everything, "stdio"][..],
        &["add", "filesystem", "--", "node", &filesystem, &directory],
        &["add", "memory", "--env", &memory, "--", "node", &remembers],
        &["add", "python", "--", &python, &python_server],
    ] {
        traygate.cli(add).await?.ok()?;
    }
    for upstream in ["everything", "filesystem", "memory", "python"] {
        traygate.cli(&["refresh", upstream]).await?.ok()?;
        traygate.state(upstream, "ready").await?;
    }
    Ok((traygate, files))
}

fn plan(files: &std::path::Path) -> Value {
    json!({
        "call": [
            {"name": "everything__echo", "arguments": {"message": "hi"}},
            {"name": "filesystem__read_text_file", "arguments": {"path": files.join("hello.txt")}},
            {"name": "memory__create_entities", "arguments": {"entities": [
                {"name": "ada", "entityType": "person", "observations": ["writes programs"]},
            ]}},
            {"name": "memory__read_graph", "arguments": {}},
            {"name": "python__multiply", "arguments": {"a": 6, "b": 7}},
        ],
        "get": [{"name": "python__review", "arguments": {"code": "x = 1"}}],
        "read": ["py://motto", "py://square/12"],
    })
}

#[tokio::test]
async fn the_official_clients_of_both_eras_use_real_servers() -> Result<()> {
    let (traygate, files) = with_real_servers().await?;
    let plan = plan(&files.path().canonicalize()?);
    for client in Sdk::ALL {
        let token = traygate.token(&format!("{client:?}").to_lowercase()).await?;
        let report = client.run(&traygate.endpoint(), &token, &plan).await?;
        let version = if client.is_modern() { "2026-07-28" } else { "2025-11-25" };
        assert_eq!(report["version"], version, "{client:?}");
        for (index, wanted) in [(0, "hi"), (1, "hello from a file"), (3, "ada"), (4, "42")] {
            let called = &report["called"][index];
            assert!(called["content"].to_string().contains(wanted), "{client:?}: {called}");
            assert_ne!(called["isError"], true, "{client:?}: {called}");
        }
        assert!(report["got"][0].to_string().contains("x = 1"), "{client:?}: {}", report["got"]);
        for (index, wanted) in [(0, "explicit is better"), (1, "144")] {
            let read = &report["read"][index];
            assert!(read.to_string().contains(wanted), "{client:?}: {read}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn real_servers_are_reached_over_the_bridge() -> Result<()> {
    let (traygate, _files) = with_real_servers().await?;
    let mut command = traygate.command();
    command.arg("stdio");
    let mut app = StdioApp::start(command)?;
    app.initialize().await?;
    let listed = tree(&app.request("tools/list", json!({})).await?.result()?);
    let listed = listed["tools"].as_array().context("tools")?;
    for upstream in ["everything__", "filesystem__", "memory__", "python__"] {
        let of =
            |tool: &&Value| tool["name"].as_str().is_some_and(|name| name.starts_with(upstream));
        assert!(listed.iter().any(|tool| of(&tool)), "{upstream}");
    }
    let call = json!({"name": "everything__echo", "arguments": {"message": "over the bridge"}});
    let echoed = tree(&app.request("tools/call", call).await?.result()?);
    assert!(echoed["content"].to_string().contains("over the bridge"), "{echoed}");
    Ok(())
}

#[tokio::test]
async fn the_official_clients_are_asked_by_upstreams_of_their_era() -> Result<()> {
    use traygate_tests::{FakeOptions, fake::options::FakeEra};
    for client in Sdk::ALL {
        let era = if client.is_modern() { FakeEra::Modern } else { FakeEra::Legacy };
        let (traygate, fake, token) = crate::host_with("fake", FakeOptions::stdio(era)).await?;
        let plan = json!({"call": [
            {"name": "fake__ask"}, {"name": "fake__sample"}, {"name": "fake__rpc-error"},
        ]});
        let report = client.run(&traygate.endpoint(), &token, &plan).await?;
        let called = &report["called"];
        assert_eq!(
            called[0]["structuredContent"]["answer"]["content"]["name"], "ada",
            "{client:?}: {called}"
        );
        assert_eq!(
            called[1]["structuredContent"]["answer"]["content"]["text"], "hello",
            "{client:?}: {called}"
        );
        assert_eq!(called[2]["error"]["code"], 4242, "{client:?}: {called}");
        fake.assert_no_violations()?;
    }
    Ok(())
}
