//! The host as a process: one at a time, its files, its children, and its end.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::json;
use traygate_gateway::definition::Transport;
use traygate_tests::{
    AppEra, Fake, FakeOptions, Traygate, fake::options::FakeEra, json::tree, process,
    traygate::mode,
};

use crate::{app, host_with};

#[tokio::test]
async fn a_second_host_of_the_same_home_says_who_runs() -> Result<()> {
    let traygate = Traygate::start().await?;
    let port = traygate_tests::traygate::free_port()?.to_string();
    let second = traygate.cli(&["serve", "--port", &port]).await?;
    assert_ne!(second.code, Some(0), "{second:?}");
    let said = format!("{}{}", second.stdout, second.stderr);
    assert!(said.contains(&traygate.pid().to_string()), "{said}");
    traygate.snapshot().await.context("the first lives on")?;
    Ok(())
}

#[tokio::test]
async fn a_busy_port_is_named_with_its_holder() -> Result<()> {
    let traygate = Traygate::unstarted()?;
    let holder = std::net::TcpListener::bind(("127.0.0.1", traygate.port))?;
    let refused = traygate.cli(&["serve", "--port", &traygate.port.to_string()]).await?;
    drop(holder);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let said = refused.stderr;
    assert!(said.contains(&traygate.port.to_string()), "which port: {said}");
    assert!(said.contains(&std::process::id().to_string()), "who holds it: {said}");
    Ok(())
}

/// The database as the gateway keeps it, opened beside it.
async fn database(traygate: &Traygate) -> Result<sqlx::SqlitePool> {
    let url = format!("sqlite://{}", traygate.paths().database().display());
    Ok(sqlx::SqlitePool::connect(&url).await?)
}

#[tokio::test]
async fn a_database_from_a_newer_version_is_refused_and_left_alone() -> Result<()> {
    let (mut traygate, _fake, _) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    traygate.stop().await?;
    let database = database(&traygate).await?;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (99999999999999, 'from the future', TRUE, X'00', 0)",
    )
    .execute(&database)
    .await?;
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&database).await?;
    database.close().await;
    let file = traygate.paths().database();
    let before = std::fs::read(&file)?;
    let refused = traygate.cli(&["serve", "--port", &traygate.port.to_string()]).await?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("newer"), "{}", refused.stderr);
    assert!(refused.stderr.contains("traygate.db"), "which file: {}", refused.stderr);
    assert!(std::fs::read(&file)? == before, "not a byte of it has changed");
    Ok(())
}

#[tokio::test]
async fn a_corrupt_database_is_refused_with_the_way_out_and_left_alone() -> Result<()> {
    let (mut traygate, _fake, _) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    traygate.stop().await?;
    let file = traygate.paths().database();
    let rubbish = b"this was a database once".repeat(500);
    std::fs::write(&file, &rubbish)?;
    let refused = traygate.cli(&["serve", "--port", &traygate.port.to_string()]).await?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("traygate.db"), "which file: {}", refused.stderr);
    assert!(std::fs::read(&file)? == rubbish, "not a byte of it has changed");
    Ok(())
}

#[tokio::test]
async fn its_files_are_this_users_only() -> Result<()> {
    let (traygate, _fake, _) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let paths = traygate.paths();
    assert_eq!(mode(&paths.database())?, 0o600);
    assert_eq!(mode(&paths.run_file())?, 0o600);
    for directory in [&paths.data, &paths.cache, &paths.run] {
        assert_eq!(mode(directory)?, 0o700, "{}", directory.display());
    }
    for (file, _) in process::files(&paths.data) {
        assert_eq!(mode(&file)? & 0o077, 0, "{}", file.display());
    }
    Ok(())
}

#[tokio::test]
async fn one_process_serves_all_apps() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let other = traygate.token("other").await?;
    for token in [&token, &other, &token] {
        for era in AppEra::ALL {
            app(&traygate, era, token).await?.call_text("fake__echo", json!({})).await?;
        }
    }
    assert_eq!(fake.alive()?.len(), 1);
    assert_eq!(fake.events("start")?, 1);
    Ok(())
}

#[tokio::test]
async fn stopping_leaves_nobody_behind_not_even_grandchildren() -> Result<()> {
    let (mut traygate, fake, token) =
        host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    app(&traygate, AppEra::Legacy, &token).await?.call_text("fake__spawn", json!({})).await?;
    assert!(process::marked(&traygate.mark).len() >= 3, "host, child and grandchild");
    traygate.stop().await?;
    assert!(fake.alive()?.is_empty());
    traygate.assert_no_orphans().await?;
    assert!(!traygate.paths().run_file().exists(), "the run file is gone too");
    Ok(())
}

#[tokio::test]
async fn removing_an_upstream_ends_its_grandchildren() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let grandchild: u32 = app.call_text("fake__spawn", json!({})).await?.parse()?;
    let deleted = traygate.control_raw(reqwest::Method::DELETE, "/upstreams/fake", None).await?;
    assert_eq!(deleted.0, 204, "{}", deleted.1);
    process::until("both end", || {
        fake.alive().is_ok_and(|alive| alive.is_empty())
            && !traygate_tests::fake::control_dir::is_running(grandchild)
    })
    .await?;
    assert!(app.tools().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_crashed_host_leaves_no_child_that_waits_for_it() -> Result<()> {
    let (mut traygate, _fake, token) =
        host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    app(&traygate, AppEra::Legacy, &token).await?.tools().await?;
    traygate.kill()?;
    traygate.assert_no_orphans().await
}

#[tokio::test]
async fn a_system_without_certificates_still_has_its_servers_on_this_machine() -> Result<()> {
    let mut traygate = Traygate::unstarted()?;
    traygate.serve_with(&[("SSL_CERT_FILE", "/nowhere"), ("SSL_CERT_DIR", "/nowhere")]).await?;
    let program = Fake::start("program", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let behind = Fake::start("behind", FakeOptions::http(FakeEra::Modern)).await?;
    let token = traygate.token("app").await?;
    for fake in [&program, &behind] {
        traygate.add(&traygate.definition(fake)?).await?;
        let app = app(&traygate, AppEra::Modern, &token).await?;
        app.call_text(&format!("{}__counter", fake.name), json!({})).await?;
    }
    let log = traygate.host_log()?;
    assert!(log.contains("ca-certificates"), "and it says what is missing: {log}");
    Ok(())
}

#[tokio::test]
async fn a_command_is_found_where_the_login_shell_finds_it() -> Result<()> {
    let user = tempfile::tempdir()?;
    let programs = user.path().join("programs");
    std::fs::create_dir(&programs)?;
    std::os::unix::fs::symlink(Fake::program(), programs.join("only-in-the-profile"))?;
    let profile = format!("export PATH=\"{}:$PATH\"\n", programs.display());
    std::fs::write(user.path().join(".profile"), profile)?;
    let home = user.path().display().to_string();
    let mut traygate = Traygate::unstarted()?;
    // As a desktop starts it: a short PATH, and the rest only in the user's profile.
    let desktop = [("HOME", home.as_str()), ("SHELL", "/bin/bash"), ("PATH", "/usr/bin:/bin")];
    traygate.serve_with(&desktop).await?;
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut definition = traygate.definition(&fake)?;
    if let Transport::Stdio { command, .. } = &mut definition.transport {
        "only-in-the-profile".clone_into(command);
    }
    traygate.add(&definition).await?;
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let seen = app.call_text("fake__env", json!({})).await?;
    assert!(seen.contains("PATH"), "{seen}");
    Ok(())
}

#[tokio::test]
async fn a_child_gets_what_it_needs_and_none_of_the_hosts_secrets() -> Result<()> {
    let mut traygate = Traygate::unstarted()?;
    // The host's own environment holds a secret that no child may see.
    traygate.serve_with(&[("GATEWAY_SECRET_CANARY", "do-not-pass-on")]).await?;
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut definition = traygate.definition(&fake)?;
    let work = tempfile::tempdir()?;
    if let Transport::Stdio { env, cwd, .. } = &mut definition.transport {
        env.extend(BTreeMap::from([("GIVEN_TO_IT".to_owned(), "yes".to_owned())]));
        *cwd = Some(work.path().display().to_string());
    }
    traygate.add(&definition).await?;
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let seen = tree(&app.call("fake__env", json!({})).await?.result()?);
    let seen = &seen["structuredContent"];
    let names: Vec<_> =
        seen["names"].as_array().context("names")?.iter().filter_map(|n| n.as_str()).collect();
    for wanted in ["PATH", "HOME", "GIVEN_TO_IT"] {
        assert!(names.contains(&wanted), "{wanted} in {names:?}");
    }
    for secret in ["GATEWAY_SECRET_CANARY", "TRAYGATE_HOME"] {
        assert!(!names.contains(&secret), "{secret} in {names:?}");
    }
    assert_eq!(
        seen["cwd"].as_str().map(std::fs::canonicalize).transpose()?,
        Some(work.path().canonicalize()?)
    );
    Ok(())
}
