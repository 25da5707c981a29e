//! How messages reach an upstream and come back: as raw bytes, over stdio, Streamable HTTP or the
//! old HTTP+SSE.
//!
//! A wire frames, carries and notices death. It knows no handshake and keeps no account of
//! requests: that is the [`Link`](super::link::Link)'s. It says of everything that fails whether the request can
//! have run, because only the wire knows if a byte of it was written (design section 5.1).

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

pub mod http;
pub mod sse;
pub mod stdio;

mod body;
mod client;
mod eventstream;
mod exchanges;
mod headers;
mod refusal;
mod remote;
#[cfg(test)]
mod testing;

/// One message to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The JSON-RPC message, on one line, without the line's end.
    pub bytes: Bytes,
    pub kind: Kind,
}

/// What a message is, as far as a wire must know: HTTP repeats it in headers.
#[derive(Clone, Debug)]
pub enum Kind {
    Request {
        /// The caller's number for it, unique on this wire; events about it carry it back.
        tag: u64,
        method: String,
        /// `params.name`, `params.uri` or `params.taskId`, for the header `Mcp-Name`.
        name: Option<String>,
        /// `Mcp-Param-*`, mirrored from arguments as the tool's schema asks.
        headers: Vec<(String, String)>,
        /// The protocol version in the request's own `_meta`, if it is a modern one.
        version: Option<String>,
    },
    Notification {
        method: String,
    },
    /// An answer to a request of the upstream's.
    Response,
}

/// What comes from a wire. The channel ends after `Closed`.
#[derive(Debug)]
pub enum Event {
    Message {
        bytes: Bytes,
        /// The request on whose own stream it came; `None` where the wire doesn't say (stdio,
        /// HTTP+SSE, a GET stream).
        origin: Option<u64>,
    },
    /// This request gets no answer; the wire itself may live on.
    Failed { tag: u64, failure: Failure },
    /// Something that is no JSON-RPC message, for the upstream's log.
    Noise(String),
    /// The wire is gone. Whoever still waits gets nothing.
    Closed(Failure),
}

/// Why something didn't get through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    pub kind: FailureKind,
    pub ran: Ran,
    /// Words for a person: what happened, without the upstream's name and without a full stop.
    /// They may repeat what the upstream wrote.
    pub reason: String,
    /// The same without anything that the upstream wrote, where more is known than the kind says.
    plain: Option<String>,
}

/// Whether the upstream can have acted on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// Never written, or the server said that it doesn't know the session.
    CertainlyNot,
    Perhaps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The command is missing or not executable: no use to try again before something changes.
    Misconfigured,
    /// Closed pipe, dead process, dropped or refused socket.
    Gone,
    /// The server doesn't know the session any more.
    SessionLost,
    /// An HTTP status that isn't one of the others. The body didn't hold a JSON-RPC answer.
    Status(u16),
    /// 401, or 403 for want of scope.
    NeedsSignIn,
    /// 429, or 503 with `Retry-After`; the wait in seconds.
    Busy { retry_after: u64 },
    /// What came back is no MCP: an HTML page, a truncated body.
    Garbage,
    /// One of Traygate's own bounds; the reason names it.
    Bound,
    /// No answer within the time that it had.
    Silent,
    /// The server answered the handshake with this JSON-RPC error.
    Refused(i32),
}

impl Failure {
    pub fn new(kind: FailureKind, ran: Ran, reason: impl Into<String>) -> Self {
        Self { kind, ran, reason: reason.into(), plain: None }
    }

    /// With a reason that repeats nothing of the upstream's.
    pub fn in_own_words(kind: FailureKind, ran: Ran, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::new(kind, ran, reason.clone()).told_as(reason)
    }

    /// What it may be called where nothing of the upstream's may stand: in the journal.
    #[must_use]
    pub fn told_as(mut self, plain: impl Into<String>) -> Self {
        self.plain = Some(plain.into());
        self
    }

    /// What happened, in Traygate's own words only.
    pub fn plainly(&self) -> String {
        if let Some(plain) = &self.plain {
            return plain.clone();
        }
        match self.kind {
            FailureKind::Misconfigured => "its command or address can't be used".to_owned(),
            FailureKind::Gone => "the connection was lost".to_owned(),
            FailureKind::SessionLost => "it didn't know the session any more".to_owned(),
            FailureKind::Status(status) => format!("it answered with HTTP status {status}"),
            FailureKind::NeedsSignIn => "it asks for a sign-in".to_owned(),
            FailureKind::Busy { retry_after } => {
                format!("it is busy and asks to wait {retry_after} s")
            }
            FailureKind::Garbage => "what it answered is no MCP".to_owned(),
            FailureKind::Bound => "one of Traygate's bounds was hit".to_owned(),
            FailureKind::Silent => "it didn't answer in time".to_owned(),
            FailureKind::Refused(code) => format!("it refused the handshake with error {code}"),
        }
    }
}

/// What a wire accepts at most; more is a [`FailureKind::Bound`], never a full memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The bytes of one message, decompressed.
    pub message: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { message: 64 << 20 }
    }
}

/// How many events may wait for the link. The link's loop never blocks, so this only smooths.
pub const EVENTS: usize = 256;

/// The receiving end of a wire.
pub type Events = mpsc::Receiver<Event>;

/// One connection that carries messages.
pub trait Wire: Send + Sync + 'static {
    /// Resolves when the message is written (stdio, HTTP+SSE) or its HTTP exchange has begun.
    /// What becomes of a request after that arrives as events.
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), Failure>>;

    /// Nobody waits for this request any more: over modern HTTP its stream is closed, which is
    /// how that era cancels. Elsewhere nothing happens (the link sends a notification).
    fn forget(&self, tag: u64);

    /// The handshake's result: over HTTP, the `MCP-Protocol-Version` of what follows and, in the
    /// legacy era, the GET stream for what the server says unasked.
    fn negotiated(&self, version: &str, era: crate::definition::Era);

    /// Ends it in good order: stdin closed, then signals; a session ended by `DELETE`. Bounded in time.
    fn close(&self) -> BoxFuture<'_, ()>;
}
