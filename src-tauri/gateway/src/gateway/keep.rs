//! `resources/read` and its freshness: answered from what was kept where a modern upstream allowed
//! that, and told with what is left of it (design section 4.7).

use serde_json::value::RawValue;

use super::{Gateway, Route, hints::Merged};
use crate::{
    definition::Era,
    json::RawObject,
    upstream::{Upstream, hints::Hints, link::PROTOCOL_META},
};

/// Of an app's `_meta`, what has no part in what a resource holds.
const NEUTRAL_META: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];

impl Gateway {
    /// What was kept of this resource, as an app of this era is told it now.
    pub(super) fn kept(
        &self,
        route: &Route,
        app: Era,
        params: &RawObject,
    ) -> Option<Box<RawValue>> {
        let now = self.clock.now();
        let read = route.upstream.reads().find(&route.key, now).filter(|_| is_plain(params))?;
        if app == Era::Legacy {
            return Some(read.result);
        }
        let told = Merged { fresh: read.fresh, scope: read.scope }.told(now);
        told.written_to(&read.result)
    }

    /// The same route, whose result may be kept if its request is one that can be made again.
    pub(super) fn to_be_kept(route: Route, params: &RawObject) -> Route {
        let keep = is_plain(params).then(|| route.upstream.reads().begin());
        Route { keep, ..route }
    }

    /// Keeps a read's result where that is allowed. Returned as an app of this era is to be told it:
    /// a modern one with its upstream's hints if those are valid ones of the modern era, else with
    /// none; a legacy one as it came.
    pub fn keep(&self, route: &Route, app: Era, result: Box<RawValue>) -> Box<RawValue> {
        let Some(object) = complete(&result) else { return result };
        let hints = match era(&route.upstream) {
            Era::Modern => Hints::of(&object),
            Era::Legacy => Hints::NONE,
        };
        if let Some(ticket) = route.keep {
            route.upstream.reads().keep(ticket, &route.key, &result, hints, self.clock.now());
        }
        match app {
            Era::Modern => self.told_now(hints).written_to(&result).unwrap_or(result),
            Era::Legacy => result,
        }
    }
}

/// An answer. What asks for input is none yet, and carries no hints.
fn complete(result: &RawValue) -> Option<RawObject> {
    let object = RawObject::parse(result).ok()?;
    object.str("resultType").is_none_or(|kind| kind == "complete").then_some(object)
}

/// Only the URI decides what comes: no answers to an upstream's questions, nothing of an app's own.
fn is_plain(params: &RawObject) -> bool {
    let neutral = |key: &str| key.starts_with(PROTOCOL_META) || NEUTRAL_META.contains(&key);
    let meta = params.object("_meta").unwrap_or_default();
    params.iter().all(|(key, _)| matches!(key, "uri" | "_meta"))
        && meta.iter().all(|(key, _)| neutral(key))
}

fn era(upstream: &Upstream) -> Era {
    upstream.standing().hello.map_or(Era::Legacy, |hello| hello.era)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_more_than_its_uri_is_not_answered_from_what_was_kept() {
        let plain = |params: &str| is_plain(&serde_json::from_str(params).expect("an object"));
        assert!(plain(r#"{"uri":"a"}"#));
        assert!(plain(
            r#"{"uri":"a","_meta":{"progressToken":1,"io.modelcontextprotocol/clientInfo":{}}}"#
        ));
        for more in [
            r#"{"uri":"a","inputResponses":{}}"#,
            r#"{"uri":"a","requestState":"x"}"#,
            r#"{"uri":"a","range":"1-2"}"#,
            r#"{"uri":"a","_meta":{"example.com/user":"ada"}}"#,
        ] {
            assert!(!plain(more), "{more}");
        }
    }

    #[test]
    fn a_result_that_asks_for_input_is_neither_kept_nor_given_hints() {
        let is_complete = |text: &str| {
            let result: Box<RawValue> = serde_json::from_str(text).expect("json");
            complete(&result).is_some()
        };
        assert!(is_complete(r#"{"resultType":"complete","contents":[],"ttlMs":9}"#));
        assert!(is_complete(r#"{"contents":[]}"#), "as the legacy era has it");
        assert!(!is_complete(r#"{"resultType":"input_required","ttlMs":9,"inputRequests":{}}"#));
        assert!(!is_complete(r#"{"resultType":"task"}"#));
        assert!(!is_complete("[]"));
    }
}
