//! Pages, announcements and times to live of servers that handle them badly, or not at all.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use traygate_gateway::{api::Freshness, capability::CapabilityType};
use traygate_tests::{App, AppEra, app::Ears, json::tree};

use crate::support::Case;

const CHANGED: &str = "notifications/tools/list_changed";

/// How often it was told so. Its first prompts and resources are no concern here.
fn told(ears: &mut Ears) -> usize {
    ears.heard().iter().filter(|message| message["method"] == CHANGED).count()
}

/// The names of one upstream's tools as an app sees them.
async fn of(app: &App, upstream: &str) -> Result<Vec<String>> {
    let prefix = format!("{upstream}__");
    let mut names = app.tools().await?;
    names.retain(|name| name.starts_with(&prefix));
    Ok(names)
}

async fn one(case: &Case, upstream: &str) -> Result<App> {
    App::connect(AppEra::Modern, &case.traygate.view(upstream), &case.token).await
}

async fn listed(app: &App) -> Result<Value> {
    Ok(tree(&app.request("tools/list", json!({})).await?.result()?))
}

fn lists(case: &Case, upstream: &str) -> Result<usize> {
    case.count(upstream, "recv", Some("tools/list"))
}

#[tokio::test]
async fn rw_29_all_pages_are_read_and_odd_cursors_end_the_walk() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    for (name, mode) in [
        ("p", "paged:25:10"),
        ("e", "cursor-empty"),
        ("u", "cursor-null"),
        ("l", "cursor-loop"),
        ("c", "cursor-cycle"),
        ("n", "cursor-endless"),
        ("x", "cursor-error"),
    ] {
        case.add(name, mode).await?;
    }
    let app = case.app(AppEra::Legacy).await?;
    for (name, tools, requests) in [
        ("p", Some(25), 3),
        ("e", Some(22), 2),
        ("u", Some(22), 1),
        ("l", Some(22), 3),
        ("c", Some(22), 3),
        ("n", None, 100),
        // Twice the first page, twice the refused one.
        ("x", Some(5), 4),
    ] {
        case.traygate.state(name, "ready").await?;
        let mut names = of(&app, name).await?;
        for _ in 0..100 {
            if !names.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            names = of(&app, name).await?;
        }
        ensure!(names.iter().collect::<BTreeSet<_>>().len() == names.len(), "{name}: {names:?}");
        ensure!(tools.is_none_or(|tools| tools == names.len()), "{name}: {}", names.len());
        let asked = lists(&case, name)?;
        ensure!(asked <= requests, "{name}: {asked} requests");
        let warnings: usize =
            case.traygate.upstream(name).await?.catalogues.iter().map(|c| c.warnings.len()).sum();
        ensure!((warnings > 0) == ["l", "c", "n", "x"].contains(&name), "{name}: {warnings}");
    }
    ensure!(!of(&app, "ok0").await?.is_empty(), "others are listed meanwhile");
    case.end(&["p", "e"]).await
}

#[tokio::test]
async fn rw_40_a_storm_costs_few_lists_and_tells_only_what_differs() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    for (name, mode) in
        [("s", "ok"), ("p", "list-changed-periodic:20"), ("b", "list-changed-storm:2000")]
    {
        case.add(name, mode).await?;
        case.traygate.state(name, "ready").await?;
    }
    let mut caller = case.app(AppEra::Legacy).await?;
    let mut hearers = Vec::new();
    for name in ["s", "p"] {
        let mut app = one(&case, name).await?;
        app.tools().await?;
        hearers.push((app.listen().await?, app));
    }
    caller.tools().await?;
    let _ears = caller.listen().await?;
    caller.call("s__storm", json!({"n": 500})).await?.result()?;
    let began = Instant::now();
    hearers[0].0.hear(CHANGED, Duration::from_secs(3)).await?;
    ensure!(hearers[0].1.tools().await?.contains(&"after_storm_0".to_owned()));
    // A quarter of the case's minute shows the rate.
    let watched = Duration::from_secs(15);
    tokio::time::sleep(watched.saturating_sub(began.elapsed())).await;
    ensure!(told(&mut hearers[0].0) <= 1, "one or two notices of a storm");
    ensure!(told(&mut hearers[1].0) == 0, "none of what didn't change");
    for (name, most) in [("s", 3), ("b", 4), ("p", watched.as_secs() as usize + 2)] {
        let asked = lists(&case, name)?;
        ensure!(asked <= most, "{name}: {asked} lists");
    }
    case.end(&["s", "b"]).await
}

#[tokio::test]
async fn rw_42_silent_undeclared_and_early_changes_are_found() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    for (name, mode) in [
        ("n", "list-changed-never"),
        ("e", "list-changed-early:0.5"),
        ("x", "list-changed-undeclared"),
    ] {
        case.add(name, mode).await?;
        case.traygate.state(name, "ready").await?;
    }
    let mut app = one(&case, "n").await?;
    ensure!(app.tools().await?.contains(&"add".to_owned()));
    let mut ears = app.listen().await?;
    app.call("mutate", json!({"op": "remove", "name": "add"})).await?.result()?;
    let before = lists(&case, "n")?;
    let error = app.call("add", json!({"a": 1, "b": 1})).await?.error()?;
    ensure!(error.message.contains("Unknown tool"), "{error:?}");
    ears.hear(CHANGED, Duration::from_secs(2)).await?;
    ensure!(!app.tools().await?.contains(&"add".to_owned()), "gone from then on");
    // Longer than a second look would take.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    ensure!(lists(&case, "n")? == before + 1, "exactly one re-list");
    ensure!(told(&mut ears) == 0, "one notice");
    app.call("mutate", json!({"op": "add", "name": "fresh"})).await?.result()?;
    case.traygate.cli(&["refresh", "n"]).await?.ok()?;
    ensure!(app.tools().await?.contains(&"fresh".to_owned()), "after the refresh");

    let mut app = one(&case, "e").await?;
    app.tools().await?;
    let mut ears = app.listen().await?;
    app.call("mutate", json!({"op": "add", "name": "later"})).await?.result()?;
    ears.hear(CHANGED, Duration::from_secs(6)).await?;
    ensure!(app.tools().await?.contains(&"later".to_owned()));
    ensure!(lists(&case, "e")? <= 4, "{}", lists(&case, "e")?);

    let mut app = one(&case, "x").await?;
    app.tools().await?;
    let mut ears = app.listen().await?;
    app.call("mutate", json!({"op": "add", "name": "unannounced", "notify": true}))
        .await?
        .result()?;
    ears.hear(CHANGED, Duration::from_secs(3)).await?;
    ensure!(app.tools().await?.contains(&"unannounced".to_owned()), "honoured though undeclared");
    // That it was called for what it no longer had is the case itself.
    case.end(&["e"]).await
}

#[tokio::test]
async fn rw_61_a_list_is_fetched_when_needed_and_its_time_is_over() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    let t_switch = case.add_http("t", "modern-ttl:5000").await?;
    case.add_http("z", "modern-zero-ttl").await?;
    case.add_http("n", "modern-no-hints").await?;
    let l_switch = case.add_http_with("l", "modern-2026", &["--ttl", "3600000"]).await?;
    for name in ["t", "z", "n", "l"] {
        case.traygate.state(name, "ready").await?;
    }
    let (t, z, n, mut l) = (
        one(&case, "t").await?,
        one(&case, "z").await?,
        one(&case, "n").await?,
        one(&case, "l").await?,
    );
    let began = Instant::now();
    let mut rounds = 0;
    while began.elapsed() < Duration::from_secs(21) {
        // Two at once share one fetch, and the next ones within its time find it.
        for told in try_join_all([listed(&t), listed(&t)]).await? {
            ensure!(told["ttlMs"].as_u64().is_some_and(|ttl| ttl <= 5000), "{}", told["ttlMs"]);
        }
        for app in [&z, &n] {
            ensure!(listed(app).await?["ttlMs"] == 0);
        }
        ensure!(listed(&l).await?["ttlMs"].as_u64().is_some_and(|ttl| ttl > 0 && ttl <= 300_000));
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let fetched = lists(&case, "t")?;
    ensure!((4..=6).contains(&fetched), "{fetched} fetches in 21 s");
    for name in ["z", "n"] {
        ensure!(lists(&case, name)? == rounds, "{name}: {} of {rounds}", lists(&case, name)?);
    }
    ensure!(lists(&case, "l")? == 1, "one for an hour");
    // Nobody asks, so nobody fetches. Longer than the time that it gave.
    tokio::time::sleep(Duration::from_secs(8)).await;
    ensure!(lists(&case, "t")? == fetched && lists(&case, "z")? == rounds);
    listed(&t).await?;
    t_switch.turn("mutate?op=add&name=x1", "").await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    ensure!(t.tools().await?.contains(&"x1".to_owned()), "the first list after its time");
    let mut ears = l.listen().await?;
    l_switch.turn("mutate?op=add&name=x2", "").await?;
    l_switch.turn("notify?kind=tools", "").await?;
    ears.hear(CHANGED, Duration::from_secs(2)).await?;
    ensure!(l.tools().await?.contains(&"x2".to_owned()), "a notice ends a fresh hour");
    t_switch.turn("mode", "500-always").await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let stale = listed(&t).await?;
    ensure!(stale["tools"].to_string().contains("x1") && stale["ttlMs"] == 0, "the old list comes");
    let view = case.traygate.upstream("t").await?;
    let tools = view.catalogues.iter().find(|it| it.kind == CapabilityType::Tool);
    ensure!(tools.is_some_and(|it| matches!(it.freshness, Freshness::Stale { .. })), "{view:?}");
    case.end(&["z", "n", "l"]).await
}

#[tokio::test]
async fn rw_64_subscriptions_that_end_are_opened_again_and_refused_ones_are_not() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    let dropped = case.add_http("d", "modern-listen-drop:3").await?;
    case.add_http("c", "modern-listen-close:3").await?;
    case.add_http("r", "modern-listen-reject").await?;
    case.add_http("p", "modern-listen-partial").await?;
    case.add_http("s", "modern-listen-silent").await?;
    let steady = case.add_http("m", "modern-2026").await?;
    case.add("sd", "modern+modern-listen-drop:3").await?;
    for name in ["d", "c", "r", "p", "s", "m", "sd"] {
        case.traygate.state(name, "ready").await?;
    }
    let began = Instant::now();
    let tools_only = json!({"toolsListChanged": true});
    let prompts_only = json!({"promptsListChanged": true});
    let App::Modern(c1) = case.app(AppEra::Modern).await? else { unreachable!("modern") };
    let mut c1 = c1.listen(tools_only).await?;
    let App::Modern(c2) = case.app(AppEra::Modern).await? else { unreachable!("modern") };
    let mut c2 = c2.listen(prompts_only).await?;
    let mut c3 = case.app(AppEra::Legacy).await?;
    c3.tools().await?;
    let mut c3_ears = c3.listen().await?;
    c1.ears.heard();
    for switch in [&steady, &dropped] {
        switch.turn("mutate?op=add&name=z1", "").await?;
        switch.turn("notify?kind=tools", "").await?;
    }
    let deadline = Instant::now() + Duration::from_secs(15);
    let mut seen = (Vec::new(), Vec::new());
    while seen.0.is_empty() || seen.1.is_empty() {
        ensure!(Instant::now() < deadline, "{seen:?}");
        c3_ears.hear(CHANGED, Duration::from_secs(15)).await?;
        let names = c3.tools().await?;
        let with = |prefix: &str| {
            names.iter().filter(|name| **name == format!("{prefix}__z1")).cloned().collect()
        };
        seen = (with("m"), with("d"));
    }
    c1.ears.hear(CHANGED, Duration::from_secs(1)).await?;
    ensure!(told(&mut c2.ears) == 0, "C2 asked for prompts only");
    // A third of the case's time: with pauses of 1, 2, 4, 8 and 10 s there are five by then.
    tokio::time::sleep(Duration::from_secs(42).saturating_sub(began.elapsed())).await;
    let listens = |name| case.count(name, "recv", Some("subscriptions/listen"));
    for name in ["d", "c", "sd"] {
        let opened = listens(name)?;
        ensure!((4..=14).contains(&opened), "{name}: {opened} in 42 s");
    }
    for (name, most) in [("r", 2), ("p", 1), ("m", 1), ("s", 4)] {
        let opened = listens(name)?;
        ensure!((1..=most).contains(&opened), "{name}: {opened} in 42 s");
    }
    case.end(&["d", "c", "r", "p", "m"]).await
}

/// Every TTL and scope mode of both servers, each with two lists at once and one more.
#[tokio::test]
async fn every_ttl_and_scope_mode_of_the_servers_is_understood() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    let modes = [
        ("ttl", "modern-ttl:60000", 1..=1, "public"),
        // Two at once share one read, unless this machine is too slow for them to meet.
        ("zero", "modern-zero-ttl", 2..=3, "public"),
        ("none", "modern-no-hints", 2..=3, "private"),
        ("private", "modern-private", 1..=1, "private"),
        // Three pages; the shortest gives a second.
        ("pages", "modern-page-ttl", 3..=6, "public"),
    ];
    for (name, mode, reads, scope) in modes {
        let mut upstreams = vec![format!("{name}-s")];
        case.add(&upstreams[0], &format!("modern+{mode}")).await?;
        // The HTTP server has the first three.
        if ["ttl", "zero", "none"].contains(&name) {
            upstreams.push(format!("{name}-h"));
            case.add_http(&upstreams[1], mode).await?;
        }
        for upstream in upstreams {
            case.traygate.state(&upstream, "ready").await?;
            let app = one(&case, &upstream).await?;
            let told = try_join_all([listed(&app), listed(&app)]).await?;
            ensure!(told.iter().all(|told| told["cacheScope"] == scope), "{upstream}: {told:?}");
            listed(&app).await?;
            let asked = lists(&case, &upstream)?;
            ensure!(reads.contains(&asked), "{upstream}: {asked} lists and not {reads:?}");
            let keeps = told[0]["ttlMs"].as_u64().unwrap_or_default() > 0;
            ensure!(keeps != ["zero", "none"].contains(&name), "{upstream}: {}", told[0]["ttlMs"]);
        }
    }
    case.end(&["ttl-h", "zero-h", "none-h"]).await
}
