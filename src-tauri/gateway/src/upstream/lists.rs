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
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        capability::CapabilityType,
        definition::{Era, LegacyTtl},
        names::{NameLimit, UpstreamName},
        upstream::catalogue::{Pages, Reader},
    };

    fn clock() -> (Clock, Arc<AtomicU64>) {
        let now = Arc::new(AtomicU64::new(1_000_000));
        (Clock::Driven(Arc::clone(&now)), now)
    }

    /// A legacy catalogue, fresh for a minute.
    fn read_at(clock: &Clock) -> Arc<Catalogue> {
        let reader = Reader {
            kind: CapabilityType::Tool,
            upstream: UpstreamName::parse("up").expect("a valid name"),
            name_limit: NameLimit::default(),
            era: Era::Legacy,
            legacy_ttl: LegacyTtl::default(),
        };
        Arc::new(Pages::new(reader).into_catalogue(clock.now()))
    }

    fn fault() -> Fault {
        Fault::unavailable(&UpstreamName::parse("up").expect("a valid name"), "it broke")
    }

    /// A read that ends when told to.
    fn pending() -> (oneshot::Sender<Outcome>, Reading) {
        let (end, outcome) = oneshot::channel();
        let reading = async move { outcome.await.unwrap_or_else(|_| Err(fault())) };
        (end, reading.boxed().shared())
    }

    fn is_fresh(list: &List, clock: &Clock) -> bool {
        match list.find(clock, |_| pending().1) {
            Found::Fresh(_) => true,
            Found::Reading(..) => false,
        }
    }

    #[tokio::test]
    async fn fifty_askers_share_one_read_and_its_failure() {
        let (list, (clock, _)) = (List::default(), clock());
        let (end, reading) = pending();
        let mut reads = 0;
        let askers: Vec<Reading> = (0..50)
            .map(|_| {
                match list.find(&clock, |_| {
                    reads += 1;
                    reading.clone()
                }) {
                    Found::Reading(reading, _) => reading,
                    Found::Fresh(_) => panic!("nothing was read yet"),
                }
            })
            .collect();
        end.send(Err(fault())).expect("somebody waits");
        let outcomes = futures::future::join_all(askers).await;
        assert_eq!(reads, 1);
        assert!(
            outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|told| *told == fault()))
        );
    }

    #[test]
    fn what_was_read_is_fresh_for_its_time_on_a_clock_that_counts_sleep() {
        let (list, (clock, now)) = (List::default(), clock());
        list.settle(0, list.asks(0), &Ok(read_at(&clock)));
        assert!(is_fresh(&list, &clock));
        now.fetch_add(59_999, Ordering::SeqCst);
        assert!(is_fresh(&list, &clock), "a moment before its deadline");
        now.fetch_add(1, Ordering::SeqCst);
        assert!(!is_fresh(&list, &clock), "the deadline is a hard one");
    }

    #[test]
    fn a_read_that_asked_before_an_invalidation_never_becomes_the_fresh_value() {
        let (list, (clock, _)) = (List::default(), clock());
        let Found::Reading(..) = list.find(&clock, |_| pending().1) else { panic!("unread") };
        let generation = list.asks(0);
        list.invalidate(Ended::Told);
        list.settle(0, generation, &Ok(read_at(&clock)));
        assert!(!is_fresh(&list, &clock));
        assert!(list.last_good().is_some(), "it may be served if nothing newer can be had");
    }

    #[test]
    fn a_read_that_still_waits_for_its_link_is_not_outdated_by_that_link() {
        let (list, (clock, _)) = (List::default(), clock());
        let Found::Reading(_, began) = list.find(&clock, |_| pending().1) else { panic!("unread") };
        list.invalidate(Ended::NewLink);
        let generation = list.asks(0);
        let Found::Reading(_, joined) = list.find(&clock, |_| panic!("a second read")) else {
            panic!("still being read");
        };
        assert_eq!(began, joined, "the later asker joins the read that waited");
        list.settle(0, generation, &Ok(read_at(&clock)));
        assert!(is_fresh(&list, &clock));
    }

    #[test]
    fn a_failed_read_keeps_the_last_good_one_and_says_since_when_it_is_stale() {
        let (list, (clock, _)) = (List::default(), clock());
        list.settle(0, list.asks(0), &Ok(read_at(&clock)));
        list.settle(1, list.asks(1), &Err(fault()));
        assert!(!is_fresh(&list, &clock), "an error is never taken for an answer");
        assert!(list.last_good().is_some());
        assert!(
            matches!(list.freshness(&clock), Freshness::Stale { because, .. } if because == fault().message)
        );
    }

    #[test]
    fn what_was_never_read_well_is_unavailable_and_not_empty() {
        let (list, (clock, _)) = (List::default(), clock());
        list.settle(0, list.asks(0), &Err(fault()));
        assert_eq!(list.freshness(&clock), Freshness::Unavailable { because: fault().message });
        assert!(list.last_good().is_none());
    }

    #[test]
    fn a_person_is_told_whether_it_is_fresh_stale_empty_or_unread_and_why() {
        let (list, (clock, now)) = (List::default(), clock());
        assert_eq!(list.freshness(&clock), Freshness::Unread);
        list.settle(0, list.asks(0), &Ok(read_at(&clock)));
        assert_eq!(list.freshness(&clock), Freshness::Empty, "read well, and nothing in it");
        now.fetch_add(61_000, Ordering::SeqCst);
        let Freshness::Stale { since, because } = list.freshness(&clock) else { panic!("stale") };
        let age = wall() - since;
        assert!((900..60_000).contains(&age), "since its deadline, not since it was read: {age}");
        assert!(because.contains("time is over"), "{because}");
        list.settle(1, list.asks(1), &Ok(read_at(&clock)));
        list.invalidate(Ended::Told);
        assert!(
            matches!(list.freshness(&clock), Freshness::Stale { because, .. } if because.contains("changed"))
        );
    }

    #[test]
    fn what_was_kept_on_disk_takes_the_place_of_nothing_only() {
        let (list, (clock, now)) = (List::default(), clock());
        list.restore(read_at(&clock), 7);
        assert!(is_fresh(&list, &clock));
        let live = read_at(&clock);
        list.settle(0, list.asks(0), &Ok(Arc::clone(&live)));
        list.restore(read_at(&clock), 7);
        assert!(list.last_good().is_some_and(|current| Arc::ptr_eq(&current, &live)));
        now.fetch_add(60_000, Ordering::SeqCst);
        assert!(!is_fresh(&list, &clock), "a deadline is a deadline");
    }

    #[test]
    fn a_doubt_outlives_a_new_link_until_somebody_looks() {
        let (list, (clock, _)) = (List::default(), clock());
        list.settle(0, list.asks(0), &Ok(read_at(&clock)));
        list.invalidate(Ended::NewLink);
        assert!(list.undoubted().is_some(), "a new link says nothing against the content");
        list.invalidate(Ended::Told);
        list.invalidate(Ended::NewLink);
        assert!(list.undoubted().is_none());
        list.settle(1, list.asks(1), &Ok(read_at(&clock)));
        assert!(list.undoubted().is_some());
    }

    #[test]
    fn who_holds_an_older_list_keeps_it_whole_and_unchanged() {
        let (list, (clock, _)) = (List::default(), clock());
        list.settle(0, list.asks(0), &Ok(read_at(&clock)));
        let held = list.last_good().expect("read");
        let digest = held.digest;
        list.settle(1, list.asks(1), &Ok(read_at(&clock)));
        list.clear();
        assert!(list.last_good().is_none());
        assert_eq!(
            (held.digest, Arc::strong_count(&held)),
            (digest, 1),
            "it is the holder's alone"
        );
    }
}
