//! `traygate`: the command line, the headless host and the stdio bridge.
//!
//! Every command but `serve` and `stdio` is one or two requests to the control API of the running
//! host; [`commands`] has a file for each group of them.

// Text for people is short: a line put together by `format!` reads best.
#![allow(clippy::format_push_string, clippy::format_collect)]

mod arguments;
mod bridge;
mod client;
mod commands;
mod desktop;
mod failure;
mod output;
mod progress;
mod serve;
mod snippet;
mod words;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(watched) = traygate_gateway::upstream::process::run_if_asked(std::env::args_os()) {
        return watched;
    }
    let cli = arguments::Cli::parse_from(snippet::from_arguments(std::env::args_os()));
    let json = cli.json;
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error, json),
    }
}
