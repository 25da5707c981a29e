//! The journal as a person reads it, what may never stand in it, and what people are told.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use traygate_gateway::{
    capability::CapabilityType,
    definition::Transport,
    gateway::{Gateway, people::What},
    names::UpstreamName,
    store::Store,
    upstream::lists::Ended,
};
use traygate_tests::{
    AppEra, DEADLINE, Fake, FakeOptions, Traygate,
    fake::{
        content::TOOLS,
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
    process::{self, holds, signal},
};

use crate::{app, host_with};

/// The entries that `traygate journal --json` prints with these arguments.
async fn entries(traygate: &Traygate, args: &[&str]) -> Result<Vec<Value>> {
    let mut command = vec!["journal", "--json"];
    command.extend(args);
    let printed = traygate.cli(&command).await?.ok()?;
    printed.lines().map(|line| serde_json::from_str(line).context(line.to_owned())).collect()
}

/// Waits until the journal, as a person reads it, holds all these words.
pub async fn story(traygate: &Traygate, args: &[&str], words: &[&str]) -> Result<String> {
    let mut command = vec!["journal"];
    command.extend(args);
    let deadline = Instant::now() + DEADLINE;
    loop {
        let story = traygate.cli(&command).await?.ok()?;
        let missing: Vec<_> = words.iter().filter(|words| !story.contains(**words)).collect();
        if missing.is_empty() {
            return Ok(story);
        }
        ensure!(Instant::now() < deadline, "{missing:?} not in the journal:\n{story}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn kill(fake: &Fake) -> Result<()> {
    let pid = *fake.alive()?.first().context("it runs")?;
    signal(pid, "KILL")?;
    process::until("it is dead", || fake.alive().is_ok_and(|alive| !alive.contains(&pid))).await
}

#[tokio::test]
async fn a_crash_under_calls_reads_like_a_story() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    app.call_text("fake__read-only", json!({})).await?;
    // A read-only call meets the death and is asked once more; another one can't be.
    fake.arm(Failure::DieBeforeAnswer, "tools/call")?;
    app.call_text("fake__read-only", json!({})).await?;
    fake.arm(Failure::DieBeforeAnswer, "tools/call")?;
    app.call("fake__counter", json!({})).await?;
    let told = story(
        &traygate,
        &["fake", "--since", "1h"],
        &[
            "fake: lost: the server",
            "fake: healed after ",
            "fake: app's call of read-only was asked once more and was answered after ",
            "fake: app's call of counter may have run when the connection died, and was not run again",
        ],
    )
    .await?;
    let place = |words: &str| told.find(words).context(words.to_owned());
    ensure!(place("lost")? < place("healed")?, "in order: {told}");
    ensure!(!told.contains("read-only was answered"), "an untouched call is no news: {told}");
    let calls = entries(&traygate, &["fake", "--calls"]).await?;
    let outcomes: Vec<_> = calls
        .iter()
        .filter(|entry| entry["what"] == "call")
        .map(|entry| (entry["key"].clone(), entry["outcome"].clone(), entry["touched"].clone()))
        .collect();
    assert_eq!(
        outcomes,
        [
            (json!("read-only"), json!("ok"), Value::Null),
            (json!("read-only"), json!("ok"), json!("repeated")),
            (json!("counter"), json!("OUTCOME_UNKNOWN"), Value::Null),
        ],
        "all calls, each once: {calls:?}"
    );
    let seqs: Vec<_> = calls.iter().filter_map(|entry| entry["seq"].as_u64()).collect();
    assert!(seqs.is_sorted_by(|one, two| one < two), "{seqs:?}");
    Ok(())
}

#[tokio::test]
async fn an_outage_that_lasts_is_told_once_and_ends_when_a_list_was_read() -> Result<()> {
    let (traygate, mut fake, token) = host_with("web", FakeOptions::http(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    fake.kill()?;
    for _ in 0..3 {
        app.call("web__read-only", json!({})).await?;
    }
    story(&traygate, &["web"], &["web: unavailable: ", "failed: unavailable"]).await?;
    let lists = fake.count("tools/list")?;
    fake.revive().await?;
    story(&traygate, &["web"], &["web: back after "]).await?;
    assert!(fake.count("tools/list")? > lists, "only what was read shows that it is back");
    let told = entries(&traygate, &["web"]).await?;
    let count = |what: &str| told.iter().filter(|entry| entry["what"] == what).count();
    assert_eq!((count("unavailable"), count("recovered")), (1, 1), "{told:?}");
    let status = traygate.upstream("web").await?;
    assert_eq!(status.heals, 1);
    assert!(status.last_error.context("what went wrong")?.reason.contains("127.0.0.1"));
    let said = traygate.cli(&["status"]).await?.ok()?;
    assert!(said.contains("healed once in the last 24 h; last error "), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_renewed_session_stands_in_the_journal_and_is_no_heal() -> Result<()> {
    let (traygate, fake, token) = host_with("web", FakeOptions::http(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("web__counter", json!({})).await?;
    fake.arm(Failure::DropSession, "tools/call")?;
    app.call_text("web__counter", json!({})).await?;
    let words = [
        "web: had forgotten the session; a new one was opened",
        "web: app's call of counter was asked once more and was answered after ",
    ];
    story(&traygate, &["web"], &words).await?;
    assert_eq!(traygate.upstream("web").await?.heals, 0);
    Ok(())
}

#[tokio::test]
async fn a_changed_list_is_told_by_name() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut app = app(&traygate, AppEra::Legacy, &token).await?;
    let _ears = app.listen().await?;
    let tool = |name: &str, description: &str| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
    fake.set_list("tools", &[tool("old", "canary-words"), tool("same", "canary-words")])?;
    app.tools().await?;
    fake.set_list("tools", &[tool("new", "canary-words"), tool("same", "canary-others")])?;
    fake.announce_to_listeners("tools").await?;
    let words = "fake: its tools changed: added new; removed old; described anew: same";
    let told = story(&traygate, &["fake"], &[words]).await?;
    assert!(!told.contains("canary"), "{told}");
    Ok(())
}

#[tokio::test]
async fn what_a_person_did_is_kept_with_its_way_even_if_the_host_is_killed_at_once() -> Result<()> {
    let (mut traygate, _fake, _) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    traygate.state("fake", "ready").await?;
    traygate.capabilities("fake").await?;
    traygate.cli(&["disable", "fake/tool/echo"]).await?.ok()?;
    traygate.cli(&["pause", "writes"]).await?.ok()?;
    traygate.toggle("fake", CapabilityType::Tool, "add", false).await?;
    traygate.kill()?;
    traygate.serve().await?;
    let did: Vec<_> = entries(&traygate, &[])
        .await?
        .into_iter()
        .filter(|entry| entry["by"].is_string())
        .map(|entry| (entry["what"].clone(), entry["by"].clone(), entry["key"].clone()))
        .collect();
    assert_eq!(
        did,
        [
            // The first app's token is the command's own deed.
            (json!("app_added"), json!("cli"), Value::Null),
            (json!("added"), json!("api"), Value::Null),
            (json!("app_added"), json!("api"), Value::Null),
            (json!("toggled"), json!("cli"), json!("echo")),
            (json!("paused"), json!("cli"), Value::Null),
            (json!("toggled"), json!("api"), json!("add")),
        ]
    );
    traygate.cli(&["rename", "fake", "better"]).await?.ok()?;
    let told =
        story(&traygate, &["better"], &["you renamed fake to better (command line)"]).await?;
    assert!(told.contains("you disabled fake/tool/echo (command line)"), "through renames: {told}");
    Ok(())
}

#[tokio::test]
async fn disabled_unknown_paused_and_failed_calls_are_told_apart() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    app.tools().await?;
    traygate.toggle("fake", CapabilityType::Tool, "echo", false).await?;
    for tool in ["fake__echo", "fake__no-such-tool", "fake__fail", "fake__rpc-error"] {
        app.call(tool, json!({})).await?;
    }
    traygate.cli(&["pause"]).await?.ok()?;
    app.call("fake__add", json!({})).await?;
    traygate.cli(&["resume"]).await?.ok()?;
    let calls: Vec<_> = entries(&traygate, &["--calls"])
        .await?
        .into_iter()
        .filter(|entry| entry["what"] == "call")
        .map(|entry| (entry["key"].clone(), entry["outcome"].clone(), entry["code"].clone()))
        .collect();
    assert_eq!(
        calls,
        [
            (json!("echo"), json!("CAPABILITY_DISABLED"), Value::Null),
            (json!("fake__no-such-tool"), json!("UNKNOWN_CAPABILITY"), Value::Null),
            (json!("fail"), json!("tool_error"), Value::Null),
            (json!("rpc-error"), json!("error"), json!(4242)),
            (json!("add"), json!("PAUSED"), Value::Null),
        ]
    );
    Ok(())
}

#[tokio::test]
async fn a_follower_hears_of_a_thing_within_a_second() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("fake__echo", json!({})).await?;
    let mut command = traygate.command();
    command.args(["journal", "--follow", "--calls", "--json"]).stdout(Stdio::piped());
    let mut follower =
        tokio::process::Command::from(command).kill_on_drop(true).spawn().context("a follower")?;
    let mut lines = BufReader::new(follower.stdout.take().context("its output")?).lines();
    let mut next = async |what: &str, key: &str| -> Result<()> {
        loop {
            let line = tokio::time::timeout(DEADLINE, lines.next_line()).await?;
            let line: Value = serde_json::from_str(&line?.context("the follower ended")?)?;
            if line["what"] == what && line["key"] == key {
                return Ok(());
            }
        }
    };
    next("call", "echo").await.context("what was there before")?;
    let mut quickest = DEADLINE;
    for key in ["add", "rich", "fail", "counter", "slow"] {
        let begun = Instant::now();
        app.call(&format!("fake__{key}"), json!({})).await?;
        next("call", key).await?;
        quickest = quickest.min(begun.elapsed());
    }
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
    traygate.toggle("fake", CapabilityType::Tool, "echo", false).await?;
    next("toggled", "echo").await?;
    Ok(())
}

/// The database as the host keeps it, opened beside it.
async fn database(path: &Path) -> Result<sqlx::SqlitePool> {
    Ok(sqlx::SqlitePool::connect(&format!("sqlite://{}", path.display())).await?)
}

#[tokio::test]
async fn entries_older_than_their_retention_are_deleted() -> Result<()> {
    let mut traygate = Traygate::start().await?;
    traygate.cli(&["config", "journal_events_days", "forever"]).await?.ok()?;
    traygate.cli(&["config", "journal_calls_days", "7"]).await?.ok()?;
    traygate.stop().await?;
    let database = database(&traygate.paths().database()).await?;
    let day = 24 * 60 * 60 * 1000;
    let now: i64 =
        sqlx::query_scalar("SELECT max(at) FROM journal_events").fetch_one(&database).await?;
    for (seq, days) in [(1_001, 400), (1_002, 8), (1_003, 6)] {
        sqlx::query(
            "INSERT INTO journal_events (seq, at, fact) VALUES (?, ?, '{\"what\":\"stopped\"}')",
        )
        .bind(seq)
        .bind(now - days * day)
        .execute(&database)
        .await?;
        sqlx::query(
            "INSERT INTO journal_invocations
             (seq, at, app, capability_type, capability_key, duration_ms, outcome)
             VALUES (?, ?, 'claude', 'tool', 'echo', 1, 'ok')",
        )
        .bind(seq + 10)
        .bind(now - days * day)
        .execute(&database)
        .await?;
    }
    database.close().await;
    traygate.serve().await?;
    let left = async |traygate: &Traygate| -> Result<Vec<u64>> {
        let all = entries(traygate, &["--calls"]).await?;
        let seqs = all.iter().filter_map(|entry| entry["seq"].as_u64());
        Ok(seqs.filter(|seq| (1_001..=1_013).contains(seq)).collect())
    };
    let until = async |traygate: &Traygate, wanted: &[u64]| -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while left(traygate).await? != wanted {
            ensure!(Instant::now() < deadline, "{:?} and not {wanted:?}", left(traygate).await?);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    until(&traygate, &[1_001, 1_002, 1_003, 1_013]).await?;
    traygate.cli(&["config", "journal_events_days", "30"]).await?.ok()?;
    until(&traygate, &[1_002, 1_003, 1_013]).await.context("a new limit holds at once")
}

#[tokio::test]
async fn no_argument_result_error_text_or_secret_is_in_the_journal() -> Result<()> {
    let mut traygate = Traygate::start().await?;
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    traygate.add(&traygate.definition(&fake)?).await?;
    let web = Fake::start("web", FakeOptions::http(FakeEra::Legacy)).await?;
    let mut definition = traygate.definition(&web)?;
    if let Transport::Http { url, headers, .. } = &mut definition.transport {
        headers.insert("X-Key".to_owned(), "canary-header".to_owned());
        url.push_str("?key=canary-query");
    }
    traygate.add(&definition).await?;
    let mut words = traygate.definition(&fake)?;
    words.name = UpstreamName::parse("dies")?;
    words.transport = Transport::Stdio {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), "read line; echo canary-last-words >&2; exit 3".to_owned()],
        env: [("SECRET".to_owned(), "canary-environment".to_owned())].into(),
        cwd: None,
    };
    traygate.add(&words).await?;
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.tools().await?;
    let arguments = json!({"password": "canary-argument"});
    for upstream in ["fake", "web"] {
        for tool in ["echo", "fail", "rpc-error", "rich"] {
            app.call(&format!("{upstream}__{tool}"), arguments.clone()).await?;
        }
        app.call(&format!("{upstream}__canary argument in a name"), arguments.clone()).await?;
        for uri in ["fake://fake/item/canary-uri", "other://canary-uri"] {
            app.request("resources/read", json!({"uri": uri})).await?;
        }
        let prompt =
            json!({"name": format!("{upstream}__greet"), "arguments": {"name": "canary-argument"}});
        app.request("prompts/get", prompt).await?;
    }
    web.arm_with(&Arm::new(Failure::Error, "tools/list"))?;
    traygate.cli(&["refresh", "web"]).await?;
    kill(&fake).await?;
    app.call("fake__echo", arguments).await?;
    story(&traygate, &["--calls"], &["dies: unavailable: ", "fake: healed", "fake: lost"]).await?;
    // What stands in the upstreams' own definitions is theirs.
    let tables = async |traygate: &Traygate| -> Result<Vec<String>> {
        let database = database(&traygate.paths().database()).await?;
        let mut rows: Vec<String> = sqlx::query_scalar(
            "SELECT concat_ws('|', upstream, by, fact) FROM journal_events
             UNION ALL
             SELECT concat_ws('|', upstream, app, capability_key, outcome, code, touched)
             FROM journal_invocations",
        )
        .fetch_all(&database)
        .await?;
        database.close().await;
        rows.retain(|row| row.contains("canary") || row.contains("on purpose"));
        Ok(rows)
    };
    assert_eq!(tables(&traygate).await?, [""; 0]);
    let printed = entries(&traygate, &["--calls"]).await?;
    assert!(printed.len() > 15, "there is something to look at");
    assert!(!json!(printed).to_string().contains("canary"), "{printed:?}");
    traygate.stop().await?;
    for (file, bytes) in process::files(traygate.home.path()) {
        for canary in ["canary-argument", "canary-uri", "canary argument", "on purpose"] {
            assert!(!holds(&bytes, canary), "{canary} in {}", file.display());
        }
    }
    Ok(())
}

#[tokio::test]
async fn status_tells_what_an_app_listed_last() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    let snapshot = traygate.snapshot().await?;
    let seen = snapshot.apps.iter().find(|app| app.name == "app").context("the app")?;
    assert_eq!(seen.listed_tools, Some(TOOLS.len()));
    assert!(seen.listed_at.context("when")? >= snapshot.started_at);
    assert!(seen.client.is_some() && seen.era.is_some(), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn people_are_told_of_an_outage_once_and_of_its_end_once() -> Result<()> {
    let home = tempfile::tempdir()?;
    let store = Store::open(&home.path().join("traygate.db")).await?;
    let mut fake = Fake::start("web", FakeOptions::http(FakeEra::Legacy)).await?;
    let traygate = Traygate::unstarted()?;
    store.add_upstream(&traygate.definition(&fake)?).await?;
    let children = traygate_gateway::upstream::process::Children::new();
    let gateway = Gateway::open(store, 0, children, home.path()).await?;
    let mut notices = gateway.subscribe_people();
    let name = UpstreamName::parse("web")?;
    let upstream = gateway.upstream(&name).context("the upstream")?;
    upstream.catalogue(CapabilityType::Tool).await?;
    fake.kill()?;
    // Nobody asks for anything: that it is gone is noticed or not. A request shows it for sure.
    upstream.invalidate(&CapabilityType::ALL, Ended::Refreshed);
    let _ = upstream.catalogue(CapabilityType::Tool).await;
    let patience = 3 * DEADLINE;
    let down = tokio::time::timeout(patience, notices.recv()).await??;
    assert_eq!(down.title(), "web is unavailable", "{down:?}");
    fake.revive().await?;
    let back = tokio::time::timeout(patience, notices.recv()).await??;
    assert!(matches!(back.news[0].what, What::Back { .. }), "{back:?}");
    assert_eq!(back.title(), "web is back");
    gateway.close().await;
    assert!(notices.try_recv().is_err(), "and nothing else");
    Ok(())
}
