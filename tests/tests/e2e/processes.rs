//! The programs behind Traygate: nobody is left behind, whoever is killed, and nobody else is hurt.

use std::{
    collections::BTreeMap,
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use traygate_gateway::definition::{Definition, Transport, UpstreamSettings};
use traygate_tests::{
    AppEra, Traygate,
    fake::{control_dir::is_running, options::FakeEra},
    process,
};

use crate::{FakeOptions, app, host_with};

/// Neither the end of its input nor a signal ends it or what it started.
const STUBBORN: &str = "trap '' TERM HUP INT; (trap '' TERM; while :; do sleep 1; done) & \
                        while :; do sleep 1; done";

fn shell(traygate: &Traygate, name: &str, script: &str) -> Result<Definition> {
    Ok(Definition {
        name: name.to_owned().try_into()?,
        transport: Transport::Stdio {
            command: "sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: BTreeMap::from([(process::MARK.to_owned(), traygate.mark.clone())]),
            cwd: None,
        },
        enabled: true,
        settings: UpstreamSettings::default(),
    })
}

/// The one who watches this home's children.
fn watchers(traygate: &Traygate) -> Vec<u32> {
    process::running(&["watch-children", &traygate.paths().data.display().to_string()])
}

async fn watcher(traygate: &Traygate) -> Result<u32> {
    process::until("a watcher", || watchers(traygate).len() == 1).await?;
    watchers(traygate).pop().context("a watcher")
}

/// Everybody with the test's mark but the host.
fn children(traygate: &Traygate, host: u32) -> Vec<u32> {
    let marked = process::marked(&traygate.mark);
    marked.into_iter().map(|(pid, _)| pid).filter(|pid| *pid != host).collect()
}

async fn with_stubborn_children(traygate: &Traygate) -> Result<Vec<u32>> {
    for name in ["one", "two"] {
        traygate.add(&shell(traygate, name, STUBBORN)?).await?;
    }
    let all = || children(traygate, traygate.pid()).len() >= 6;
    process::until("both shells, their children and their sleeps", all).await?;
    Ok(children(traygate, traygate.pid()))
}

fn rolls(traygate: &Traygate) -> Vec<std::path::PathBuf> {
    let files = process::files(&traygate.paths().data).into_iter().map(|(path, _)| path);
    files.filter(|path| path.display().to_string().contains("children-")).collect()
}

#[tokio::test]
async fn a_killed_host_leaves_nobody_behind_however_stubborn() -> Result<()> {
    let mut traygate = Traygate::start().await?;
    with_stubborn_children(&traygate).await?;
    let watcher = watcher(&traygate).await?;
    process::until("the file of children", || rolls(&traygate).len() == 1).await?;
    assert_eq!(traygate_tests::traygate::mode(&rolls(&traygate)[0])?, 0o600);
    let killed = Instant::now();
    traygate.kill()?;
    traygate.assert_no_orphans().await?;
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    process::until("the watcher ends too", || !is_running(watcher)).await?;
    assert!(rolls(&traygate).is_empty(), "and its file is gone");
    Ok(())
}

#[tokio::test]
async fn a_host_killed_at_any_moment_of_its_start_leaves_nobody_behind() -> Result<()> {
    let mut traygate = Traygate::start().await?;
    for number in 0..4 {
        traygate.add(&shell(&traygate, &format!("s{number}"), STUBBORN)?).await?;
    }
    traygate.kill()?;
    traygate.assert_no_orphans().await?;
    for round in 0..6 {
        let mut host = traygate
            .command()
            .args(["serve", "--port", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Each round strikes at another moment; what matters is that they differ.
        tokio::time::sleep(Duration::from_millis(round * 50)).await;
        host.kill()?;
        host.wait()?;
        traygate.assert_no_orphans().await.with_context(|| format!("round {round}"))?;
        process::until("no watcher is left", || watchers(&traygate).is_empty()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_watcher_is_replaced_by_one_that_knows_everybody() -> Result<()> {
    let mut traygate = Traygate::start().await?;
    with_stubborn_children(&traygate).await?;
    let first = watcher(&traygate).await?;
    process::signal(first, "KILL")?;
    process::until(
        "another watcher",
        || matches!(watchers(&traygate)[..], [second] if second != first),
    )
    .await?;
    process::until("it knows both", || {
        fs::read_to_string(&rolls(&traygate)[0])
            .is_ok_and(|text| text.matches("\"pid\"").count() == 2)
    })
    .await?;
    traygate.kill()?;
    traygate.assert_no_orphans().await
}

#[tokio::test]
async fn whom_a_host_left_behind_with_its_watcher_is_ended_at_the_next_start() -> Result<()> {
    let mut traygate = Traygate::start().await?;
    let left = with_stubborn_children(&traygate).await?;
    process::until("the file of children", || rolls(&traygate).len() == 1).await?;
    process::signal(watcher(&traygate).await?, "KILL")?;
    traygate.kill()?;
    ensure!(left.iter().all(|pid| is_running(*pid)), "nobody is there to end them");
    traygate.serve().await?;
    process::until("they are gone", || !left.iter().any(|pid| is_running(*pid))).await?;
    assert!(traygate.host_log()?.contains("left behind"), "and the host says so");
    traygate.stop().await?;
    traygate.assert_no_orphans().await
}

/// A process that leads a session of its own, as Traygate's children do.
fn stranger() -> Result<Child> {
    let child = Command::new("setsid")
        .args(["-w", "sleep", "600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    child.context("setsid")
}

/// The fields of `/proc/<pid>/stat` after the name, from the state on.
fn stat(pid: u32) -> Result<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("fields")?.1;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}

#[tokio::test]
async fn a_stranger_who_was_given_a_childs_number_is_left_alone() -> Result<()> {
    let mut traygate = Traygate::unstarted()?;
    traygate.paths().create()?;
    let (mut stranger, mut ours) = (stranger()?, stranger()?);
    let session_of = |pid: u32| move || stat(pid).is_ok_and(|stat| stat[3] == pid.to_string());
    // The program called setsid is a group's leader here, so it begins the session in a child.
    let sleeping = |parent: u32| {
        let mut sleeps = process::running(&["sleep 600"]);
        sleeps.retain(|pid| stat(*pid).is_ok_and(|stat| stat[1] == parent.to_string()));
        sleeps.pop().unwrap_or(parent)
    };
    let mut known = Vec::new();
    for child in [stranger.id(), ours.id()] {
        process::until("a session of its own", || session_of(sleeping(child))()).await?;
        known.push(sleeping(child));
    }
    let started = |pid: u32| -> Result<u64> { Ok(stat(pid)?[19].parse()?) };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let roll = json!({
        "boot": boot.trim(),
        "until": started(known[1])? + 1_000,
        "leaders": [
            // As if its number had been another's, a moment before it was its own.
            {"pid": known[0], "started": started(known[0])? - 1},
            {"pid": known[1], "started": started(known[1])?},
        ],
    });
    fs::write(traygate.paths().data.join("children-1.json"), roll.to_string())?;
    traygate.serve().await?;
    process::until("the one that was ours ends", || !is_running(known[1])).await?;
    let lives = is_running(known[0]);
    process::signal(known[0], "KILL")?;
    stranger.wait()?;
    ours.wait()?;
    assert!(lives, "the stranger lives on");
    Ok(())
}

#[tokio::test]
async fn who_makes_a_group_of_its_own_is_ended_and_who_begins_a_session_is_let_go() -> Result<()> {
    let traygate = Traygate::start().await?;
    // `timeout` puts itself into a group of its own.
    let script = "timeout 600 sleep 601 & setsid sleep 602 & exec sleep 603";
    traygate.add(&shell(&traygate, "groups", script)?).await?;
    let of = |seconds: &str| {
        let mut pids = process::running(&["sleep", seconds]);
        pids.retain(|pid| children(&traygate, 0).contains(pid));
        pids
    };
    process::until("all three", || ["601", "602", "603"].iter().all(|s| !of(s).is_empty())).await?;
    let deleted = traygate.control_raw(reqwest::Method::DELETE, "/upstreams/groups", None).await?;
    assert_eq!(deleted.0, 204, "{}", deleted.1);
    process::until("the session ends", || of("601").is_empty() && of("603").is_empty()).await?;
    let free = of("602");
    for pid in &free {
        process::signal(*pid, "KILL")?;
    }
    assert!(!free.is_empty(), "a browser that was opened for a sign-in outlives its server");
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_the_host_within_two_seconds_whatever_goes_on() -> Result<()> {
    let (mut traygate, fake, token) =
        host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    with_stubborn_children(&traygate).await?;
    let legacy = traygate_tests::app::LegacyApp::connect(&traygate.endpoint(), &token).await?;
    let _stream = legacy.listen().await?;
    let modern = app(&traygate, AppEra::Modern, &token).await?;
    modern.tools().await?;
    let slow = json!({"name": "fake__slow", "arguments": {"ms": 60_000}});
    let (_, call) = legacy.begin("tools/call", &slow);
    fake.asked("tools/call").await?;
    let host = traygate.pid();
    let asked = Instant::now();
    process::signal(host, "TERM")?;
    process::until("the host ends", || !is_running(host)).await?;
    let took = asked.elapsed();
    traygate.stop().await?;
    assert!(took < Duration::from_secs(2), "{took:?}");
    call.abort();
    traygate.assert_no_orphans().await?;
    process::until("no watcher is left", || watchers(&traygate).is_empty()).await
}

#[tokio::test]
async fn a_flood_on_standard_error_blocks_no_server() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let flood = format!(
        "yes 'a line of no interest to anybody' | head -c 20000000 >&2; exec {} {}",
        traygate_tests::Fake::program().display(),
        fake.args().join(" ")
    );
    traygate.add(&shell(&traygate, "loud", &flood)?).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    traygate.state("loud", "ready").await?;
    app.call_text("loud__echo", json!({})).await?;
    let kept = traygate.cli(&["logs", "loud", "-n", "100000"]).await?.ok()?;
    assert!(kept.lines().count() <= 1_000, "the log is bounded");
    Ok(())
}

#[tokio::test]
async fn a_slow_start_says_how_far_it_is() -> Result<()> {
    let traygate = Traygate::start().await?;
    let script = "printf 'fetching %s of %s packages\\n' 3 7 >&2; exec sleep 600";
    traygate.add(&shell(&traygate, "slow", script)?).await?;
    let deadline = Instant::now() + traygate_tests::DEADLINE;
    loop {
        let view = traygate.upstream("slow").await?;
        assert_eq!(view.state.word(), "connecting", "a slow start is no failure");
        if view.progress.as_deref() == Some("fetching 3 of 7 packages") {
            break;
        }
        ensure!(Instant::now() < deadline, "{view:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let listed = traygate.cli(&["status"]).await?.ok()?;
    assert!(listed.contains("fetching 3 of 7 packages"), "{listed}");
    let token = traygate.token("app").await?;
    traygate.cli(&["config", "list_budget", "0.5"]).await?.ok()?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let result = app.request("tools/list", json!({})).await?.result()?;
    assert!(result.get().contains("fetching 3 of 7"), "an app is told too: {result}");
    Ok(())
}

#[tokio::test]
async fn thirty_upstreams_that_hang_hold_up_neither_the_port_nor_whom_somebody_asks_for()
-> Result<()> {
    let mut traygate = Traygate::start().await?;
    for number in 0..30 {
        traygate.add(&shell(&traygate, &format!("h{number:02}"), "exec sleep 600")?).await?;
    }
    let fake = traygate.add_fake("well", FakeOptions::stdio(FakeEra::Legacy)).await?;
    traygate.state("well", "ready").await?;
    let token = traygate.token("app").await?;
    let before = fake.events("start")?;
    traygate.stop().await?;
    let begun = Instant::now();
    traygate.serve().await?;
    let served = begun.elapsed();
    assert!(served < Duration::from_secs(3), "the port is open after {served:?}");
    let at_once = children(&traygate, traygate.pid()).len();
    assert!(at_once < 30, "{at_once} programs were started at once");
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let asked = Instant::now();
    app.call_text("well__echo", json!({})).await?;
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(5), "it waited for nobody: {took:?}");
    assert_eq!(fake.events("start")?, before + 1);
    traygate.stop().await?;
    traygate.assert_no_orphans().await
}

#[tokio::test]
async fn an_answer_to_a_call_is_never_cached() -> Result<()> {
    for era in [FakeEra::Legacy, FakeEra::Modern] {
        let options = FakeOptions::stdio(era).with("--ttl 60000 --scope public");
        let (traygate, fake, token) = host_with("fake", options).await?;
        for app_era in AppEra::ALL {
            let app = app(&traygate, app_era, &token).await?;
            let before = fake.ran("counter")?;
            for _ in 0..3 {
                app.call_text("fake__counter", json!({})).await?;
            }
            assert_eq!(fake.ran("counter")?, before + 3, "{app_era:?} on {era:?}");
        }
    }
    Ok(())
}
