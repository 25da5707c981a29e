//! Results of `resources/read` that a modern upstream allows to be used again (design section 4.7).
//!
//! They belong to one upstream as it is defined now: another definition, and with it another
//! authorization context, begins with none.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use serde_json::value::RawValue;

use super::{
    catalogue::{Fresh, Scope},
    hints::Hints,
};
use crate::{clock::Moment, lock::lock};

/// What all of them may take together, and one of them, in bytes.
const ALL: usize = 16 << 20;
const ONE: usize = 2 << 20;
/// How many there may be.
const COUNT: usize = 1_000;

#[derive(Default)]
pub struct Reads(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_uri: HashMap<String, Read>,
    bytes: usize,
    /// Counts what ended any of them: a read that began before it is not kept after it.
    generation: u64,
}

/// One result that may be used again.
#[derive(Clone, Debug)]
pub struct Read {
    pub result: Box<RawValue>,
    pub fresh: Fresh,
    pub scope: Scope,
}

/// Given out when a read begins, and shown when its result is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Reads {
    /// A result that is fresh now.
    pub fn find(&self, uri: &str, now: Moment) -> Option<Read> {
        self.kept().by_uri.get(uri).filter(|read| read.fresh.at(now)).cloned()
    }

    pub fn begin(&self) -> Ticket {
        Ticket(self.kept().generation)
    }

    /// Keeps a complete result, if its hints allow that and nothing has ended it meanwhile.
    pub fn keep(&self, ticket: Ticket, uri: &str, result: &RawValue, hints: Hints, now: Moment) {
        let bytes = result.get().len();
        let mut kept = self.kept();
        if hints.positive_ttl().is_none() || ticket.0 != kept.generation || bytes > ONE {
            return;
        }
        kept.remove(uri);
        kept.make_room(bytes, now);
        kept.bytes += bytes;
        let read =
            Read { result: result.to_owned(), fresh: Fresh::of(hints, now), scope: hints.scope };
        kept.by_uri.insert(uri.to_owned(), read);
    }

    /// The upstream said that this resource was updated. It may be a part of one that was read
    /// (protocol 2026-07-28, "Resources").
    pub fn updated(&self, uri: &str) {
        let mut kept = self.kept();
        kept.generation += 1;
        let gone: Vec<_> =
            kept.by_uri.keys().filter(|read| uri.starts_with(read.as_str())).cloned().collect();
        for uri in gone {
            kept.remove(&uri);
        }
    }

    /// Ends all of them.
    pub fn clear(&self) {
        let mut kept = self.kept();
        *kept = Kept { generation: kept.generation + 1, ..Kept::default() };
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0)
    }
}

impl Kept {
    fn remove(&mut self, uri: &str) {
        if let Some(read) = self.by_uri.remove(uri) {
            self.bytes -= read.result.get().len();
        }
    }

    /// What is over goes first, then what would be over soonest.
    fn make_room(&mut self, bytes: usize, now: Moment) {
        let over: Vec<_> = (self.by_uri.iter())
            .filter(|(_, read)| !read.fresh.at(now))
            .map(|(uri, _)| uri.clone())
            .collect();
        for uri in over {
            self.remove(&uri);
        }
        while self.bytes + bytes > ALL || self.by_uri.len() >= COUNT {
            let soonest = self.by_uri.iter().min_by_key(|(_, read)| read.fresh.deadline());
            let Some(uri) = soonest.map(|(uri, _)| uri.clone()) else { return };
            self.remove(&uri);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;

    const HOUR: Hints = Hints { ttl: Some(Duration::from_hours(1)), scope: Scope::Public };

    fn result(bytes: usize) -> Box<RawValue> {
        crate::json::raw(&"x".repeat(bytes))
    }

    #[test]
    fn only_what_has_a_time_is_kept_and_only_for_that_time() {
        let (reads, now) = (Reads::default(), Clock::default().now());
        for ttl in [None, Some(Duration::ZERO)] {
            reads.keep(reads.begin(), "a", &result(1), Hints { ttl, ..HOUR }, now);
            assert!(reads.find("a", now).is_none(), "{ttl:?}");
        }
        reads.keep(reads.begin(), "a", &result(1), HOUR, now);
        assert!(reads.find("a", now).is_some());
        assert!(reads.find("b", now).is_none());
        assert!(reads.find("a", now.after(Duration::from_hours(1))).is_none());
    }

    #[test]
    fn a_read_that_began_before_an_update_is_not_kept_after_it() {
        let (reads, now) = (Reads::default(), Clock::default().now());
        let ticket = reads.begin();
        reads.updated("a");
        reads.keep(ticket, "a", &result(1), HOUR, now);
        assert!(reads.find("a", now).is_none());
        let ticket = reads.begin();
        reads.clear();
        reads.keep(ticket, "a", &result(1), HOUR, now);
        assert!(reads.find("a", now).is_none());
    }

    #[test]
    fn an_update_drops_that_resource_and_those_that_it_is_a_part_of() {
        let (reads, now) = (Reads::default(), Clock::default().now());
        for uri in ["file:///d", "file:///d/x", "file:///e"] {
            reads.keep(reads.begin(), uri, &result(1), HOUR, now);
        }
        reads.updated("file:///d/x");
        assert!(reads.find("file:///d", now).is_none());
        assert!(reads.find("file:///d/x", now).is_none());
        assert!(reads.find("file:///e", now).is_some());
    }

    #[test]
    fn memory_is_bounded() {
        let (reads, now) = (Reads::default(), Clock::default().now());
        reads.keep(reads.begin(), "huge", &result(ONE), HOUR, now);
        assert!(reads.find("huge", now).is_none());
        for number in 0..20 {
            reads.keep(reads.begin(), &number.to_string(), &result(ONE - 10), HOUR, now);
        }
        assert!(reads.kept().bytes <= ALL);
        reads.clear();
        for number in 0..COUNT + 20 {
            reads.keep(reads.begin(), &number.to_string(), &result(1), HOUR, now);
        }
        assert_eq!(reads.kept().by_uri.len(), COUNT);
    }
}
