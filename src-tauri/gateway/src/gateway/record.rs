//! Where facts go: into the journal, to people, and into what `status` counts.

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
};

use tokio::sync::broadcast;

use super::journal::{Journal, Retention};
use crate::{
    clock::wall,
    events::{Event, Fact, Invocation, Record},
    lock::lock,
    store::{Store, StoreError, UpstreamId},
};

/// How many facts may wait for whoever follows them.
const FACTS: usize = 1_024;
/// Heals are counted over this time, in milliseconds.
const COUNTED: i64 = 24 * 60 * 60 * 1000;

pub struct Recorder {
    pub journal: Journal,
    facts: broadcast::Sender<Event>,
    /// When which upstream was healed or came back, the oldest first.
    heals: Mutex<HashMap<UpstreamId, VecDeque<i64>>>,
}

impl Recorder {
    pub async fn open(store: Store, retention: Retention) -> Result<Self, StoreError> {
        let mut heals = HashMap::<UpstreamId, VecDeque<i64>>::new();
        for (upstream, at) in store.heals_since(wall() - COUNTED).await? {
            heals.entry(upstream).or_default().push_back(at);
        }
        Ok(Self {
            journal: Journal::open(store, retention).await?,
            facts: broadcast::Sender::new(FACTS),
            heals: Mutex::new(heals),
        })
    }

    /// What happened by itself. Never waits.
    pub fn event(&self, event: Event) {
        self.count(&event);
        self.journal.note(Record::Event(event.clone()));
        // Nobody may be listening.
        let _ = self.facts.send(event);
    }

    /// What a person did: it is in the journal when this returns.
    pub async fn deed(&self, event: Event) {
        let _ = self.facts.send(event.clone());
        self.journal.keep(event).await;
    }

    /// A call that has ended. Never waits.
    pub fn invocation(&self, call: Invocation) {
        self.journal.note(Record::Invocation(call));
    }

    /// Every fact from now on, as it happens.
    pub fn facts(&self) -> broadcast::Receiver<Event> {
        self.facts.subscribe()
    }

    /// How often this upstream was healed or came back in the last 24 hours.
    pub fn heals(&self, upstream: UpstreamId) -> usize {
        let mut heals = lock(&self.heals);
        heals.get_mut(&upstream).map_or(0, |heals| {
            forget_old(heals);
            heals.len()
        })
    }

    fn count(&self, event: &Event) {
        if let (Some(id), Fact::Healed { .. } | Fact::Recovered { .. }) =
            (event.upstream_id, &event.fact)
        {
            let mut heals = lock(&self.heals);
            let heals = heals.entry(id).or_default();
            heals.push_back(event.at);
            forget_old(heals);
        }
    }
}

fn forget_old(heals: &mut VecDeque<i64>) {
    let since = wall() - COUNTED;
    while heals.front().is_some_and(|at| *at < since) {
        heals.pop_front();
    }
}
