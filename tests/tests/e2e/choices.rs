//! What the user switches on and off, and that it stays so.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use traygate_gateway::{
    api::{Change, PinView},
    capability::CapabilityType,
    names::UpstreamName,
};
use traygate_tests::{
    App, AppEra, Fake, FakeOptions, Traygate,
    fake::{
        content::TOOLS,
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
    process,
};

use crate::{app, code_of, host_with};

/// One of each type: how it is listed, its key, and a request that uses it.
fn one_of_each() -> [(CapabilityType, &'static str, &'static str, Value); 4] {
    use CapabilityType::{Prompt, Resource, Template, Tool};
    let item = "fake://fake/item/7";
    [
        (Tool, "echo", "tools/call", json!({"name": "fake__echo", "arguments": {}})),
        (Prompt, "plain", "prompts/get", json!({"name": "fake__plain"})),
        (Resource, "fake://fake/text", "resources/read", json!({"uri": "fake://fake/text"})),
        (Template, "fake://fake/item/{id}", "resources/read", json!({"uri": item})),
    ]
}

async fn is_off(app: &App, kind: CapabilityType, key: &str) -> Result<bool> {
    Ok(!app.keys(kind).await?.iter().any(|listed| listed.ends_with(key)))
}

#[tokio::test]
async fn each_type_is_absent_from_lists_and_refused_on_use() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    for (kind, key, method, params) in one_of_each() {
        app.request(method, params.clone()).await?.result().context("enabled at first")?;
        traygate.toggle("fake", kind, key, false).await?;
        assert!(is_off(&app, kind, key).await?, "{kind} {key}");
        let before = fake.count(method)?;
        let refused = app.request(method, params.clone()).await?;
        assert_eq!(code_of(refused)["code"], "CAPABILITY_DISABLED", "{kind} {key}");
        assert_eq!(fake.count(method)?, before, "the upstream isn't asked");
        traygate.toggle("fake", kind, key, true).await?;
        app.request(method, params).await?.result().context("enabled again")?;
    }
    Ok(())
}

#[tokio::test]
async fn a_disabled_thing_is_refused_in_every_spelling() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let view = App::connect(AppEra::Modern, &traygate.view("fake"), &token).await?;
    app.tools().await?;
    for (kind, key, _, _) in one_of_each() {
        traygate.toggle("fake", kind, key, false).await?;
    }
    traygate.toggle("fake", CapabilityType::Prompt, "greet", false).await?;
    for name in ["fake__echo", "echo", "FAKE__echo", "fake__ECHO", " fake__echo", "fake/echo"] {
        app.call(name, json!({})).await?.error().context(name)?;
        if name != "fake__echo" {
            view.call(name, json!({})).await?.error().context(name)?;
        }
    }
    let text = "traygate://fake/fake%3A%2F%2Ffake%2Ftext";
    for uri in
        ["fake://fake/text", text, "fake://fake/item/1", "traygate://fake/fake%3a%2f%2ffake%2ftext"]
    {
        app.request("resources/read", json!({"uri": uri})).await?.error().context(uri)?;
        view.request("resources/read", json!({"uri": uri})).await?.error().context(uri)?;
    }
    let subscribe = app.request("resources/subscribe", json!({"uri": "fake://fake/text"})).await?;
    subscribe.error().context("subscribing")?;
    for reference in [
        json!({"type": "ref/prompt", "name": "fake__greet"}),
        json!({"type": "ref/resource", "uri": "fake://fake/item/{id}"}),
    ] {
        let params = json!({"ref": reference, "argument": {"name": "name", "value": ""}});
        app.request("completion/complete", params).await?.error().context("completing")?;
    }
    for method in ["tools/call", "resources/read", "resources/subscribe", "completion/complete"] {
        assert_eq!(fake.count(method)?, 0, "{method} never reached the upstream");
    }
    Ok(())
}

#[tokio::test]
async fn a_toggle_tells_connected_apps_within_a_second() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    for era in AppEra::ALL {
        let mut app = app(&traygate, era, &token).await?;
        for kind in CapabilityType::ALL {
            app.list(kind).await?;
        }
        let mut ears = app.listen().await?;
        for (kind, key, _, _) in one_of_each() {
            let method = match kind {
                CapabilityType::Tool => "notifications/tools/list_changed",
                CapabilityType::Prompt => "notifications/prompts/list_changed",
                _ => "notifications/resources/list_changed",
            };
            for enabled in [false, true] {
                traygate.toggle("fake", kind, key, enabled).await?;
                ears.hear(method, Duration::from_secs(1))
                    .await
                    .context(format!("{era:?} {kind}"))?;
                assert_eq!(is_off(&app, kind, key).await?, !enabled, "told after it is so");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn disabling_an_upstream_takes_all_of_it_away_and_ends_its_process() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    let mut ears = app.listen().await?;
    traygate.change("fake", &Change { enabled: Some(false), ..Change::default() }).await?;
    ears.hear("notifications/tools/list_changed", Duration::from_secs(1)).await?;
    assert!(app.tools().await?.is_empty());
    app.call("fake__echo", json!({})).await?.error()?;
    process::until("its end", || fake.alive().is_ok_and(|alive| alive.is_empty())).await?;
    traygate.change("fake", &Change { enabled: Some(true), ..Change::default() }).await?;
    app.call_text("fake__echo", json!({})).await?;
    Ok(())
}

#[tokio::test]
async fn new_things_start_off_where_the_policy_says_so() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    let mut ears = app.listen().await?;
    traygate.set("fake", "auto_enable_new_capabilities", "false").await?;
    let schema = json!({"type": "object"});
    let tool = |name: &str| json!({"name": name, "inputSchema": schema});
    fake.set_list("tools", &[tool("echo"), tool("brand-new")])?;
    fake.announce_to_listeners("tools").await?;
    ears.hear("notifications/tools/list_changed", Duration::from_secs(5)).await?;
    assert_eq!(app.tools().await?, ["fake__echo"], "known ones stay on, the new one is off");
    let refused = app.call("fake__brand-new", json!({})).await?;
    assert_eq!(code_of(refused)["code"], "CAPABILITY_DISABLED");
    traygate.toggle("fake", CapabilityType::Tool, "brand-new", true).await?;
    assert_eq!(app.tools().await?, ["fake__echo", "fake__brand-new"]);
    Ok(())
}

async fn off(traygate: &Traygate, upstream: &str) -> Result<Vec<String>> {
    let capabilities = traygate.capabilities(upstream).await?;
    let mut off: Vec<_> =
        capabilities.items.into_iter().filter(|item| !item.enabled).map(|item| item.key).collect();
    off.sort();
    Ok(off)
}

#[tokio::test]
async fn choices_survive_a_crash_a_restart_a_rename_and_an_upgrade() -> Result<()> {
    let (mut traygate, fake, token) =
        host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    for (kind, key, _, _) in one_of_each() {
        traygate.toggle("fake", kind, key, false).await?;
    }
    let chosen = ["echo", "fake://fake/item/{id}", "fake://fake/text", "plain"];
    traygate.kill()?;
    traygate.serve().await?;
    assert_eq!(off(&traygate, "fake").await?, chosen, "after kill -9, before the upstream is read");
    let app_now = app(&traygate, AppEra::Legacy, &token).await?;
    assert!(is_off(&app_now, CapabilityType::Tool, "__echo").await?);
    traygate.restart().await?;
    assert_eq!(off(&traygate, "fake").await?, chosen, "after a restart");
    let renamed = UpstreamName::parse("renamed")?;
    traygate.change("fake", &Change { rename: Some(renamed), ..Change::default() }).await?;
    assert_eq!(off(&traygate, "renamed").await?, chosen, "after a rename");
    let app_now = app(&traygate, AppEra::Modern, &token).await?;
    let tools = app_now.tools().await?;
    assert!(tools.contains(&"renamed__add".to_owned()), "{tools:?}");
    assert!(!tools.contains(&"renamed__echo".to_owned()), "{tools:?}");
    // An upgrade that drops everything, and one that brings it back.
    fake.set_list("tools", &[])?;
    traygate
        .control::<Value>(reqwest::Method::POST, "/upstreams/renamed/refresh", None::<&()>)
        .await?;
    assert!(app_now.tools().await?.is_empty());
    std::fs::remove_file(fake.dir.path().join("lists.json"))?;
    traygate
        .control::<Value>(reqwest::Method::POST, "/upstreams/renamed/refresh", None::<&()>)
        .await?;
    assert!(!app_now.tools().await?.contains(&"renamed__echo".to_owned()), "gone and back");
    assert_eq!(off(&traygate, "renamed").await?, chosen);
    Ok(())
}

#[tokio::test]
async fn what_is_known_can_be_toggled_while_its_upstream_is_down() -> Result<()> {
    let (mut traygate, fake, token) =
        host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    traygate.stop().await?;
    fake.arm_with(&Arm::new(Failure::DieAtOnce, "start").for_ever())?;
    traygate.serve().await?;
    let known = traygate.capabilities("fake").await?;
    assert!(known.items.iter().any(|item| item.key == "echo" && !item.live), "{known:?}");
    traygate.toggle("fake", CapabilityType::Tool, "echo", false).await?;
    assert_eq!(off(&traygate, "fake").await?, ["echo"]);
    fake.disarm()?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("fake__add", json!({"a": 1, "b": 1})).await?;
    let refused = app.call("fake__echo", json!({})).await?;
    assert_eq!(code_of(refused)["code"], "CAPABILITY_DISABLED");
    assert!(is_off(&app, CapabilityType::Tool, "__echo").await?);
    Ok(())
}

#[tokio::test]
async fn bad_input_loses_no_choice() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    traygate.toggle("fake", CapabilityType::Tool, "echo", false).await?;
    for (method, route, body) in [
        (reqwest::Method::POST, "/upstreams", "{"),
        (reqwest::Method::POST, "/upstreams", r#"{"name":"Not A Name","transport":{}}"#),
        (reqwest::Method::PATCH, "/upstreams/fake", r#"{"surprise":1}"#),
        (reqwest::Method::PATCH, "/upstreams/fake", r#"{"settings":{"request_timeout":"soon"}}"#),
        (reqwest::Method::PATCH, "/upstreams/fake/capabilities", r#"{"type":"gadget","key":"x"}"#),
        (reqwest::Method::POST, "/import", r#"{"traygate_export":99}"#),
    ] {
        let (status, text) = traygate.control_raw(method, route, Some(body.to_owned())).await?;
        assert_eq!(status, 400, "{route} {body}: {text}");
        let problem: Value = serde_json::from_str(&text)?;
        assert!(problem["message"].as_str().is_some_and(|words| !words.is_empty()), "{text}");
    }
    let same_name = serde_json::to_string(&traygate.definition(&fake)?)?;
    let (status, text) =
        traygate.control_raw(reqwest::Method::POST, "/upstreams", Some(same_name)).await?;
    assert_eq!(status, 409, "{text}");
    assert_eq!(off(&traygate, "fake").await?, ["echo"]);
    Ok(())
}

#[tokio::test]
async fn an_unknown_name_is_answered_with_the_nearest_one() -> Result<()> {
    let (traygate, _fake, token) = host_with("files", FakeOptions::stdio(FakeEra::Legacy)).await?;
    app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    let (status, text) =
        traygate.control_raw(reqwest::Method::GET, "/upstreams/fiels", None).await?;
    assert_eq!(status, 404);
    assert!(text.contains("files"), "{text}");
    let toggle = r#"{"type":"tool","key":"ehco","enabled":false}"#.to_owned();
    let route = "/upstreams/files/capabilities";
    let (status, text) = traygate.control_raw(reqwest::Method::PATCH, route, Some(toggle)).await?;
    assert_eq!(status, 404);
    assert!(text.contains("echo"), "{text}");
    Ok(())
}

#[tokio::test]
async fn changing_one_upstream_leaves_a_running_call_on_another_alone() -> Result<()> {
    let (traygate, fake, token) = host_with("calm", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let other: Fake = traygate.add_fake("other", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = traygate_tests::app::LegacyApp::connect(&traygate.endpoint(), &token).await?;
    let params = json!({"name": "calm__slow", "arguments": {"ms": 3000}});
    let (_, call) = app.begin("tools/call", &params);
    fake.asked("tools/call").await?;
    let mut definition = traygate.definition(&other)?;
    if let traygate_gateway::definition::Transport::Stdio { args, .. } = &mut definition.transport {
        args.extend(["--prefix".to_owned(), "new-".to_owned()]);
    }
    let change = Change { transport: Some(definition.transport), ..Change::default() };
    traygate.change("other", &change).await?;
    let app_too = App::Legacy(app);
    assert!(app_too.tools().await?.contains(&"other__new-echo".to_owned()), "it has changed");
    call.await??.result().context("the call of the other one goes on")?;
    assert_eq!(fake.events("start")?, fake.alive()?.len(), "its process is the same");
    Ok(())
}

/// What the tray needs at every change, and no more of it than the tray shows.
#[tokio::test]
async fn a_snapshot_has_the_first_tools_the_pins_and_who_is_connected() -> Result<()> {
    let options = FakeOptions::stdio(FakeEra::Modern).with("--tools 30");
    let (traygate, _fake, token) = host_with("fake", options).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.keys(CapabilityType::Prompt).await?;
    app.tools().await?;
    traygate.toggle("fake", CapabilityType::Tool, "add", false).await?;
    for pin in ["fake/tool/add", "fake/prompt/plain"] {
        traygate.cli(&["pin", pin]).await?.ok()?;
    }

    let snapshot = traygate.snapshot().await?;
    let tools = &snapshot.upstreams[0].tools;
    let shown: Vec<_> = tools.iter().map(|tool| tool.key.as_str()).collect();
    assert_eq!(shown, TOOLS);
    let off: Vec<_> = tools.iter().filter(|tool| !tool.enabled).map(|tool| &tool.key).collect();
    assert_eq!(off, ["add"]);
    let reading: Vec<_> =
        tools.iter().filter(|tool| tool.read_only).map(|tool| &tool.key).collect();
    assert_eq!(reading, ["rich", "read-only"]);
    let pin = |kind, key: &str, enabled| {
        let upstream = UpstreamName::parse("fake").expect("a name");
        PinView { upstream, kind, key: key.to_owned(), enabled }
    };
    let tool = pin(CapabilityType::Tool, "add", false);
    assert_eq!(snapshot.pins, [tool, pin(CapabilityType::Prompt, "plain", true)]);
    let seen = &snapshot.apps[0];
    assert_eq!((seen.connections, seen.listed_tools), (1, Some(50)));
    assert!(seen.connected_since >= Some(snapshot.started_at), "{seen:?}");
    Ok(())
}
