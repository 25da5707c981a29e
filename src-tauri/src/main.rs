//! Traygate on the desktop: hosts the gateway and shows it in the tray and in a window.
//!
//! The gateway is up before anything of the desktop is touched, so a missing display, tray or web
//! view costs only what can't be shown.

// A console window beside the tray helps nobody.
#![cfg_attr(all(windows, not(debug_assertions)), windows_subsystem = "windows")]

mod again;
mod autostart;
#[cfg(target_os = "linux")]
mod blank;
mod desktop;
mod gateway;
mod notices;
mod signals;
mod sleep;
mod start;
mod tray;
mod window;

use std::{io::IsTerminal as _, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Parser;
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;
use traygate_gateway::paths::Paths;

use crate::{
    desktop::{Ended, Start},
    gateway::Gateway,
    signals::Signals,
    start::Started,
};

/// Traygate in the tray: one MCP endpoint for all local AI apps.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Start in the tray, without a window.
    #[arg(long)]
    hidden: bool,
    /// The endpoint's port on 127.0.0.1, instead of the configured one.
    #[arg(long)]
    port: Option<u16>,
}

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(watched) = traygate_gateway::upstream::process::run_if_asked(std::env::args_os()) {
        return watched;
    }
    let arguments = Arguments::parse();
    #[cfg(target_os = "linux")]
    blank::prevent();
    log_to_stderr();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr() {
    let usual = "warn,traygate_desktop=info,traygate_gateway=info";
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("TRAYGATE_LOG").unwrap_or_else(|_| usual.into()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // One runtime for the gateway and for Tauri.
    let runtime = Runtime::new().context("the asynchronous runtime can't start")?;
    tauri::async_runtime::set(runtime.handle().clone());
    let code = host(&runtime, arguments);
    // What still blocks a thread now, such as a name look-up, is not worth waiting for.
    runtime.shutdown_timeout(Duration::from_millis(200));
    code
}

fn host(runtime: &Runtime, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let paths = Paths::from_env()?;
    let signals = {
        let _within = runtime.enter();
        Signals::hear().context("signals can't be heard")?
    };
    let gateway = match start::start(runtime, &paths, arguments.port, arguments.hidden) {
        Started::Here(gateway) => gateway,
        Started::Elsewhere => return Ok(ExitCode::SUCCESS),
    };
    match desktop::find() {
        Ok(()) => {
            let start = if arguments.hidden { Start::Hidden } else { Start::Shown };
            let ended = desktop::show(runtime, gateway, signals, &paths, start)?;
            Ok(match ended {
                Ended::ForGood(code) => code,
                Ended::ToStartAnew { hidden, same_port } => {
                    again::exec(hidden, arguments.port.filter(|_| same_port))
                }
            })
        }
        Err(why) => Ok(runtime.block_on(serve_headless(gateway, signals, &why))),
    }
}

/// Serves without a desktop until a signal or the control API ends it.
async fn serve_headless(gateway: Gateway, signals: Signals, why: &str) -> ExitCode {
    if gateway.failure().is_some() {
        return ExitCode::FAILURE;
    }
    eprintln!("no display ({why}): Traygate serves headless, without a tray and a window");
    gateway::asked_to_end(gateway.view(), signals).await;
    gateway.stop().await;
    ExitCode::SUCCESS
}
