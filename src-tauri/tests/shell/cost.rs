//! What Traygate costs while nobody looks at it.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use traygate_tests::{FakeOptions, fake::options::FakeEra, process::until};
use x11rb::{
    connection::Connection as _,
    protocol::xproto::{AtomEnum, ClientMessageEvent, ConnectionExt as _, EventMask, Window},
    rust_connection::RustConnection,
};

use crate::{
    panel::Panel,
    stage::{Desktop, Home, Started, children_of, descendants_of},
};

/// Closes the window of this title as its close button does.
fn close(desktop: &Desktop, title: &str) -> Result<()> {
    let (x, screen) = RustConnection::connect(Some(desktop.display()))?;
    let window = named(&x, x.setup().roots[screen].root, title)?.context("a window")?;
    let atom =
        |name: &str| -> Result<u32> { Ok(x.intern_atom(false, name.as_bytes())?.reply()?.atom) };
    let data = [atom("WM_DELETE_WINDOW")?, x11rb::CURRENT_TIME, 0, 0, 0];
    let message = ClientMessageEvent::new(32, window, atom("WM_PROTOCOLS")?, data);
    x.send_event(false, window, EventMask::NO_EVENT, message)?.check()?;
    Ok(())
}

fn named(x: &RustConnection, window: Window, title: &str) -> Result<Option<Window>> {
    let name = x.get_property(false, window, AtomEnum::WM_NAME, AtomEnum::ANY, 0, 64)?.reply()?;
    let protocols = x.intern_atom(false, b"WM_PROTOCOLS")?.reply()?.atom;
    let listens = x.get_property(false, window, protocols, AtomEnum::ATOM, 0, 8)?.reply()?;
    if name.value == title.as_bytes() && listens.value_len > 0 {
        return Ok(Some(window));
    }
    for child in x.query_tree(window)?.reply()?.children {
        if let Some(found) = named(x, child, title)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn shows_a_page(pid: u32) -> bool {
    children_of(pid).iter().any(|name| name.starts_with("WebKitWeb"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_window_leaves_no_web_view_and_opens_again() -> Result<()> {
    let (mut home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let traygate = Started::hidden(&desktop, &mut home);
    let icon = panel.icon().await;
    for _ in 0..2 {
        icon.click(&["Open Traygate…"]).await;
        until("the page is there", || shows_a_page(traygate.pid())).await?;
        until("the window is there", || close(&desktop, "Traygate").is_ok()).await?;
        until("the web view is gone", || !shows_a_page(traygate.pid())).await?;
        home.traygate.snapshot().await.context("the gateway goes on")?;
    }
    Ok(())
}

/// Anonymous and resident memory of a process and all below it, in MiB.
fn memory(pid: u32) -> Result<(f64, f64)> {
    let mut sum = (0.0, 0.0);
    for pid in descendants_of(pid) {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
        };
        sum.0 += number("RssAnon:").unwrap_or_default() / 1024.0;
        sum.1 += number("VmRSS:").unwrap_or_default() / 1024.0;
    }
    Ok(sum)
}

/// Clock ticks, a hundredth of a second each.
fn ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a name in parentheses")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures an optimised build on an idle machine: make memory"]
async fn what_an_idle_traygate_costs() -> Result<()> {
    let (mut home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let program =
        std::env::var("TRAYGATE_DESKTOP").context("TRAYGATE_DESKTOP names the program")?;
    let mut command = Command::new(program);
    command.arg("--hidden");
    home.furnish(&mut command);
    desktop.furnish(&mut command);
    let begun = Instant::now();
    let mut traygate = Started::new(&mut command);
    traygate.hear("Traygate serves ");
    println!("start to endpoint ready: {} ms", begun.elapsed().as_millis());
    let icon = panel.icon().await;
    home.traygate.port = home.traygate.run_file()?.port;
    let mut fakes = Vec::new();
    for number in 0..10 {
        let name = format!("u{number}");
        fakes.push(home.traygate.add_fake(&name, FakeOptions::http(FakeEra::Modern)).await?);
        home.traygate.state(&name, "ready").await?;
    }
    let settle = || tokio::time::sleep(Duration::from_secs(10));
    settle().await;
    let (pid, told) = (traygate.pid(), |what: &str, (own, resident): (f64, f64)| {
        println!("{what}: {own:.1} MiB of its own, {resident:.1} MiB resident");
    });
    told("never opened", memory(pid)?);
    let before = ticks(pid)?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    println!("CPU in 20 idle seconds: {} ms", 10 * (ticks(pid)? - before));
    icon.click(&["Open Traygate…"]).await;
    until("the page is there", || shows_a_page(pid)).await?;
    settle().await;
    told("open", memory(pid)?);
    close(&desktop, "Traygate")?;
    until("the web view is gone", || !shows_a_page(pid)).await?;
    settle().await;
    told("opened and closed", memory(pid)?);
    ensure!(fakes.len() == 10);
    Ok(())
}
