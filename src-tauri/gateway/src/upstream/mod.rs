//! One MCP server of the user's: its state, its link, its catalogues.
//!
//! [`connect`] makes a [`link`] and [`life`] keeps one up; [`ask`] makes requests on it and replaces
//! it once when it dies under one; [`reading`] reads the [`lists`]; this file tells its state.

mod advice;
pub mod ask;
pub mod catalogue;
mod changes;
pub mod connect;
mod hello;
pub mod hints;
mod introduction;
mod life;
pub mod link;
mod listen;
pub mod lists;
pub mod log;
pub mod process;
mod reading;
pub mod reads;
mod repair;
mod slot;
pub mod starts;
mod story;
mod verify;
pub mod wire;

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

use self::{
    catalogue::Catalogue,
    connect::Dialler,
    introduction::Introduction,
    link::{Hello, Link, Request},
    lists::{Ended, List},
    reads::Reads,
    slot::LinkSlot,
    story::Story,
    wire::{Failure, FailureKind},
};
use crate::{
    api::{Freshness, LastError, State},
    capability::CapabilityType,
    clock::{Clock, Moment, wall},
    definition::{Definition, Era, LogLevel},
    events::Fact,
    fault::{Code, Fault},
    json::RawObject,
    lock::lock,
    names::UpstreamName,
    store::UpstreamId,
};

/// How long a change of the log level may take.
const LEVEL: Duration = Duration::from_secs(30);
/// The end of all of an upstream's work.
const FAREWELL: Duration = Duration::from_secs(10);

/// What the gateway hears of its upstreams.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// Its state, era or server changed.
    State,
    /// The era that the connector found, to be remembered.
    Era(Option<Era>),
    /// A link is up; its catalogues are to be read again.
    LinkUp,
    /// Its list of these types may no longer be what was read.
    Invalidated(Vec<CapabilityType>, Ended),
    /// A catalogue was read.
    Read,
    ResourceUpdated(String),
    /// A fact for the journal, at this time.
    Happened(i64, Fact),
}

/// Who remembers what an upstream was seen to offer. Told of every catalogue that was read before
/// anybody else sees it, so that no choice is asked for what nobody remembers.
pub trait Remember: Send + Sync {
    fn remember<'a>(
        &'a self,
        upstream: &'a Upstream,
        catalogue: &'a Catalogue,
    ) -> BoxFuture<'a, ()>;
}

/// Where an upstream stands, for people.
#[derive(Clone, Debug)]
pub struct Standing {
    pub state: State,
    pub since: i64,
    pub last_error: Option<LastError>,
    pub hello: Option<Hello>,
}

/// What an upstream is made of.
pub struct Parts {
    pub id: UpstreamId,
    pub definition: Definition,
    pub era: Option<Era>,
    pub dialler: Dialler,
    pub clock: Clock,
    /// Bytes; the setting may change while the upstream lives.
    pub name_limit: Arc<AtomicU16>,
    pub events: mpsc::UnboundedSender<(UpstreamId, UpstreamEvent)>,
    /// `None` for one that is only tried.
    pub memory: Option<Arc<dyn Remember>>,
}

/// One upstream from the time it is enabled until it is disabled, removed or redefined; after
/// that another takes its place, so nothing in flight can revive it.
pub struct Upstream {
    pub id: UpstreamId,
    pub name: UpstreamName,
    definition: Mutex<Arc<Definition>>,
    era: Mutex<Option<Era>>,
    dialler: Dialler,
    clock: Clock,
    name_limit: Arc<AtomicU16>,
    events: mpsc::UnboundedSender<(UpstreamId, UpstreamEvent)>,
    memory: Option<Arc<dyn Remember>>,
    standing: watch::Sender<Standing>,
    story: Mutex<Story>,
    link: LinkSlot,
    introduction: Introduction,
    lists: [List; 4],
    /// Somebody waits for the read of this list that is under way.
    wanted: [AtomicBool; 4],
    reads: Reads,
    /// How many requests are being made for the second time.
    repeated: watch::Sender<usize>,
    starts: Mutex<VecDeque<Instant>>,
    /// When an app last used it.
    used: Mutex<Instant>,
    /// The lists that a fresh link refused too, and with which error: that one replaces no link
    /// again. `None` is an answer without a list.
    refused: Mutex<HashMap<CapabilityType, Option<i64>>>,
    /// Cancelled when the last link that was evicted has ended.
    farewell: Mutex<CancellationToken>,
    /// The last attempt to reach it failed.
    failed: AtomicBool,
    log_level: Mutex<Option<LogLevel>>,
    /// Somebody wants it now.
    nudge: Notify,
    ended: CancellationToken,
    tasks: TaskTracker,
}

impl Upstream {
    /// Nothing is started yet.
    pub fn new(parts: Parts) -> Arc<Self> {
        let state = if parts.definition.enabled { State::Idle } else { State::Disabled };
        // There is nothing to wait for yet.
        let farewell = CancellationToken::new();
        farewell.cancel();
        Arc::new(Self {
            id: parts.id,
            name: parts.definition.name.clone(),
            definition: Mutex::new(Arc::new(parts.definition)),
            era: Mutex::new(parts.era),
            dialler: parts.dialler,
            clock: parts.clock,
            name_limit: parts.name_limit,
            events: parts.events,
            memory: parts.memory,
            standing: watch::Sender::new(Standing {
                state,
                since: wall(),
                last_error: None,
                hello: None,
            }),
            story: Mutex::default(),
            link: LinkSlot::default(),
            introduction: Introduction::default(),
            lists: Default::default(),
            wanted: Default::default(),
            reads: Reads::default(),
            repeated: watch::Sender::default(),
            starts: Mutex::default(),
            used: Mutex::new(Instant::now()),
            refused: Mutex::default(),
            farewell: Mutex::new(farewell),
            failed: AtomicBool::new(false),
            log_level: Mutex::default(),
            nudge: Notify::new(),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// Keeps a link up from now on, if the upstream is enabled.
    pub fn start(self: &Arc<Self>) {
        if self.definition().enabled {
            let upstream = Arc::clone(self);
            self.tasks.spawn(async move {
                tokio::select! {
                    () = upstream.keep_up() => {}
                    () = upstream.ended.cancelled() => {}
                }
            });
        }
    }

    /// Ends its link, its process and its work. Nothing begins anew after this.
    pub async fn stop(&self) {
        self.ended.cancel();
        if let Some(link) = self.link.take().await {
            link.close().await;
        }
        self.tasks.close();
        let _ = timeout(FAREWELL, self.tasks.wait()).await;
    }

    pub fn definition(&self) -> Arc<Definition> {
        Arc::clone(&lock(&self.definition))
    }

    /// New settings hold from the next request on; the link stays.
    pub fn redefine(&self, definition: Definition) {
        lock(&self.refused).clear();
        *lock(&self.definition) = Arc::new(definition);
    }

    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    pub fn is_enabled(&self) -> bool {
        self.definition().enabled
    }

    pub fn log(&self) -> &Arc<log::UpstreamLog> {
        &self.dialler.log
    }

    pub fn dialler(&self) -> &Dialler {
        &self.dialler
    }

    /// Somebody waits for this very upstream: its start waits for no other's.
    pub fn hurry(&self) {
        if !self.link.is_up() {
            self.dialler.start.hurry();
        }
    }

    /// While its program starts: how far that is.
    pub fn progress(&self) -> Option<String> {
        self.dialler.start.progress(self.log())
    }

    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    pub fn freshness(&self, kind: CapabilityType) -> Freshness {
        if self.is_enabled() { self.list(kind).freshness(&self.clock) } else { Freshness::Off }
    }

    pub fn list(&self, kind: CapabilityType) -> &List {
        &self.lists[kind.index()]
    }

    /// What of its resources may be used again.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The fresh catalogue of a type. Starts nothing.
    pub fn fresh(&self, kind: CapabilityType) -> Option<Arc<Catalogue>> {
        self.list(kind).fresh(&self.clock)
    }

    /// What is known of a type now, without any waiting.
    pub fn last_good(&self, kind: CapabilityType) -> Option<Arc<Catalogue>> {
        self.list(kind).last_good()
    }

    /// Whether a request would have to wait for something that is known not to work.
    pub fn is_down(&self) -> bool {
        matches!(
            self.standing.borrow().state,
            State::Unavailable { .. } | State::NeedsSignIn { .. } | State::Misconfigured { .. }
        )
    }

    pub fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// Why it can't serve, as an app is told.
    pub fn fault(&self) -> Fault {
        let standing = self.standing();
        let reason = match (standing.state.reason(), self.progress()) {
            (Some(reason), _) => reason.to_owned(),
            (None, Some(progress)) => format!("it is still starting ({progress})"),
            (None, None) => "it is still starting".to_owned(),
        };
        let (code, words) = match standing.state {
            State::NeedsSignIn { .. } => (Code::UpstreamNeedsSignIn, ""),
            _ => (Code::UpstreamUnavailable, "is unavailable: "),
        };
        Fault::new(code, Some(&self.name), format!("{} {words}{reason}", self.name))
            .since(Some(standing.since))
    }

    /// How much it is to log, from now on and on every link to come.
    pub fn set_log_level(self: &Arc<Self>, level: LogLevel) {
        if lock(&self.log_level).replace(level) != Some(level)
            && let Some(link) = self.link.current()
        {
            self.tell_log_level(&link, level);
        }
    }

    /// Only the legacy era has a level per connection.
    fn tell_log_level(self: &Arc<Self>, link: &Arc<Link>, level: LogLevel) {
        if link.hello().era != Era::Legacy || !link.hello().declares("logging") {
            return;
        }
        let (upstream, link) = (Arc::clone(self), Arc::clone(link));
        self.tasks.spawn(async move {
            let request =
                Request::own("logging/setLevel", RawObject::default().with("level", &level));
            let told = async { link.begin(request).await?.answer().await };
            if !matches!(timeout(LEVEL, told).await, Ok(Ok(Ok(_)))) {
                debug!(upstream = %upstream.name, "it did not take the log level");
            }
        });
    }

    /// Drops the link and makes a new one. A user's restart also clears what a rate limit held.
    pub async fn restart(self: &Arc<Self>) -> Result<(), Fault> {
        lock(&self.starts).clear();
        self.failed.store(false, Ordering::Relaxed);
        lock(&self.story).expect();
        self.hurry();
        if let Some(link) = self.link.take().await {
            link.close().await;
        }
        self.link().await.map(drop).map_err(|failure| self.faulted(&failure))
    }

    /// Ends the freshness of these catalogues, and with the resources' that of what was read of
    /// them.
    pub fn invalidate(&self, kinds: &[CapabilityType], ended: Ended) {
        for kind in kinds {
            self.list(*kind).invalidate(ended);
        }
        if kinds.contains(&CapabilityType::Resource) {
            self.reads.clear();
        }
    }

    /// An app uses it now.
    fn used(&self) {
        *lock(&self.used) = Instant::now();
    }

    fn unused_for(&self) -> Duration {
        lock(&self.used).elapsed()
    }

    /// Brings it up, if it isn't.
    pub async fn wake(self: &Arc<Self>) -> Result<(), Fault> {
        self.link().await.map(drop).map_err(|failure| self.faulted(&failure))
    }

    fn degraded(&self, kind: CapabilityType, fault: &Fault) {
        if self.link.is_up() {
            let error = fault.message.clone();
            debug!(upstream = %self.name, %kind, %error, "a list could not be read");
            if !matches!(self.standing.borrow().state, State::Degraded { .. }) {
                self.happened(Fact::Degraded { kind });
            }
            self.note_error(&error);
            self.set_state(State::Degraded { error });
        }
    }

    fn recovered(&self) {
        let degraded = matches!(self.standing.borrow().state, State::Degraded { .. });
        if degraded && self.lists.iter().all(|list| list.fault().is_none()) {
            self.set_state(State::Ready);
        }
        self.proved();
    }

    /// Something was read over the link that is up, which is what ends an outage.
    fn proved(&self) {
        if self.link.is_up()
            && let Some(fact) = lock(&self.story).proved(self.clock.now())
        {
            self.happened(fact);
        }
    }

    /// Whether its last outage hasn't been proved to be over.
    pub fn is_in_outage(&self) -> bool {
        lock(&self.story).is_in_outage()
    }

    /// Why the state that is set next is what it is, for the journal.
    fn note_failure(&self, failure: &Failure) {
        if lock(&self.story).failed(self.clock.now(), failure) {
            self.note_error(&failure.reason);
        }
    }

    fn note_error(&self, reason: &str) {
        self.standing.send_modify(|standing| {
            standing.last_error = Some(LastError { at: wall(), reason: reason.to_owned() });
        });
    }

    /// Only the user can help; nothing is evicted and nothing retried.
    pub fn needs_sign_in(&self, failure: &Failure) {
        let failure = advice::advised(failure.clone(), &self.definition().transport, &self.name);
        self.note_failure(&failure);
        self.set_state(State::NeedsSignIn { reason: failure.reason });
    }

    /// The one function that stores the state and announces the change.
    fn set_state(&self, state: State) {
        let changed = self.standing.send_if_modified(|standing| {
            let changed = standing.state != state;
            if changed {
                let fact = lock(&self.story).turned(self.clock.now(), &standing.state, &state);
                if let Some(fact) = fact {
                    self.happened(fact);
                }
                // The words of a reason may differ from try to try; the outage is the same.
                if standing.state.word() != state.word() {
                    standing.since = wall();
                }
                standing.state = state;
            }
            changed
        });
        if changed {
            self.tell(UpstreamEvent::State);
        }
    }

    /// A failure of the link as an app is told of it.
    pub fn faulted(&self, failure: &Failure) -> Fault {
        let code = match failure.kind {
            FailureKind::NeedsSignIn => Code::UpstreamNeedsSignIn,
            _ => Code::UpstreamUnavailable,
        };
        let words = match code {
            Code::UpstreamNeedsSignIn => "",
            _ => "is unavailable: ",
        };
        Fault::new(code, Some(&self.name), format!("{} {words}{}", self.name, failure.reason))
            .since(Some(self.standing.borrow().since))
    }

    /// A fact for the journal, and perhaps for people.
    pub fn happened(&self, fact: Fact) {
        self.tell(UpstreamEvent::Happened(wall(), fact));
    }

    fn tell(&self, event: UpstreamEvent) {
        // The gateway outlives its upstreams; without it nobody wants to know.
        let _ = self.events.send((self.id, event));
    }
}
