//! When a catalogue is fresh, by the era of its upstream (design sections 4.1 and 4.4).

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use serde_json::json;
use traygate_gateway::{
    api::{Change, Freshness},
    capability::CapabilityType,
    definition::Transport,
};
use traygate_tests::{
    App, AppEra, FakeOptions, Traygate,
    fake::{
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
};

use super::{
    LONG, METHODS, PAST_SHORT, SHORT, asked, catalogue, is_stale, listed, over_stdio_and_http,
    set_all, until_seen,
};
use crate::{app, host_with};

#[tokio::test]
async fn a_modern_list_is_read_once_within_its_time_and_once_after_it() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Modern) {
        let (traygate, fake, token) = host_with("fake", options).await?;
        let app = app(&traygate, AppEra::Modern, &token).await?;
        for method in METHODS {
            fake.set_hints(method, &[LONG])?;
            let lists = async { try_join_all([1, 2, 3].map(|_| listed(&app, method))).await };
            assert_eq!(asked(&fake, method, lists).await?.0, 1, "{method}, cold");
            assert_eq!(asked(&fake, method, listed(&app, method)).await?.0, 0, "{method}, warm");
        }
        // Each catalogue has its own deadline: those of the others have not moved.
        fake.set_hints("tools/list", &[SHORT])?;
        traygate.cli(&["refresh", "fake"]).await?.ok()?;
        listed(&app, "tools/list").await?;
        tokio::time::sleep(PAST_SHORT).await;
        assert_eq!(asked(&fake, "tools/list", listed(&app, "tools/list")).await?.0, 1);
        for method in &METHODS[1..] {
            assert_eq!(asked(&fake, method, listed(&app, method)).await?.0, 0, "{method}");
        }
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_ttl_that_is_none_makes_each_need_read_anew() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Modern) {
        let (traygate, fake, token) = host_with("fake", options).await?;
        let app = app(&traygate, AppEra::Modern, &token).await?;
        for ttl in ["0", "-1", "1.5", "1e300", "\"60\"", "null", "{}"] {
            let hints = format!(r#""ttlMs":{ttl},"cacheScope":"public""#);
            fake.set_hints("tools/list", &[&hints])?;
            for _ in 0..2 {
                let (reads, told) = asked(&fake, "tools/list", listed(&app, "tools/list")).await?;
                assert_eq!((reads, &told["ttlMs"]), (1, &json!(0)), "{ttl}");
                assert_eq!(told["cacheScope"], "public", "{ttl}");
            }
        }
        for absent in ["", r#""cacheScope":"public""#] {
            fake.set_hints("tools/list", &[absent])?;
            for _ in 0..2 {
                let (reads, told) = asked(&fake, "tools/list", listed(&app, "tools/list")).await?;
                assert_eq!((reads, &told["ttlMs"]), (1, &json!(0)), "absent");
            }
        }
        fake.set_hints("tools/list", &[r#""ttlMs":9223372036854775808,"cacheScope":"public""#])?;
        listed(&app, "tools/list").await?;
        let (reads, told) = asked(&fake, "tools/list", listed(&app, "tools/list")).await?;
        assert_eq!((reads, &told["ttlMs"]), (0, &json!(300_000)), "clamped, and fresh");
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn only_the_very_word_makes_a_list_public() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::http(FakeEra::Modern)).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    for scope in ["\"private\"", "\"Public\"", "\"\"", "null", "7", "[\"public\"]"] {
        fake.set_hints("tools/list", &[&format!(r#""ttlMs":0,"cacheScope":{scope}"#)])?;
        assert_eq!(listed(&app, "tools/list").await?["cacheScope"], "private", "{scope}");
    }
    fake.set_hints("tools/list", &[r#""ttlMs":0"#])?;
    assert_eq!(listed(&app, "tools/list").await?["cacheScope"], "private", "absent");
    Ok(())
}

/// The bug to fear: the modern rule applied to a legacy upstream reads its list at every need.
#[tokio::test]
async fn a_legacy_list_keeps_its_own_rule_whatever_hints_it_carries() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Legacy) {
        let (traygate, fake, token) = host_with("fake", options).await?;
        let app = app(&traygate, AppEra::Modern, &token).await?;
        for hints in [r#""ttlMs":0"#, "", r#""ttlMs":-1,"cacheScope":"public""#] {
            set_all(&fake, hints)?;
            traygate.cli(&["refresh", "fake"]).await?.ok()?;
            for method in METHODS {
                let (reads, told) = asked(&fake, method, listed(&app, method)).await?;
                assert_eq!(reads, 0, "{method} within the default minute");
                assert_eq!(told["cacheScope"], "private", "{method}");
                let left = told["ttlMs"].as_u64().unwrap_or_default();
                assert!((1..=60_000).contains(&left), "{method}: {left}");
            }
        }
        set_all(&fake, r#""ttlMs":3600000"#)?;
        traygate.set("fake", "legacy_ttl", "1").await?;
        traygate.cli(&["refresh", "fake"]).await?.ok()?;
        tokio::time::sleep(PAST_SHORT).await;
        assert_eq!(asked(&fake, "tools/list", listed(&app, "tools/list")).await?.0, 1);
        traygate.set("fake", "legacy_ttl", "until_told").await?;
        traygate.cli(&["refresh", "fake"]).await?.ok()?;
        tokio::time::sleep(PAST_SHORT).await;
        let (reads, told) = asked(&fake, "tools/list", listed(&app, "tools/list")).await?;
        assert_eq!((reads, &told["ttlMs"]), (0, &json!(300_000)), "until it says so");
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn the_shortest_page_and_the_narrowest_scope_hold_for_the_whole_list() -> Result<()> {
    let public = r#""ttlMs":3600000,"cacheScope":"public""#;
    for options in over_stdio_and_http(FakeEra::Modern) {
        let (traygate, fake, token) =
            host_with("fake", options.with("--page-size 5 --cursors empty")).await?;
        let app = app(&traygate, AppEra::Modern, &token).await?;
        for (pages, fresh, scope) in [
            ([public, public, public], true, "public"),
            ([public, r#""ttlMs":3600000,"cacheScope":"private""#, public], true, "private"),
            ([public, r#""ttlMs":3600000"#, public], true, "private"),
            ([public, r#""cacheScope":"public""#, public], false, "public"),
            ([public, public, r#""ttlMs":0,"cacheScope":"public""#], false, "public"),
        ] {
            fake.set_hints("tools/list", &pages)?;
            traygate.cli(&["refresh", "fake"]).await?.ok()?;
            let (reads, told) = asked(&fake, "tools/list", listed(&app, "tools/list")).await?;
            assert_eq!(reads == 0, fresh, "{pages:?}");
            assert_eq!(told["cacheScope"], scope, "{pages:?}");
        }
        fake.set_hints("tools/list", &[public, SHORT, public])?;
        traygate.cli(&["refresh", "fake"]).await?.ok()?;
        tokio::time::sleep(PAST_SHORT).await;
        let (reads, _) = asked(&fake, "tools/list", listed(&app, "tools/list")).await?;
        assert_eq!(reads, 4, "all pages from the first on");
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_cursor_begins_the_list_anew_once() -> Result<()> {
    let options = FakeOptions::http(FakeEra::Modern).with("--page-size 10 --ttl 3600000");
    let (traygate, fake, token) = host_with("fake", options).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    // The first page, then a refused cursor, then the whole list from its beginning.
    fake.arm_with(&Arm::new(Failure::Error, "tools/list").code(-32602).on_cursor())?;
    let (reads, tools) = asked(&fake, "tools/list", app.tools()).await?;
    assert_eq!((reads, tools.len()), (4, 19));
    assert!(catalogue(&traygate, "fake", CapabilityType::Tool).await?.warnings.is_empty());
    // Refused for ever: what was gathered is shown, with a warning.
    fake.arm_with(&Arm::new(Failure::Error, "tools/list").code(-32602).on_cursor().for_ever())?;
    traygate.cli(&["refresh", "fake"]).await?.ok()?;
    let (reads, tools) = asked(&fake, "tools/list", app.tools()).await?;
    assert_eq!((reads, tools.len()), (0, 10));
    let warnings = catalogue(&traygate, "fake", CapabilityType::Tool).await?.warnings;
    assert!(warnings.iter().any(|warning| warning.contains("page 2 was refused")), "{warnings:?}");
    Ok(())
}

#[tokio::test]
async fn fifty_cold_lists_are_one_read_and_warm_ones_none() -> Result<()> {
    let traygate = Traygate::start().await?;
    let token = traygate.token("app").await?;
    let mut fakes = Vec::new();
    for (number, era) in [FakeEra::Legacy, FakeEra::Modern].into_iter().enumerate() {
        for (transport, options) in over_stdio_and_http(era).into_iter().enumerate() {
            let name = format!("up{number}{transport}");
            fakes.push(traygate.add_fake(&name, options.with("--ttl 3600000")).await?);
        }
    }
    let apps = try_join_all((0..50).map(|_| app(&traygate, AppEra::Modern, &token))).await?;
    for round in ["cold", "warm"] {
        let lists = try_join_all(apps.iter().map(App::tools)).await?;
        assert!(lists.iter().all(|list| *list == lists[0] && list.len() == 4 * 19), "{round}");
        for fake in &fakes {
            assert_eq!(fake.count("tools/list")?, 1, "{} {round}", fake.name);
        }
    }
    // A warm list waits for nobody: not even for an upstream that has stopped answering.
    for fake in &fakes {
        fake.arm_with(&Arm::new(Failure::Hang, "tools/list").for_ever())?;
    }
    let began = std::time::Instant::now();
    apps[0].tools().await?;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn the_end_of_its_time_alone_starts_no_read() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::http(FakeEra::Modern)).await?;
    set_all(&fake, r#""ttlMs":100,"cacheScope":"public""#)?;
    let mut app = app(&traygate, AppEra::Modern, &token).await?;
    let _ears = app.listen().await?;
    app.tools().await?;
    let (reads, ()) = asked(&fake, "tools/list", async {
        // Ten times its time, with an app that listens.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    })
    .await?;
    assert_eq!(reads, 0, "a TTL is no polling interval");
    Ok(())
}

#[tokio::test]
async fn a_stale_list_is_served_on_error_only_and_says_so() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Modern) {
        let (traygate, fake, token) = host_with("fake", options).await?;
        fake.set_hints("tools/list", &[SHORT])?;
        fake.set_hints("prompts/list", &[SHORT])?;
        let app = app(&traygate, AppEra::Modern, &token).await?;
        let good = app.tools().await?;
        fake.set_list("tools", &[super::tool("newer", "only there once it can be read")])?;
        fake.arm_with(&Arm::new(Failure::Error, "tools/list").for_ever())?;
        fake.arm_with(&Arm::new(Failure::Error, "prompts/list").for_ever())?;
        tokio::time::sleep(PAST_SHORT).await;
        let stale = listed(&app, "tools/list").await?;
        assert_eq!(stale["tools"].as_array().map(Vec::len), Some(good.len()));
        assert_eq!(stale["ttlMs"], 0, "what is stale may not be kept");
        assert_eq!(stale["_meta"]["traygate/unavailable"], json!(null), "it is there, if stale");
        let seen = catalogue(&traygate, "fake", CapabilityType::Tool).await?.freshness;
        assert!(
            matches!(&seen, Freshness::Stale { because, .. } if because.contains("armed error")),
            "{seen:?}"
        );
        // One that was never read is unavailable, which isn't empty.
        let prompts = listed(&app, "prompts/list").await?;
        assert_eq!(prompts["_meta"]["traygate/unavailable"][0]["upstream"], "fake");
        assert_eq!((&prompts["ttlMs"], &prompts["cacheScope"]), (&json!(0), &json!("private")));
        let seen = catalogue(&traygate, "fake", CapabilityType::Prompt).await?.freshness;
        assert!(matches!(seen, Freshness::Unavailable { .. }), "{seen:?}");
        // An error is never kept: the very next need that can be met is.
        fake.disarm()?;
        assert_eq!(app.tools().await?, ["fake__newer"]);
        assert_eq!(app.keys(CapabilityType::Prompt).await?.len(), 2);
    }
    Ok(())
}

#[tokio::test]
async fn another_credential_never_sees_what_the_first_one_was_shown() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::http(FakeEra::Modern)).await?;
    set_all(&fake, r#""ttlMs":3600000,"cacheScope":"private""#)?;
    fake.set_hints("resources/read", &[r#""ttlMs":3600000,"cacheScope":"private""#])?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let read = || async {
        app.request("resources/read", json!({"uri": "fake://fake/text"})).await?.result()
    };
    app.tools().await?;
    read().await?;
    let mut definition = traygate.definition(&fake)?;
    let Transport::Http { headers, .. } = &mut definition.transport else { panic!("HTTP") };
    headers.insert("x-user".to_owned(), "somebody else".to_owned());
    let change = Change { transport: Some(definition.transport), ..Change::default() };
    traygate.change("fake", &change).await?;
    assert_eq!(asked(&fake, "tools/list", app.tools()).await?.0, 1, "nothing of it is left");
    assert_eq!(asked(&fake, "resources/read", read()).await?.0, 1, "nor of what was read");
    let with = fake.messages("tools/list")?.pop().map(|entry| entry.headers["x-user"].clone());
    assert_eq!(with.as_deref(), Some("somebody else"));
    // And if the new one is refused, the old one's list doesn't stand in for it.
    traygate
        .change(
            "fake",
            &Change { transport: Some(traygate.definition(&fake)?.transport), ..Change::default() },
        )
        .await?;
    fake.arm_with(&Arm::new(Failure::Error, "tools/list").for_ever())?;
    let refused = listed(&app, "tools/list").await?;
    assert_eq!(refused["tools"], json!([]));
    assert_eq!(refused["_meta"]["traygate/unavailable"][0]["upstream"], "fake");
    Ok(())
}

#[tokio::test]
async fn ten_thousand_tools_are_kept_and_shown() -> Result<()> {
    let options = FakeOptions::stdio(FakeEra::Modern)
        .with("--tools 9981 --page-size 1000 --ttl 3600000 --scope public");
    let (traygate, fake, token) = host_with("big", options).await?;
    traygate.cli(&["config", "list_budget", "60"]).await?.ok()?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let (reads, tools) = asked(&fake, "tools/list", app.tools()).await?;
    assert_eq!((reads, tools.len()), (10, 10_000), "every page once");
    assert_eq!(asked(&fake, "tools/list", app.tools()).await?.0, 0, "and never again");
    app.call_text("big__tool-9981", json!({})).await?;
    let view = catalogue(&traygate, "big", CapabilityType::Tool).await?;
    assert_eq!((view.total, view.on), (10_000, 10_000));
    Ok(())
}

#[tokio::test]
async fn a_person_is_told_how_fresh_each_list_is() -> Result<()> {
    let options = FakeOptions::http(FakeEra::Modern).with("--no-prompts --ttl 3600000");
    let (traygate, fake, token) = host_with("fake", options).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    for method in METHODS {
        listed(&app, method).await?;
    }
    let shown = traygate.cli(&["show", "fake"]).await?.ok()?;
    assert!(shown.contains("fresh for "), "{shown}");
    let seen = |kind| catalogue(&traygate, "fake", kind);
    assert_eq!(seen(CapabilityType::Prompt).await?.freshness, Freshness::Empty);
    fake.arm_with(&Arm::new(Failure::Hang, "tools/list").for_ever())?;
    fake.announce_to_listeners("tools").await?;
    let stale = until_seen(&traygate, "fake", CapabilityType::Tool, is_stale).await?;
    assert!(matches!(stale, Freshness::Stale { because, .. } if because.contains("changed")));
    traygate.change("fake", &Change { enabled: Some(false), ..Change::default() }).await?;
    assert_eq!(seen(CapabilityType::Tool).await?.freshness, Freshness::Off);
    let shown = traygate.cli(&["show", "fake"]).await?.ok()?;
    assert!(shown.contains("the upstream is disabled"), "{shown}");
    Ok(())
}
