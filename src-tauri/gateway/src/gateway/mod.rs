//! The gateway: the user's upstreams and the user's choices, brought together.
//!
//! [`list`] is what apps see, [`route`] and [`relay`] take their requests to an upstream,
//! [`announce`] tells them of changes; [`manage`], [`trial`] and [`transfer`] are what the user does,
//! [`snapshot`] what the user sees.

pub mod announce;
mod apps;
mod asker;
mod deeds;
mod hints;
mod journal;
mod keep;
pub mod list;
pub mod loglevel;
pub mod manage;
pub mod people;
mod record;
pub mod relay;
mod relaying;
mod route;
mod shelf;
mod snapshot;
mod transfer;
mod trial;
mod unasked;
pub mod uri;
mod wake;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use self::{
    announce::Listeners, journal::Retention, record::Recorder, shelf::Shelf, unasked::Unasked,
    wake::Vigil,
};
pub use self::{
    apps::{Activity, Apps, new_token},
    asker::{Asker, View},
    relaying::Relaying,
    route::Route,
    snapshot::Place,
    transfer::without_secrets,
};
use crate::{
    api::Pause,
    capability::CapabilityType,
    clock::{Clock, wall},
    definition::{Definition, Era},
    events::{Event, Fact},
    install_key::InstallKey,
    lock::lock,
    names::UpstreamName,
    preferences::Preferences,
    settings::Settings,
    snapshot_file::SnapshotFile,
    store::{Store, StoreError, UpstreamId},
    upstream::{
        Parts, Remember, Upstream, UpstreamEvent,
        connect::Dialler,
        lists::Ended,
        log::UpstreamLog,
        process::Children,
        starts::{Start, Starts},
        wire::{self, Bounds},
    },
};

/// The place of an upstream that is only tried: it is in no table and nothing of it is remembered.
const TRANSIENT: UpstreamId = UpstreamId(0);
/// How many handed-out URIs are remembered.
const HANDED_OUT: usize = 10_000;
/// How long the end of everything may take.
const FAREWELL: Duration = Duration::from_secs(3);

type Told = (UpstreamId, UpstreamEvent);

/// Why the gateway can't begin.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("no HTTP client could be made: {0}")]
    Client(#[from] wire::Failure),
}

pub struct Gateway {
    store: Store,
    preferences: Arc<Preferences>,
    apps: Apps,
    stored_settings: Mutex<BTreeMap<String, String>>,
    settings: RwLock<Arc<Settings>>,
    /// In the user's order. Never held across an await.
    upstreams: RwLock<Vec<Arc<Upstream>>>,
    pause: Mutex<Option<Pause>>,
    handed_out: Mutex<HandedOut>,
    sockets: Arc<wire::http::Sockets>,
    children: Arc<Children>,
    starts: Arc<Starts>,
    clock: Clock,
    vigil: Vigil,
    /// Shared with the upstreams, which shorten names by it.
    name_limit: Arc<AtomicU16>,
    events: mpsc::UnboundedSender<Told>,
    revision: watch::Sender<u64>,
    recorder: Arc<Recorder>,
    listeners: Listeners,
    unasked: Unasked,
    shelf: Shelf,
    log_levels: loglevel::LogLevels,
    /// Makes one change of the upstreams at a time.
    changing: tokio::sync::Mutex<()>,
    started_at: i64,
    /// Where this host listens.
    port: u16,
    next_session: AtomicU64,
    ended: CancellationToken,
    tasks: TaskTracker,
}

impl Gateway {
    /// Begins with what is stored: every enabled upstream is started, none is waited for. What
    /// outlives the process apart from the database lies in the `cache` directory.
    pub async fn open(
        store: Store,
        port: u16,
        children: Arc<Children>,
        cache: &Path,
    ) -> Result<Arc<Self>, NotOpened> {
        let stored_settings = store.settings().await?;
        let (settings, notes) = Settings::from_stored(&stored_settings);
        for note in notes {
            warn!("{note}");
        }
        let stored = store.upstreams().await?;
        let retention = Retention::of(&settings);
        let (events, told) = mpsc::unbounded_channel();
        let gateway = Arc::new(Self {
            preferences: Arc::new(Preferences::load(store.clone()).await?),
            apps: Apps::load(store.clone()).await?,
            pause: Mutex::new(stored_pause(&stored_settings)),
            stored_settings: Mutex::new(stored_settings),
            name_limit: Arc::new(AtomicU16::new(settings.name_limit.into())),
            settings: RwLock::new(Arc::new(settings)),
            upstreams: RwLock::default(),
            handed_out: Mutex::default(),
            sockets: wire::http::Sockets::open()?,
            children,
            starts: Arc::default(),
            clock: Clock::default(),
            vigil: Vigil::new(Clock::default()),
            events,
            revision: watch::Sender::new(1),
            recorder: Arc::new(Recorder::open(store.clone(), retention).await?),
            listeners: Listeners::default(),
            unasked: Unasked::default(),
            shelf: Shelf::new(SnapshotFile::below(cache), InstallKey::of(&store).await?),
            log_levels: loglevel::LogLevels::default(),
            changing: tokio::sync::Mutex::default(),
            started_at: wall(),
            port,
            next_session: AtomicU64::new(1),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
            store,
        });
        let upstreams: Vec<_> = stored
            .into_iter()
            .map(|stored| gateway.make(stored.id, stored.definition, stored.era, Arc::default()))
            .collect();
        gateway.upstreams_mut(|list| list.clone_from(&upstreams));
        gateway.tasks.spawn(Arc::clone(&gateway).hear(told));
        gateway.tasks.spawn(Arc::clone(&gateway).announce());
        gateway.tasks.spawn(Arc::clone(&gateway).keep_vigil());
        // Before the first fact.
        let facts = gateway.facts();
        gateway.tasks.spawn(Arc::clone(&gateway).tell_people(facts));
        gateway.record(Event::new(Fact::Started { version: env!("CARGO_PKG_VERSION").to_owned() }));
        gateway.restore(&gateway.settings()).await;
        gateway.tasks.spawn(Arc::clone(&gateway).keep_shelf());
        for upstream in upstreams {
            upstream.start();
        }
        Ok(gateway)
    }

    /// Ends everything in good order, all upstreams' processes included.
    pub async fn close(&self) {
        self.ended.cancel();
        self.children.host_ends();
        let stops =
            self.upstreams().into_iter().map(|upstream| async move { upstream.stop().await });
        futures::future::join_all(stops).await;
        self.tasks.close();
        if tokio::time::timeout(FAREWELL, self.tasks.wait()).await.is_err() {
            warn!("some work did not end in time");
        }
        self.record(Event::new(Fact::Stopped));
        self.recorder.journal.finish().await;
        self.store.close().await;
    }

    /// All upstreams, in the user's order.
    pub fn upstreams(&self) -> Vec<Arc<Upstream>> {
        self.upstreams.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn upstream(&self, name: &UpstreamName) -> Option<Arc<Upstream>> {
        self.upstreams().into_iter().find(|upstream| upstream.name == *name)
    }

    pub fn preferences(&self) -> &Preferences {
        &self.preferences
    }

    pub fn apps(&self) -> &Apps {
        &self.apps
    }

    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is paused now.
    pub fn pause(&self) -> Option<Pause> {
        let mut pause = lock(&self.pause);
        if pause.is_some_and(|pause| pause.until.is_some_and(|until| until <= wall())) {
            *pause = None;
        }
        *pause
    }

    /// A number for a new session, unlike all others of this host.
    pub fn new_session(&self) -> u64 {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    /// Grows with each change of what a snapshot shows.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Something that people see has changed; with it, perhaps, what apps see.
    pub fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
        self.listeners.look();
        self.shelf.look.notify_one();
    }

    fn make(
        &self,
        id: UpstreamId,
        definition: Definition,
        era: Option<Era>,
        log: Arc<UpstreamLog>,
    ) -> Arc<Upstream> {
        let bounds = Bounds { message: self.settings().message_limit };
        Upstream::new(Parts {
            id,
            definition,
            era,
            dialler: Dialler {
                sockets: Arc::clone(&self.sockets),
                bounds,
                log,
                children: Arc::clone(&self.children),
                start: Arc::new(Start::among(&self.starts)),
                births: Arc::default(),
            },
            clock: self.clock.clone(),
            name_limit: Arc::clone(&self.name_limit),
            events: self.events.clone(),
            memory: (id != TRANSIENT).then(|| Arc::clone(&self.preferences) as Arc<dyn Remember>),
        })
    }

    fn upstreams_mut<T>(&self, change: impl FnOnce(&mut Vec<Arc<Upstream>>) -> T) -> T {
        change(&mut self.upstreams.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn by_id(&self, id: UpstreamId) -> Option<Arc<Upstream>> {
        self.upstreams().into_iter().find(|upstream| upstream.id == id)
    }

    /// As if an upstream had told it.
    fn heard(&self, id: UpstreamId, event: UpstreamEvent) {
        // The loop ends with the gateway; after that nobody wants to know.
        let _ = self.events.send((id, event));
    }

    async fn hear(self: Arc<Self>, mut told: mpsc::UnboundedReceiver<Told>) {
        loop {
            let (id, event) = tokio::select! {
                Some(told) = told.recv() => told,
                () = self.ended.cancelled() => return,
            };
            // One that was replaced or removed meanwhile has nothing to say any more.
            let Some(upstream) = self.by_id(id) else { continue };
            match event {
                UpstreamEvent::State | UpstreamEvent::Read => {}
                UpstreamEvent::Era(era) => {
                    if let Err(error) = self.store.remember_era(id, era).await {
                        warn!(upstream = %upstream.name, %error, "can't remember its era");
                    }
                }
                UpstreamEvent::LinkUp => {
                    self.read_unasked(&upstream, &CapabilityType::ALL, Ended::NewLink);
                    if upstream.is_in_outage() {
                        self.prove(upstream);
                    }
                }
                UpstreamEvent::Invalidated(kinds, ended) => {
                    self.read_unasked(&upstream, &kinds, ended);
                }
                UpstreamEvent::Happened(at, fact) => {
                    self.record(Event { at, ..Event::new(fact).of(id, &upstream.name) });
                    continue;
                }
                // Nobody can subscribe yet.
                UpstreamEvent::ResourceUpdated(_) => continue,
            }
            self.changed();
        }
    }

    /// Reads one list over the fresh link although nobody asks: only what was read shows that an
    /// outage is over.
    fn prove(&self, upstream: Arc<Upstream>) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            upstream.invalidate(&[CapabilityType::Tool], Ended::NewLink);
            tokio::select! {
                () = upstream.read_unasked(CapabilityType::Tool) => {}
                () = ended.cancelled() => {}
            }
        });
    }

    fn hand_out(&self, upstream: UpstreamId, uris: Vec<String>) {
        if !uris.is_empty() {
            lock(&self.handed_out).add(upstream, uris);
        }
    }

    /// Which upstream last named this URI in a result.
    fn handed_out(&self, uri: &str) -> Option<UpstreamId> {
        lock(&self.handed_out).by_uri.get(uri).copied()
    }
}

/// URIs that results named, the oldest forgotten first.
#[derive(Default)]
struct HandedOut {
    by_uri: HashMap<String, UpstreamId>,
    order: VecDeque<String>,
}

impl HandedOut {
    fn add(&mut self, upstream: UpstreamId, uris: Vec<String>) {
        for uri in uris {
            if self.by_uri.insert(uri.clone(), upstream).is_none() {
                self.order.push_back(uri);
            }
        }
        while self.order.len() > HANDED_OUT {
            if let Some(oldest) = self.order.pop_front() {
                self.by_uri.remove(&oldest);
            }
        }
    }
}

/// Where the pause is kept over a restart. Not one of the settings that a user sets as text.
const PAUSE_KEY: &str = "internal.pause";

fn stored_pause(stored: &BTreeMap<String, String>) -> Option<Pause> {
    serde_json::from_str(stored.get(PAUSE_KEY)?).ok()
}
