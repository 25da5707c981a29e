//! A real MCP server with a failure switch, in its own process: both eras, all three transports,
//! and JSON written by hand, so that it shares no library with what it tests.

pub mod checks;
pub mod content;
mod control;
pub mod control_dir;
mod http;
mod message;
mod methods;
pub mod options;
pub mod server;
mod stdio;
mod tools;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Parser as _;

use control_dir::{Failure, LogEntry};
use options::{FakeTransport, Options};
use server::Fake;

/// Runs until its client, or an armed failure, ends it.
pub async fn run() -> anyhow::Result<()> {
    let options = Options::parse();
    let fake = Arc::new(Fake::new(options).context("the control directory")?);
    fake.log(&LogEntry::new("start").what(std::env::args().skip(1).collect::<Vec<_>>().join(" ")));
    if let Some(words) = &fake.options.say {
        eprintln!("{words}");
    }
    if let Some(code) = fake.options.exit_at_start {
        fake.die(code);
    }
    match fake.armed("start", false) {
        Some(arm) if arm.what == Failure::Slow => {
            tokio::time::sleep(Duration::from_millis(arm.ms)).await;
        }
        Some(_) => {
            eprintln!("fake upstream: armed to fail at its start");
            fake.die(3);
        }
        None => {}
    }
    tokio::time::sleep(Duration::from_millis(fake.options.delay_start)).await;
    control::start(Arc::clone(&fake)).await?;
    match fake.options.transport {
        FakeTransport::Stdio => stdio::run(fake).await,
        FakeTransport::Http | FakeTransport::Sse => http::run(fake).await,
    }
}
