//! What is never written down.

use anyhow::Result;
use serde_json::json;
use traygate_gateway::{capability::CapabilityType, definition::Transport};
use traygate_tests::{
    AppEra, Fake, FakeOptions, Traygate,
    fake::{content::CANARIES, options::FakeEra},
    process::{self, holds},
    sdk,
};

use crate::{app, host_with};

#[tokio::test]
async fn no_description_and_no_schema_is_in_any_file_of_traygate() -> Result<()> {
    let (mut traygate, _fake, token) =
        host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    for era in AppEra::ALL {
        let app = app(&traygate, era, &token).await?;
        for kind in CapabilityType::ALL {
            app.list(kind).await?;
        }
    }
    scan(&traygate);
    traygate.stop().await?;
    scan(&traygate);
    Ok(())
}

fn scan(traygate: &Traygate) {
    let files = process::files(traygate.home.path());
    assert!(files.iter().any(|(file, _)| file.ends_with("traygate.db")), "there is a database");
    for (file, bytes) in &files {
        for canary in CANARIES {
            assert!(!holds(bytes, canary), "{canary} in {}", file.display());
        }
    }
}

#[tokio::test]
async fn the_database_holds_no_text_of_a_real_server() -> Result<()> {
    let traygate = Traygate::start().await?;
    let server = sdk::node_server("server-everything").display().to_string();
    traygate.cli(&["add", "everything", "--", "node", &server, "stdio"]).await?.ok()?;
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let mut texts = Vec::new();
    for kind in CapabilityType::ALL {
        for item in app.list(kind).await? {
            let item = traygate_tests::json::tree(&item);
            texts.extend(item["description"].as_str().map(str::to_owned));
            texts.extend(item.get("inputSchema").map(ToString::to_string));
            if let Some(properties) = item["inputSchema"]["properties"].as_object() {
                texts.extend(
                    properties
                        .values()
                        .filter_map(|p| p["description"].as_str())
                        .map(str::to_owned),
                );
            }
        }
    }
    assert!(texts.len() > 10, "there is something to look for");
    for (file, bytes) in process::files(&traygate.paths().data) {
        for text in texts.iter().filter(|text| text.len() > 8) {
            assert!(!holds(&bytes, text), "{text:?} in {}", file.display());
        }
    }
    Ok(())
}

#[tokio::test]
async fn no_secret_argument_or_result_is_in_a_log_an_export_or_an_error() -> Result<()> {
    let traygate = Traygate::start().await?;
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut definition = traygate.definition(&fake)?;
    if let Transport::Stdio { env, .. } = &mut definition.transport {
        env.insert("API_KEY".to_owned(), "secret-canary-env".to_owned());
    }
    traygate.add(&definition).await?;
    let web = Fake::start("web", FakeOptions::http(FakeEra::Legacy)).await?;
    let mut definition = traygate.definition(&web)?;
    if let Transport::Http { headers, url, .. } = &mut definition.transport {
        headers.insert("Authorization".to_owned(), "Bearer secret-canary-header".to_owned());
        url.push_str("?key=secret-canary-query");
    }
    traygate.add(&definition).await?;
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    for upstream in ["fake", "web"] {
        let arguments = json!({"password": "secret-canary-argument"});
        app.call(&format!("{upstream}__echo"), arguments.clone()).await?.result()?;
        app.call(&format!("{upstream}__rpc-error"), arguments.clone()).await?.error()?;
        app.call(&format!("{upstream}__nothing"), arguments).await?.error()?;
    }
    let asked = web.messages("tools/call")?;
    let header = asked.first().and_then(|entry| entry.headers.get("authorization").cloned());
    assert_eq!(header.as_deref(), Some("Bearer secret-canary-header"), "the upstream gets it");
    let mut said = vec![("its output", traygate.host_log()?)];
    for (about, args) in [
        ("export", &["export"][..]),
        ("list", &["list", "--json"]),
        ("show", &["show", "fake", "--json"]),
        ("status", &["status", "--json"]),
        ("logs", &["logs", "fake"]),
        ("logs", &["logs", "web"]),
    ] {
        said.push((about, traygate.cli(args).await?.ok()?));
    }
    for route in ["/upstreams/fake/definition", "/upstreams/web/definition", "/status", "/export"] {
        let (status, text) = traygate.control_raw(reqwest::Method::GET, route, None).await?;
        assert_eq!(status, 200, "{route}: {text}");
        said.push((route, text));
    }
    for (about, text) in &said {
        assert!(!text.contains("secret-canary"), "{about} tells a secret: {text}");
        assert!(!text.contains(&token), "{about} tells an app's token: {text}");
    }
    for (file, bytes) in process::files(traygate.home.path()) {
        assert!(!holds(&bytes, &token), "an app's token in {}", file.display());
        assert!(!holds(&bytes, "secret-canary-argument"), "an argument in {}", file.display());
    }
    Ok(())
}
