//! The legacy era's GET stream: what a server says unasked. It is optional, so nothing waits for it
//! and its failures hurt nobody.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use tokio::{sync::mpsc::Sender, time::sleep};

use super::{
    super::{
        Event, Failure, FailureKind, Ran, body,
        eventstream::EventStream,
        headers,
        refusal::{self, Acquaintance, Refusal},
    },
    Shared,
};

use crate::lock::lock;

/// Delays between openings grow from the first to the last of these.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// A stream that lived so long was a good one: the delays start anew.
const GOOD: Duration = Duration::from_mins(1);

/// Another stream of this session is still open for the server, which takes it a while to notice.
const CONFLICT: Duration = Duration::from_mins(1);

/// Keeps the stream open until the wire ends or the server won't have it.
pub(super) async fn run(shared: &Shared, events: Sender<Event>) {
    let known = if lock(&shared.state).session.is_some() {
        Acquaintance::Session
    } else {
        Acquaintance::Initialized
    };
    let mut listener = Listener { shared, events: &events, known, last_event: None, worked: false };
    let lost = tokio::select! {
        () = shared.exchanges.ended() => None,
        lost = listener.listen() => lost,
    };
    if let Some(failure) = lost {
        shared.exchanges.fail(events, shared.noted(failure)).await;
    }
}

struct Listener<'a> {
    shared: &'a Shared,
    events: &'a Sender<Event>,
    known: Acquaintance,
    last_event: Option<String>,
    /// The server has offered the stream before, so that a refusal now is news.
    worked: bool,
}

/// What came of one attempt to open the stream.
enum Opening {
    Open(Box<EventStream>),
    Later {
        wait: Duration,
    },
    /// The server doesn't offer it; why, in words.
    Never(String),
    /// The session, or the server itself, is gone.
    Lost(Failure),
}

impl Listener<'_> {
    /// Returns when there is no more to listen to: with the failure, if the session is lost.
    async fn listen(&mut self) -> Option<Failure> {
        let mut failures = 0;
        loop {
            let opened = Instant::now();
            let wait = match self.open().await {
                Opening::Open(stream) => self.read(*stream).await,
                Opening::Later { wait } => wait,
                Opening::Never(why) => {
                    self.say(&format!(
                        "offers no stream for what it says unasked ({why}): its changes are noticed late"
                    ));
                    return None;
                }
                Opening::Lost(failure) => return Some(failure),
            };
            failures = if opened.elapsed() < GOOD { failures + 1 } else { 1 };
            if failures == 1 && self.worked {
                self.say("the stream for what it says unasked has ended and is opened again");
            }
            sleep(delay(failures).max(wait)).await;
        }
    }

    async fn open(&self) -> Opening {
        let mut headers = self.shared.legacy_headers();
        headers::listening(&mut headers, self.last_event.as_deref());
        let answer = match self.shared.remote.ask(Method::GET, headers, None).await {
            Ok(answer) => answer,
            // It was there, and now nobody listens at its address.
            Err(failure) if self.worked && is_gone(&failure) => return Opening::Lost(failure),
            Err(failure) if failure.kind == FailureKind::Gone => {
                return Opening::Later { wait: Duration::ZERO };
            }
            Err(failure) => return Opening::Never(self.shared.remote.discreet(failure).reason),
        };
        if body::is_stream(&answer) {
            return Opening::Open(Box::new(EventStream::new(answer, self.shared.bounds.message)));
        }
        let status = answer.status();
        match refusal::read(answer, self.known).await {
            Refusal::Failure(failure)
                if failure.kind == FailureKind::SessionLost && self.worked =>
            {
                Opening::Lost(failure)
            }
            Refusal::Failure(Failure { kind: FailureKind::Busy { retry_after }, .. }) => {
                Opening::Later { wait: Duration::from_secs(retry_after).min(CONFLICT) }
            }
            _ if status == StatusCode::CONFLICT => Opening::Later { wait: CONFLICT },
            _ if matches!(status.as_u16(), 500 | 502 | 503 | 504) => {
                Opening::Later { wait: Duration::ZERO }
            }
            _ => Opening::Never(status.to_string()),
        }
    }

    /// Passes on what comes, and returns how long the server wants to be left alone then.
    async fn read(&mut self, mut stream: EventStream) -> Duration {
        self.worked = true;
        loop {
            let event = match stream.next().await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(failure) => {
                    if failure.kind == FailureKind::Bound {
                        self.say(&failure.reason);
                    }
                    break;
                }
            };
            if event.id.is_some() {
                self.last_event = event.id;
            }
            if event.data.is_empty() {
                continue;
            }
            for event in body::unasked(&event.data) {
                // Without a receiver nobody waits, and the wire is about to end.
                let _ = self.events.send(event).await;
            }
        }
        stream.retry().unwrap_or_default().min(LONGEST)
    }

    fn say(&self, words: &str) {
        self.shared.log.push("traygate", words);
    }
}

/// Nothing could be sent at all.
fn is_gone(failure: &Failure) -> bool {
    failure.kind == FailureKind::Gone && failure.ran == Ran::CertainlyNot
}

/// Doubles from 1 s to 30 s, and differs by up to a quarter, so that many upstreams behind one
/// server don't come back in step.
fn delay(failures: u32) -> Duration {
    let base = SHORTEST.saturating_mul(1 << (failures - 1).min(5)).min(LONGEST);
    let jitter = getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX));
    base.mul_f64(0.75 + jitter / 2.0)
}
