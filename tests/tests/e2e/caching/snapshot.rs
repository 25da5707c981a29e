//! The snapshot file (design section 4.5), from outside.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use traygate_gateway::{
    api::{Change, Freshness},
    capability::CapabilityType,
};
use traygate_tests::{
    AppEra, Fake, FakeOptions, Traygate,
    fake::{
        control_dir::{Arm, Failure},
        options::FakeEra,
    },
    process,
    traygate::mode,
};

use super::{LONG, asked, catalogue, is_stale, listed, set_all, tool, until_seen};
use crate::{app, host_with};

fn file(traygate: &Traygate) -> PathBuf {
    traygate.paths().cache.join("catalogues.json")
}

fn content(traygate: &Traygate) -> Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(file(traygate))?)?)
}

/// The types that the file holds, once it holds so many.
async fn holds(traygate: &Traygate, count: usize) -> Result<Vec<String>> {
    let kinds = || -> Option<Vec<String>> {
        let entries = content(traygate).ok()?["entries"].take();
        let kind = |entry: &Value| entry["type"].as_str().map(str::to_owned);
        entries.as_array()?.iter().map(kind).collect()
    };
    process::until("the file", || kinds().is_some_and(|kinds| kinds.len() == count)).await?;
    kinds().context("just read")
}

/// A modern upstream whose four lists were read and kept.
async fn kept(options: FakeOptions) -> Result<(Traygate, Fake, String)> {
    let (traygate, fake, token) = host_with("fake", options).await?;
    set_all(&fake, LONG)?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    for method in super::METHODS {
        listed(&app, method).await?;
    }
    holds(&traygate, 4).await?;
    Ok((traygate, fake, token))
}

fn lines_about_it(traygate: &Traygate) -> Result<usize> {
    let log = traygate.host_log()?;
    Ok(log.lines().filter(|line| line.contains("WARN") && line.contains("catalogues.json")).count())
}

#[tokio::test]
async fn the_first_list_after_a_start_waits_for_nobody_and_what_differs_is_announced() -> Result<()>
{
    for options in [FakeOptions::stdio(FakeEra::Modern), FakeOptions::http(FakeEra::Modern)] {
        let (mut traygate, fake, token) = kept(options).await?;
        ensure!(mode(&file(&traygate))? == 0o600);
        traygate.stop().await?;
        fake.set_list("tools", &[tool("newer", "changed while nobody looked")])?;
        // Slower to come up than any list may wait.
        let silent =
            if fake.options.transport == traygate_tests::fake::options::FakeTransport::Stdio {
                Arm::new(Failure::Slow, "start").ms(7_000)
            } else {
                Arm::new(Failure::Slow, "server/discover").ms(7_000)
            };
        fake.arm_with(&silent)?;
        let before = fake.count("tools/list")?;
        traygate.serve().await?;
        let mut app = app(&traygate, AppEra::Legacy, &token).await?;
        let began = std::time::Instant::now();
        let tools = app.tools().await?;
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!(tools.len(), 19);
        assert_eq!(fake.count("tools/list")?, before, "from what was kept");
        let seen = catalogue(&traygate, "fake", CapabilityType::Tool).await?;
        assert!(matches!(seen.freshness, Freshness::Fresh { until: Some(_) }), "{seen:?}");
        let mut ears = app.listen().await?;
        ears.hear("notifications/tools/list_changed", Duration::from_secs(30)).await?;
        assert_eq!(app.tools().await?, ["fake__newer"]);
        assert_eq!(fake.count("tools/list")?, before + 1);
    }
    Ok(())
}

#[tokio::test]
async fn a_kill_loses_nothing_that_was_kept() -> Result<()> {
    let (mut traygate, fake, token) = kept(FakeOptions::http(FakeEra::Modern)).await?;
    traygate.kill()?;
    fake.arm_with(&Arm::new(Failure::Hang, "server/discover").for_ever())?;
    traygate.serve().await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let (reads, told) = asked(&fake, "tools/list", listed(&app, "tools/list")).await?;
    assert_eq!(reads, 0);
    assert_eq!(told["tools"].as_array().map(Vec::len), Some(19));
    assert_eq!((&told["ttlMs"], &told["cacheScope"]), (&json!(300_000), &json!("public")));
    Ok(())
}

#[tokio::test]
async fn only_public_lists_with_a_time_of_a_modern_upstream_are_kept() -> Result<()> {
    let traygate = Traygate::start().await?;
    let token = traygate.token("app").await?;
    let legacy = traygate.add_fake("legacy", FakeOptions::http(FakeEra::Legacy)).await?;
    let modern = traygate.add_fake("modern", FakeOptions::http(FakeEra::Modern)).await?;
    set_all(&legacy, LONG)?;
    modern.set_hints("tools/list", &[LONG])?;
    modern.set_hints("prompts/list", &[r#""ttlMs":3600000,"cacheScope":"private""#])?;
    modern.set_hints("resources/list", &[r#""ttlMs":0,"cacheScope":"public""#])?;
    modern.set_hints("resources/templates/list", &[""])?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    for method in super::METHODS {
        listed(&app, method).await?;
    }
    assert_eq!(holds(&traygate, 1).await?, ["tool"]);
    let entry = content(&traygate)?["entries"][0].take();
    assert_eq!((&entry["upstream"], &entry["scope"]), (&json!("modern"), &json!("public")));
    assert!(!std::fs::read_to_string(file(&traygate))?.contains(modern.url()), "an HMAC names it");
    Ok(())
}

#[tokio::test]
async fn what_turns_private_or_is_doubted_or_belongs_to_nobody_is_removed_at_once() -> Result<()> {
    let (traygate, fake, token) = kept(FakeOptions::http(FakeEra::Modern)).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    fake.set_hints("tools/list", &[r#""ttlMs":3600000,"cacheScope":"private""#])?;
    fake.announce_to_listeners("tools").await?;
    until_seen(&traygate, "fake", CapabilityType::Tool, is_stale).await?;
    holds(&traygate, 3).await?;
    app.tools().await?;
    let kinds = holds(&traygate, 3).await?;
    assert!(!kinds.contains(&"tool".to_owned()), "{kinds:?}");
    fake.announce_to_listeners("prompts").await?;
    assert_eq!(holds(&traygate, 2).await?, ["resource", "template"], "it said that it changed");
    let mut definition = traygate.definition(&fake)?;
    if let traygate_gateway::definition::Transport::Http { headers, .. } = &mut definition.transport
    {
        headers.insert("x-user".to_owned(), "somebody else".to_owned());
    }
    let change = Change { transport: Some(definition.transport), ..Change::default() };
    traygate.change("fake", &change).await?;
    process::until("its end", || !file(&traygate).exists()).await?;
    Ok(())
}

#[tokio::test]
async fn a_switch_turns_it_off_and_takes_it_away() -> Result<()> {
    let (mut traygate, fake, token) = kept(FakeOptions::http(FakeEra::Modern)).await?;
    traygate.cli(&["config", "snapshot", "off"]).await?.ok()?;
    assert!(!file(&traygate).exists(), "gone when the command is done");
    let app_now = app(&traygate, AppEra::Modern, &token).await?;
    traygate.cli(&["refresh", "fake"]).await?.ok()?;
    app_now.tools().await?;
    let before = fake.count("tools/list")?;
    traygate.restart().await?;
    assert!(!file(&traygate).exists());
    app(&traygate, AppEra::Modern, &token).await?.tools().await?;
    assert_eq!(fake.count("tools/list")? - before, 1, "read, and not kept");
    assert!(!file(&traygate).exists());
    traygate.cli(&["config", "snapshot", "on"]).await?.ok()?;
    process::until("it is back", || file(&traygate).exists()).await?;
    Ok(())
}

/// Changes the file while nobody hosts, and starts. The lists are read live then, and one line says why.
#[tokio::test]
async fn a_file_that_is_anything_but_its_own_is_not_used_and_one_line_says_so() -> Result<()> {
    let (mut traygate, fake, token) = kept(FakeOptions::http(FakeEra::Modern)).await?;
    traygate.stop().await?;
    let whole = std::fs::read_to_string(file(&traygate))?;
    let future = {
        let mut content: Value = serde_json::from_str(&whole)?;
        for entry in content["entries"].as_array_mut().context("entries")? {
            entry["written_at"] = json!(4_000_000_000_000_u64);
            entry["until"] = json!(4_000_000_001_000_u64);
        }
        content.to_string()
    };
    let mut lines = lines_about_it(&traygate)?;
    for (what, text) in [
        ("truncated", whole[..whole.len() / 2].to_owned()),
        ("foreign", r#"{"mcpServers":{}}"#.to_owned()),
        ("empty", String::new()),
        ("of another version", whole.replace("traygate-catalogues-", "traygate-catalogues-0")),
        ("private", whole.replace(r#""scope":"public""#, r#""scope":"private""#)),
        ("of the future", future),
    ] {
        std::fs::write(file(&traygate), text)?;
        lines += 1;
        not_used(&mut traygate, &fake, &token, what).await?;
        assert_eq!(lines_about_it(&traygate)?, lines, "{what}: {}", traygate.host_log()?);
    }
    std::fs::write(file(&traygate), &whole)?;
    let for_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(file(&traygate), for_all)?;
    not_used(&mut traygate, &fake, &token, "world-writable").await?;
    assert_eq!(lines_about_it(&traygate)?, lines + 1, "{}", traygate.host_log()?);
    std::fs::remove_file(file(&traygate))?;
    std::fs::create_dir(file(&traygate))?;
    not_used(&mut traygate, &fake, &token, "a directory").await?;
    assert_eq!(lines_about_it(&traygate)?, lines + 2, "{}", traygate.host_log()?);
    assert!(file(&traygate).is_dir(), "and left alone");
    Ok(())
}

async fn not_used(traygate: &mut Traygate, fake: &Fake, token: &str, what: &str) -> Result<()> {
    // Nothing live can come, so whatever is shown comes from the file.
    fake.arm_with(&Arm::new(Failure::Error, "tools/list").for_ever())?;
    traygate.serve().await?;
    let shown = app(traygate, AppEra::Modern, token).await?;
    assert_eq!(listed(&shown, "tools/list").await?["tools"], json!([]), "{what}");
    fake.disarm()?;
    assert_eq!(shown.tools().await?.len(), 19, "{what}: it works without");
    traygate.stop().await
}

#[tokio::test]
async fn another_installations_file_is_not_used() -> Result<()> {
    let (traygate, fake, _) = kept(FakeOptions::http(FakeEra::Modern)).await?;
    let mut other = Traygate::start().await?;
    let token = other.token("app").await?;
    other.add(&other.definition(&fake)?).await?;
    other.stop().await?;
    std::fs::copy(file(&traygate), file(&other))?;
    fake.arm_with(&Arm::new(Failure::Error, "tools/list").for_ever())?;
    other.serve().await?;
    let shown = app(&other, AppEra::Modern, &token).await?;
    assert_eq!(listed(&shown, "tools/list").await?["tools"], json!([]));
    Ok(())
}
