//! Healing over time: under load, a thousand times, through half an hour of absence, after sleep.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{json, value::to_raw_value};
use tokio::time::{Instant, advance, pause, resume, timeout};
use traygate_gateway::{
    api::Call,
    capability::CapabilityType,
    gateway::Gateway,
    names::UpstreamName,
    store::Store,
    upstream::{Upstream, process::Children},
};
use traygate_tests::{
    App, AppEra, Fake, FakeOptions, Traygate,
    fake::{
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
    process::{self, signal, until},
};

use crate::{app, healing::Case, host_with};

/// The gateway in this very process, so that its clock can be driven.
struct Inside {
    gateway: Arc<Gateway>,
    upstream: Arc<Upstream>,
    fake: Fake,
    _home: tempfile::TempDir,
}

impl Inside {
    async fn new(options: FakeOptions, idle_stop: u32) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let store = Store::open(&home.path().join("traygate.db")).await?;
        let fake = Fake::start("fake", options).await?;
        let mut definition = Traygate::unstarted()?.definition(&fake)?;
        definition.settings.idle_stop = idle_stop;
        store.add_upstream(&definition).await?;
        let gateway = Gateway::open(store, 0, Children::new(), home.path()).await?;
        let name = UpstreamName::parse("fake")?;
        let upstream = gateway.upstream(&name).context("the upstream")?;
        upstream.catalogue(CapabilityType::Tool).await?;
        Ok(Self { gateway, upstream, fake, _home: home })
    }

    fn word(&self) -> &'static str {
        self.upstream.standing().state.word()
    }

    async fn call(&self, tool: &str, arguments: serde_json::Value) -> Result<()> {
        let arguments = to_raw_value(&arguments)?;
        self.gateway.call(Call { tool: format!("fake__{tool}"), arguments }).await?;
        Ok(())
    }
}

/// Time goes by, in which whatever was due happens.
async fn later(duration: Duration) {
    pause();
    advance(duration).await;
    resume();
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn an_outage_of_half_an_hour_ends_within_a_minute_of_the_upstreams_return() -> Result<()> {
    let mut inside = Inside::new(FakeOptions::http(FakeEra::Modern), 0).await?;
    inside.fake.kill()?;
    until("it is missed", || inside.word() == "unavailable").await?;
    for _ in 0..120 {
        later(Duration::from_secs(15)).await;
    }
    assert_eq!(inside.word(), "unavailable", "it is tried and tried");
    inside.fake.revive().await?;
    let returned = Instant::now();
    while inside.word() != "ready" {
        let away = returned.elapsed();
        ensure!(away < Duration::from_mins(1), "{} after {away:?}", inside.word());
        later(Duration::from_secs(1)).await;
    }
    eprintln!("measured: back {:?} after its return", returned.elapsed());
    inside.gateway.close().await;
    Ok(())
}

#[tokio::test]
async fn after_a_wake_every_link_is_asked_for_a_sign_of_life_and_a_dead_one_is_replaced()
-> Result<()> {
    for options in FakeOptions::all() {
        let what = format!("{:?} {:?}", options.transport, options.era);
        let modern = options.era == FakeEra::Modern;
        let behind_url = options.transport != traygate_tests::fake::options::FakeTransport::Stdio;
        let inside = Inside::new(options, 0).await?;
        let (sign, handshake) =
            if modern { ("server/discover", "server/discover") } else { ("ping", "initialize") };
        let (signs, links) = (inside.fake.count(sign)?, inside.fake.count(handshake)?);
        inside.gateway.woke();
        until(&format!("{what}: a sign of life"), || {
            inside.fake.count(sign).is_ok_and(|now| now == signs + 1)
        })
        .await?;
        let extra = usize::from(modern);
        assert_eq!(inside.fake.count(handshake)?, links + extra, "{what}: it lives, so it stays");
        if behind_url {
            let pid = *inside.fake.alive()?.first().context("it runs")?;
            signal(pid, "STOP")?;
            later(Duration::from_secs(11)).await;
            let begun = std::time::Instant::now();
            inside.gateway.woke();
            until(&format!("{what}: its silence is noticed"), || inside.word() != "ready").await?;
            let noticed = begun.elapsed();
            signal(pid, "CONT")?;
            ensure!(noticed < Duration::from_secs(12), "{what}: {noticed:?}");
            until(&format!("{what}: it is connected anew"), || inside.word() == "ready").await?;
        }
        inside.fake.assert_no_violations()?;
        inside.gateway.close().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_wake_takes_no_call_from_a_server_on_this_machine_that_is_too_busy_to_answer()
-> Result<()> {
    for options in FakeOptions::all() {
        let what = format!("{:?} {:?}", options.transport, options.era);
        let sign = if options.era == FakeEra::Modern { "server/discover" } else { "ping" };
        let inside = Inside::new(options, 0).await?;
        inside.fake.arm_with(&Arm::new(Failure::Hang, sign).for_ever())?;
        let (called, woken) = tokio::join!(inside.call("slow", json!({"ms": 1500})), async {
            inside.fake.asked("tools/call").await?;
            inside.gateway.woke();
            for _ in 0..10 {
                later(Duration::from_secs(1)).await;
            }
            anyhow::Ok(())
        });
        woken?;
        called.with_context(|| format!("{what}: the call ends"))?;
        assert_eq!((inside.word(), inside.fake.ran("slow")?), ("ready", 1), "{what}");
        inside.gateway.close().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_refuses_pings_is_asked_for_a_list_instead() -> Result<()> {
    let inside = Inside::new(FakeOptions::http(FakeEra::Legacy), 0).await?;
    inside.fake.arm_with(&Arm::new(Failure::Error, "ping").code(-32_601).for_ever())?;
    inside.gateway.woke();
    inside.fake.asked("ping").await?;
    let lists = inside.fake.count("tools/list")?;
    later(Duration::from_secs(11)).await;
    inside.gateway.woke();
    until("another sign of life", || inside.fake.count("tools/list").is_ok_and(|now| now > lists))
        .await?;
    assert_eq!((inside.fake.count("ping")?, inside.fake.count("initialize")?), (1, 1));
    inside.gateway.close().await;
    Ok(())
}

#[tokio::test]
async fn a_program_that_nobody_uses_rests_but_never_during_a_call() -> Result<()> {
    let inside = Inside::new(FakeOptions::stdio(FakeEra::Legacy), 1).await?;
    let (called, ()) = tokio::join!(inside.call("slow", json!({"ms": 1500})), async {
        let _ = inside.fake.asked("tools/call").await;
        later(Duration::from_secs(61)).await;
        later(Duration::from_secs(1)).await;
    });
    called.context("a call of any length ends")?;
    assert_eq!((inside.word(), inside.fake.events("start")?), ("ready", 1));
    inside.gateway.refresh("fake").await.context("that it was refreshed starts nothing later")?;
    for _ in 0..3 {
        later(Duration::from_secs(61)).await;
    }
    until("it rests", || inside.word() == "idle").await?;
    until("its process has ended", || inside.fake.alive().is_ok_and(|alive| alive.is_empty()))
        .await?;
    let tools = inside.upstream.catalogue(CapabilityType::Tool).await?;
    ensure!(!tools.items.is_empty(), "its catalogue stays");
    assert_eq!((inside.word(), inside.fake.events("start")?), ("idle", 1), "and starts nothing");
    inside.call("echo", json!({})).await.context("the next call starts it")?;
    assert_eq!((inside.word(), inside.fake.events("start")?), ("ready", 2));
    let told: Vec<_> = inside.fake.log()?.into_iter().filter(|e| e.event == "end").collect();
    assert_eq!(told.len(), 1, "it ended in good order: {told:?}");
    inside.gateway.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_program_under_twenty_calls_a_second_costs_no_call_and_one_reconnect() -> Result<()>
{
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = Arc::new(app(&traygate, AppEra::Modern, &token).await?);
    app.call_text("fake__read-only", json!({})).await?;
    fake.arm_with(&Arm::new(Failure::Slow, "tools/call").ms(40).for_ever())?;
    let begun = Instant::now();
    traygate.cli(&["restart", "fake"]).await?.ok()?;
    let start_time = begun.elapsed();
    let links = fake.count("initialize")?;
    let pid = *fake.alive()?.first().context("it runs")?;
    let first = Instant::now();
    let mut calls = Vec::new();
    let mut killed = first;
    for n in 0..80u32 {
        tokio::time::sleep_until(first + n * Duration::from_millis(50)).await;
        let app: Arc<App> = Arc::clone(&app);
        calls.push(tokio::spawn(async move {
            let begun = Instant::now();
            app.call_text("fake__read-only", json!({})).await.map(|_| (begun, Instant::now()))
        }));
        if n == 30 {
            signal(pid, "KILL")?;
            killed = Instant::now();
        }
    }
    let mut quiet = Vec::new();
    let mut touched = Vec::new();
    for call in calls {
        let (begun, ended) = call.await?.context("no call fails")?;
        if begun <= killed + start_time && ended >= killed {
            touched.push(ended - begun);
        } else {
            quiet.push(ended - begun);
        }
    }
    ensure!(fake.count("initialize")? <= links + 1, "at most one reconnect");
    touched.sort_unstable();
    quiet.sort_unstable();
    let added = touched[touched.len() / 2].saturating_sub(quiet[quiet.len() / 2]);
    eprintln!(
        "measured: {} calls touched, median added {added:?}, start time {start_time:?}",
        touched.len()
    );
    // The start was measured on the same, perhaps busy, machine.
    ensure!(
        added < 2 * start_time + Duration::from_millis(250),
        "{added:?} against {start_time:?}"
    );
    Ok(())
}

/// What a process holds: open files, threads, children, and resident memory in KiB.
type Held = (usize, usize, usize, usize);

fn held(pid: u32) -> Result<Held> {
    let proc = format!("/proc/{pid}");
    let status = std::fs::read_to_string(format!("{proc}/status"))?;
    let number = |name: &str| -> Result<usize> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a line")?;
        Ok(line.split_whitespace().next().context("a number")?.parse()?)
    };
    let children = std::fs::read_to_string(format!("{proc}/task/{pid}/children"));
    let children = children.unwrap_or_default().split_whitespace().count();
    let files = std::fs::read_dir(format!("{proc}/fd"))?.count();
    Ok((files, number("Threads:")?, children, number("VmRSS:")?))
}

#[tokio::test]
async fn a_thousand_reconnects_leave_nothing_behind() -> Result<()> {
    let case = Case::new(FakeOptions::http(FakeEra::Legacy)).await?;
    let pid = case.traygate.pid();
    let mut before = held(pid)?;
    let begun = Instant::now();
    for reconnect in 0..1_000 {
        if reconnect == 200 {
            before = held(pid)?;
        }
        case.fake.arm(Failure::Cut, "resources/read")?;
        let read = timeout(Duration::from_secs(30), case.read()).await?;
        read?.result().with_context(|| format!("reconnect {reconnect}"))?;
    }
    ensure!(case.links()? > 1_000, "each was a reconnect");
    nothing_is_left(pid, before, begun).await
}

/// What the last ones left is on its way out.
async fn nothing_is_left(pid: u32, before: Held, begun: Instant) -> Result<()> {
    let mut after = held(pid)?;
    until("files are closed", || {
        after = held(pid).unwrap_or(after);
        after.0 <= before.0 + 8 && after.2 == before.2
    })
    .await?;
    let took = begun.elapsed();
    eprintln!("measured: {before:?} → {after:?} (files, threads, children, KiB) in {took:?}");
    ensure!(after.1 <= before.1 + 2, "{before:?} → {after:?}");
    ensure!(after.3 < before.3 + 16 * 1024, "memory: {before:?} → {after:?}");
    Ok(())
}

#[tokio::test]
async fn a_program_that_is_started_a_thousand_times_leaves_nothing_behind() -> Result<()> {
    let case = Case::new(FakeOptions::stdio(FakeEra::Legacy)).await?;
    let pid = case.traygate.pid();
    let mut before = held(pid)?;
    let begun = Instant::now();
    for start in 0..1_000 {
        if start == 200 {
            before = held(pid)?;
        }
        let path = "/upstreams/fake/restart";
        case.traygate
            .control::<serde_json::Value>(reqwest::Method::POST, path, None::<&()>)
            .await?;
    }
    assert_eq!(case.fake.events("start")?, 1_001);
    nothing_is_left(pid, before, begun).await?;
    assert_eq!(case.fake.alive()?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_hundred_links_leave_no_task_behind() -> Result<()> {
    for options in FakeOptions::all() {
        let inside = Inside::new(options, 0).await?;
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let mut before = tasks();
        for link in 0..100 {
            if link == 20 {
                before = tasks();
            }
            inside.upstream.restart().await?;
        }
        let what = format!("{:?}: at most {before} tasks", inside.fake.options);
        until(&what, || tasks() <= before).await?;
        inside.gateway.close().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_disabled_upstream_is_not_revived_by_a_reconnect_in_flight() -> Result<()> {
    let slow = FakeOptions::stdio(FakeEra::Legacy).with("--delay-start 1500");
    let (traygate, fake, token) = host_with("fake", slow).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("fake__echo", json!({})).await?;
    let pid = *fake.alive()?.first().context("it runs")?;
    signal(pid, "KILL")?;
    until("it is started again", || fake.events("start").is_ok_and(|starts| starts == 2)).await?;
    traygate.cli(&["disable", "fake"]).await?.ok()?;
    until("nothing of it is left", || process::marked(&traygate.mark).len() <= 1).await?;
    assert_eq!(traygate.upstream("fake").await?.state.word(), "disabled");
    assert_eq!(fake.events("start")?, 2, "and nothing starts it");
    Ok(())
}
