//! `resources/read` and `server/discover` (design section 4.7).

use anyhow::Result;
use serde_json::{Value, json};
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{
    App, AppEra, Fake, FakeOptions, Traygate, fake::options::FakeEra, json::tree,
};

use super::{
    LONG, PAST_SHORT, SHORT, asked, is_stale, listed, over_stdio_and_http, set_all, until_seen,
};
use crate::{app, code_of, host_with};

const TEXT: &str = "fake://fake/text";
const ITEM: &str = "fake://fake/item/7";

async fn read(app: &App, uri: &str) -> Result<Value> {
    Ok(tree(&app.request("resources/read", json!({"uri": uri})).await?.result()?))
}

/// How often the upstream is asked for it.
async fn reads(fake: &Fake, app: &App, uri: &str) -> Result<usize> {
    Ok(asked(fake, "resources/read", read(app, uri)).await?.0)
}

async fn kept(options: FakeOptions) -> Result<(Traygate, Fake, App)> {
    let (traygate, fake, token) = host_with("fake", options).await?;
    set_all(&fake, LONG)?;
    fake.set_hints("resources/read", &[LONG])?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    for kind in CapabilityType::ALL {
        app.list(kind).await?;
    }
    Ok((traygate, fake, app))
}

#[tokio::test]
async fn a_read_is_kept_by_its_uri_for_its_time_and_told_with_what_is_left() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Modern) {
        let (traygate, fake, app) = kept(options).await?;
        for uri in [TEXT, ITEM] {
            assert_eq!(reads(&fake, &app, uri).await?, 1, "{uri}, cold");
            assert_eq!(reads(&fake, &app, uri).await?, 0, "{uri}, warm");
        }
        let told = read(&app, TEXT).await?;
        assert_eq!((&told["ttlMs"], &told["cacheScope"]), (&json!(300_000), &json!("public")));
        assert_eq!(told["contents"][0]["x-unknown"], json!({"zeta": 1}), "the rest as it came");
        // An app of the other era is served from it too.
        let legacy = crate::app(&traygate, AppEra::Legacy, &traygate.token("old").await?).await?;
        assert_eq!(reads(&fake, &legacy, TEXT).await?, 0);
        assert!(read(&legacy, TEXT).await?.get("resultType").is_none());
        fake.set_hints("resources/read", &[SHORT])?;
        traygate.cli(&["refresh", "fake"]).await?.ok()?;
        let told = read(&app, TEXT).await?["ttlMs"].as_u64().unwrap_or_default();
        assert!((1..=1000).contains(&told), "{told}");
        tokio::time::sleep(PAST_SHORT).await;
        assert_eq!(reads(&fake, &app, TEXT).await?, 1, "its time is over");
        // What was switched off meanwhile is refused, kept or not.
        traygate.toggle("fake", CapabilityType::Resource, TEXT, false).await?;
        let refused = app.request("resources/read", json!({"uri": TEXT})).await?;
        assert_eq!(code_of(refused)["code"], "CAPABILITY_DISABLED");
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn what_changes_ends_what_was_read() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Modern) {
        let (traygate, fake, app) = kept(options).await?;
        read(&app, TEXT).await?;
        read(&app, ITEM).await?;
        fake.announce_to_listeners(&format!("unasked:{TEXT}")).await?;
        let mut again = 0;
        for _ in 0..200 {
            again = reads(&fake, &app, TEXT).await?;
            if again > 0 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(again, 1, "it was updated");
        assert_eq!(reads(&fake, &app, ITEM).await?, 0, "the other was not");
        fake.announce_to_listeners("resources").await?;
        until_seen(&traygate, "fake", CapabilityType::Resource, is_stale).await?;
        for uri in [TEXT, ITEM] {
            assert_eq!(reads(&fake, &app, uri).await?, 1, "{uri}: the list changed");
        }
        traygate.cli(&["restart", "fake"]).await?.ok()?;
        assert_eq!(reads(&fake, &app, TEXT).await?, 1, "a new link");
    }
    Ok(())
}

#[tokio::test]
async fn what_may_not_be_kept_is_asked_for_each_time_and_told_so() -> Result<()> {
    let (_traygate, fake, app) = kept(FakeOptions::http(FakeEra::Modern)).await?;
    for hints in [
        r#""ttlMs":0,"cacheScope":"public""#,
        r#""ttlMs":-5,"cacheScope":"public""#,
        r#""ttlMs":"60000","cacheScope":"public""#,
        r#""ttlMs":1e5,"cacheScope":"public""#,
        r#""cacheScope":"public""#,
        "",
    ] {
        fake.set_hints("resources/read", &[hints])?;
        for _ in 0..2 {
            let (reads, told) = asked(&fake, "resources/read", read(&app, TEXT)).await?;
            assert_eq!((reads, &told["ttlMs"]), (1, &json!(0)), "{hints}");
            let scope = if hints.is_empty() { "private" } else { "public" };
            assert_eq!(told["cacheScope"], scope, "{hints}");
        }
    }
    fake.set_hints("resources/read", &[LONG])?;
    read(&app, TEXT).await?;
    // A retry of several rounds depends on more than its URI, also where it could be answered.
    for retry in [
        json!({"uri": TEXT, "requestState": "x"}),
        json!({"uri": TEXT, "inputResponses": {}}),
        json!({"uri": TEXT, "_meta": {"example.com/who": "ada"}}),
    ] {
        for _ in 0..2 {
            let ask = async { app.request("resources/read", retry.clone()).await?.result() };
            assert_eq!(asked(&fake, "resources/read", ask).await?.0, 1, "{retry}");
        }
    }
    assert_eq!(reads(&fake, &app, TEXT).await?, 0, "and leaves what was kept alone");
    let (_traygate, fake, app) = kept(FakeOptions::http(FakeEra::Legacy)).await?;
    for _ in 0..2 {
        let (reads, told) = asked(&fake, "resources/read", read(&app, TEXT)).await?;
        assert_eq!(reads, 1, "hints are not part of the legacy era");
        assert_eq!((&told["ttlMs"], &told["cacheScope"]), (&json!(0), &json!("private")));
    }
    Ok(())
}

#[tokio::test]
async fn a_servers_introduction_lasts_as_long_as_its_own_hints() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Modern) {
        let fake = Fake::start("fake", options.with("--no-prompts")).await?;
        fake.set_hints("server/discover", &[LONG])?;
        let traygate = Traygate::start().await?;
        traygate.add(&traygate.definition(&fake)?).await?;
        traygate.state("fake", "ready").await?;
        let app = app(&traygate, AppEra::Modern, &traygate.token("app").await?).await?;
        let discover = || listed(&app, "server/discover");
        let (again, told) = asked(&fake, "server/discover", discover()).await?;
        assert_eq!(
            (again, &told["ttlMs"], &told["cacheScope"]),
            (0, &json!(300_000), &json!("public"))
        );
        // That it has no prompts is known for as long, and its list is never asked for.
        let (again, told) = asked(&fake, "server/discover", listed(&app, "prompts/list")).await?;
        assert_eq!(
            (again, &told["ttlMs"], &told["cacheScope"]),
            (0, &json!(300_000), &json!("public"))
        );
        // From the next introduction on it gives no time: each need asks again.
        fake.set_hints("server/discover", &[r#""ttlMs":0"#])?;
        traygate.cli(&["restart", "fake"]).await?.ok()?;
        for _ in 0..2 {
            let (again, told) = asked(&fake, "server/discover", discover()).await?;
            assert_eq!(
                (again, &told["ttlMs"], &told["cacheScope"]),
                (1, &json!(0), &json!("private"))
            );
            let (again, told) =
                asked(&fake, "server/discover", listed(&app, "prompts/list")).await?;
            assert_eq!((again, &told["ttlMs"]), (1, &json!(0)));
        }
        // What it does have is asked for as such.
        let (again, _) = asked(&fake, "server/discover", listed(&app, "tools/list")).await?;
        assert_eq!((again, fake.count("prompts/list")?), (0, 0));
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn discovery_of_a_host_without_its_upstreams_may_not_be_kept() -> Result<()> {
    let traygate = Traygate::start().await?;
    let app = app(&traygate, AppEra::Modern, &traygate.token("app").await?).await?;
    let alone = listed(&app, "server/discover").await?;
    assert_eq!((&alone["ttlMs"], &alone["cacheScope"]), (&json!(300_000), &json!("public")));
    let there = FakeOptions::http(FakeEra::Modern).with("--ttl 3600000");
    let _there = traygate.add_fake("there", there).await?;
    traygate.state("there", "ready").await?;
    assert_eq!(listed(&app, "server/discover").await?["ttlMs"], 300_000);
    let away = FakeOptions::stdio(FakeEra::Modern).with("--exit-at-start 1");
    let _away = traygate.add_fake("away", away).await?;
    traygate.state("away", "unavailable").await?;
    let told = listed(&app, "server/discover").await?;
    assert_eq!(told["ttlMs"], 0, "it may have something to say when it comes");
    Ok(())
}
