//! Starting with the user's session, by the plugin; on Linux what that writes is written once more,
//! rightly, and what it says is not asked (`docs/decisions/0006`).

use tauri::{AppHandle, Runtime, State, plugin::TauriPlugin};
use tauri_plugin_autostart::ManagerExt as _;
use tracing::warn;
use traygate_gateway::events::By;

use crate::{gateway::Hands, tray};

/// Starts in the tray, without a window.
pub fn plugin<R: Runtime>() -> TauriPlugin<R> {
    tauri_plugin_autostart::Builder::new().app_name("Traygate").arg("--hidden").build()
}

pub fn set(app: &AppHandle, on: bool) -> Result<(), String> {
    let plugin = app.autolaunch();
    let done = if on { plugin.enable() } else { plugin.disable() };
    // On Linux nothing rests on it: to disable what isn't there is an error to it.
    if cfg!(not(target_os = "linux")) {
        done.map_err(|error| error.to_string())?;
    }
    entry::set(on)
}

#[cfg(target_os = "linux")]
pub fn is_on(_app: &AppHandle) -> bool {
    use traygate_gateway::autostart::{AtLogin, at_login};
    matches!(at_login(), Ok(AtLogin::Starts(_)))
}

#[cfg(not(target_os = "linux"))]
pub fn is_on(app: &AppHandle) -> bool {
    app.autolaunch().is_enabled().unwrap_or_default()
}

/// Whether the window is to ask: it is off, and the user hasn't been asked.
#[tauri::command]
#[allow(clippy::needless_pass_by_value, reason = "Tauri hands what it has over by value")]
pub fn asks_for_start_at_login(app: AppHandle, hands: State<'_, Option<Hands>>) -> bool {
    let offers = |hands: &Hands| hands.gateway.settings().offer_start_at_login;
    hands.as_ref().is_some_and(offers) && !is_on(&app)
}

/// The user's answer. Either is one, so nobody asks again.
#[tauri::command]
pub async fn start_at_login(
    app: AppHandle,
    hands: State<'_, Option<Hands>>,
    yes: bool,
) -> Result<(), String> {
    if yes {
        set(&app, true)?;
        tray::redraw(&app);
    }
    let Some(hands) = hands.as_ref() else { return Ok(()) };
    let asked = hands.gateway.set(By::Window, "offer_start_at_login", Some("off")).await;
    asked.map(drop).map_err(|refused| refused.to_string())
}

/// After an update or a move the program may be elsewhere: the entry follows it.
pub fn follow() {
    if let Err(why) = entry::follow() {
        warn!(why, "the entry for the start at login can't be put right");
    }
}

#[cfg(target_os = "linux")]
mod entry {
    use std::{env, path::PathBuf};

    use traygate_gateway::autostart::{self, AtLogin};

    pub fn set(on: bool) -> Result<(), String> {
        // The plugin knows this place only.
        if let Some(elsewhere) = elsewhere() {
            let _ = std::fs::remove_file(elsewhere);
        }
        let done = if on { autostart::switch_on(&program()?) } else { autostart::switch_off() };
        done.map_err(|error| error.to_string())
    }

    pub fn follow() -> Result<(), String> {
        let program = program()?;
        match autostart::at_login() {
            Ok(AtLogin::Starts(other) | AtLogin::Missing(other)) if other != program => {
                autostart::switch_on(&program).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Where the plugin writes, if that isn't where the desktop reads.
    fn elsewhere() -> Option<PathBuf> {
        let wrote = env::home_dir()?.join(".config/autostart/Traygate.desktop");
        autostart::entry().is_ok_and(|entry| entry != wrote).then_some(wrote)
    }

    /// From an image (`AppImage`), that image: what runs is mounted somewhere else each time.
    fn program() -> Result<PathBuf, String> {
        match env::var_os("APPIMAGE") {
            Some(image) => Ok(image.into()),
            None => env::current_exe().map_err(|error| error.to_string()),
        }
    }
}

/// There the plugin does all of it.
#[cfg(not(target_os = "linux"))]
mod entry {
    pub fn set(_on: bool) -> Result<(), String> {
        Ok(())
    }

    pub fn follow() -> Result<(), String> {
        Ok(())
    }
}
