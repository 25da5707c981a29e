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
    time::sleep,
};

use super::{Gateway, View};
use crate::{capability::CapabilityType, lock::lock};

/// Changes within this time are told together.
const COALESCE: Duration = Duration::from_millis(250);
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
}
