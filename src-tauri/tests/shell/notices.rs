//! What a person is notified of while upstreams come and go.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::time::Instant;
use traygate_tests::{
    App, AppEra, Fake, FakeOptions, Traygate,
    fake::{control_dir::Failure, options::FakeEra},
};

use crate::{
    notifier::Notifier,
    panel::Panel,
    stage::{Desktop, Home, Started},
};

/// News waits at most this long for more (design section 5.3), and some for a busy machine.
const LONGEST: Duration = Duration::from_secs(7);

struct Scene {
    // Ends before its home does.
    process: Started,
    home: Home,
    _panel: Panel,
    desktop: Desktop,
}

impl Scene {
    async fn start() -> Result<Self> {
        let desktop = Desktop::start();
        let panel = Panel::start(&desktop).await;
        let mut home = Home::new();
        let process = Started::hidden(&desktop, &mut home);
        Ok(Self { process, home, _panel: panel, desktop })
    }

    fn control(&self) -> &Traygate {
        &self.home.traygate
    }

    async fn fake(&self, name: &str) -> Result<Fake> {
        let fake = self.control().add_fake(name, FakeOptions::http(FakeEra::Legacy)).await?;
        self.control().state(name, "ready").await?;
        Ok(fake)
    }

    /// It is gone, and Traygate knows.
    async fn lose(&self, fake: &mut Fake) -> Result<()> {
        fake.kill()?;
        // Nobody asks for anything, so that it is gone is noticed or not. This shows it for sure.
        let _ = self.control().cli(&["refresh", &fake.name]).await?;
        self.control().state(&fake.name, "unavailable").await.map(drop)
    }

    async fn journal(&self, name: &str) -> Result<String> {
        self.control().cli(&["journal", name]).await?.ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_notified_of_once_and_its_end_takes_the_same_place() -> Result<()> {
    let scene = Scene::start().await?;
    let mut notifier = Notifier::start(&scene.desktop).await;
    let mut web = scene.fake("web").await?;
    scene.lose(&mut web).await?;
    let down = notifier.next().await;
    assert_eq!((down.title.as_str(), down.replaces), ("web is unavailable", 0));
    assert!(down.body.ends_with("Traygate keeps trying."), "{down:?}");
    assert_eq!(down.actions["default"], "Open");
    assert_eq!((&*down.actions["retry"], &*down.actions["mute"]), ("Retry now", "Mute web"));

    web.revive().await?;
    let back = notifier.next().await;
    assert_eq!((back.title.as_str(), back.replaces), ("web is back", down.id));
    assert!(!back.actions.contains_key("retry"), "there is nothing to retry: {back:?}");
    notifier.nothing_more();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_click_on_retry_now_tries_at_once() -> Result<()> {
    let scene = Scene::start().await?;
    let mut notifier = Notifier::start(&scene.desktop).await;
    let mut web = scene.fake("web").await?;
    scene.lose(&mut web).await?;
    let down = notifier.next().await;
    web.revive().await?;
    let tried = async || {
        scene.journal("web").await.is_ok_and(|told| told.contains("you restarted web (tray)"))
    };
    notifier.click(&down, "retry", tried).await;
    scene.control().state("web", "ready").await?;
    assert_eq!(notifier.next().await.title, "web is back");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_muted_is_quiet_and_so_are_all_when_notifications_are_off() -> Result<()> {
    let scene = Scene::start().await?;
    let mut notifier = Notifier::start(&scene.desktop).await;
    let (mut web, mut docs) = (scene.fake("web").await?, scene.fake("docs").await?);
    scene.lose(&mut web).await?;
    let down = notifier.next().await;
    let muted = async || {
        let view = scene.control().upstream("web").await;
        view.is_ok_and(|view| !view.settings.notifications)
    };
    notifier.click(&down, "mute", muted).await;
    web.revive().await?;
    scene.control().state("web", "ready").await?;
    scene.lose(&mut web).await?;
    scene.lose(&mut docs).await?;
    let down = notifier.next().await;
    assert_eq!(down.title, "docs is unavailable", "and nothing of the muted one");

    scene.control().cli(&["config", "notifications", "off"]).await?.ok()?;
    docs.revive().await?;
    scene.control().state("docs", "ready").await?;
    // That it is back would have been told by then.
    tokio::time::sleep(LONGEST).await;
    scene.control().cli(&["config", "notifications", "on"]).await?.ok()?;
    let mut mail = scene.fake("mail").await?;
    scene.lose(&mut mail).await?;
    assert_eq!(notifier.next().await.title, "mail is unavailable");
    notifier.nothing_more();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_have_run_is_notified_of_without_its_arguments() -> Result<()> {
    let scene = Scene::start().await?;
    let mut notifier = Notifier::start(&scene.desktop).await;
    let web = scene.fake("web").await?;
    let token = scene.control().token("claude <b>").await?;
    let app = App::connect(AppEra::Modern, &scene.control().endpoint(), &token).await?;
    app.tools().await?;
    web.arm(Failure::Cut, "tools/call")?;
    app.call("web__counter", json!({"secret": "hunter2"})).await?;
    let told = notifier.next().await;
    assert_eq!(told.title, "A call of web may have run");
    assert!(told.body.starts_with("claude &lt;b&gt; was using counter when"), "{told:?}");
    assert!(!told.body.contains("hunter2"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_service_that_answers_all_goes_on_and_one_that_comes_is_used() -> Result<()> {
    let mut scene = Scene::start().await?;
    let (mut web, mut mail) = (scene.fake("web").await?, scene.fake("mail").await?);
    let docs = scene.fake("docs").await?;
    let token = scene.control().token("claude").await?;
    let app = App::connect(AppEra::Legacy, &scene.control().endpoint(), &token).await?;
    app.tools().await?;
    scene.lose(&mut web).await?;
    scene.process.hear("this desktop shows no notifications");

    let mut notifier = Notifier::start(&scene.desktop).await;
    scene.lose(&mut mail).await?;
    assert_eq!(notifier.next().await.title, "mail is unavailable", "the service came");
    notifier.hang();
    mail.revive().await?;
    scene.control().state("mail", "ready").await?;
    let begun = Instant::now();
    app.call_text("docs__echo", json!({})).await.context("calls go on")?;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    scene.process.hear("no answer within 5 s");
    scene.control().cli(&["refresh", &docs.name]).await?.ok().context("and all else")?;
    scene.process.ask_to_end();
    assert_eq!(scene.process.exit_code(), Some(0));
    Ok(())
}
