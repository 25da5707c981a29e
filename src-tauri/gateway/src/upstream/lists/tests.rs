//! What one catalogue's place does, on a clock that is driven.

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
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|told| *told == fault())));
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
    assert_eq!((held.digest, Arc::strong_count(&held)), (digest, 1), "it is the holder's alone");
}
