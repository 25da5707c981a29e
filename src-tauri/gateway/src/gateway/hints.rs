//! What modern apps are told of an answer's freshness (design section 4.6): what is left, of the
//! least that went into it.

use std::time::Duration;

use futures::future::join_all;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{Gateway, View};
use crate::{
    clock::Moment,
    json::{RawObject, raw},
    upstream::{
        catalogue::{Fresh, Scope},
        hints::Hints,
    },
};

/// Apps are told to keep nothing longer than this: the user may toggle at any time.
const LONGEST_TOLD: Duration = Duration::from_mins(5);

/// How long an app's first request may wait for a slow upstream's words about itself.
const GREETING: Duration = Duration::from_secs(1);

/// The freshness and the scope of all that went into one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    pub fresh: Fresh,
    pub scope: Scope,
}

/// As an app reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldHints {
    pub ttl_ms: u64,
    pub scope: Scope,
}

/// Of an answer that nothing went into: only the user can change it.
impl Default for Merged {
    fn default() -> Self {
        Self { fresh: Fresh::UntilTold, scope: Scope::Public }
    }
}

impl Merged {
    #[must_use]
    pub fn with(self, fresh: Fresh, scope: Scope) -> Self {
        Self { fresh: self.fresh.and(fresh), scope: self.scope.and(scope) }
    }

    pub fn told(self, now: Moment) -> ToldHints {
        let left = match self.fresh {
            Fresh::Until(deadline) => now.until(deadline),
            Fresh::UntilTold => LONGEST_TOLD,
            Fresh::Never => Duration::ZERO,
        };
        ToldHints { ttl_ms: left.min(LONGEST_TOLD).as_millis() as u64, scope: self.scope }
    }
}

impl ToldHints {
    /// The same result with these hints in the place of its own.
    pub fn written_to(self, result: &RawValue) -> Option<Box<RawValue>> {
        let mut object = RawObject::parse(result).ok()?;
        object.set("ttlMs", raw(&self.ttl_ms));
        object.set("cacheScope", raw(self.scope.word()));
        Some(object.to_raw())
    }
}

impl Gateway {
    /// What modern apps are told of `server/discover`: it holds what the upstreams of the view say
    /// of themselves. One whose time is over is asked again, for a moment.
    pub async fn introductions(&self, view: &View) -> ToldHints {
        let patience = self.settings().list_budget.min(GREETING);
        let asked = self.visible(view).into_iter().map(|upstream| async move {
            if upstream.is_up() {
                // What can't be had anew is told as it was, and as stale.
                let _ = timeout(patience, upstream.introduction_now()).await;
            }
            upstream.introduction()
        });
        let merged =
            join_all(asked).await.into_iter().fold(
                Merged::default(),
                |merged, known| match known {
                    Some((hello, fresh)) => merged.with(fresh, hello.hints.scope),
                    None => merged.with(Fresh::Never, Scope::Private),
                },
            );
        merged.told(self.clock.now())
    }

    /// What an app is told of a result that has just come and goes straight on.
    pub(super) fn told_now(&self, hints: Hints) -> ToldHints {
        let now = self.clock.now();
        Merged { fresh: Fresh::of(hints, now), scope: hints.scope }.told(now)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Scope::{Private, Public},
        *,
    };
    use crate::clock::Clock;

    #[test]
    fn the_least_that_is_left_and_the_narrowest_scope_are_told() {
        let now = Clock::default().now();
        let until = |seconds| Fresh::Until(now.after(Duration::from_secs(seconds)));
        let told = |parts: &[(Fresh, Scope)]| {
            let merged = parts
                .iter()
                .fold(Merged::default(), |merged, (fresh, scope)| merged.with(*fresh, *scope));
            let told = merged.told(now);
            (told.ttl_ms, told.scope)
        };
        assert_eq!(told(&[]), (300_000, Public), "nobody is asked, so only the user changes it");
        assert_eq!(told(&[(until(9), Public), (until(7), Public)]), (7_000, Public));
        assert_eq!(told(&[(until(9), Public), (until(7), Private)]), (7_000, Private));
        assert_eq!(told(&[(until(9), Public), (Fresh::Never, Public)]), (0, Public));
        assert_eq!(told(&[(until(3_600), Public)]), (300_000, Public), "at most five minutes");
        assert_eq!(told(&[(Fresh::UntilTold, Private)]), (300_000, Private));
        let over = Merged::default().with(until(1), Public);
        assert_eq!(over.told(now.after(Duration::from_secs(2))).ttl_ms, 0);
    }

    #[test]
    fn hints_take_the_place_of_a_results_own_and_nothing_else_changes() {
        let hints = ToldHints { ttl_ms: 7, scope: Scope::Private };
        let write = |text: &str| {
            let result: Box<RawValue> = serde_json::from_str(text).expect("json");
            hints.written_to(&result).expect("an object").get().to_owned()
        };
        assert_eq!(
            write(r#"{"ttlMs":"60","contents":[1.0],"cacheScope":7}"#),
            r#"{"ttlMs":7,"contents":[1.0],"cacheScope":"private"}"#
        );
        assert_eq!(write("{}"), r#"{"ttlMs":7,"cacheScope":"private"}"#);
    }
}
