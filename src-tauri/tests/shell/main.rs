//! The real binary on a desktop of its own, and without one.

#![cfg(target_os = "linux")]

mod at_login;
mod browser;
mod cost;
mod http;
mod life;
mod notices;
mod notifier;
mod panel;
mod stage;
mod tray;

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use crate::{
    browser::Browser,
    panel::Panel,
    stage::{Desktop, Home, Started, children_of, status_of_control},
};

/// How long an end in good order may take for who watches.
const ORDERLY: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn hidden_on_a_desktop_it_serves_without_a_web_view_and_ends_on_sigterm() {
    let (home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let mut traygate = Started::new(desktop.command(&home).arg("--hidden"));
    traygate.hear("Traygate serves ");
    traygate.hear("on the desktop");
    panel.icon().await;

    let run = home.run_file();
    assert_eq!((run.pid, run.host.as_str()), (traygate.pid(), "desktop"));
    assert_eq!(status_of_control(&run), 200, "the gateway answers behind the tray");
    let children = children_of(traygate.pid());
    assert!(
        !children.iter().any(|name| name.starts_with("WebKit")),
        "a hidden Traygate carries no web view: {children:?}"
    );

    let asked = Instant::now();
    traygate.ask_to_end();
    assert_eq!(traygate.exit_code(), Some(0));
    assert!(asked.elapsed() < ORDERLY, "it took {:?}", asked.elapsed());
    assert!(!home.has_run_file(), "who is gone is in no run file");
}

#[test]
fn without_a_display_it_says_so_and_serves() {
    let home = Home::new();
    let mut traygate = Started::new(home.command().arg("--hidden"));
    traygate.hear("Traygate serves ");
    traygate.hear("no display");
    assert_eq!(status_of_control(&home.run_file()), 200);

    let asked = Instant::now();
    traygate.ask_to_end();
    assert_eq!(traygate.exit_code(), Some(0));
    assert!(asked.elapsed() < ORDERLY, "it took {:?}", asked.elapsed());
}

#[test]
fn a_second_start_says_who_runs_and_leaves_it_alone() {
    let home = Home::new();
    let mut first = Started::new(&mut home.command());
    first.hear("Traygate serves ");

    let mut second = Started::new(&mut home.command());
    second.hear(&first.pid().to_string());
    assert_eq!(second.exit_code(), Some(0), "the user has what they asked for");
    assert_eq!(status_of_control(&home.run_file()), 200, "the first goes on");
}

#[test]
fn a_taken_port_is_named_and_nothing_runs() {
    let home = Home::new();
    let _holder = TcpListener::bind(("127.0.0.1", home.port())).expect("the port was free");
    let mut traygate = Started::new(&mut home.command());
    traygate.hear(&home.port().to_string());
    assert_eq!(traygate.exit_code(), Some(1));
}

#[test]
fn the_window_shows_the_endpoint_and_runs_no_foreign_code() {
    let (home, desktop) = (Home::new(), Desktop::start());
    let browser = Browser::start(&desktop, &home);
    assert_eq!(
        browser.value_of("input[readonly]"),
        format!("http://127.0.0.1:{}/mcp", home.port()),
        "the page asked the shell, and drew what it said"
    );
    assert!(browser.text_of("main").contains("traygate add "), "an empty list teaches");

    let evaluates = "try { return String(new Function('return 1')()) } catch (e) { return e.name }";
    assert_eq!(browser.run(evaluates), "EvalError", "text from a server never becomes code");
}
