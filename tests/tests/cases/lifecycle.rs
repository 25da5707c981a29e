//! Slow and hung servers, versions, and one host at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::join_all;
use serde_json::json;
use traygate_tests::{AppEra, Traygate, app::Answer, json::tree};

use crate::support::Case;

#[tokio::test]
async fn rw_17_one_slow_or_hung_upstream_does_not_delay_the_others() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    // The case's limit of 1 s is below the default budget.
    case.traygate.cli(&["config", "list_budget", "0.9"]).await?.ok()?;
    case.add("l", "slow-list:20").await?;
    case.add("f", "hang-forever").await?;
    case.add("s", "serial+slow-call:2").await?;
    case.add_http("h", "hang").await?;
    case.add_http("q", "slow-call:5").await?;
    case.traygate.cli(&["set", "f", "call_idle_timeout=3"]).await?.ok()?;
    let app = case.app(AppEra::Legacy).await?;
    let calls = case.app(AppEra::Modern).await?;

    let lists = async {
        let begun = Instant::now();
        let mut slow_came = None;
        while begun.elapsed() < Duration::from_secs(25) {
            let asked = Instant::now();
            let tools = app.tools().await?;
            let took = asked.elapsed();
            ensure!(took < Duration::from_millis(1300), "a list took {took:?}");
            if slow_came.is_none() && tools.iter().any(|tool| tool.starts_with("l__")) {
                slow_came = Some(begun.elapsed());
            }
            // The case asks once a second.
            tokio::time::sleep_until((asked + Duration::from_secs(1)).into()).await;
        }
        ensure!(slow_came.is_some(), "the slow list's tools appear after its 20 s");
        Ok(())
    };
    let slow = async {
        let begun = Instant::now();
        let ten = (0..10).map(|n| calls.call("q__echo", json!({"text": n.to_string()})));
        for answer in join_all(ten).await {
            answer?.result()?;
        }
        ensure!(begun.elapsed() < Duration::from_secs(8), "ten slow calls run side by side");
        Ok(())
    };
    let hung = async {
        let result = tree(&calls.call("f__echo", json!({"text": "x"})).await?.result()?);
        let text = result["content"][0]["text"].to_string();
        ensure!(result["isError"] == true && text.contains('f') && text.contains("3 s"), "{text}");
        Ok(())
    };
    let quick = async {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15) {
            let asked = Instant::now();
            calls.call("ok0__echo", json!({"text": "x"})).await?.result()?;
            ensure!(asked.elapsed() < Duration::from_millis(500), "ok0 took {:?}", asked.elapsed());
            tokio::time::sleep_until((asked + Duration::from_millis(100)).into()).await;
        }
        Ok(())
    };
    let serial = async {
        let five = (0..5).map(|n| calls.call("s__echo", json!({"text": n.to_string()})));
        join_all(five).await.into_iter().try_for_each(|answer| answer?.result().map(drop))
    };
    tokio::try_join!(lists, slow, hung, quick, serial)?;
    let cancelled = case.count("f", "cancelled", None)?;
    ensure!(cancelled >= 1, "the hung server was told to cancel: {cancelled}");

    case.traygate.restart().await?;
    let app = case.app(AppEra::Legacy).await?;
    let asked = Instant::now();
    app.tools().await?;
    ensure!(asked.elapsed() < Duration::from_millis(1300), "a list right after the start");
    case.end(&["l", "s", "q"]).await
}

#[tokio::test]
async fn rw_20_versions_are_negotiated_and_odd_ones_named() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    case.add("old", "proto:2024-11-05").await?;
    case.add("future", "proto:2099-01-01").await?;
    case.add("nameless", "proto:missing").await?;
    case.add_http("ps", "proto:2024-11-05+proto-strict").await?;
    case.add_http("strict", "proto-strict").await?;
    case.add_http("p4", "proto-400").await?;
    for works in ["old", "ps", "strict", "p4"] {
        case.traygate.state(works, "ready").await?;
    }
    let future = case.traygate.state("future", "unavailable").await?;
    ensure!(
        future.state.reason().is_some_and(|why| why.contains("2099-01-01")),
        "{:?}",
        future.state
    );
    let nameless = case.traygate.state("nameless", "unavailable").await?;
    ensure!(
        nameless.state.reason().is_some_and(|why| why.contains("protocolVersion")),
        "{:?}",
        nameless.state
    );
    let app = case.app(AppEra::Legacy).await?;
    for works in ["old", "ps", "strict", "p4"] {
        app.call(&format!("{works}__echo"), json!({"text": "x"})).await.and_then(Answer::result)?;
    }
    case.end(&["ps", "strict"]).await
}

#[tokio::test]
async fn rw_68_a_busy_port_a_second_host_and_a_stale_lock() -> Result<()> {
    let Some(mut case) = Case::unstarted()? else { return Ok(()) };
    let port = case.traygate.port.to_string();
    case.http("ok", &["--port", &port]).await?;
    let begun = Instant::now();
    let refused = case.traygate.cli(&["serve", "--port", &port]).await?;
    ensure!(refused.code == Some(1) && refused.stderr.contains(&port), "{refused:?}");
    ensure!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drop(case);

    let Some(mut case) = Case::start().await? else { return Ok(()) };
    case.add("u", "ok").await?;
    case.traygate.state("u", "ready").await?;
    let starts = case.count("u", "start", None)?;
    let port = traygate_tests::traygate::free_port()?.to_string();
    for _ in 0..2 {
        let second = case.traygate.cli(&["serve", "--port", &port]).await?;
        ensure!(second.code == Some(1), "{second:?}");
        ensure!(second.stderr.contains(&case.traygate.pid().to_string()), "{second:?}");
    }
    ensure!(case.count("u", "start", None)? == starts, "a second host starts nothing");
    case.traygate.kill()?;
    case.traygate.serve().await?;
    case.traygate.state("u", "ready").await?;
    let other = Traygate::start().await?;
    other.snapshot().await?;
    case.end(&["u"]).await
}
