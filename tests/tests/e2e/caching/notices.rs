//! A modern upstream's `subscriptions/listen`, however it ends (protocol 2026-07-28, "Subscriptions").

use std::time::Duration;

use anyhow::Result;
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{
    AppEra, FakeOptions,
    fake::{
        control_dir::{Arm, Failure},
        options::FakeEra,
        server::ListenEnd,
    },
    process,
};

use super::{LONG, is_stale, over_stdio_and_http, set_all, tool, until_seen};
use crate::{app, host_with};

#[tokio::test]
async fn a_subscription_that_ends_is_opened_again_and_what_was_missed_is_read() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Modern) {
        let (traygate, fake, token) = host_with("fake", options).await?;
        set_all(&fake, LONG)?;
        let mut app = app(&traygate, AppEra::Modern, &token).await?;
        app.tools().await?;
        let mut ears = app.listen().await?;
        let over_stdio =
            fake.options.transport == traygate_tests::fake::options::FakeTransport::Stdio;
        // Over stdio nothing but a message can end it.
        let ends = if over_stdio {
            [ListenEnd::Answer, ListenEnd::Cancel]
        } else {
            [ListenEnd::Answer, ListenEnd::Drop]
        };
        for (round, end) in ends.into_iter().enumerate() {
            let heard = fake.events("listening")?;
            process::until("it listens", || fake.events("listening").is_ok_and(|n| n > round))
                .await?;
            fake.set_list("tools", &[tool("missed", &format!("changed before {end:?}"))])?;
            while fake.end_listens(end).await? == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // Nobody announces the change: it is found by the look after the new subscription.
            ears.hear("notifications/tools/list_changed", Duration::from_secs(15)).await?;
            assert!(fake.events("listening")? > heard, "{end:?}: it listens again");
            assert_eq!(app.tools().await?, ["fake__missed"], "{end:?}");
        }
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_subscription_is_not_asked_for_again_and_the_ttl_holds_alone() -> Result<()> {
    for options in over_stdio_and_http(FakeEra::Modern) {
        let fake = traygate_tests::Fake::start("fake", options).await?;
        fake.arm_with(&Arm::new(Failure::Error, "subscriptions/listen").for_ever().code(-32601))?;
        let traygate = traygate_tests::Traygate::start().await?;
        traygate.add(&traygate.definition(&fake)?).await?;
        traygate.state("fake", "ready").await?;
        fake.asked("subscriptions/listen").await?;
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        assert_eq!(fake.count("subscriptions/listen")?, 1, "three first pauses later");
        fake.set_hints("tools/list", &[super::SHORT])?;
        let app = app(&traygate, AppEra::Modern, &traygate.token("app").await?).await?;
        app.tools().await?;
        fake.set_list("tools", &[tool("newer", "seen when the time is over")])?;
        tokio::time::sleep(super::PAST_SHORT).await;
        assert_eq!(app.tools().await?, ["fake__newer"]);
    }
    Ok(())
}

#[tokio::test]
async fn a_subscription_that_nobody_acknowledges_is_given_up_and_tried_again() -> Result<()> {
    let fake = traygate_tests::Fake::start("fake", FakeOptions::http(FakeEra::Modern)).await?;
    fake.arm(Failure::Hang, "subscriptions/listen")?;
    let traygate = traygate_tests::Traygate::start().await?;
    traygate.add(&traygate.definition(&fake)?).await?;
    traygate.state("fake", "ready").await?;
    // The first is silent; the second, after 10 s and a pause, is heard.
    fake.asked("subscriptions/listen").await?;
    process::until("the second", || fake.events("listening").is_ok_and(|n| n == 1)).await?;
    assert_eq!(fake.count("subscriptions/listen")?, 2);
    set_all(&fake, LONG)?;
    let app = app(&traygate, AppEra::Modern, &traygate.token("app").await?).await?;
    app.tools().await?;
    fake.announce_to_listeners("tools").await?;
    until_seen(&traygate, "fake", CapabilityType::Tool, is_stale).await?;
    Ok(())
}
