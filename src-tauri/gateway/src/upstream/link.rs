//! One live connection to an upstream: a JSON-RPC client that hands payloads on as they came.
//!
//! Everything that belongs to one request (progress, log messages, the upstream's questions, the
//! answer) goes to its caller through one channel, so nothing overtakes anything. Why this isn't
//! rmcp's client: `docs/decisions/0001-upstream-edge-speaks-raw-json.md`.

mod call;
mod incoming;
mod oddities;
mod outgoing;
mod queue;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

pub use self::{
    call::{Call, CallEvent, Caller, CallerId, Question, Reply, Request},
    outgoing::{error, own_info},
};
use self::{
    oddities::Oddities,
    outgoing::{line, outgoing},
    queue::{Speaker, queue},
};
use super::{
    hints::Hints,
    log::UpstreamLog,
    wire::{Event, Events, Failure, FailureKind, Kind, Outgoing, Ran, Wire},
};
use crate::{capability::CapabilityType, definition::Era, json::RawObject, lock::lock};

/// The prefix of `_meta` keys that belong to one hop of the protocol.
pub const PROTOCOL_META: &str = "io.modelcontextprotocol/";
/// How a modern upstream is asked to tell of changes.
pub const SUBSCRIBE: &str = "subscriptions/listen";
const METHOD_NOT_FOUND: i32 = -32601;
/// How long a cancellation or an answer of ours may take to be written.
const COURTESY: Duration = Duration::from_secs(5);

/// How long the reason of a lost connection is waited for.
const AUTOPSY: Duration = Duration::from_secs(1);

/// What the handshake told.
#[derive(Clone, Debug)]
pub struct Hello {
    pub era: Era,
    pub version: String,
    pub capabilities: RawObject,
    /// `serverInfo`: name and version, for people.
    pub server: Option<String>,
    pub instructions: Option<String>,
    /// How long this may be taken for true; modern only.
    pub hints: Hints,
}

impl Hello {
    /// Whether the server declared that it has any of these.
    pub fn offers(&self, kind: CapabilityType) -> bool {
        self.declares(kind.server_capability())
    }

    pub fn declares(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|value| value.get() != "null")
    }
}

/// What an upstream says that belongs to no request.
#[derive(Debug)]
pub enum News {
    ListChanged(Vec<CapabilityType>),
    ResourceUpdated(String),
    /// The link is dead; this is the last of its news.
    Closed(Failure),
}

struct Waiting {
    events: Speaker,
    caller: Option<CallerId>,
    /// The one request that a server may end without an answer.
    is_subscription: bool,
}

/// A live connection. Dropping the last reference does not close it: [`Link::close`] does.
pub struct Link {
    wire: Arc<dyn Wire>,
    log: Arc<UpstreamLog>,
    hello: OnceLock<Hello>,
    /// Over stdio and in the legacy era a cancellation is a message; over modern HTTP it is the
    /// closed stream.
    is_http: bool,
    /// `None` once the wire is gone: a request that comes later must fail, not wait.
    waiting: Mutex<Option<HashMap<u64, Waiting>>>,
    next_tag: AtomicU64,
    news: mpsc::UnboundedSender<News>,
    closed: CancellationToken,
    /// Another takes its place; what runs on it may still end.
    retired: CancellationToken,
    /// Told whenever nothing is under way any more.
    idle: Notify,
    /// Requests that timed out since anything was received.
    unanswered: AtomicU32,
    refuses_pings: AtomicBool,
    death: OnceLock<Failure>,
    oddities: Oddities,
}

impl Link {
    /// Takes over a wire and reads it until it ends.
    pub fn open(
        wire: Arc<dyn Wire>,
        events: Events,
        is_http: bool,
        log: Arc<UpstreamLog>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<News>) {
        let (news, told) = mpsc::unbounded_channel();
        let link = Arc::new(Self {
            wire,
            log,
            hello: OnceLock::new(),
            is_http,
            waiting: Mutex::new(Some(HashMap::new())),
            next_tag: AtomicU64::new(1),
            news,
            closed: CancellationToken::new(),
            retired: CancellationToken::new(),
            idle: Notify::new(),
            unanswered: AtomicU32::new(0),
            refuses_pings: AtomicBool::new(false),
            death: OnceLock::new(),
            oddities: Oddities::default(),
        });
        // Weak: the reader must not keep a link alive that nobody holds. It ends with the wire.
        tokio::spawn(read(Arc::downgrade(&link), events));
        (link, told)
    }

    /// The handshake is done: from here on requests carry what its era asks for.
    pub fn greet(&self, hello: Hello) {
        self.wire.negotiated(&hello.version, hello.era);
        let _ = self.hello.set(hello);
    }

    /// What the handshake told. Only links that were greeted leave the connector.
    pub fn hello(&self) -> &Hello {
        self.hello.get().expect("the connector greets a link before it hands it out")
    }

    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Resolves when the link is dead.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Resolves when it is dead, or when another takes its place.
    pub async fn gone(&self) {
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = self.retired.cancelled() => {}
        }
    }

    /// Another takes its place: nothing new begins on it.
    pub fn retire(&self) {
        self.retired.cancel();
    }

    pub fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Waits until nothing runs on it any more, at most so long.
    pub async fn drain(&self, patience: Duration) {
        let drained = async {
            loop {
                let mut idle = std::pin::pin!(self.idle.notified());
                idle.as_mut().enable();
                if !self.is_busy() {
                    return;
                }
                idle.await;
            }
        };
        // Whatever still runs then ends with the link.
        let _ = tokio::time::timeout(patience, drained).await;
    }

    /// Whether any request is under way.
    pub fn is_busy(&self) -> bool {
        self.waiting().as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    /// Whether any request of an app is under way.
    pub fn has_callers(&self) -> bool {
        let has_caller = |waiting: &Waiting| waiting.caller.is_some();
        self.waiting().as_ref().is_some_and(|waiting| waiting.values().any(has_caller))
    }

    pub fn refuses_pings(&self) -> bool {
        self.refuses_pings.load(Ordering::Relaxed)
    }

    pub fn ping_no_more(&self) {
        self.refuses_pings.store(true, Ordering::Relaxed);
    }

    /// A request timed out. How many did in a row, with nothing received between them.
    pub fn missed(&self) -> u32 {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Why it died.
    pub fn death(&self) -> Option<&Failure> {
        self.death.get()
    }

    /// Ends the link in good order, the upstream's process included.
    pub async fn close(&self) {
        self.wire.close().await;
        self.bury(Failure::new(FailureKind::Gone, Ran::Perhaps, "the connection was closed"));
    }

    /// It fails requests in a way that no healthy link does; whatever ends it, this is the cause.
    /// It says nothing of what else runs on the link.
    pub fn condemn(&self, cause: &Failure) {
        let _ = self.death.set(cause.clone());
    }

    /// Begins a request. What becomes of it is told by the [`Call`].
    pub async fn begin(self: &Arc<Self>, request: Request<'_>) -> Result<Call, Failure> {
        let modern = self.hello.get().filter(|hello| hello.era == Era::Modern);
        self.begin_in(request, modern.map(|hello| hello.version.as_str())).await
    }

    /// The same with the era said, for the handshake itself.
    pub async fn begin_in(
        self: &Arc<Self>,
        request: Request<'_>,
        modern: Option<&str>,
    ) -> Result<Call, Failure> {
        let tag = self.next_tag.fetch_add(1, Ordering::Relaxed);
        let (speaker, events) = queue();
        let caller = request.caller.as_ref().map(|caller| caller.id);
        let is_subscription = request.method == SUBSCRIBE;
        match self.waiting().as_mut() {
            Some(waiting) => {
                waiting.insert(tag, Waiting { events: speaker, caller, is_subscription })
            }
            None => return Err(self.obituary(Ran::CertainlyNot)),
        };
        // Only now: whoever waits for the end of all requests has seen this one or retired before.
        if self.is_retired() {
            self.strike(tag);
            let reason = "another connection has taken its place";
            return Err(Failure::in_own_words(FailureKind::Gone, Ran::CertainlyNot, reason));
        }
        // From here on dropping `call` tidies up.
        let mut call = Call { link: Arc::clone(self), tag, events, over: false };
        let message = outgoing(tag, &request, modern);
        if let Err(failure) = self.wire.send(message).await {
            call.over = true;
            self.strike(tag);
            return Err(self.explained(failure).await);
        }
        Ok(call)
    }

    pub async fn notify(&self, method: &str, params: RawObject) -> Result<(), Failure> {
        let mut message = RawObject::default().with("jsonrpc", "2.0").with("method", method);
        if !params.is_empty() {
            message.set("params", params.to_raw());
        }
        let kind = Kind::Notification { method: method.to_owned() };
        self.wire.send(Outgoing { bytes: line(&message), kind }).await
    }

    /// A broken pipe is noticed a moment before its reason is known.
    async fn explained(&self, failure: Failure) -> Failure {
        if failure.kind == FailureKind::Gone
            && tokio::time::timeout(AUTOPSY, self.closed()).await.is_ok()
        {
            return self.obituary(failure.ran);
        }
        failure
    }

    fn strike(&self, tag: u64) -> Option<Waiting> {
        let mut waiting = self.waiting();
        let struck = waiting.as_mut()?.remove(&tag);
        if waiting.as_ref().is_some_and(HashMap::is_empty) {
            self.idle.notify_waiters();
        }
        struck
    }

    fn obituary(&self, ran: Ran) -> Failure {
        let mut failure =
            self.death.get().cloned().unwrap_or_else(|| {
                Failure::new(FailureKind::Gone, ran, "the connection is closed")
            });
        failure.ran = ran;
        failure
    }

    pub fn is_http(&self) -> bool {
        self.is_http
    }

    /// Ends every waiting request. Only the first cause counts.
    fn bury(&self, failure: Failure) {
        let mut failure = self.death.get_or_init(|| failure).clone();
        // Whatever is known of the request that brought it down, the others were written.
        failure.ran = Ran::Perhaps;
        let orphans = self.waiting().take().unwrap_or_default();
        self.idle.notify_waiters();
        for (_, orphan) in orphans {
            orphan.events.say(CallEvent::Failed(failure.clone()));
        }
        if !self.closed.is_cancelled() {
            self.closed.cancel();
            let _ = self.news.send(News::Closed(failure));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, Waiting>>> {
        lock(&self.waiting)
    }

    fn receive(self: &Arc<Self>, event: Event) {
        match event {
            Event::Message { bytes, origin } => {
                self.unanswered.store(0, Ordering::Relaxed);
                self.message(&bytes, origin);
            }
            Event::Failed { tag, failure } => {
                if let Some(waiting) = self.strike(tag) {
                    waiting.events.say(CallEvent::Failed(failure));
                }
            }
            Event::Noise(text) => self.noise(&text),
            Event::Closed(failure) => self.bury(failure),
        }
    }

    /// The era as far as the link knows it; before the handshake nothing is modern.
    fn cancels_by_closing(&self) -> bool {
        self.is_http && self.hello.get().is_some_and(|hello| hello.era == Era::Modern)
    }
}

async fn read(link: Weak<Link>, mut events: Events) {
    while let Some(event) = events.recv().await {
        match link.upgrade() {
            Some(link) => link.receive(event),
            None => return,
        }
    }
    if let Some(link) = link.upgrade() {
        link.bury(Failure::new(FailureKind::Gone, Ran::Perhaps, "the connection ended"));
    }
}

#[cfg(test)]
mod tests;
