//! Who hosts, where, and how it begins and ends.

use std::{net::TcpListener, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::json;
use traygate_tests::{
    App, AppEra, FakeOptions,
    fake::{content::TOOLS, options::FakeEra},
    process::until,
};

use crate::{
    ORDERLY,
    browser::Browser,
    panel::Panel,
    stage::{Desktop, Home, Started},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_brings_up_the_first_ones_window() -> Result<()> {
    let (home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let mut first = Started::new(desktop.command(&home).arg("--hidden"));
    first.hear("on the desktop");
    panel.icon().await;
    let mut at_login = Started::new(desktop.command(&home).arg("--hidden"));
    at_login.hear(&format!("already running (process {})", first.pid()));
    assert_eq!(at_login.exit_code(), Some(0));
    let mut by_hand = Started::new(&mut desktop.command(&home));
    by_hand.hear("its window opens");
    assert_eq!(by_hand.exit_code(), Some(0), "the user has what they asked for");
    first.hear("the window is open");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_headless_host_gives_way_to_the_desktop_on_the_same_port() -> Result<()> {
    let (mut home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    home.traygate.serve().await?;
    let fake = home.traygate.add_fake("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let token = home.traygate.token("claude").await?;
    let port = home.traygate.run_file()?.port;
    let app = App::connect(AppEra::Modern, &home.traygate.endpoint(), &token).await?;
    assert_eq!(app.tools().await?.len(), TOOLS.len());

    let mut shell = desktop.command(&home);
    let mut process = Started::new(shell.arg("--hidden"));
    process.hear("a headless Traygate gives way");
    process.hear("on the desktop");
    panel.icon().await;
    let run = home.run_file();
    assert_eq!((run.host.as_str(), run.port, run.pid), ("desktop", port, process.pid()));
    app.call_text("fake__echo", json!({})).await.context("the app goes on where it was")?;
    assert_eq!(fake.alive()?.len(), 1, "one program, as before");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_told_with_its_holder_and_left_for_another_or_tried_again() -> Result<()> {
    let (home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let holder = TcpListener::bind(("127.0.0.1", home.port()))?;
    let mut traygate = Started::new(desktop.command(&home).arg("--hidden"));
    let mut icon = panel.icon().await;
    let own = std::process::id().to_string();
    let told = |line: &str| line.starts_with("Not running: port ") && line.contains(&own);
    icon.until("it says by whom", |menu| told(menu.labels()[0])).await;
    icon.click(&["Use another port"]).await;
    traygate.hear("Traygate serves ");
    let other = home.run_file().port;
    assert_ne!(other, home.port());
    panel.icon().await;
    traygate.ask_to_end();
    assert_eq!(traygate.exit_code(), Some(0));

    // Started with the port once more, which is taken still, and then is not.
    let mut traygate = Started::new(desktop.command(&home).arg("--hidden"));
    let icon = panel.icon().await;
    drop(holder);
    icon.click(&["Try again"]).await;
    traygate.hear(&format!("Traygate serves http://127.0.0.1:{}/mcp", home.port()));
    Ok(())
}

#[test]
fn the_window_tells_of_a_taken_port_and_offers_ways_out() {
    let (home, desktop) = (Home::new(), Desktop::start());
    let _holder = TcpListener::bind(("127.0.0.1", home.port())).expect("it was free");
    let browser = Browser::start(&desktop, &home);
    let told = format!("port {} is in use by", home.port());
    for part in [told.as_str(), "Try again", "Use another port"] {
        let shown = format!("document.querySelector('main').innerText.includes('{part}')");
        browser.until(part, &shown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_windows_shortcut_quits_in_good_order() -> Result<()> {
    let (home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let browser = Browser::start(&desktop, &home);
    panel.icon().await;
    browser.until("the page is drawn", "document.querySelector('main').innerText !== ''");
    let key = "return String(setTimeout(() => window.dispatchEvent(new KeyboardEvent('keydown', {key: 'q', ctrlKey: true})), 300))";
    browser.run(key);
    until("it has ended, and said so", || !home.has_run_file()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_desktop_leaves_no_program_behind() -> Result<()> {
    let (mut home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let mut traygate = Started::hidden(&desktop, &mut home);
    panel.icon().await;
    let fake = home.traygate.add_fake("fake", FakeOptions::stdio(FakeEra::Modern)).await?;
    home.traygate.state("fake", "ready").await?;
    traygate_tests::process::signal(traygate.pid(), "KILL")?;
    traygate.exit_code();
    until("its programs are gone", || fake.alive().is_ok_and(|alive| alive.is_empty())).await?;
    home.traygate.assert_no_orphans().await
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_machine_wakes_upstreams_are_asked_for_a_sign_of_life() -> Result<()> {
    let (mut home, desktop, system) = (Home::new(), Desktop::start(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let mut command = desktop.command(&home);
    system.furnish_as_system_bus(&mut command);
    let mut traygate = Started::new(command.arg("--hidden"));
    traygate.hear("on the desktop");
    panel.icon().await;
    home.traygate.port = home.traygate.run_file()?.port;
    let fake = home.traygate.add_fake("fake", FakeOptions::http(FakeEra::Legacy)).await?;
    home.traygate.state("fake", "ready").await?;

    let login = system.bus().name("org.freedesktop.login1").build().await?;
    for falls_asleep in [true, false] {
        let (object, manager) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
        login.emit_signal(None::<()>, object, manager, "PrepareForSleep", &falls_asleep).await?;
    }
    fake.asked("ping").await?;
    let asked = std::time::Instant::now();
    traygate.ask_to_end();
    assert_eq!(traygate.exit_code(), Some(0));
    assert!(asked.elapsed() < ORDERLY.max(Duration::from_secs(3)));
    Ok(())
}
