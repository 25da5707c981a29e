//! One request and all that comes back for it.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::{
    sync::mpsc::Sender,
    time::{sleep, timeout},
};

use super::{
    super::{
        Event, Failure, FailureKind, Kind, Outgoing, Ran, body,
        eventstream::EventStream,
        headers,
        refusal::{self, Acquaintance, Refusal},
    },
    Shared, is_initialize,
};

/// After the answer a stream should end; until then it may say a little more, and its connection
/// can be used again.
const AFTER_ANSWER: Duration = Duration::from_secs(1);

/// How long to wait before a broken stream is taken up again, if the server doesn't say.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// How often in a row a stream is taken up again without anything new on it.
const RESUMPTIONS: u32 = 3;

/// Runs the exchange and says how it failed, if it did. It has no deadline of its own: the link
/// knows how long the caller waits, and forgets the request then.
pub(super) async fn run(shared: &Shared, tag: u64, message: Outgoing, events: &Sender<Event>) {
    let exchange = Exchange {
        shared,
        tag,
        events,
        legacy: !matches!(message.kind, Kind::Request { version: Some(_), .. }),
        known: shared.acquaintance(&message.kind),
    };
    if let Err(failure) = exchange.run(message).await {
        let failure = shared.remote.discreet(shared.noted(failure));
        // Without a receiver nobody waits.
        let _ = events.send(Event::Failed { tag, failure }).await;
    }
}

struct Exchange<'a> {
    shared: &'a Shared,
    tag: u64,
    events: &'a Sender<Event>,
    legacy: bool,
    known: Acquaintance,
}

/// How far the reading of one stream came.
enum Progress {
    Answered,
    /// The stream is over without the answer, for this reason.
    Broken(Failure),
}

impl Exchange<'_> {
    async fn run(&self, message: Outgoing) -> Result<(), Failure> {
        let headers = self.shared.headers(&message.kind);
        let mut answer = self.shared.remote.ask(Method::POST, headers, Some(message.bytes)).await?;
        let status = answer.status();
        if !status.is_success() {
            return match refusal::read(answer, self.known).await {
                Refusal::Answer(bytes) => {
                    self.deliver(bytes).await;
                    Ok(())
                }
                Refusal::Failure(failure) => Err(failure),
            };
        }
        if is_initialize(&message.kind) {
            self.shared.remember_session(&answer);
        }
        if headers::is_event_stream(answer.headers()) {
            return self.follow(EventStream::new(answer, self.shared.bounds.message)).await;
        }
        let body = body::read(&mut answer, self.shared.bounds.message).await?;
        let messages = body::messages(&body).ok_or_else(|| body::garbage(status, &body))?;
        self.refuse_lost_session(messages.first())?;
        let answered = messages.iter().any(|message| message.answers);
        for message in messages {
            self.deliver(message.bytes).await;
        }
        if answered { Ok(()) } else { Err(no_answer()) }
    }

    /// Reads a stream to the answer, and in the legacy era takes it up again when it ends early:
    /// servers may close it on purpose and expect us back.
    async fn follow(&self, mut stream: EventStream) -> Result<(), Failure> {
        let mut last_event = None;
        let mut retry = RETRY;
        let mut fruitless = 0;
        let mut fresh = true;
        loop {
            let before = last_event.clone();
            let progress = self.read(&mut stream, &mut last_event, fresh).await?;
            let Progress::Broken(failure) = progress else { return Ok(()) };
            fresh = false;
            retry = stream.retry().unwrap_or(retry).min(LONGEST_RETRY);
            fruitless = if before == last_event { fruitless + 1 } else { 0 };
            let Some(id) = last_event.as_deref().filter(|_| self.legacy) else {
                return Err(failure);
            };
            stream = self.resume(id, retry, &mut fruitless, failure).await?;
        }
    }

    /// Reads one stream as far as it goes.
    async fn read(
        &self,
        stream: &mut EventStream,
        last_event: &mut Option<String>,
        mut fresh: bool,
    ) -> Result<Progress, Failure> {
        let mut answered = false;
        loop {
            let next = if answered {
                // Whatever ends it now, the answer is there.
                match timeout(AFTER_ANSWER, stream.next()).await {
                    Ok(Ok(Some(event))) => event,
                    _ => return Ok(Progress::Answered),
                }
            } else {
                match stream.next().await {
                    Ok(Some(event)) => event,
                    Ok(None) => return Ok(Progress::Broken(no_answer())),
                    Err(failure) if failure.kind == FailureKind::Gone => {
                        return Ok(Progress::Broken(failure));
                    }
                    Err(failure) => return Err(failure),
                }
            };
            if next.id.is_some() {
                *last_event = next.id;
            }
            if next.data.is_empty() {
                continue;
            }
            let Some(messages) = body::messages(&next.data) else {
                let _ = self.events.send(body::noise(&next.data)).await;
                continue;
            };
            if std::mem::take(&mut fresh) {
                self.refuse_lost_session(messages.first())?;
            }
            for message in messages {
                answered |= message.answers;
                self.deliver(message.bytes).await;
            }
        }
    }

    /// Takes a broken stream up behind its last event, a bounded number of times.
    async fn resume(
        &self,
        last_event: &str,
        retry: Duration,
        fruitless: &mut u32,
        mut failure: Failure,
    ) -> Result<EventStream, Failure> {
        while *fruitless < RESUMPTIONS {
            sleep(retry * 2u32.pow(*fruitless)).await;
            let mut headers = self.shared.legacy_headers();
            headers::listening(&mut headers, Some(last_event));
            failure = match self.shared.remote.ask(Method::GET, headers, None).await {
                Ok(answer) if body::is_stream(&answer) => {
                    return Ok(EventStream::new(answer, self.shared.bounds.message));
                }
                Ok(answer) => {
                    let status = answer.status();
                    let lost = matches!(
                        refusal::read(answer, self.known).await,
                        Refusal::Failure(Failure { kind: FailureKind::SessionLost, .. })
                    );
                    let kind = if lost { FailureKind::SessionLost } else { FailureKind::Gone };
                    let reason = format!(
                        "the stream ended before the answer and can't be taken up again ({status})"
                    );
                    return Err(Failure::new(kind, Ran::Perhaps, reason));
                }
                Err(failure) => Failure { ran: Ran::Perhaps, ..failure },
            };
            *fruitless += 1;
        }
        Err(failure)
    }

    /// Some servers say with a success status that they don't know the session. If it is the first
    /// thing they say, nothing has run.
    fn refuse_lost_session(&self, first: Option<&body::Message>) -> Result<(), Failure> {
        match first {
            Some(message)
                if self.known != Acquaintance::None
                    && refusal::is_session_error(&message.bytes) =>
            {
                Err(refusal::session_lost())
            }
            _ => Ok(()),
        }
    }

    async fn deliver(&self, bytes: Bytes) {
        // Without a receiver nobody waits, and the wire is about to end.
        let _ = self.events.send(Event::Message { bytes, origin: Some(self.tag) }).await;
    }
}

fn no_answer() -> Failure {
    Failure::new(FailureKind::Gone, Ran::Perhaps, "the stream ended before the answer")
}
