//! The desktop around the gateway: where there is one, it gets a tray and a window.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context as _;
use tauri::RunEvent;
use tokio::runtime::Runtime;
use tracing::{info, warn};
use traygate_gateway::paths::Paths;

use crate::{
    again, autostart,
    gateway::{Gateway, asked_to_end},
    notices,
    signals::Signals,
    sleep,
    tray::{self, Powers, Switch},
    window::{self, Place},
};

/// How Traygate shows itself at first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// In the tray and with its window.
    Shown,
    /// In the tray only.
    Hidden,
}

/// How it ended.
pub enum Ended {
    ForGood(ExitCode),
    /// On the port it was started with, or on the one that the settings say.
    ToStartAnew {
        hidden: bool,
        same_port: bool,
    },
}

/// Finds out whether there is a desktop, and says why not.
pub fn find() -> Result<(), String> {
    // Without a display Tauri panics; GTK can be asked first, and be initialized twice.
    #[cfg(target_os = "linux")]
    gtk::init().map_err(|error| error.to_string())?;
    Ok(())
}

/// Shows the gateway until the user quits, a signal comes or the gateway ends; ends it in good order.
pub fn show(
    runtime: &Runtime,
    gateway: Gateway,
    signals: Signals,
    paths: &Paths,
    start: Start,
) -> anyhow::Result<Ended> {
    let cache = paths.cache.clone();
    // What went wrong must be seen, even by who asked for no window.
    let open_now = start == Start::Shown || gateway.failure().is_some();
    let (view, hands) = (gateway.view(), gateway.hands());
    let taken = gateway.failure().and_then(|failure| failure.port);
    let had_window = Arc::new(AtomicBool::new(false));
    autostart::follow();
    let app = tauri::Builder::default()
        .plugin(autostart::plugin())
        .manage(gateway.view())
        .manage(gateway.hands())
        .invoke_handler(tauri::generate_handler![
            window::snapshot,
            window::log,
            window::capabilities,
            window::toggle,
            window::quit,
            again::try_again,
            again::use_another_port,
            autostart::asks_for_start_at_login,
            autostart::start_at_login
        ])
        .setup(move |app| {
            if let Some(hands) = &hands {
                let shown = notices::show(app.handle().clone(), Arc::clone(&hands.gateway));
                tauri::async_runtime::spawn(shown);
                sleep::listen(Arc::clone(&hands.gateway));
                let wanted = Arc::clone(&hands.window_wanted);
                let shown = window::show_when_wanted(app.handle().clone(), wanted);
                tauri::async_runtime::spawn(shown);
            }
            if let Some(port) = taken {
                tauri::async_runtime::spawn(again::when_free(app.handle().clone(), port));
            }
            let start_at_login = Switch { is_on: autostart::is_on, set: autostart::set };
            let powers = Powers { start_at_login: Some(start_at_login), notifications: true };
            let tray = tray::put_up(app.handle(), &cache, &view, hands, powers);
            if let Err(why) = &tray {
                warn!(why, "no tray: Traygate ends when its window is closed");
            }
            if open_now || tray.is_err() {
                window::open(app.handle(), &Place::Start)?;
            }
            tauri::async_runtime::spawn(tray::or_the_window(app.handle().clone()));
            tauri::async_runtime::spawn(tray::keep_drawn(app.handle().clone(), view));
            Ok(())
        })
        .build(tauri::generate_context!())
        .context("the desktop shell can't start")?;

    let changes = runtime.spawn(window::tell_of_changes(app.handle().clone(), gateway.view()));
    let end = runtime.spawn({
        let (app, view) = (app.handle().clone(), gateway.view());
        async move {
            asked_to_end(view, signals).await;
            app.exit(0);
        }
    });
    let seen = Arc::clone(&had_window);
    let code = app.run_return(move |app, event| match event {
        RunEvent::Ready => info!("on the desktop"),
        // No code: the last window was closed. In the tray, Traygate goes on.
        RunEvent::ExitRequested { code: None, api, .. } if tray::is_reachable(app) => {
            api.prevent_exit();
        }
        RunEvent::ExitRequested { .. } => {
            seen.store(window::is_open(app), Ordering::Relaxed);
        }
        _ => {}
    });
    end.abort();
    changes.abort();
    runtime.block_on(gateway.stop());
    let hidden = !had_window.load(Ordering::Relaxed);
    Ok(match code {
        0 => Ended::ForGood(ExitCode::SUCCESS),
        again::SAME_PORT => Ended::ToStartAnew { hidden, same_port: true },
        again::OTHER_PORT => Ended::ToStartAnew { hidden, same_port: false },
        _ => Ended::ForGood(ExitCode::FAILURE),
    })
}
