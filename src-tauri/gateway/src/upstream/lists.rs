//! The four catalogues of an upstream in memory: one read for many askers, stale on error only
//! (design section 4.4).

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};

use super::catalogue::{Catalogue, Fresh};
use crate::{
    api::Freshness,
    clock::{Clock, wall},
    fault::Fault,
    lock::lock,
};

/// A read under way or over, for all who wait for it.
pub type Reading = Shared<BoxFuture<'static, Outcome>>;
type Outcome = Result<Arc<Catalogue>, Fault>;

/// What ended a catalogue's freshness before its time (design section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The upstream said that its list changed.
    Told,
    /// It answered that it doesn't know what it listed.
    Suspected,
    /// The user asked for a fresh one.
    Refreshed,
    NewLink,
    /// Its notices of changes were not heard for a while.
    Interrupted,
}

impl Ended {
    /// Whether something speaks against the content itself, and not only for a look at it.
    pub const fn is_doubt(self) -> bool {
        matches!(self, Self::Told | Self::Suspected | Self::Refreshed)
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Told => "it said that its list changed",
            Self::Suspected => "it answered that it doesn't know what it listed",
            Self::Refreshed => "its user asked for a fresh list",
            Self::NewLink => "it was connected anew",
            Self::Interrupted => "its notices of changes were interrupted",
        }
    }
}

/// One catalogue's place. The lock is short: nobody holds it across a read.
#[derive(Default)]
pub struct List(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    /// The last good one.
    current: Option<Arc<Catalogue>>,
    read_at: i64,
    /// Why its freshness ended early, and when.
    ended: Option<(Ended, i64)>,
    /// What the last read failed with.
    fault: Option<(Fault, i64)>,
    /// Counts invalidations: a read that began before one never becomes the fresh value.
    generation: u64,
    reading: Option<UnderWay>,
    next_read: u64,
}

/// The newest read.
struct UnderWay {
    number: u64,
    /// The generation in which it asked; moves on while it still waits for a link.
    generation: u64,
    since: Instant,
    reading: Reading,
}

/// What an asker finds.
pub enum Found {
    Fresh(Arc<Catalogue>),
    /// Nothing fresh: wait for this. It began at the given time.
    Reading(Reading, Instant),
}

impl List {
    /// The fresh catalogue, or the read under way, or the one that `begin` starts.
    pub fn find(&self, clock: &Clock, begin: impl FnOnce(u64) -> Reading) -> Found {
        let mut slot = self.slot();
        if let Some(current) = slot.fresh(clock) {
            return Found::Fresh(current);
        }
        if let Some(read) = &slot.reading
            && read.generation == slot.generation
        {
            return Found::Reading(read.reading.clone(), read.since);
        }
        let (number, since) = (slot.next_read, Instant::now());
        slot.next_read += 1;
        let reading = begin(number);
        let generation = slot.generation;
        slot.reading = Some(UnderWay { number, generation, since, reading: reading.clone() });
        Found::Reading(reading, since)
    }

    /// The catalogue, if it is fresh. Starts nothing.
    pub fn fresh(&self, clock: &Clock) -> Option<Arc<Catalogue>> {
        self.slot().fresh(clock)
    }

    /// Puts in place what an earlier process read, if this one has read nothing yet.
    pub fn restore(&self, catalogue: Arc<Catalogue>, read_at: i64) {
        let mut slot = self.slot();
        if slot.current.is_none() {
            (slot.current, slot.read_at) = (Some(catalogue), read_at);
        }
    }

    /// The last good one and when it was read, unless something speaks against its content.
    pub fn undoubted(&self) -> Option<(Arc<Catalogue>, i64)> {
        let slot = self.slot();
        let doubted = slot.ended.is_some_and(|(ended, _)| ended.is_doubt());
        slot.current.clone().filter(|_| !doubted).map(|current| (current, slot.read_at))
    }

    /// A read has its link and is about to ask: what was invalidated before doesn't concern it.
    pub fn asks(&self, number: u64) -> u64 {
        let mut slot = self.slot();
        let generation = slot.generation;
        if let Some(read) = slot.reading.as_mut().filter(|read| read.number == number) {
            read.generation = generation;
        }
        generation
    }

    /// The last good one, fresh or not.
    pub fn last_good(&self) -> Option<Arc<Catalogue>> {
        self.slot().current.clone()
    }

    /// Whether the last read failed.
    pub fn fault(&self) -> Option<Fault> {
        self.slot().fault.as_ref().map(|(fault, _)| fault.clone())
    }

    /// Ends its freshness. It stays in place, to be served if a new read fails.
    pub fn invalidate(&self, ended: Ended) {
        let mut slot = self.slot();
        slot.generation += 1;
        // A doubt that nobody has looked into stays one, whatever comes after it.
        if slot.ended.is_none_or(|(before, _)| !before.is_doubt()) {
            slot.ended = Some((ended, wall()));
        }
    }

    /// Drops everything: the authorization context changed.
    pub fn clear(&self) {
        let mut slot = self.slot();
        let generation = slot.generation + 1;
        *slot = Slot { generation, next_read: slot.next_read, ..Slot::default() };
    }

    /// Takes the outcome of a read and the generation in which it asked.
    pub fn settle(&self, number: u64, generation: u64, outcome: &Outcome) {
        let mut slot = self.slot();
        slot.reading.take_if(|read| read.number == number);
        match outcome {
            Ok(catalogue) => {
                slot.current = Some(Arc::clone(catalogue));
                slot.read_at = wall();
                slot.fault = None;
                if generation == slot.generation {
                    slot.ended = None;
                }
            }
            Err(fault) => {
                let since = slot.fault.as_ref().map_or_else(wall, |(_, since)| *since);
                slot.fault = Some((fault.clone(), since));
            }
        }
    }

    /// For people: fresh, stale since when and why, unavailable, empty or unread.
    pub fn freshness(&self, clock: &Clock) -> Freshness {
        let slot = self.slot();
        let fault = slot.fault.as_ref().map(|(fault, since)| (fault.message.clone(), *since));
        let Some(current) = &slot.current else {
            return fault
                .map_or(Freshness::Unread, |(because, _)| Freshness::Unavailable { because });
        };
        let ended = || slot.ended.map(|(ended, since)| (ended.words().to_owned(), since));
        if let Some((because, since)) = fault.or_else(ended) {
            return Freshness::Stale { since, because };
        }
        let now = clock.now();
        match current.fresh {
            fresh if current.items.is_empty() && fresh.at(now) => Freshness::Empty,
            Fresh::UntilTold => Freshness::Fresh { until: None },
            Fresh::Until(deadline) if now < deadline => {
                let left = now.until(deadline).as_millis() as i64;
                Freshness::Fresh { until: Some(wall() + left) }
            }
            Fresh::Until(deadline) => Freshness::Stale {
                since: wall() - deadline.until(now).as_millis() as i64,
                because: "its time is over; the next need reads it anew".to_owned(),
            },
            Fresh::Never => Freshness::Stale {
                since: slot.read_at,
                because: "the upstream gives no time to keep it; each need reads it anew"
                    .to_owned(),
            },
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        lock(&self.0)
    }
}

impl Slot {
    fn fresh(&self, clock: &Clock) -> Option<Arc<Catalogue>> {
        let current = self.current.as_ref()?;
        let sound = self.ended.is_none() && self.fault.is_none();
        (sound && current.is_fresh(clock.now())).then(|| Arc::clone(current))
    }
}

/// Runs a read in a task of its own, so that an asker who gives up does not strand it.
pub fn spawn_reading(
    tracker: &tokio_util::task::TaskTracker,
    work: impl Future<Output = Outcome> + Send + 'static,
    lost: Fault,
) -> Reading {
    let task = tracker.spawn(work);
    async move { task.await.unwrap_or(Err(lost)) }.boxed().shared()
}

#[cfg(test)]
mod tests;
