//! What apps see things called, and in which order.

use anyhow::{Context as _, Result};
use serde_json::json;
use traygate_gateway::{api::Change, capability::CapabilityType};
use traygate_tests::{
    App, AppEra, FakeOptions,
    app::LegacyApp,
    fake::{content::TOOLS, options::FakeEra},
    json::tree,
};

use crate::{app, host_with};

#[tokio::test]
async fn what_upstreams_say_about_their_use_reaches_apps_under_their_names() -> Result<()> {
    let (traygate, _fake, token) = host_with("one", FakeOptions::stdio(FakeEra::Legacy)).await?;
    traygate.state("one", "ready").await?;
    let all = LegacyApp::connect(&traygate.endpoint(), &token).await?;
    assert_eq!(all.opened["instructions"], "# one\ninstructions of the fake upstream");
    let view = LegacyApp::connect(&traygate.view("one"), &token).await?;
    assert_eq!(view.opened["instructions"], "instructions of the fake upstream");
    Ok(())
}

#[tokio::test]
async fn a_view_of_one_upstream_has_its_own_names() -> Result<()> {
    let (traygate, _fake, token) = host_with("one", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let _two = traygate.add_fake("two", FakeOptions::stdio(FakeEra::Modern)).await?;
    for upstream in ["one", "two"] {
        for era in AppEra::ALL {
            let app = App::connect(era, &traygate.view(upstream), &token).await?;
            assert_eq!(app.tools().await?, TOOLS, "{upstream} in {era:?}");
            assert_eq!(app.keys(CapabilityType::Prompt).await?, ["greet", "plain"]);
            assert_eq!(app.call_text("add", json!({"a": 2, "b": 2})).await?, "4");
        }
    }
    let nobody = App::connect(AppEra::Legacy, &traygate.view("nobody"), &token).await;
    assert!(nobody.is_err(), "there is no such upstream");
    Ok(())
}

#[tokio::test]
async fn long_and_odd_names_are_valid_for_the_pickiest_app_and_callable() -> Result<()> {
    let long = "a-tool-whose-name-goes-on-and-on-far-beyond-what-any-app-would-take-in-its-list";
    let odd = ["a.b", "a/b", "a b", "a__b", "ümläut", long];
    let mut options = FakeOptions::stdio(FakeEra::Legacy);
    for name in odd {
        options = options.flag("--tool-name", name);
    }
    let (mut traygate, fake, token) = host_with("an-upstream-with-a-long-name", options).await?;
    let app_now = app(&traygate, AppEra::Legacy, &token).await?;
    let tools = app_now.tools().await?;
    for tool in &tools {
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        assert!(tool.len() <= 49 && tool.chars().all(valid), "{tool}");
    }
    let distinct: std::collections::HashSet<_> = tools.iter().collect();
    assert_eq!(distinct.len(), tools.len(), "none shadows another");
    for (exposed, own) in tools[TOOLS.len()..].iter().zip(odd) {
        let result = app_now.call(exposed, json!({})).await?.result().context(own)?;
        assert_eq!(tree(&result)["structuredContent"]["params"]["name"], own);
    }
    let shown = traygate.cli(&["show", "an-upstream-with-a-long-name"]).await?.ok()?;
    for (exposed, own) in tools[TOOLS.len()..].iter().zip(odd).filter(|(_, own)| *own != "a__b") {
        assert!(shown.contains(own), "{shown}");
        assert!(shown.contains(exposed.as_str()), "a person sees which name is whose: {shown}");
    }
    traygate.restart().await?;
    let after = app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    assert_eq!(after, tools, "the same names after a restart");
    fake.assert_no_violations()
}

#[tokio::test]
async fn two_upstreams_with_the_same_tools_both_work() -> Result<()> {
    let (traygate, one, token) = host_with("one", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let two = traygate.add_fake("two", FakeOptions::http(FakeEra::Modern)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("one__counter", json!({})).await?;
    app.call_text("two__counter", json!({})).await?;
    app.call_text("two__counter", json!({})).await?;
    assert_eq!((one.ran("counter")?, two.ran("counter")?), (1, 2));
    Ok(())
}

#[tokio::test]
async fn a_uri_that_two_upstreams_list_stays_readable_from_both() -> Result<()> {
    let (traygate, one, token) = host_with("one", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let two = traygate.add_fake("two", FakeOptions::stdio(FakeEra::Modern)).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let uris = app.keys(CapabilityType::Resource).await?;
    let text = |upstream| format!("traygate://{upstream}/fake%3A%2F%2Ffake%2Ftext");
    assert_eq!(uris.len(), 4, "{uris:?}");
    for (upstream, fake) in [("one", &one), ("two", &two)] {
        assert!(uris.contains(&text(upstream)), "{uris:?}");
        let before = fake.count("resources/read")?;
        let read = app.request("resources/read", json!({"uri": text(upstream)})).await?.result()?;
        assert_eq!(tree(&read)["contents"][0]["text"], "the text of fake");
        assert_eq!(fake.count("resources/read")?, before + 1, "{upstream} was asked");
    }
    Ok(())
}

#[tokio::test]
async fn a_uri_from_a_result_is_read_from_the_upstream_that_gave_it() -> Result<()> {
    let options = FakeOptions::stdio(FakeEra::Legacy).with("--authority hidden");
    let (traygate, _fake, token) = host_with("fake", options).await?;
    let _other = traygate.add_fake("other", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call("fake__link", json!({})).await?.result()?;
    let params = json!({"uri": "fake://hidden/linked"});
    let read = app.request("resources/read", params).await?.result()?;
    assert_eq!(tree(&read)["contents"][0]["text"], "only linked, never listed");
    Ok(())
}

#[tokio::test]
async fn the_order_is_the_users_and_the_bytes_are_the_same_at_every_start() -> Result<()> {
    let (mut traygate, _slow, token) =
        host_with("zeta", FakeOptions::stdio(FakeEra::Legacy).with("--delay-start 800")).await?;
    let _quick = traygate.add_fake("alpha", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let list = async |traygate: &traygate_tests::Traygate| -> Result<Vec<String>> {
        let app = app(traygate, AppEra::Legacy, &token).await?;
        Ok(app.list(CapabilityType::Tool).await?.iter().map(ToString::to_string).collect())
    };
    let first = list(&traygate).await?;
    assert!(first[0].contains("zeta__"), "the slow one comes first, since the user added it first");
    assert_eq!(list(&traygate).await?, first);
    traygate.restart().await?;
    assert_eq!(list(&traygate).await?, first, "byte for byte, whoever connects first");
    traygate.change("alpha", &Change { position: Some(1), ..Change::default() }).await?;
    assert!(list(&traygate).await?[0].contains("alpha__"), "the user has moved it up");
    Ok(())
}
