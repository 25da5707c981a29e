//! Starting anew after a start for which the port was taken. Everything here is built around a
//! started gateway, so a start that failed is made once more as a whole.

use std::{env, net::TcpListener, process::ExitCode, time::Duration};

use tauri::{AppHandle, State};
use tokio::time::sleep;
use tracing::{error, info};
use traygate_gateway::{paths::Paths, store::Store};

use crate::gateway::View;

/// How often it is looked whether the port is free by now.
const LOOK: Duration = Duration::from_secs(10);
const BREATH: Duration = Duration::from_millis(50);
/// How many ports after the taken one are tried.
const PORTS: u16 = 100;
/// The exit codes by which the desktop asks to be started anew: as it was started, …
pub const SAME_PORT: i32 = 75;
/// … or on the port that the settings say by now, whatever it was started with.
pub const OTHER_PORT: i32 = 76;

/// Starts anew as soon as the port is free.
pub async fn when_free(app: AppHandle, port: u16) {
    while !is_free(port) {
        sleep(LOOK).await;
    }
    info!(port, "the port is free now");
    app.exit(SAME_PORT);
}

/// A moment later: whoever asked, a menu or a page, hears first that it was heard.
#[tauri::command]
pub fn try_again(app: AppHandle) {
    tauri::async_runtime::spawn(async move {
        sleep(BREATH).await;
        app.exit(SAME_PORT);
    });
}

/// Chooses the next free port for good, and starts anew with it.
#[tauri::command]
pub async fn use_another_port(app: AppHandle, view: State<'_, View>) -> Result<(), String> {
    let taken = view.as_ref().err().and_then(|failure| failure.port);
    another_port(&app, taken).await
}

pub async fn another_port(app: &AppHandle, taken: Option<u16>) -> Result<(), String> {
    let taken = taken.ok_or("the port isn't taken")?;
    let mut ports = taken.saturating_add(1)..taken.saturating_add(PORTS);
    let port = ports.find(|port| is_free(*port)).ok_or("no port near it is free either")?;
    choose(port).await.map_err(|error| format!("the choice can't be kept: {error}"))?;
    app.exit(OTHER_PORT);
    Ok(())
}

async fn choose(port: u16) -> anyhow::Result<()> {
    let store = Store::open(&Paths::from_env()?.database()).await?;
    store.set_setting("port", Some(&port.to_string())).await?;
    Ok(())
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// This program once more, in this very process where the system can.
pub fn exec(hidden: bool, port: Option<u16>) -> ExitCode {
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            error!(%error, "Traygate can't find itself");
            return ExitCode::FAILURE;
        }
    };
    let mut again = std::process::Command::new(program);
    if hidden {
        again.arg("--hidden");
    }
    if let Some(port) = port {
        again.args(["--port", &port.to_string()]);
    }
    #[cfg(unix)]
    let error = std::os::unix::process::CommandExt::exec(&mut again);
    #[cfg(not(unix))]
    let error = match again.spawn() {
        Ok(_) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    error!(%error, "Traygate can't start itself anew");
    ExitCode::FAILURE
}
