//! The window: drawn from the newest snapshot, made when it is opened and destroyed when it is
//! closed, so that a Traygate in the tray carries no web view.

use std::sync::Arc;

use tauri::{AppHandle, Emitter as _, Manager as _, State, Url, WebviewUrl, WebviewWindowBuilder};
use tracing::{info, warn};
use traygate_gateway::api::Snapshot;

use crate::gateway::View;

const LABEL: &str = "main";

/// Opens the window, or brings the open one to the front.
pub fn open(app: &AppHandle) -> tauri::Result<()> {
    if let Some(window) = app.get_webview_window(LABEL) {
        window.unminimize()?;
        window.show()?;
        return window.set_focus();
    }
    WebviewWindowBuilder::new(app, LABEL, WebviewUrl::App("index.html".into()))
        .title("Traygate")
        .inner_size(760.0, 640.0)
        .min_inner_size(420.0, 320.0)
        .on_navigation(is_own_page)
        .build()?;
    info!("the window is open");
    Ok(())
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
pub fn snapshot(view: State<'_, View>) -> Result<Arc<Snapshot>, String> {
    let newest = view.as_ref().map_err(String::clone)?;
    Ok(newest.borrow().clone())
}

/// Tells an open window of each new snapshot, until the gateway ends.
pub async fn tell_of_changes(app: AppHandle, view: View) {
    let Ok(mut newest) = view else { return };
    while newest.changed().await.is_ok() {
        if app.get_webview_window(LABEL).is_none() {
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
