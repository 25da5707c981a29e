//! Reads that no app asked for: one after an invalidation, while anybody listens (design section
//! 4.4). Nobody polls, and the end of a catalogue's time alone starts nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::Gateway;
use crate::{
    capability::CapabilityType,
    lock::lock,
    store::UpstreamId,
    upstream::{Upstream, lists::Ended},
};

/// A catalogue is read unasked at most this often.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Some servers announce a change before they make it.
const TOO_EARLY: Duration = Duration::from_secs(2);
/// Who keeps announcing what didn't change is believed less and less: after so many reads for
/// nothing, one after the other, each further one waits twice as long …
const PATIENCE: u32 = 2;
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

type Place = (UpstreamId, CapabilityType);

/// Which catalogues wait to be read.
#[derive(Default)]
pub struct Unasked {
    turns: Mutex<HashMap<Place, Turn>>,
}

/// One catalogue's turn. While `wanted` is there, a task sees to it.
#[derive(Default)]
struct Turn {
    last: Option<Instant>,
    /// How many announcements in a row led to nothing new.
    for_nothing: u32,
    wanted: Option<Wanted>,
    tended: bool,
    /// `wanted` has changed.
    look: Arc<Notify>,
}

#[derive(Clone, Copy)]
struct Wanted {
    at: Instant,
    why: Why,
    /// The content when it was invalidated.
    before: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Ended(Ended),
    /// It was announced, and nothing differed.
    OnceMore,
}

impl Turn {
    /// When it may be read, if that is wanted now.
    fn earliest(&self) -> Instant {
        self.last.map_or_else(Instant::now, |last| last + pause(self.for_nothing))
    }

    fn want(&mut self, why: Why, before: Option<u64>, not_before: Instant) {
        let at = self.earliest().max(not_before);
        let kept = self.wanted.take_if(|wanted| {
            // An announcement asks for more than a look, so it is the one to be remembered.
            matches!(wanted.why, Why::Ended(Ended::Told)) || wanted.at <= at && why == Why::OnceMore
        });
        self.wanted = Some(match kept {
            Some(kept) => Wanted { at: kept.at.min(at), ..kept },
            None => Wanted { at, why, before },
        });
    }

    /// After a read.
    fn learn(&mut self, wanted: Wanted, after: Option<u64>) {
        if wanted.before != after {
            self.for_nothing = 0;
        } else if wanted.why != Why::Ended(Ended::NewLink) {
            self.for_nothing = self.for_nothing.saturating_add(1);
        }
        let told = wanted.why == Why::Ended(Ended::Told);
        if told && wanted.before == after {
            self.want(Why::OnceMore, after, Instant::now() + TOO_EARLY);
        }
    }
}

fn pause(for_nothing: u32) -> Duration {
    let doublings = for_nothing.saturating_sub(PATIENCE).min(8);
    (READ_EVERY * 2_u32.pow(doublings)).min(LONGEST_PAUSE)
}

impl Gateway {
    /// Reads these catalogues once while any app listens.
    pub(super) fn read_unasked(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        kinds: &[CapabilityType],
        ended: Ended,
    ) {
        if self.listeners.is_empty() {
            return;
        }
        for kind in kinds {
            let place = (upstream.id, *kind);
            let mut turns = lock(&self.unasked.turns);
            let turn = turns.entry(place).or_default();
            turn.want(Why::Ended(ended), digest(upstream, *kind), Instant::now());
            turn.look.notify_one();
            if !std::mem::replace(&mut turn.tended, true) {
                let gateway = Arc::clone(self);
                self.tasks.spawn(async move {
                    tokio::select! {
                        () = gateway.tend(place) => {}
                        () = gateway.ended.cancelled() => {}
                    }
                });
            }
        }
    }

    /// Sees to one catalogue until nothing is wanted of it.
    async fn tend(&self, place: Place) {
        while let Some((at, look)) = self.next_turn(place) {
            tokio::select! {
                () = sleep_until(at) => {}
                // It may be wanted earlier now.
                () = look.notified() => continue,
            }
            let Some(wanted) = self.take_turn(place) else { continue };
            // One that was removed, or replaced by another definition, is nobody's to read.
            let Some(upstream) = self.by_id(place.0).filter(|upstream| upstream.is_enabled())
            else {
                continue;
            };
            if wanted.why == Why::OnceMore {
                upstream.invalidate(&[place.1], Ended::Told);
            }
            upstream.read_unasked(place.1).await;
            let after = digest(&upstream, place.1);
            if let Some(turn) = lock(&self.unasked.turns).get_mut(&place) {
                turn.learn(wanted, after);
            }
        }
    }

    fn next_turn(&self, place: Place) -> Option<(Instant, Arc<Notify>)> {
        let mut turns = lock(&self.unasked.turns);
        let turn = turns.get_mut(&place)?;
        let Some(wanted) = turn.wanted else {
            turn.tended = false;
            return None;
        };
        Some((wanted.at, Arc::clone(&turn.look)))
    }

    fn take_turn(&self, place: Place) -> Option<Wanted> {
        let mut turns = lock(&self.unasked.turns);
        let turn = turns.get_mut(&place)?;
        let wanted = turn.wanted.take()?;
        turn.last = Some(Instant::now());
        Some(wanted)
    }
}

fn digest(upstream: &Upstream, kind: CapabilityType) -> Option<u64> {
    upstream.last_good(kind).map(|catalogue| catalogue.digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads whenever a turn comes, as `tend` does; each read finds `after`.
    async fn read(turn: &mut Turn, after: u64) -> Duration {
        let wanted = turn.wanted.take().expect("it is wanted");
        sleep_until(wanted.at).await;
        let now = Instant::now();
        let since = turn.last.replace(now).map_or(Duration::ZERO, |last| now - last);
        turn.learn(wanted, Some(after));
        since
    }

    fn announce(turn: &mut Turn) {
        turn.want(Why::Ended(Ended::Told), Some(1), Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_costs_one_read_a_second() {
        let mut turn = Turn::default();
        announce(&mut turn);
        assert_eq!(read(&mut turn, 2).await, Duration::ZERO, "the first at once");
        for _ in 0..1_000 {
            announce(&mut turn);
        }
        assert_eq!(read(&mut turn, 2).await, READ_EVERY);
        assert!(turn.wanted.is_none(), "all of them by one read");
    }

    #[tokio::test(start_paused = true)]
    async fn what_did_not_differ_is_looked_at_once_more_and_only_once() {
        let mut turn = Turn::default();
        announce(&mut turn);
        read(&mut turn, 1).await;
        assert_eq!(read(&mut turn, 1).await, TOO_EARLY);
        assert!(turn.wanted.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_announcement_is_looked_at_once_more() {
        for ended in [Ended::NewLink, Ended::Suspected, Ended::Interrupted] {
            let mut turn = Turn::default();
            turn.want(Why::Ended(ended), Some(1), Instant::now());
            read(&mut turn, 1).await;
            assert!(turn.wanted.is_none(), "{ended:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn announcements_for_nothing_are_believed_less_and_less_until_one_is_true() {
        let mut turn = Turn::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            announce(&mut turn);
            pauses.push(read(&mut turn, 1).await.as_secs());
        }
        assert_eq!(pauses, [0, 1, 1, 2, 4, 8, 16, 30, 30]);
        announce(&mut turn);
        read(&mut turn, 2).await;
        announce(&mut turn);
        assert_eq!(read(&mut turn, 1).await, READ_EVERY);
    }

    #[tokio::test(start_paused = true)]
    async fn an_announcement_after_a_quiet_while_is_read_at_once() {
        let mut turn = Turn { for_nothing: 9, last: Some(Instant::now()), ..Turn::default() };
        tokio::time::sleep(Duration::from_mins(1)).await;
        announce(&mut turn);
        assert!(turn.wanted.is_some_and(|wanted| wanted.at <= Instant::now()));
    }
}
