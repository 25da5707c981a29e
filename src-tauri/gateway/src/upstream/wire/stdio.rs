//! The wire to a program of this machine: one JSON message a line on its standard input and
//! output.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStderr, ChildStdout},
    sync::mpsc,
    task::JoinHandle,
    time,
};
use tokio_util::sync::CancellationToken;

use super::{Bounds, Event, Events, Failure, FailureKind, Outgoing, Ran, Wire};
use crate::{
    definition::Era,
    upstream::{
        log::{LINE_LENGTH, Mark, UpstreamLog},
        process::{Children, Exit, Group, Program},
    },
};

mod lines;
mod message;
mod writer;

use lines::Lines;
pub use message::foreign_framing;

/// How much is read at once.
const READ: usize = 64 * 1024;
/// After the program is gone: how long its pipes may be silent before they count as read to the
/// end, should somebody it started hold them open.
const SILENCE: Duration = Duration::from_millis(100);
/// How long an exit may follow a closed pipe and still be its cause.
const EXIT_AFTER_EOF: Duration = Duration::from_millis(250);
/// How long the link may take for the last events of a wire that is over.
const LAST_EVENTS: Duration = Duration::from_secs(5);
/// How long `close` waits in all; ending the program takes less.
const CLOSE: Duration = Duration::from_secs(15);
/// How many of the program's last words explain its end.
const LAST_WORDS: usize = 3;
/// How much of each of them is repeated, in bytes.
const LAST_WORD: usize = 300;

/// Starts `program` as one of these children. Its standard error goes to `log`.
pub async fn spawn(
    program: &Program,
    children: &Arc<Children>,
    log: &Arc<UpstreamLog>,
    bounds: Bounds,
) -> Result<(Arc<dyn Wire>, Events), Failure> {
    let words_from = log.mark();
    let mut group = program.start(children).await?;
    let (Some(stdin), Some(stdout), Some(stderr)) = group.stdio() else {
        return Err(Failure::new(FailureKind::Gone, Ran::CertainlyNot, "a pipe is missing"));
    };
    let (lanes, letters) = writer::lanes();
    let (events, received) = mpsc::channel(super::EVENTS);
    let closing = CancellationToken::new();
    let (ended, over) = (CancellationToken::new(), CancellationToken::new());

    let reader = Reader { bounds, events: events.clone(), ended: ended.clone() };
    let life = Life {
        reader: tokio::spawn(reader.read(stdout)),
        writer: tokio::spawn(writer::write(stdin, letters, closing.clone())),
        stderr: tokio::spawn(read_stderr(stderr, log.clone())),
        group,
        log: log.clone(),
        words_from,
        events,
        closing: closing.clone(),
        ended,
        over: over.clone(),
    };
    tokio::spawn(life.live());
    Ok((Arc::new(Stdio { lanes, closing, over }), received))
}

/// The caller's half. Dropped, it ends the program as `close` does.
#[derive(Debug)]
struct Stdio {
    lanes: writer::Lanes,
    /// Asks for the end.
    closing: CancellationToken,
    /// The program and all that it started are gone.
    over: CancellationToken,
}

impl Wire for Stdio {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), Failure>> {
        self.lanes.send(message, writer::DEADLINE).boxed()
    }

    fn forget(&self, _tag: u64) {}

    fn negotiated(&self, _version: &str, _era: Era) {}

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closing.cancel();
        async {
            if time::timeout(CLOSE, self.over.cancelled()).await.is_err() {
                tracing::warn!("a program could not be ended in time");
            }
        }
        .boxed()
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

/// From the program's start to its end. Owns everything that runs for the wire.
struct Life {
    group: Group,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
    stderr: JoinHandle<()>,
    log: Arc<UpstreamLog>,
    /// Where this process's words begin in the log.
    words_from: Mark,
    events: mpsc::Sender<Event>,
    closing: CancellationToken,
    /// Tells the reader that only what is already in the pipe may still come.
    ended: CancellationToken,
    over: CancellationToken,
}

/// What was noticed first.
enum Sign {
    Asked,
    Exited(Exit),
    PipeClosed(&'static str),
}

impl Life {
    async fn live(mut self) {
        let sign = tokio::select! {
            biased;
            () = self.closing.cancelled() => Sign::Asked,
            exit = self.group.leader_exit() => Sign::Exited(exit),
            _ = &mut self.reader => Sign::PipeClosed("output"),
            _ = &mut self.writer => Sign::PipeClosed("input"),
        };
        // From here on nothing more is written, and the program's input is closed.
        self.closing.cancel();
        let Self { mut group, reader, stderr, log, words_from, events, ended, over, .. } = self;
        let farewell = Farewell { reader, stderr, log, words_from, events, ended };
        match sign {
            Sign::Asked => {
                let exit = group.stop().await;
                over.cancel();
                farewell.tell(format!("was stopped and {exit}")).await;
            }
            Sign::Exited(exit) => {
                let end = async {
                    group.end().await;
                    over.cancel();
                };
                tokio::join!(end, farewell.tell(format!("the server {exit}")));
            }
            Sign::PipeClosed(pipe) => {
                let exit = time::timeout(EXIT_AFTER_EOF, group.leader_exit()).await;
                let what = match exit {
                    Ok(exit) => format!("the server {exit}"),
                    Err(_) => format!("the server closed its standard {pipe} without exiting"),
                };
                let end = async {
                    group.stop().await;
                    over.cancel();
                };
                tokio::join!(end, farewell.tell(what));
            }
        }
    }
}

/// What is left to say when a program is gone.
struct Farewell {
    reader: JoinHandle<()>,
    stderr: JoinHandle<()>,
    log: Arc<UpstreamLog>,
    words_from: Mark,
    events: mpsc::Sender<Event>,
    ended: CancellationToken,
}

impl Farewell {
    /// Hands on what the program wrote before its end, then the end itself.
    async fn tell(self, what: String) {
        let Self { mut reader, mut stderr, log, words_from, events, ended } = self;
        ended.cancel();
        if !reader.is_finished() && time::timeout(LAST_EVENTS, &mut reader).await.is_err() {
            reader.abort();
        }
        if time::timeout(SILENCE, &mut stderr).await.is_err() {
            stderr.abort();
        }
        log.push("traygate", &what);
        let words = log.last_stderr_since(words_from, LAST_WORDS);
        let mut reason = what.clone();
        if !words.is_empty() {
            reason = format!("{what}; {}", quoted(words));
        }
        let failure = Failure::new(FailureKind::Gone, Ran::Perhaps, reason).told_as(what);
        let closed = Event::Closed(failure);
        // A link that is gone needs to hear nothing.
        let _ = events.send_timeout(closed, LAST_EVENTS).await;
    }
}

/// The last words of a program, short enough for a message.
fn quoted(mut words: Vec<String>) -> String {
    for line in &mut words {
        if line.len() > LAST_WORD {
            line.truncate(line.floor_char_boundary(LAST_WORD));
            line.push('…');
        }
    }
    format!("it last said: {}", words.join(" | "))
}

/// Turns a program's standard output into events.
struct Reader {
    bounds: Bounds,
    events: mpsc::Sender<Event>,
    ended: CancellationToken,
}

impl Reader {
    async fn read(self, mut stdout: ChildStdout) {
        let mut lines = Lines::new(self.bounds.message);
        let mut buffer = vec![0; READ];
        loop {
            let length = self.next(&mut stdout, &mut buffer).await;
            let mut read = &buffer[..length];
            loop {
                let line = if length == 0 { lines.last() } else { lines.next(&mut read) };
                let Some(line) = line else { break };
                let mut found = Vec::with_capacity(1);
                message::read_line(line, self.bounds, |event| found.push(event));
                for event in found {
                    // With the link gone the program is still read: it must not block on its way
                    // out.
                    let _ = self.events.send(event).await;
                }
            }
            if length == 0 {
                return;
            }
        }
    }

    /// How much was read; 0 at the end.
    async fn next(&self, stdout: &mut ChildStdout, buffer: &mut [u8]) -> usize {
        tokio::select! {
            biased;
            read = stdout.read(buffer) => return read.unwrap_or(0),
            () = self.ended.cancelled() => {}
        }
        time::timeout(SILENCE, stdout.read(buffer)).await.map_or(0, |read| read.unwrap_or(0))
    }
}

/// Reads a program's standard error to its end, whatever and however much it is.
async fn read_stderr(stderr: ChildStderr, log: Arc<UpstreamLog>) {
    let mut stderr = BufReader::with_capacity(READ, stderr);
    let mut line = Vec::new();
    loop {
        let read = match stderr.fill_buf().await {
            Ok(read) if !read.is_empty() => read,
            _ => break,
        };
        log.note_activity();
        let length = read.len();
        for part in read.split_inclusive(|byte| *byte == b'\n') {
            // A little more than is shown, so that the log marks the cut.
            let room = (LINE_LENGTH + 8).saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                log.push("stderr", &String::from_utf8_lossy(&line));
                line.clear();
            }
        }
        stderr.consume(length);
    }
    if !line.is_empty() {
        log.push("stderr", &String::from_utf8_lossy(&line));
    }
}

#[cfg(all(test, unix))]
mod tests;
