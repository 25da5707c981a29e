//! What is enabled is kept up, one process at a time, whoever started it and whatever was tried
//! before.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use traygate_gateway::definition::Transport;
use traygate_tests::{
    AppEra, Fake, FakeOptions, Traygate,
    fake::{
        control_dir::{Arm, Failure},
        options::{FakeEra, FakeTransport},
    },
    process::{signal, until},
};

use crate::{
    app, code_of,
    healing::{Case, described},
    host_with,
};

async fn kill_and_wait(traygate: &Traygate, fake: &Fake) -> Result<()> {
    let before = fake.events("start")?;
    signal(*fake.alive()?.first().context("it runs")?, "KILL")?;
    until("it is started again with nobody's help", || {
        fake.events("start").is_ok_and(|starts| starts > before)
    })
    .await?;
    traygate.state("fake", "ready").await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_in_the_middle_of_a_start_leaves_one_process_which_is_kept_up() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        let slow = FakeOptions::stdio(era).with("--delay-start 2000");
        let (traygate, fake, _token) = host_with("fake", slow).await?;
        until("its first start", || fake.events("start").is_ok_and(|starts| starts == 1)).await?;
        traygate.cli(&["restart", "fake"]).await?.ok()?;
        until("the start that was given up is over", || {
            fake.alive().is_ok_and(|alive| alive.len() == 1)
        })
        .await?;
        traygate.state("fake", "ready").await?;
        kill_and_wait(&traygate, &fake).await?;
        traygate.cli(&["disable", "fake"]).await?.ok()?;
        until("it leaves nobody behind", || fake.alive().is_ok_and(|alive| alive.is_empty()))
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn who_waits_for_a_start_that_is_given_up_is_served_by_the_next_one() -> Result<()> {
    let slow = FakeOptions::stdio(FakeEra::Legacy).with("--delay-start 2000");
    let (traygate, fake, token) = host_with("fake", slow).await?;
    until("its first start", || fake.events("start").is_ok_and(|starts| starts == 1)).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let called = app.call_text("fake__counter", json!({}));
    let restarted = async { traygate.cli(&["restart", "fake"]).await?.ok() };
    let (called, restarted) = tokio::join!(called, restarted);
    restarted?;
    called.context("the call waits for the second start")?;
    assert_eq!(fake.ran("counter")?, 1);
    Ok(())
}

#[tokio::test]
async fn what_a_request_brought_up_after_its_command_was_put_right_is_kept_up() -> Result<()> {
    let traygate = Traygate::start().await?;
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let place = tempfile::tempdir()?;
    let program = place.path().join("server");
    let mut definition = traygate.definition(&fake)?;
    if let Transport::Stdio { command, .. } = &mut definition.transport {
        *command = program.display().to_string();
    }
    traygate.add(&definition).await?;
    traygate.state("fake", "misconfigured").await?;
    std::os::unix::fs::symlink(Fake::program(), &program)?;
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("fake__echo", json!({})).await.context("a request looks at it again")?;
    traygate.state("fake", "ready").await?;
    kill_and_wait(&traygate, &fake).await
}

#[tokio::test]
async fn a_sign_in_that_one_call_was_refused_for_is_over_with_a_refresh() -> Result<()> {
    for transport in [FakeTransport::Http, FakeTransport::Sse] {
        let case = Case::new(FakeOptions::new(transport, FakeEra::Legacy)).await?;
        let what = described(&case.fake.options);
        let links = case.links()?;
        case.fake.arm_with(&Arm::status(401, "tools/call"))?;
        let refused = code_of(case.app.call("fake__counter", json!({})).await?);
        ensure!(refused["code"] == "UPSTREAM_NEEDS_SIGN_IN", "{what}: {refused}");
        assert_eq!(case.state().await?, "needs sign-in", "{what}");
        case.traygate.cli(&["refresh", "fake"]).await?.ok()?;
        assert_eq!(case.state().await?, "ready", "{what}");
        case.app.call_text("fake__counter", json!({})).await.with_context(|| what.clone())?;
        assert_eq!(case.links()?, links, "{what}: no link was lost for it");
    }
    Ok(())
}

#[tokio::test]
async fn a_list_that_fails_in_any_way_on_every_link_makes_no_frenzy() -> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        for failure in [Failure::Cut, Failure::HttpStatus] {
            let refuses = failure == Failure::HttpStatus;
            if refuses && options.transport == FakeTransport::Stdio {
                continue;
            }
            let mut case = Case::new(options.clone()).await?;
            // With somebody listening, every fresh link has all its lists read.
            let _ears = case.app.listen().await?;
            case.fake.arm_with(&Arm::new(failure, "prompts/list").code(500).for_ever())?;
            let refreshed = case.traygate.cli(&["refresh", "fake"]).await?;
            ensure!(refreshed.code != Some(0), "{what}: {failure:?}: it says so");
            let links = case.links()?;
            // Long enough for a frenzy to be one.
            tokio::time::sleep(Duration::from_secs(4)).await;
            let more = case.links()? - links;
            ensure!(more <= 4, "{what}: {failure:?}: {more} links in four seconds");
            if refuses {
                assert_eq!((more, case.state().await?.as_str()), (0, "degraded"), "{what}");
                case.app.call_text("fake__echo", json!({})).await.context("the rest works")?;
            }
        }
    }
    Ok(())
}
