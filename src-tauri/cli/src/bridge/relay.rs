//! Carries messages both ways, and heals the connection to the host without the app noticing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use traygate_gateway::{
    definition::Era,
    json::Envelope,
    upstream::wire::{Event, Failure, FailureKind, Kind, Outgoing, Ran, Wire},
};

use super::{
    FAREWELL, Said,
    answer::{answer_error, outcome_unknown, refused, unreachable, write_line},
    line::{self, Line, Request},
    link::Home,
};

/// Requests that came while the host could not be reached share that attempt's failure.
const SHARED: Duration = Duration::from_secs(1);

/// A host that ends may be on its way to another one, such as the desktop that takes over. Only if
/// nobody has come after so long is one started from here.
const SUCCESSION: Duration = Duration::from_secs(3);

/// The number of a connection to the host; a later one replaces an earlier one.
type Generation = u64;

pub struct Relay {
    home: Home,
    /// The app has closed its end.
    eof: CancellationToken,
    wire: Option<Arc<dyn Wire>>,
    generation: Generation,
    events: mpsc::Receiver<(Generation, Event)>,
    /// Given to whoever passes on the events of a connection.
    sender: mpsc::Sender<(Generation, Event)>,
    /// What the app waits for, by tag.
    pending: BTreeMap<u64, Pending>,
    last_tag: u64,
    handshake: Handshake,
    unreachable: Option<(Instant, String)>,
}

struct Pending {
    request: Request,
    /// The connection that it went over, which lives as long as somebody waits for it.
    wire: Arc<dyn Wire>,
    generation: Generation,
    sent: Sent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Once,
    /// It failed and was sent again. It isn't sent a third time.
    Again,
}

/// The legacy era's.
enum Handshake {
    /// Not begun, or the app is a modern one.
    None,
    /// What follows waits for the answer, which tells the version and the session.
    Begun {
        tag: u64,
    },
    Done(Request),
}

impl Relay {
    pub fn new(home: Home, eof: CancellationToken) -> Self {
        let (sender, events) = mpsc::channel(256);
        Self {
            home,
            eof,
            wire: None,
            generation: 0,
            events,
            sender,
            pending: BTreeMap::new(),
            last_tag: 0,
            handshake: Handshake::None,
            unreachable: None,
        }
    }

    /// Until the app closes its end, or `asked_to_end` resolves.
    pub async fn run(
        mut self,
        mut lines: mpsc::Receiver<Said>,
        asked_to_end: impl Future<Output = ()>,
    ) -> Result<()> {
        tokio::pin!(asked_to_end);
        let mut input_ended = false;
        let mut farewell = None;
        while !(input_ended && self.nobody_waits()) {
            let held = matches!(self.handshake, Handshake::Begun { .. });
            tokio::select! {
                Some((generation, event)) = self.events.recv() => self.heard(generation, event).await?,
                said = lines.recv(), if !input_ended && !held => match said {
                    Some(said) => self.said(said).await?,
                    None => input_ended = true,
                },
                () = self.eof.cancelled(), if farewell.is_none() => {
                    farewell = Some(Instant::now() + FAREWELL);
                }
                () = at(farewell), if farewell.is_some() => break,
                () = &mut asked_to_end => break,
            }
        }
        if let Some(wire) = self.wire.take() {
            // Its own bounds are as long; this one is for what it can't foresee.
            let _ = timeout(FAREWELL, wire.close()).await;
        }
        Ok(())
    }

    /// From the app.
    async fn said(&mut self, said: Said) -> Result<()> {
        let bytes = match said {
            Ok(bytes) => bytes,
            Err(why) => return answer_error(None, -32_600, &why, None),
        };
        match Line::read(bytes) {
            Line::Request(request) => self.ask(request, Sent::Once).await,
            Line::Cancelled { bytes, id } => {
                self.cancelled(bytes, &id).await;
                Ok(())
            }
            Line::Notification { bytes, method } => {
                self.tell(bytes, Kind::Notification { method }).await;
                Ok(())
            }
            Line::Response(bytes) => {
                self.tell(bytes, Kind::Response).await;
                Ok(())
            }
            Line::Broken { code, message } => answer_error(None, code, &message, None),
        }
    }

    /// Sends a request over the present connection, or over a new one.
    async fn ask(&mut self, request: Request, sent: Sent) -> Result<()> {
        if let Err(why) = self.connected().await {
            return unreachable(&request, &why);
        }
        let Some(wire) = self.wire.clone() else { return unreachable(&request, "no connection") };
        let tag = self.next_tag();
        if request.method == "initialize" {
            self.handshake = Handshake::Begun { tag };
        }
        let outgoing = request.outgoing(tag);
        let generation = self.generation;
        self.pending.insert(tag, Pending { request, wire: wire.clone(), generation, sent });
        match wire.send(outgoing).await {
            Ok(()) => Ok(()),
            Err(failure) => Box::pin(self.failed(tag, failure)).await,
        }
    }

    /// What has no answer. Before a handshake there is nobody to tell; and if it can't be told, the
    /// next request finds out why.
    async fn tell(&mut self, bytes: Bytes, kind: Kind) {
        let (Handshake::Done(_), Some(wire)) = (&self.handshake, self.wire.clone()) else { return };
        if let Err(failure) = wire.send(Outgoing { bytes, kind }).await
            && is_lost(failure.kind)
        {
            self.wire = None;
        }
    }

    async fn cancelled(&mut self, bytes: Bytes, id: &RawValue) {
        let tag = self.tag_of(id);
        match tag.and_then(|tag| self.pending.remove(&tag).map(|pending| (tag, pending))) {
            // Over HTTP, the modern era cancels by closing the request's own stream.
            Some((tag, pending)) if pending.request.version.is_some() => pending.wire.forget(tag),
            _ => {
                let method = "notifications/cancelled".to_owned();
                self.tell(bytes, Kind::Notification { method }).await;
            }
        }
    }

    /// From the host.
    async fn heard(&mut self, generation: Generation, event: Event) -> Result<()> {
        match event {
            Event::Message { bytes, origin } => {
                self.note(&bytes, origin);
                write_line(bytes)
            }
            Event::Failed { tag, failure } => self.failed(tag, failure).await,
            Event::Closed(failure) => self.closed(generation, &failure).await,
            Event::Noise(_) => Ok(()),
        }
    }

    /// Takes an answer off what the app waits for.
    fn note(&mut self, bytes: &Bytes, origin: Option<u64>) {
        let Ok(envelope) = serde_json::from_slice::<Envelope>(bytes) else { return };
        if envelope.method.is_some() {
            return;
        }
        let known = origin.filter(|tag| self.pending.contains_key(tag));
        let Some(tag) = known.or_else(|| envelope.id.and_then(|id| self.tag_of(id))) else {
            return;
        };
        let Some(pending) = self.pending.remove(&tag) else { return };
        if matches!(self.handshake, Handshake::Begun { tag: begun } if begun == tag) {
            self.handshake = match line::negotiated(&envelope) {
                Some(version) => {
                    pending.wire.negotiated(&version, Era::Legacy);
                    Handshake::Done(pending.request)
                }
                None => Handshake::None,
            };
        }
    }

    /// A request got no answer: sends it again if that is safe, else says why.
    async fn failed(&mut self, tag: u64, failure: Failure) -> Result<()> {
        let Some(Pending { request, generation, sent, .. }) = self.pending.remove(&tag) else {
            return Ok(());
        };
        if matches!(self.handshake, Handshake::Begun { tag: begun } if begun == tag) {
            self.handshake = Handshake::None;
        }
        let safe = failure.ran == Ran::CertainlyNot || request.is_repeatable();
        if is_lost(failure.kind) && safe && sent == Sent::Once {
            if generation == self.generation {
                self.wire = None;
            }
            return Box::pin(self.ask(request, Sent::Again)).await;
        }
        match (is_lost(failure.kind), failure.ran) {
            (false, _) => refused(&request, &failure.reason),
            (true, Ran::Perhaps) if !request.is_repeatable() => {
                outcome_unknown(&request, &failure.reason)
            }
            (true, _) => unreachable(&request, &failure.reason),
        }
    }

    /// A connection is gone with all that went over it. A legacy app is connected again at once: it
    /// wants to hear what changes even if it doesn't ask.
    async fn closed(&mut self, generation: Generation, failure: &Failure) -> Result<()> {
        if generation == self.generation {
            self.wire = None;
        }
        let lost: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, it)| it.generation == generation)
            .map(|(tag, _)| *tag)
            .collect();
        for tag in lost {
            let failure = Failure::new(FailureKind::Gone, Ran::Perhaps, failure.reason.clone());
            self.failed(tag, failure).await?;
        }
        if matches!(self.handshake, Handshake::Done(_)) {
            // If that fails, the next request tries anew and says why.
            let _ = self.connected().await;
        }
        Ok(())
    }

    /// Makes sure that there is a connection. Fails with words for a person.
    async fn connected(&mut self) -> Result<(), String> {
        if self.wire.is_some() {
            return Ok(());
        }
        if let Some((at, why)) = &self.unreachable
            && at.elapsed() < SHARED
        {
            return Err(why.clone());
        }
        let tag = self.next_tag();
        let handshake = match &self.handshake {
            Handshake::Done(initialize) => Some((tag, initialize)),
            Handshake::None | Handshake::Begun { .. } => None,
        };
        let grace = if self.generation > 0 { SUCCESSION } else { Duration::ZERO };
        let gone = async {
            self.eof.cancelled().await;
            sleep(FAREWELL).await;
        };
        let connected = tokio::select! {
            connected = self.home.connect(handshake, grace) => connected,
            () = gone => Err("the app has closed its end".to_owned()),
        };
        match connected {
            Ok(mut link) => {
                self.unreachable = None;
                self.generation += 1;
                self.wire = Some(link.wire);
                for bytes in link.early {
                    write_line(bytes).map_err(|error| error.to_string())?;
                }
                let (sender, generation) = (self.sender.clone(), self.generation);
                // Ends with its wire, or when the relay has gone.
                tokio::spawn(async move {
                    while let Some(event) = link.events.recv().await {
                        if sender.send((generation, event)).await.is_err() {
                            return;
                        }
                    }
                });
                Ok(())
            }
            Err(why) => {
                self.unreachable = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// Nothing is asked but what has no end of its own.
    fn nobody_waits(&self) -> bool {
        self.pending.values().all(|pending| pending.request.method == "subscriptions/listen")
    }

    fn tag_of(&self, id: &RawValue) -> Option<u64> {
        let mut all = self.pending.iter();
        all.find(|(_, pending)| pending.request.id.get() == id.get()).map(|(tag, _)| *tag)
    }

    fn next_tag(&mut self) -> u64 {
        self.last_tag += 1;
        self.last_tag
    }
}

/// Whether a new connection can help: the host has gone, or another one has come, with another
/// token and without our session.
const fn is_lost(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Gone | FailureKind::SessionLost | FailureKind::NeedsSignIn)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
