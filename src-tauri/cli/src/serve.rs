//! `traygate serve`: the headless host, from its start to its orderly end.

use anyhow::{Context as _, Result};
use serde_json::json;
use tracing_subscriber::EnvFilter;
use traygate_gateway::{
    api::NewToken,
    events::By,
    host::{HEADLESS, Host, HostOptions},
    paths::Paths,
};

use crate::{
    commands::token::ready_to_paste,
    output::{Output, Tone},
};

/// The app that a new user's first token belongs to.
const FIRST_APP: &str = "first app";

/// Who reads what the host says at its start.
#[derive(Clone, Copy)]
pub enum Reader {
    Somebody(Output),
    /// It was started in the background: a token would be shown to nobody, and never again.
    Nobody,
}

pub fn run(paths: Paths, port: Option<u16>, reader: Reader) -> Result<()> {
    log_to_stderr();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(host(paths, port, reader))
}

async fn host(paths: Paths, port: Option<u16>, reader: Reader) -> Result<()> {
    // Before the start, so that no signal falls into a gap and leaves children behind.
    let asked_to_end = signals()?;
    let data = paths.data.display().to_string();
    let host = Host::start(HostOptions { paths, port, kind: HEADLESS }).await?;
    let told = match reader {
        Reader::Somebody(output) => greet(&host, &data, output).await,
        Reader::Nobody => Ok(()),
    };
    if told.is_ok() {
        tokio::select! {
            () = asked_to_end => {}
            () = host.ended() => {}
        }
    }
    host.stop().await;
    told
}

/// Says where the endpoint is and what to type next; the first time also a token.
async fn greet(host: &Host, data: &str, output: Output) -> Result<()> {
    let token =
        if host.apps().is_empty() { Some(host.new_app(By::Cli, FIRST_APP).await?) } else { None };
    if output.json {
        let line = json!({
            "endpoint": host.endpoint(),
            "port": host.port(),
            "pid": std::process::id(),
            "data_dir": data,
            "token": token.as_ref().map(|token| &token.token),
        });
        return Ok(output.line(&line.to_string())?);
    }
    Ok(output.text(&greeting(host.endpoint(), data, token.as_ref(), output))?)
}

fn greeting(endpoint: &str, data: &str, token: Option<&NewToken>, output: Output) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let endpoint = output.paint(Tone::Strong, endpoint);
    let mut text =
        format!("Traygate {version} serves {endpoint}\nIts files are in {data}; Ctrl-C ends it\n");
    let next = match token {
        Some(token) => {
            text.push_str(&format!("\n{}", ready_to_paste(token)));
            "traygate add files -- npx -y @modelcontextprotocol/server-filesystem ~"
        }
        None => "traygate status",
    };
    text.push_str(&format!("\nNext, in another terminal:\n  {next}\n"));
    text
}

/// Logs go to standard error, so that standard output holds only what was asked for.
fn log_to_stderr() {
    let filter = std::env::var("TRAYGATE_LOG").ok().filter(|filter| !filter.is_empty());
    let usual = "warn,traygate=info,traygate_gateway=info";
    let filter = match filter.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            eprintln!("warning: TRAYGATE_LOG is no filter, so it is ignored: {error}");
            EnvFilter::new(usual)
        }
        None => EnvFilter::new(usual),
    };
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr())
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}

/// Resolves with the first signal that asks the process to end. Watching begins with the call.
#[cfg(unix)]
pub fn signals() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let watch = |kind| signal(kind).context("cannot watch for signals");
    let mut interrupt = watch(SignalKind::interrupt())?;
    let mut terminate = watch(SignalKind::terminate())?;
    let mut hangup = watch(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

#[cfg(not(unix))]
pub fn signals() -> Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c().context("cannot watch for Ctrl-C")?;
    let mut close =
        tokio::signal::windows::ctrl_close().context("cannot watch for the window's end")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = close.recv() => {}
        }
    })
}
