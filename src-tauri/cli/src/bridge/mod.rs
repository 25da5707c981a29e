//! `traygate stdio`: for an app that only speaks stdio, a Traygate that only speaks HTTP.
//!
//! Each message goes on as the bytes it came as. The bridge looks at what it must know to do so:
//! ids, methods, and the handshake of the legacy era, which it repeats when the host was replaced.

mod answer;
mod app;
mod host;
mod line;
mod link;
mod relay;

use std::{
    io::{self, BufRead, Read as _},
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use clap::Args;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use traygate_gateway::paths::Paths;

use self::{link::Home, relay::Relay};
use crate::serve;

/// The largest message that is taken from the app.
const MESSAGE: usize = 64 << 20;

/// How long answers are waited for after the app has closed its end.
pub const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Args)]
pub struct Stdio {
    /// The app's name, as Traygate shows it; without it, that of the program that started the bridge
    #[arg(long, value_name = "NAME")]
    pub app: Option<String>,
    /// Only this upstream, with its own names
    #[arg(long)]
    pub upstream: Option<String>,
}

pub fn run(wanted: Stdio, paths: Paths) -> Result<()> {
    // One thread is enough to relay, and quicker to start than a pool.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let app = wanted.app.unwrap_or_else(app::of_the_parent);
        let home = Home::new(paths, &app, wanted.upstream.as_deref())?;
        let asked_to_end = serve::signals()?;
        let (lines, eof) = read_stdin();
        Relay::new(home, eof).run(lines, asked_to_end).await
    });
    // The thread that reads standard input can't be interrupted; it ends with the process.
    runtime.shutdown_background();
    ended
}

/// What the app said in one line, or why it can't be taken.
pub type Said = Result<Bytes, String>;

/// Reads the app's lines on a thread of their own. The token is cancelled at the end of input.
fn read_stdin() -> (mpsc::Receiver<Said>, CancellationToken) {
    // A few lines ahead; an app that is faster than the host waits in its pipe.
    let (sender, lines) = mpsc::channel(64);
    let eof = CancellationToken::new();
    let ended = eof.clone().drop_guard();
    std::thread::spawn(move || {
        let _ended = ended;
        let mut stdin = io::stdin().lock();
        while let Ok(Some(said)) = next_line(&mut stdin, MESSAGE) {
            if sender.blocking_send(said).is_err() {
                break;
            }
        }
    });
    (lines, eof)
}

/// The next line that isn't blank, without its end. One over the limit is skipped.
fn next_line(input: &mut impl BufRead, limit: usize) -> io::Result<Option<Said>> {
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(limit as u64 + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if read > limit && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            return Ok(Some(Err(format!("a message is larger than {limit} bytes"))));
        }
        let line = line.trim_ascii();
        if !line.is_empty() {
            return Ok(Some(Ok(Bytes::copy_from_slice(line))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_one_by_one_and_too_long_ones_are_skipped() {
        let mut input = &b"one\r\n\n  \n123456789\ntwo\n12345678\nlast"[..];
        let mut said = Vec::new();
        while let Some(line) = next_line(&mut input, 8).expect("memory can be read") {
            said.push(line.map_err(|_| ()));
        }
        let ok = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        assert_eq!(said, [ok("one"), Err(()), ok("two"), ok("12345678"), ok("last")]);
    }
}
