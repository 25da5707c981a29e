//! What ends freshness early, and the reads that follow (design sections 4.3 and 4.4).

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use traygate_gateway::{api::Freshness, capability::CapabilityType};
use traygate_tests::{
    AppEra, Fake, FakeOptions,
    fake::{
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
    process,
};

use super::{LONG, asked, is_stale, listed, over_stdio_and_http, set_all, tool, until_seen};
use crate::{app, host_with};

/// Fresh for as long as nothing ends it.
async fn kept_for_long(options: FakeOptions) -> Result<(traygate_tests::Traygate, Fake, String)> {
    let (traygate, fake, token) = host_with("fake", options).await?;
    set_all(&fake, LONG)?;
    traygate.set("fake", "legacy_ttl", "until_told").await?;
    traygate.cli(&["refresh", "fake"]).await?.ok()?;
    Ok((traygate, fake, token))
}

#[tokio::test]
async fn each_kinds_list_changed_makes_the_next_read_re_list_in_both_eras() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        for options in over_stdio_and_http(era) {
            let (traygate, fake, token) = kept_for_long(options).await?;
            let app = app(&traygate, AppEra::Modern, &token).await?;
            for (what, methods, kinds) in [
                ("tools", &["tools/list"][..], &[CapabilityType::Tool][..]),
                ("prompts", &["prompts/list"], &[CapabilityType::Prompt]),
                (
                    "resources",
                    &["resources/list", "resources/templates/list"],
                    &[CapabilityType::Resource, CapabilityType::Template],
                ),
            ] {
                for method in methods {
                    assert_eq!(asked(&fake, method, listed(&app, method)).await?.0, 0, "{method}");
                }
                fake.announce_to_listeners(what).await?;
                for (kind, method) in kinds.iter().zip(methods) {
                    until_seen(&traygate, "fake", *kind, is_stale).await?;
                    let (reads, _) = asked(&fake, method, listed(&app, method)).await?;
                    assert_eq!(reads, 1, "{era:?} {method}: the next need reads it");
                    let (reads, _) = asked(&fake, method, listed(&app, method)).await?;
                    assert_eq!(reads, 0, "{era:?} {method}: and keeps it");
                }
                for method in super::METHODS.iter().filter(|method| !methods.contains(method)) {
                    let (reads, _) = asked(&fake, method, listed(&app, method)).await?;
                    assert_eq!(reads, 0, "{era:?} {method}: others are left alone");
                }
            }
            fake.assert_no_violations()?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_refresh_and_a_new_link_end_freshness_and_throw_nothing_away() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        let (traygate, fake, token) = kept_for_long(FakeOptions::stdio(era)).await?;
        let app = app(&traygate, AppEra::Modern, &token).await?;
        let before = app.tools().await?;
        let refresh = async { traygate.cli(&["refresh", "fake"]).await?.ok() };
        assert_eq!(asked(&fake, "tools/list", refresh).await?.0, 1, "{era:?}");
        traygate.cli(&["restart", "fake"]).await?.ok()?;
        let stale = until_seen(&traygate, "fake", CapabilityType::Tool, is_stale).await?;
        assert!(
            matches!(&stale, Freshness::Stale { because, .. } if because.contains("connected anew")),
            "{stale:?}"
        );
        fake.arm_with(&Arm::new(Failure::Error, "tools/list").for_ever())?;
        assert_eq!(app.tools().await?, before, "{era:?}: served where it can't be read anew");
        until_seen(&traygate, "fake", CapabilityType::Tool, is_stale)
            .await
            .with_context(|| format!("{era:?}: a list that failed isn't fresh"))?;
        fake.disarm()?;
        assert_eq!(app.tools().await?, before, "{era:?}");
        let is_fresh = |freshness: &Freshness| matches!(freshness, Freshness::Fresh { .. });
        until_seen(&traygate, "fake", CapabilityType::Tool, is_fresh).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_meets_no_such_tool_is_one_re_list_exactly() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        for listens in [true, false] {
            let (traygate, fake, token) = kept_for_long(FakeOptions::http(era)).await?;
            let mut app = app(&traygate, AppEra::Modern, &token).await?;
            app.tools().await?;
            let ears = if listens { Some(app.listen().await?) } else { None };
            fake.set_list("tools", &[tool("add", "all that is left")])?;
            fake.arm_with(&Arm::new(Failure::Error, "tools/call").code(-32602))?;
            let before = fake.count("tools/list")?;
            app.call("fake__echo", json!({})).await?.error()?;
            if let Some(mut ears) = ears {
                ears.hear("notifications/tools/list_changed", super::SOON).await?;
            }
            assert_eq!(app.tools().await?, ["fake__add"], "{era:?}, listens: {listens}");
            // Longer than anything would be looked at once more.
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            app.tools().await?;
            assert_eq!(fake.count("tools/list")? - before, 1, "{era:?}, listens: {listens}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_announcement_before_the_change_is_looked_at_once_more() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        let (traygate, fake, token) = kept_for_long(FakeOptions::http(era)).await?;
        let mut app = app(&traygate, AppEra::Modern, &token).await?;
        app.tools().await?;
        let mut ears = app.listen().await?;
        let before = fake.count("tools/list")?;
        fake.announce_to_listeners("tools").await?;
        process::until("the first look", || fake.count("tools/list").is_ok_and(|n| n > before))
            .await?;
        fake.set_list("tools", &[tool("late", "made after it was announced")])?;
        ears.hear("notifications/tools/list_changed", Duration::from_secs(6)).await?;
        assert_eq!(app.tools().await?, ["fake__late"]);
        assert_eq!(fake.count("tools/list")? - before, 2, "{era:?}: one look, and one more");
    }
    Ok(())
}

#[tokio::test]
async fn a_storm_of_announcements_costs_at_most_one_read_a_second() -> Result<()> {
    let (traygate, fake, token) = kept_for_long(FakeOptions::http(FakeEra::Legacy)).await?;
    let mut app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    let mut ears = app.listen().await?;
    let (before, began) = (fake.count("tools/list")?, std::time::Instant::now());
    for number in 0..60 {
        fake.set_list("tools", &[tool("stormy", &format!("version {number}"))])?;
        fake.announce("tools").await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let lasted = began.elapsed();
    // The last state is what everybody ends with.
    let last = json!("version 59");
    let deadline = tokio::time::Instant::now() + super::SOON + Duration::from_secs(2);
    while listed(&app, "tools/list").await?["tools"][0]["description"] != last {
        ears.hear("notifications/tools/list_changed", super::SOON + Duration::from_secs(1)).await?;
        assert!(tokio::time::Instant::now() < deadline, "the newest state is not there");
    }
    let reads = fake.count("tools/list")? - before;
    // Those that the app's own lists asked for come on top.
    let most = lasted.as_secs() as usize + 6;
    assert!((2..=most).contains(&reads), "{reads} reads in {lasted:?}");
    Ok(())
}
