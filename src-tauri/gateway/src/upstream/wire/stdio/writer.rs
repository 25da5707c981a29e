//! The way to a child's standard input: one message at a time, and an exact account of what was
//! written.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    process::ChildStdin,
    sync::{mpsc, oneshot},
    time,
};
use tokio_util::{io::poll_write_buf, sync::CancellationToken};

use super::super::{Failure, FailureKind, Kind, Outgoing, Ran};

use crate::lock::lock;

/// How long a message may wait for a child that doesn't read.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Where messages wait. Neither lane is bounded, since each message has a sender who waits for it,
/// at most for [`DEADLINE`].
#[derive(Debug)]
pub struct Lanes {
    urgent: mpsc::UnboundedSender<Letter>,
    usual: mpsc::UnboundedSender<Letter>,
}

/// The other end of [`Lanes`].
#[derive(Debug)]
pub struct Letters {
    urgent: mpsc::UnboundedReceiver<Letter>,
    usual: mpsc::UnboundedReceiver<Letter>,
}

/// One message on its way.
#[derive(Debug)]
struct Letter {
    line: Bytes,
    stage: Arc<Mutex<Stage>>,
    written: oneshot::Sender<io::Result<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// At least one byte is with the child.
    Begun,
    /// Its sender has said that it was not written, so it never will be.
    Withdrawn,
}

pub fn lanes() -> (Lanes, Letters) {
    let (urgent, urgent_letters) = mpsc::unbounded_channel();
    let (usual, usual_letters) = mpsc::unbounded_channel();
    (Lanes { urgent, usual }, Letters { urgent: urgent_letters, usual: usual_letters })
}

impl Lanes {
    /// Resolves when the message is written. Dropped before a byte was, it never will be.
    pub async fn send(&self, message: Outgoing, deadline: Duration) -> Result<(), Failure> {
        let stage = Arc::new(Mutex::new(Stage::Waiting));
        let (written, answer) = oneshot::channel();
        let letter = Letter { line: on_one_line(message.bytes), stage: stage.clone(), written };
        // A request may take long to write, and what is cancelled should stop soon.
        let lane = match &message.kind {
            Kind::Notification { method } if method == "notifications/cancelled" => &self.urgent,
            _ => &self.usual,
        };
        if lane.send(letter).is_err() {
            return Err(gone(Ran::CertainlyNot, "the server takes no more messages".into()));
        }
        match time::timeout(deadline, answer).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => {
                Err(gone(withdraw(&stage), format!("the server takes no more messages: {error}")))
            }
            Ok(Err(_)) => Err(gone(withdraw(&stage), "the server was ended".into())),
            Err(_) => Err(gone(
                withdraw(&stage),
                format!("the server has not read its input for {} s", deadline.as_secs()),
            )),
        }
    }
}

fn gone(ran: Ran, reason: String) -> Failure {
    Failure::new(FailureKind::Gone, ran, reason)
}

/// Settles, once and for all, whether a byte of the message can have been read.
fn withdraw(stage: &Mutex<Stage>) -> Ran {
    let mut stage = lock(stage);
    if *stage == Stage::Begun {
        return Ran::Perhaps;
    }
    *stage = Stage::Withdrawn;
    Ran::CertainlyNot
}

/// A raw line end inside a message would make two of it, and the second could be anything.
fn on_one_line(bytes: Bytes) -> Bytes {
    if !bytes.contains(&b'\n') {
        return bytes;
    }
    let mut bytes = Vec::from(bytes);
    crate::json::one_line(&mut bytes);
    bytes.into()
}

/// Writes until the child takes no more, nobody sends any more, or `closing`. Then its standard
/// input is closed.
pub async fn write(stdin: ChildStdin, mut letters: Letters, closing: CancellationToken) {
    let mut stdin = stdin;
    loop {
        let letter = tokio::select! {
            biased;
            () = closing.cancelled() => return,
            Some(letter) = letters.urgent.recv() => letter,
            Some(letter) = letters.usual.recv() => letter,
            else => return,
        };
        let written = tokio::select! {
            biased;
            () = closing.cancelled() => return,
            written = write_letter(&mut stdin, letter, &mut letters.urgent) => written,
        };
        if written.is_err() {
            return;
        }
    }
}

/// Writes one message, unless its sender gives up before the first byte, or something urgent
/// comes, which is written first.
async fn write_letter(
    stdin: &mut (impl AsyncWrite + Unpin),
    mut letter: Letter,
    urgent: &mut mpsc::UnboundedReceiver<Letter>,
) -> io::Result<()> {
    let mut line = std::mem::take(&mut letter.line).chain(&b"\n"[..]);
    loop {
        let begun = tokio::select! {
            biased;
            begun = begin(stdin, &mut letter, &mut line) => begun,
            Some(first) = urgent.recv() => {
                write_urgent(stdin, first).await?;
                continue;
            }
        };
        return match begun {
            Ok(false) => Ok(()),
            Ok(true) => finish(stdin, letter, line).await,
            Err(error) => refuse(letter, error),
        };
    }
}

async fn write_urgent(stdin: &mut (impl AsyncWrite + Unpin), mut letter: Letter) -> io::Result<()> {
    let mut line = std::mem::take(&mut letter.line).chain(&b"\n"[..]);
    match begin(stdin, &mut letter, &mut line).await {
        Ok(false) => Ok(()),
        Ok(true) => finish(stdin, letter, line).await,
        Err(error) => refuse(letter, error),
    }
}

/// Writes the first bytes; false if the sender gave up before that. Dropped while it waits,
/// nothing was written.
async fn begin(
    stdin: &mut (impl AsyncWrite + Unpin),
    letter: &mut Letter,
    line: &mut impl Buf,
) -> io::Result<bool> {
    poll_fn(|cx: &mut Context| {
        // The sender's future was dropped, or it has said so.
        if letter.written.poll_closed(cx).is_ready() {
            return Poll::Ready(Ok(false));
        }
        // Locked over the attempt: a sender never says "not written" of what is being written.
        let mut stage = lock(&letter.stage);
        if *stage == Stage::Withdrawn {
            return Poll::Ready(Ok(false));
        }
        let begun = std::task::ready!(poll_write_buf(Pin::new(&mut *stdin), cx, line))?;
        if begun == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *stage = Stage::Begun;
        Poll::Ready(Ok(true))
    })
    .await
}

async fn finish(
    stdin: &mut (impl AsyncWrite + Unpin),
    letter: Letter,
    mut line: impl Buf,
) -> io::Result<()> {
    let rest = async {
        stdin.write_all_buf(&mut line).await?;
        stdin.flush().await
    };
    match rest.await {
        Ok(()) => {
            // The sender may have given up meanwhile.
            let _ = letter.written.send(Ok(()));
            Ok(())
        }
        Err(error) => refuse(letter, error),
    }
}

/// Tells the sender, and the writer that there is no more to write to.
fn refuse(letter: Letter, error: io::Error) -> io::Result<()> {
    let kind = error.kind();
    // The sender may have given up meanwhile.
    let _ = letter.written.send(Err(error));
    Err(kind.into())
}
