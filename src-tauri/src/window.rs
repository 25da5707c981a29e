//! The window: drawn from the newest snapshot, made when it is opened and destroyed when it is
//! closed, so that a Traygate in the tray carries no web view.

use std::sync::Arc;

use tauri::{AppHandle, Emitter as _, Manager as _, State, Url, WebviewUrl, WebviewWindowBuilder};
use tokio::sync::Notify;
use tracing::{error, info, warn};
use traygate_gateway::{
    api::{CapabilityView, LogLine, Snapshot, Toggle},
    capability::CapabilityType,
    events::By,
    gateway::Gateway,
    names::UpstreamName,
};

use crate::gateway::{Failure, Hands, View};

const LABEL: &str = "main";

/// How many lines of a log the page shows.
const LOG_LINES: usize = 500;

/// What the window is opened for.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    Start,
    Log(UpstreamName),
    Tools(UpstreamName),
}

impl Place {
    /// As the page knows it.
    fn word(&self) -> String {
        match self {
            Self::Start => String::new(),
            Self::Log(upstream) => format!("log/{upstream}"),
            Self::Tools(upstream) => format!("tools/{upstream}"),
        }
    }
}

pub fn is_open(app: &AppHandle) -> bool {
    app.get_webview_window(LABEL).is_some()
}

/// Opens the window there, or brings the open one to the front.
pub fn open(app: &AppHandle, place: &Place) -> tauri::Result<()> {
    if let Some(window) = app.get_webview_window(LABEL) {
        if *place != Place::Start {
            app.emit_to(LABEL, "go", place.word())?;
        }
        window.unminimize()?;
        window.show()?;
        return window.set_focus();
    }
    let page = format!("index.html#{}", place.word());
    WebviewWindowBuilder::new(app, LABEL, WebviewUrl::App(page.into()))
        .title("Traygate")
        .inner_size(760.0, 640.0)
        .min_inner_size(420.0, 320.0)
        .on_navigation(is_own_page)
        .build()?;
    info!("the window is open");
    Ok(())
}

/// The same from any thread. What goes wrong is in the log: nobody waits for it.
pub fn ask_for(app: &AppHandle, place: Place) {
    let opening = app.clone();
    let asked = app.run_on_main_thread(move || {
        if let Err(error) = open(&opening, &place) {
            error!(%error, "the window can't be opened");
        }
    });
    if let Err(error) = asked {
        error!(%error, "the window can't be opened");
    }
}

/// Opens the window whenever another start of Traygate wants it seen.
pub async fn show_when_wanted(app: AppHandle, wanted: Arc<Notify>) {
    loop {
        wanted.notified().await;
        ask_for(&app, Place::Start);
    }
}

/// The page has nowhere to go: what it shows comes from strangers and may hold anything.
fn is_own_page(url: &Url) -> bool {
    // The second form is how Windows spells it.
    matches!(
        (url.scheme(), url.host_str()),
        ("tauri", Some("localhost")) | ("http", Some("tauri.localhost"))
    )
}

/// What the page asks once, when it opens.
#[tauri::command]
#[allow(clippy::needless_pass_by_value, reason = "Tauri hands its state over by value")]
pub fn snapshot(view: State<'_, View>) -> Result<Arc<Snapshot>, Failure> {
    let newest = view.as_ref().map_err(Failure::clone)?;
    Ok(newest.borrow().clone())
}

/// What the page may ask for besides; each is the gateway's own deed.
#[tauri::command]
#[allow(clippy::needless_pass_by_value, reason = "Tauri hands what it has over by value")]
pub fn log(hands: State<'_, Option<Hands>>, upstream: String) -> Result<Vec<LogLine>, String> {
    let upstream =
        gateway(hands.inner().as_ref())?.named(&upstream).map_err(|refused| refused.to_string())?;
    Ok(upstream.log().follow(LOG_LINES).0)
}

/// As last read; nobody is asked.
#[tauri::command]
#[allow(clippy::needless_pass_by_value, reason = "Tauri hands what it has over by value")]
pub fn capabilities(
    hands: State<'_, Option<Hands>>,
    upstream: String,
) -> Result<Vec<CapabilityView>, String> {
    let gateway = gateway(hands.inner().as_ref())?;
    let upstream = gateway.named(&upstream).map_err(|refused| refused.to_string())?;
    Ok(gateway.capabilities(&upstream, false).items)
}

#[tauri::command]
pub async fn toggle(
    hands: State<'_, Option<Hands>>,
    upstream: String,
    kind: CapabilityType,
    key: String,
    enabled: bool,
) -> Result<(), String> {
    let toggle = Toggle { kind, key, enabled: Some(enabled), pinned: None };
    let done = gateway(hands.inner().as_ref())?.toggle(By::Window, &upstream, toggle).await;
    done.map(drop).map_err(|refused| refused.to_string())
}

fn gateway(hands: Option<&Hands>) -> Result<Arc<Gateway>, String> {
    let hands = hands.ok_or("the gateway isn't running")?;
    Ok(Arc::clone(&hands.gateway))
}

/// As the menu's Quit does.
#[tauri::command]
#[allow(clippy::needless_pass_by_value, reason = "Tauri hands what it has over by value")]
pub fn quit(app: AppHandle) {
    app.exit(0);
}

/// Tells an open window of each new snapshot, until the gateway ends.
pub async fn tell_of_changes(app: AppHandle, view: View) {
    let Ok(mut newest) = view else { return };
    while newest.changed().await.is_ok() {
        if !is_open(&app) {
            continue;
        }
        let snapshot = newest.borrow_and_update().clone();
        if let Err(error) = app.emit_to(LABEL, "snapshot-changed", snapshot) {
            warn!(%error, "the window can't be told of a change");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_go_to(url: &str) -> bool {
        is_own_page(&url.parse().expect("the test's URL is one"))
    }

    #[test]
    fn the_window_never_leaves_its_own_page() {
        assert!(may_go_to("tauri://localhost/index.html"));
        assert!(!may_go_to("https://example.com/"), "a remote page would look like Traygate");
        assert!(!may_go_to("http://127.0.0.1:8717/mcp"), "the endpoint is no page");
        assert!(!may_go_to("file:///etc/passwd"));
    }
}
