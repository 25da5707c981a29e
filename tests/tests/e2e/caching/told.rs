//! What apps are told: hints, and `list_changed` to exactly those whose view changed (design section
//! 4.6).

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use traygate_gateway::{api::Change, capability::CapabilityType};
use traygate_tests::{
    App, AppEra, FakeOptions, Traygate,
    app::Ears,
    fake::{
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
};

use super::{SOON, listed, over_stdio_and_http, set_all, tool};
use crate::app;

/// More than everything that was to be told needs.
const QUIET: Duration = Duration::from_millis(700);
const CHANGED: &str = "notifications/tools/list_changed";

/// How often it was told that its tools changed. That it was told of the first prompts and resources is
/// no concern of these tests.
fn told(ears: &mut Ears) -> usize {
    ears.heard().iter().filter(|message| message["method"] == CHANGED).count()
}

#[tokio::test]
async fn a_merged_list_is_as_fresh_as_its_stalest_part_and_as_private_as_its_most_private()
-> Result<()> {
    let traygate = Traygate::start().await?;
    let one = traygate.add_fake("one", FakeOptions::http(FakeEra::Modern)).await?;
    let two = traygate.add_fake("two", FakeOptions::stdio(FakeEra::Modern)).await?;
    let token = traygate.token("app").await?;
    let all = app(&traygate, AppEra::Modern, &token).await?;
    for (of_one, of_two, most, scope) in [
        (
            r#""ttlMs":9000,"cacheScope":"public""#,
            r#""ttlMs":7000,"cacheScope":"public""#,
            7_000,
            "public",
        ),
        (
            r#""ttlMs":9000,"cacheScope":"public""#,
            r#""ttlMs":7000,"cacheScope":"private""#,
            7_000,
            "private",
        ),
        (
            r#""ttlMs":9000,"cacheScope":"public""#,
            r#""ttlMs":0,"cacheScope":"public""#,
            0,
            "public",
        ),
        (
            r#""ttlMs":900000000,"cacheScope":"public""#,
            r#""ttlMs":800000000,"cacheScope":"public""#,
            300_000,
            "public",
        ),
    ] {
        set_all(&one, of_one)?;
        set_all(&two, of_two)?;
        traygate.cli(&["refresh", "one"]).await?.ok()?;
        traygate.cli(&["refresh", "two"]).await?.ok()?;
        let told = listed(&all, "tools/list").await?;
        let ttl = told["ttlMs"].as_u64().context("ttlMs")?;
        assert!(ttl <= most && (ttl > 0) == (most > 0), "{ttl} of {most}");
        assert_eq!(told["cacheScope"], scope);
    }
    // What is told is what is left, not what was given.
    set_all(&one, r#""ttlMs":9000,"cacheScope":"public""#)?;
    traygate.cli(&["refresh", "one"]).await?.ok()?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let left = listed(&all, "tools/list").await?["ttlMs"].as_u64().context("ttlMs")?;
    assert!(left <= 8_500, "{left}");
    // Nothing of this for the legacy era.
    let legacy = app(&traygate, AppEra::Legacy, &token).await?;
    let told = listed(&legacy, "tools/list").await?;
    assert!(told.get("ttlMs").is_none() && told.get("cacheScope").is_none(), "{told}");
    // And one that is missing makes the whole worth nothing.
    two.arm_with(&Arm::new(Failure::Error, "tools/list").for_ever())?;
    traygate.change("two", &Change { enabled: Some(false), ..Change::default() }).await?;
    traygate.change("two", &Change { enabled: Some(true), ..Change::default() }).await?;
    let told = listed(&all, "tools/list").await?;
    assert_eq!((&told["ttlMs"], &told["cacheScope"]), (&json!(0), &json!("private")));
    Ok(())
}

#[tokio::test]
async fn apps_whose_view_changed_hear_of_it_within_two_seconds_and_no_other() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        for options in over_stdio_and_http(era) {
            let traygate = Traygate::start().await?;
            let fake = traygate.add_fake("fake", options).await?;
            let _other = traygate.add_fake("other", FakeOptions::stdio(era)).await?;
            let token = traygate.token("app").await?;
            fake.set_list("tools", &[tool("a", "first"), tool("b", "second")])?;
            let (mut concerned, mut bystanders) = (Vec::new(), Vec::new());
            for app_era in AppEra::ALL {
                for view in [None, Some("fake"), Some("other")] {
                    let url = view.map_or(traygate.endpoint(), |view| traygate.view(view));
                    let mut app = App::connect(app_era, &url, &token).await?;
                    app.tools().await?;
                    let hears = (app.listen().await?, app, url);
                    if view == Some("other") {
                        bystanders.push(hears);
                    } else {
                        concerned.push(hears);
                    }
                }
            }
            let schema = json!({"type": "object", "properties": {"n": {"type": "number"}}});
            for (what, tools) in [
                ("added", vec![tool("a", "first"), tool("b", "second"), tool("c", "third")]),
                ("removed", vec![tool("a", "first"), tool("b", "second")]),
                ("description", vec![tool("a", "first"), tool("b", "in other words")]),
                (
                    "schema",
                    vec![
                        tool("a", "first"),
                        json!({"name": "b", "description": "in other words", "inputSchema": schema}),
                    ],
                ),
                (
                    "order",
                    vec![
                        json!({"name": "b", "description": "in other words", "inputSchema": schema}),
                        tool("a", "first"),
                    ],
                ),
            ] {
                fake.set_list("tools", &tools)?;
                fake.announce_to_listeners("tools").await?;
                let began = tokio::time::Instant::now();
                for (ears, app, url) in &mut concerned {
                    let left = SOON.saturating_sub(began.elapsed());
                    ears.hear(CHANGED, left).await.with_context(|| format!("{what}: {url}"))?;
                    assert_eq!(app.tools().await?.len() % 19, tools.len(), "{what}: {url}");
                }
                // The next change is not to be mistaken for one that came too often.
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            tokio::time::sleep(QUIET).await;
            for (ears, _, url) in &mut bystanders {
                assert_eq!(told(ears), 0, "{url}");
            }
            for (ears, _, url) in &mut concerned {
                assert_eq!(told(ears), 0, "{url} heard more than there was");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_announcement_of_nothing_reaches_nobody() -> Result<()> {
    let traygate = Traygate::start().await?;
    let fake = traygate.add_fake("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let token = traygate.token("app").await?;
    let mut app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    let mut ears = app.listen().await?;
    for _ in 0..5 {
        fake.announce_to_listeners("tools").await?;
    }
    let looked = || fake.count("tools/list").is_ok_and(|reads| reads >= 3);
    traygate_tests::process::until("both looks", looked).await?;
    tokio::time::sleep(QUIET).await;
    assert_eq!(told(&mut ears), 0);
    Ok(())
}

#[tokio::test]
async fn a_switch_in_one_place_is_told_to_every_app_that_sees_it_and_coalesced() -> Result<()> {
    let traygate = Traygate::start().await?;
    let fake = traygate.add_fake("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let _other = traygate.add_fake("other", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let token = traygate.token("app").await?;
    let mut hearing = Vec::new();
    for era in AppEra::ALL {
        for url in [traygate.endpoint(), traygate.view("fake")] {
            let mut app = App::connect(era, &url, &token).await?;
            app.tools().await?;
            hearing.push((app.listen().await?, app, url));
        }
    }
    let mut elsewhere = App::connect(AppEra::Modern, &traygate.view("other"), &token).await?;
    elsewhere.tools().await?;
    let mut unconcerned = elsewhere.listen().await?;
    // From the command line, as a person does it; the window and the tray use the same route.
    traygate.cli(&["disable", "fake/tool/echo"]).await?.ok()?;
    for (ears, app, url) in &mut hearing {
        ears.hear(CHANGED, SOON).await.with_context(|| url.clone())?;
        assert!(
            !app.tools()
                .await?
                .iter()
                .any(|name| name.ends_with("echo") && !name.starts_with("other")),
            "{url}"
        );
    }
    let began = tokio::time::Instant::now();
    for name in ["add", "rich", "fail", "counter", "env"] {
        traygate.toggle("fake", CapabilityType::Tool, name, false).await?;
    }
    let lasted = began.elapsed();
    tokio::time::sleep(QUIET).await;
    for (ears, app, url) in &mut hearing {
        let told = told(ears);
        let most = 2 + (lasted.as_millis() / 250) as usize;
        assert!((1..=most).contains(&told), "{told} in {lasted:?} at {url}");
        assert_eq!(app.tools().await?.len() % 19, 13, "{url}: the last of them was told too");
    }
    assert_eq!(told(&mut unconcerned), 0);
    drop(fake);
    Ok(())
}
