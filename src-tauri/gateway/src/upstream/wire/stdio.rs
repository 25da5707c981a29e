//! A program's standard input and output as a wire: one JSON message a line.
//!
//! The process, what it starts and the pipes end together: when the program exits, when it closes
//! its output, when the link is closed, or when the wire is dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader},
    process::{ChildStderr, ChildStdin, ChildStdout},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use self::lines::{Line, Lines};
use super::{Bounds, EVENTS, Event, Events, Failure, FailureKind, Kind, Outgoing, Ran, Wire};
use crate::{
    definition::Era,
    text::one_line,
    upstream::{
        log::UpstreamLog,
        process::{Exit, Group, Program},
    },
};

mod lines;

/// How long a message may wait until the program has taken it.
const WRITE: Duration = Duration::from_secs(30);
/// How long what a dead program wrote last may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The end of everything, signals included.
const FAREWELL: Duration = Duration::from_secs(10);
/// How many messages may wait to be written.
const QUEUE: usize = 64;
/// A line of stderr is cut here; the log cuts again.
const STDERR_LINE: u64 = 64 * 1024;
/// How much of a line that is no message goes to the log.
const NOISE: usize = 2000;

/// Starts the program.
pub async fn spawn(
    program: &Program,
    log: &Arc<UpstreamLog>,
    bounds: Bounds,
) -> Result<(Arc<dyn Wire>, Events), Failure> {
    let mut group = program.start().await?;
    let (Some(stdin), Some(stdout), Some(stderr)) = group.stdio() else {
        return Err(gone(Ran::CertainlyNot, "its standard streams could not be opened"));
    };
    let (events, told) = mpsc::channel(EVENTS);
    let (lane, queue) = mpsc::channel(QUEUE);
    let (urgent, urgent_queue) = mpsc::unbounded_channel();
    let (stop, done) = (CancellationToken::new(), CancellationToken::new());
    let closing = stop.child_token();
    let life = Life {
        group,
        reader: tokio::spawn(read(stdout, events.clone(), bounds)),
        stderr: tokio::spawn(keep_stderr(stderr, Arc::clone(log))),
        writer: tokio::spawn(write(stdin, queue, urgent_queue, closing.clone())),
        log: Arc::clone(log),
        events,
        stop: stop.clone(),
        closing,
        done: done.clone(),
    };
    // Ends with the program, which `close` and the wire's drop see to.
    tokio::spawn(life.run());
    Ok((Arc::new(StdioWire { lane, urgent, stop, done }), told))
}

struct StdioWire {
    lane: mpsc::Sender<Write>,
    /// Cancellations don't queue behind what they cancel.
    urgent: mpsc::UnboundedSender<Write>,
    stop: CancellationToken,
    done: CancellationToken,
}

/// One line to be written.
struct Write {
    bytes: Bytes,
    /// Set before the first byte goes out.
    begun: Arc<AtomicBool>,
    tell: oneshot::Sender<Result<(), Failure>>,
}

impl Wire for StdioWire {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), Failure>> {
        async move {
            let begun = Arc::new(AtomicBool::new(false));
            let (tell, told) = oneshot::channel();
            let is_urgent = matches!(&message.kind, Kind::Notification { method } if method == "notifications/cancelled");
            let write = Write { bytes: message.bytes, begun: Arc::clone(&begun), tell };
            let written = async {
                let queued = if is_urgent { self.urgent.send(write).is_ok() } else { self.lane.send(write).await.is_ok() };
                if !queued {
                    return Err(gone(Ran::CertainlyNot, "its input is closed"));
                }
                told.await.unwrap_or_else(|_| Err(gone(ran(&begun), "its input was closed")))
            };
            // Dropping `told` is what tells the writer not to begin any more.
            match timeout(WRITE, written).await {
                Ok(outcome) => outcome,
                Err(_) => Err(gone(ran(&begun), format!("it took nothing from its input for {} s", WRITE.as_secs()))),
            }
        }
        .boxed()
    }

    fn forget(&self, _tag: u64) {}

    fn negotiated(&self, _version: &str, _era: Era) {}

    fn close(&self) -> BoxFuture<'_, ()> {
        self.stop.cancel();
        async { drop(timeout(FAREWELL, self.done.cancelled()).await) }.boxed()
    }
}

impl Drop for StdioWire {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// If it hasn't begun when its sender stops waiting, the writer finds the sender gone.
fn ran(begun: &AtomicBool) -> Ran {
    if begun.load(Ordering::SeqCst) { Ran::Perhaps } else { Ran::CertainlyNot }
}

/// The program from its start to its end.
struct Life {
    group: Group,
    reader: JoinHandle<()>,
    stderr: JoinHandle<()>,
    writer: JoinHandle<()>,
    log: Arc<UpstreamLog>,
    events: mpsc::Sender<Event>,
    stop: CancellationToken,
    closing: CancellationToken,
    done: CancellationToken,
}

#[derive(PartialEq, Eq)]
enum End {
    Exited,
    ClosedOutput,
    Asked,
}

impl Life {
    async fn run(mut self) {
        let mut end = tokio::select! {
            _ = self.group.leader_exit() => End::Exited,
            _ = &mut self.reader => End::ClosedOutput,
            () = self.stop.cancelled() => End::Asked,
        };
        // The output of a program that exits is closed a moment before its exit can be seen.
        if end == End::ClosedOutput && timeout(LAST_WORDS, self.group.leader_exit()).await.is_ok() {
            end = End::Exited;
        }
        // Drops its standard input, which is how a stdio server is asked to leave.
        self.closing.cancel();
        let _ = timeout(LAST_WORDS, &mut self.writer).await;
        let exit = match end {
            // Whoever it left behind goes with it.
            End::Exited => {
                let exit = self.group.leader_exit().await;
                self.group.end().await;
                exit
            }
            End::ClosedOutput | End::Asked => self.group.stop().await,
        };
        let _ = timeout(LAST_WORDS, &mut self.stderr).await;
        if !self.reader.is_finished() {
            let _ = timeout(LAST_WORDS, &mut self.reader).await;
        }
        for task in [&self.reader, &self.stderr, &self.writer] {
            task.abort();
        }
        let failure = gone(Ran::Perhaps, self.epitaph(&end, exit));
        self.done.cancel();
        // The link may be gone; then nobody wants to know.
        let _ = self.events.send(Event::Closed(failure)).await;
    }

    fn epitaph(&self, end: &End, exit: Exit) -> String {
        let what = match end {
            End::Asked => return "the connection was closed".to_owned(),
            End::Exited => format!("it {exit}"),
            End::ClosedOutput => format!("it closed its output and {exit}"),
        };
        let words = self.log.last_stderr(3);
        if words.is_empty() {
            return format!("{what} without a word on stderr");
        }
        let words: Vec<String> = words.iter().map(|line| one_line(line, 200)).collect();
        format!("{what}; its last words: {}", words.join(" / "))
    }
}

async fn write(
    mut stdin: ChildStdin,
    mut queue: mpsc::Receiver<Write>,
    mut urgent: mpsc::UnboundedReceiver<Write>,
    closing: CancellationToken,
) {
    loop {
        let next = tokio::select! {
            biased;
            () = closing.cancelled() => return,
            Some(write) = urgent.recv() => write,
            Some(write) = queue.recv() => write,
            else => return,
        };
        let Write { bytes, begun, tell } = next;
        begun.store(true, Ordering::SeqCst);
        if tell.is_closed() {
            continue;
        }
        let outcome = tokio::select! {
            outcome = write_line(&mut stdin, &bytes) => outcome,
            () = closing.cancelled() => return,
        };
        let failed = outcome.is_err();
        // Whoever stopped waiting has given its own account.
        let _ = tell.send(outcome);
        if failed {
            return;
        }
    }
}

async fn write_line(stdin: &mut ChildStdin, bytes: &[u8]) -> Result<(), Failure> {
    let mut line = Vec::with_capacity(bytes.len() + 1);
    line.extend_from_slice(bytes);
    line.push(b'\n');
    let mut written = 0;
    while written < line.len() {
        match stdin.write(&line[written..]).await {
            Ok(0) => return Err(not_taken(written, "its input is closed")),
            Ok(more) => written += more,
            Err(error) => return Err(not_taken(written, &format!("its input is closed ({error})"))),
        }
    }
    stdin.flush().await.map_err(|error| not_taken(written, &error.to_string()))
}

/// A program that got no byte of a message can't have acted on it.
fn not_taken(written: usize, why: &str) -> Failure {
    gone(if written == 0 { Ran::CertainlyNot } else { Ran::Perhaps }, why)
}

async fn read(stdout: ChildStdout, events: mpsc::Sender<Event>, bounds: Bounds) {
    let mut lines = Lines::new(stdout, bounds.message);
    while let Some(line) = lines.next().await {
        for event in events_of(line, bounds.message) {
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}

fn events_of(line: Line, bound: usize) -> Vec<Event> {
    match line {
        Line::Whole(bytes) => match bytes.trim_ascii_start().first() {
            Some(b'{') => vec![Event::Message { bytes, origin: None }],
            Some(b'[') => batch(&bytes).unwrap_or_else(|| vec![noise(&bytes)]),
            _ => vec![noise(&bytes)],
        },
        Line::TooLong { length, id } => {
            let why = format!("it sent a message of {length} bytes, over the limit of {bound}; the limit is the setting message_limit");
            let mut events = vec![Event::Noise(format!("a line was left out: {why}"))];
            if let Some(tag) = id {
                let failure = Failure::new(FailureKind::Bound, Ran::Perhaps, why);
                events.push(Event::Failed { tag, failure });
            }
            events
        }
    }
}

/// Batches are not part of the protocol any more; some servers send them all the same.
fn batch(bytes: &Bytes) -> Option<Vec<Event>> {
    let messages: Vec<&serde_json::value::RawValue> = serde_json::from_slice(bytes).ok()?;
    let event = |message: &serde_json::value::RawValue| Event::Message {
        bytes: bytes.slice_ref(message.get().as_bytes()),
        origin: None,
    };
    Some(messages.into_iter().map(event).collect())
}

fn noise(bytes: &[u8]) -> Event {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(NOISE)]).into_owned();
    if text.to_ascii_lowercase().starts_with("content-length:") {
        return Event::Noise(format!("{text} (this is the framing of LSP; MCP needs one JSON message a line)"));
    }
    Event::Noise(text)
}

/// Reads all of it, so that a flood never blocks the program.
async fn keep_stderr(stderr: ChildStderr, log: Arc<UpstreamLog>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while matches!(read_some(&mut stderr, &mut line).await, Ok(read) if read > 0) {
        let text = String::from_utf8_lossy(&line);
        log.push("stderr", text.trim_end_matches(['\r', '\n']));
        line.clear();
    }
}

async fn read_some(
    stderr: &mut BufReader<impl AsyncRead + Unpin>,
    line: &mut Vec<u8>,
) -> std::io::Result<usize> {
    tokio::io::AsyncReadExt::take(stderr, STDERR_LINE).read_until(b'\n', line).await
}

fn gone(ran: Ran, reason: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Gone, ran, reason)
}

#[cfg(all(test, unix))]
mod tests;
