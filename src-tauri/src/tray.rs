//! The tray: an icon with a small menu.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use tauri::{
    AppHandle,
    menu::{MenuBuilder, MenuItemBuilder},
    tray::TrayIconBuilder,
};
use tracing::error;

use crate::window;

const OPEN: &str = "open";
const QUIT: &str = "quit";

/// Puts Traygate into the tray; says why where that can't be.
pub fn put_up(app: &AppHandle, cache: &Path) -> Result<(), String> {
    // The library that draws the icon on Linux is loaded when it is needed; without it, the call
    // below panics instead of returning an error.
    match catch_unwind(AssertUnwindSafe(|| build(app, cache))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the library libayatana-appindicator3 is missing; install it".to_owned()),
    }
}

fn build(app: &AppHandle, cache: &Path) -> tauri::Result<()> {
    let menu = MenuBuilder::new(app)
        .item(&MenuItemBuilder::with_id(OPEN, "Open Traygate…").build(app)?)
        .separator()
        .item(&MenuItemBuilder::with_id(QUIT, "Quit").build(app)?)
        .build()?;
    let mut tray = TrayIconBuilder::with_id("traygate")
        // On Linux the icon is handed over as a file; by default in a directory that all share.
        .temp_dir_path(cache.join("tray"))
        .tooltip("Traygate")
        .menu(&menu)
        .on_menu_event(|app, event| match event.id().as_ref() {
            OPEN => {
                if let Err(error) = window::open(app) {
                    error!(%error, "the window can't be opened");
                }
            }
            QUIT => app.exit(0),
            _ => {}
        });
    if let Some(icon) = app.default_window_icon() {
        tray = tray.icon(icon.clone());
    }
    tray.build(app)?;
    Ok(())
}
