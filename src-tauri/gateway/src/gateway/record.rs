//! Where facts go: into the journal, to people, and into what `status` counts.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::{broadcast, watch};
use tracing::warn;

use super::{
    Gateway,
    journal::{Journal, Retention},
    people::{Notice, People},
};
use crate::{
    clock::wall,
    events::{Entry, Event, Fact, Invocation, Record},
    lock::lock,
    names::UpstreamName,
    store::{JournalQuery, Store, StoreError, UpstreamId},
    upstream::Upstream,
};

/// How many facts may wait for whoever follows them.
const FACTS: usize = 1_024;
/// How many notices may wait for whoever shows them.
const NOTICES: usize = 64;
/// Heals are counted over this time, in milliseconds.
const COUNTED: i64 = 24 * 60 * 60 * 1000;

pub struct Recorder {
    pub journal: Journal,
    facts: broadcast::Sender<Event>,
    notices: broadcast::Sender<Notice>,
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
            notices: broadcast::Sender::new(NOTICES),
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

impl Gateway {
    /// A fact for the journal and for people. Never waits.
    pub fn record(&self, event: Event) {
        self.recorder.event(event);
    }

    /// Every fact from now on, as it happens.
    pub fn facts(&self) -> broadcast::Receiver<Event> {
        self.recorder.facts()
    }

    /// What people are to be told, from now on.
    pub fn subscribe_people(&self) -> broadcast::Receiver<Notice> {
        self.recorder.notices.subscribe()
    }

    pub(super) async fn tell_people(self: Arc<Self>, mut facts: broadcast::Receiver<Event>) {
        let mut people = People::default();
        let wanted = |upstream: &UpstreamName| {
            let tells = |upstream: &Arc<Upstream>| upstream.definition().settings.notifications;
            self.settings().notifications && self.upstream(upstream).as_ref().is_none_or(tells)
        };
        loop {
            let wait = people.due().map(|due| self.clock.now().until(due));
            tokio::select! {
                fact = facts.recv() => match fact {
                    Ok(event) => people.hear(self.clock.now(), &event),
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        warn!(missed, "too much happened at once; some of it is told to nobody");
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                },
                () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => {}
                () = self.ended.cancelled() => return,
            }
            if let Some(notice) = people.tell(self.clock.now(), wanted) {
                // Without a desktop nobody shows it.
                let _ = self.recorder.notices.send(notice);
            }
        }
    }

    pub async fn journal(&self, query: &JournalQuery) -> Result<Vec<Entry>, StoreError> {
        self.recorder.journal.read(query).await
    }

    /// The number of the journal's newest entry, as it grows.
    pub fn journal_written(&self) -> watch::Receiver<u64> {
        self.recorder.journal.written()
    }
}

fn forget_old(heals: &mut VecDeque<i64>) {
    let since = wall() - COUNTED;
    while heals.front().is_some_and(|at| *at < since) {
        heals.pop_front();
    }
}
