//! Tells apps that what *they* see has changed: when and only when it has, at most once in 250 ms,
//! deferred and never dropped (design section 4.6).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, sleep_until},
};

use super::{Gateway, View};
use crate::{capability::CapabilityType, lock::lock, store::UpstreamId, upstream::Upstream};

/// Changes within this time are told together.
const COALESCE: Duration = Duration::from_millis(250);
/// A catalogue that keeps being announced is read at most this often.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Some servers announce a change before they make it.
const TOO_EARLY: Duration = Duration::from_secs(2);

/// The lists that are announced by one notification each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Announced {
    Tools,
    Prompts,
    /// Resources and templates.
    Resources,
}

impl Announced {
    pub const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    const fn kinds(self) -> &'static [CapabilityType] {
        match self {
            Self::Tools => &[CapabilityType::Tool],
            Self::Prompts => &[CapabilityType::Prompt],
            Self::Resources => &[CapabilityType::Resource, CapabilityType::Template],
        }
    }
}

/// Why a catalogue is to be read without anybody asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The upstream said that it changed.
    Told,
    NewLink,
}

struct Listener {
    view: View,
    sender: mpsc::UnboundedSender<Announced>,
    /// What it saw last, by type.
    seen: [u64; 4],
}

/// Everyone who wants to hear of changes.
#[derive(Default)]
pub struct Listeners {
    next: AtomicU64,
    by_id: Mutex<HashMap<u64, Listener>>,
    look: Notify,
    reads: Mutex<HashMap<(UpstreamId, CapabilityType), Turn>>,
}

/// One catalogue's turn to be read unasked.
#[derive(Default)]
struct Turn {
    last: Option<Instant>,
    waiting: bool,
}

impl Listeners {
    pub fn is_empty(&self) -> bool {
        self.listeners().is_empty()
    }

    /// Something may have changed.
    pub fn look(&self) {
        self.look.notify_one();
    }

    /// A listener just saw a list: what changed up to then need not be told.
    pub fn saw(&self, id: u64, kind: CapabilityType, digest: u64) {
        if let Some(listener) = self.listeners().get_mut(&id) {
            listener.seen[kind.index()] = digest;
        }
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<u64, Listener>> {
        lock(&self.by_id)
    }
}

/// One who listens, for as long as this lives.
pub struct Listening {
    gateway: Arc<Gateway>,
    pub id: u64,
    changes: mpsc::UnboundedReceiver<Announced>,
}

impl Listening {
    pub async fn next(&mut self) -> Option<Announced> {
        self.changes.recv().await
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.gateway.listeners.listeners().remove(&self.id);
    }
}

impl Gateway {
    /// Tells of every change of this view from now on.
    pub fn listen(self: &Arc<Self>, view: View) -> Listening {
        let (sender, changes) = mpsc::unbounded_channel();
        let id = self.listeners.next.fetch_add(1, Ordering::Relaxed);
        let seen = CapabilityType::ALL.map(|kind| self.digest(&view, kind));
        self.listeners.listeners().insert(id, Listener { view, sender, seen });
        Listening { gateway: Arc::clone(self), id, changes }
    }

    pub(super) async fn announce(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.listeners.look.notified() => {}
                () = self.ended.cancelled() => return,
            }
            self.tell_listeners();
            // What comes meanwhile is told after it.
            tokio::select! {
                () = sleep(COALESCE) => {}
                () = self.ended.cancelled() => return,
            }
        }
    }

    fn tell_listeners(&self) {
        // One look per view, however many listen to it.
        let mut digests: HashMap<View, [u64; 4]> = HashMap::new();
        for listener in self.listeners.listeners().values_mut() {
            let now = digests.entry(listener.view.clone()).or_insert_with(|| {
                CapabilityType::ALL.map(|kind| self.digest(&listener.view, kind))
            });
            for announced in Announced::ALL {
                let differs =
                    |kind: &CapabilityType| now[kind.index()] != listener.seen[kind.index()];
                if announced.kinds().iter().any(differs) {
                    let _ = listener.sender.send(announced);
                }
            }
            listener.seen = *now;
        }
    }

    /// Reads these catalogues once while any app listens; nobody polls (design section 4.4).
    pub(super) fn read_again(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        kinds: &[CapabilityType],
        cause: Cause,
    ) {
        if self.listeners.is_empty() {
            return;
        }
        for kind in kinds {
            let Some(turn) = self.turn(upstream.id, *kind) else { continue };
            let (gateway, upstream, kind) = (Arc::clone(self), Arc::clone(upstream), *kind);
            self.tasks.spawn(async move {
                tokio::select! {
                    () = gateway.reread(&upstream, kind, cause, turn) => {}
                    () = gateway.ended.cancelled() => {}
                }
            });
        }
    }

    /// When it may be read, or `None` if a read is already waiting for its turn.
    fn turn(&self, id: UpstreamId, kind: CapabilityType) -> Option<Instant> {
        let mut reads = lock(&self.listeners.reads);
        let turn = reads.entry((id, kind)).or_default();
        if std::mem::replace(&mut turn.waiting, true) {
            return None;
        }
        Some(turn.last.map_or_else(Instant::now, |last| last + READ_EVERY))
    }

    async fn reread(
        &self,
        upstream: &Arc<Upstream>,
        kind: CapabilityType,
        cause: Cause,
        turn: Instant,
    ) {
        sleep_until(turn).await;
        {
            let mut reads = lock(&self.listeners.reads);
            let turn = Turn { last: Some(Instant::now()), waiting: false };
            reads.insert((upstream.id, kind), turn);
        }
        let before = upstream.last_good(kind).map(|catalogue| catalogue.digest);
        let after = upstream.catalogue(kind).await.map(|catalogue| catalogue.digest).ok();
        if cause == Cause::Told && before == after {
            sleep(TOO_EARLY).await;
            upstream.invalidate(&[kind], "it said that its list changed");
            // Its failure is the upstream's state; here nobody waits for it.
            let _ = upstream.catalogue(kind).await;
        }
    }
}
