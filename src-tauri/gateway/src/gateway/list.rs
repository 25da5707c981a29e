//! What an app sees: the catalogues of all enabled upstreams, less what the user switched off.

use std::{
    collections::HashMap,
    fmt::Write as _,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{Asker, Gateway, View, hints::Merged, uri};
use crate::{
    capability::CapabilityType,
    definition::Era,
    fault::{Code, Fault},
    json::raw,
    upstream::{
        Upstream,
        catalogue::{Catalogue, Fresh, Item, Scope},
        lists::Found,
    },
};

/// One upstream's part in a list.
struct Share {
    upstream: Arc<Upstream>,
    catalogue: Option<Arc<Catalogue>>,
    /// Until when. Told as what is left of it when the answer goes out, however long the others took.
    fresh: Fresh,
    /// Why it is missing.
    fault: Option<Fault>,
}

/// An answer to a list request.
pub struct Listed {
    pub result: Box<RawValue>,
    pub items: usize,
    /// Of all pages, as the app sees it now.
    pub digest: u64,
}

/// Why there is no answer.
pub enum NotListed {
    /// The cursor isn't one of ours.
    BadCursor,
    /// The only upstream of this view can't give it.
    Fault(Fault),
}

/// How many items on either side of a page's end still tell where it was if others have gone.
const ANCHORS: usize = 4;

/// Where the next page begins. A list may change between two pages, so this tells it by the items
/// around that place; only if all of them have gone, by a number.
#[derive(Serialize, Deserialize)]
struct Cursor {
    /// The items before it, nearest first, as hashes.
    before: Vec<u64>,
    /// The items from it on.
    after: Vec<u64>,
    /// The upstreams that follow the one whose item it is.
    later: Vec<i64>,
    index: usize,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok()
    }

    /// Of the place before `shown[at]`.
    fn at(shown: &[Shown], at: usize) -> Self {
        let mut later: Vec<i64> = Vec::new();
        for item in &shown[at..] {
            if later.last() != Some(&item.upstream.id.0) && later.len() <= ANCHORS {
                later.push(item.upstream.id.0);
            }
        }
        Self {
            before: shown[..at].iter().rev().take(ANCHORS).map(Shown::mark).collect(),
            after: shown[at..].iter().take(ANCHORS).map(Shown::mark).collect(),
            later,
            index: at,
        }
    }

    fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(raw(self).get())
    }
}

/// One visible item with the name that the app sees.
struct Shown<'a> {
    upstream: &'a Arc<Upstream>,
    item: &'a Item,
    exposed: Option<String>,
}

impl Gateway {
    /// Never fails because of one upstream, and waits for none longer than the list budget.
    pub async fn list(
        &self,
        asker: &Asker,
        kind: CapabilityType,
        cursor: Option<&str>,
    ) -> Result<Listed, NotListed> {
        let cursor = match cursor.map(Cursor::parse) {
            Some(None) => return Err(NotListed::BadCursor),
            cursor => cursor.flatten(),
        };
        let upstreams = self.visible(&asker.view);
        if let (View::One(name), []) = (&asker.view, &upstreams[..]) {
            return Err(NotListed::Fault(Fault::new(
                Code::CapabilityDisabled,
                Some(name),
                format!("{name} is disabled in Traygate; its user can enable it there"),
            )));
        }
        if let (View::One(_), [upstream]) = (&asker.view, &upstreams[..]) {
            upstream.hurry();
        }
        let budget = self.settings().list_budget;
        let shares =
            join_all(upstreams.into_iter().map(|upstream| share(upstream, kind, budget))).await;
        if let (View::One(_), [Share { catalogue: None, fault: Some(fault), .. }]) =
            (&asker.view, &shares[..])
        {
            return Err(NotListed::Fault(fault.clone()));
        }
        Ok(self.answer(asker, kind, cursor.as_ref(), &shares))
    }

    /// What the app sees now, as one number: it differs when a name, a description or a schema
    /// does. Looks at what is known; reads nothing.
    pub fn digest(&self, view: &View, kind: CapabilityType) -> u64 {
        let shares: Vec<_> = (self.visible(view).into_iter())
            .map(|upstream| Share {
                catalogue: upstream.last_good(kind),
                fresh: Fresh::Never,
                fault: None,
                upstream,
            })
            .collect();
        digest(&self.shown(view, kind, &shares))
    }

    /// The enabled upstreams of a view, in the user's order.
    pub(super) fn visible(&self, view: &View) -> Vec<Arc<Upstream>> {
        let mut upstreams = self.upstreams();
        upstreams.retain(|upstream| {
            upstream.is_enabled()
                && match view {
                    View::All => true,
                    View::One(name) => upstream.name == *name,
                }
        });
        upstreams
    }

    fn answer(
        &self,
        asker: &Asker,
        kind: CapabilityType,
        cursor: Option<&Cursor>,
        shares: &[Share],
    ) -> Listed {
        let shown = self.shown(&asker.view, kind, shares);
        let begin = cursor.map_or(0, |cursor| place(&shown, cursor));
        let end = (begin + self.settings().list_page).min(shown.len());
        let page = &shown[begin..end];

        let mut out = String::with_capacity(
            64 + page.iter().map(|s| s.item.raw.get().len() + 32).sum::<usize>(),
        );
        if asker.era == Era::Modern {
            out.push_str("{\"resultType\":\"complete\",\"");
        } else {
            out.push_str("{\"");
        }
        out.push_str(kind.list_member());
        out.push_str("\":[");
        for (at, shown) in page.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            shown.write(asker.era, &mut out);
        }
        out.push(']');
        if end < shown.len() {
            out.push_str(",\"nextCursor\":");
            out.push_str(raw(&Cursor::at(&shown, end).encode()).get());
        }
        if asker.era == Era::Modern {
            let hints = hints(shares).told(self.clock.now());
            // Writing to a text can't fail.
            let _ = write!(
                out,
                ",\"ttlMs\":{},\"cacheScope\":\"{}\"",
                hints.ttl_ms,
                hints.scope.word()
            );
        }
        let missing: Vec<_> = shares.iter().filter_map(|share| share.fault.as_ref()).collect();
        if !missing.is_empty() {
            let missing: Vec<_> = missing
                .iter()
                .map(|fault| serde_json::json!({ "upstream": fault.upstream, "code": fault.code, "reason": fault.message }))
                .collect();
            out.push_str(",\"_meta\":{\"traygate/unavailable\":");
            out.push_str(raw(&missing).get());
            out.push('}');
        }
        out.push('}');
        Listed {
            result: RawValue::from_string(out).expect("slices of JSON, put together as JSON"),
            items: shown.len(),
            digest: digest(&shown),
        }
    }

    fn shown<'a>(&self, view: &View, kind: CapabilityType, shares: &'a [Share]) -> Vec<Shown<'a>> {
        let doubled = match (view, kind) {
            (View::All, CapabilityType::Resource | CapabilityType::Template) => doubled(shares),
            _ => HashMap::new(),
        };
        let mut shown = Vec::new();
        for Share { upstream, catalogue, .. } in shares {
            let policy = upstream.definition().settings.auto_enable_new_capabilities;
            for item in catalogue.iter().flat_map(|catalogue| &catalogue.items) {
                if !self.preferences().is_enabled(upstream.id, kind, &item.key, policy) {
                    continue;
                }
                let exposed = match (view, &item.exposed) {
                    (View::All, Some(name)) => Some(name.as_str().to_owned()),
                    (View::All, None) if doubled.get(item.key.as_str()).is_some_and(|n| *n > 1) => {
                        Some(uri::expose(&upstream.name, &item.key))
                    }
                    _ => None,
                };
                shown.push(Shown { upstream, item, exposed });
            }
        }
        shown
    }
}

impl Shown<'_> {
    /// Which item of which upstream it is, whatever it looks like now.
    fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.upstream.id, &self.item.key).hash(&mut hasher);
        hasher.finish()
    }

    fn write(&self, era: Era, out: &mut String) {
        let simplified = if era == Era::Legacy { self.item.without_modern_output() } else { None };
        let item = simplified.as_ref().unwrap_or(self.item);
        match &self.exposed {
            Some(exposed) => item.write_as(exposed, out),
            None => out.push_str(item.raw.get()),
        }
    }
}

async fn share(upstream: Arc<Upstream>, kind: CapabilityType, budget: Duration) -> Share {
    if let Some(catalogue) = upstream.fresh(kind) {
        return fresh(upstream, catalogue);
    }
    // One that is known to be down costs nothing; its retries go on by themselves.
    if upstream.is_down() {
        return stale(upstream, kind);
    }
    let (reading, begun) = match upstream.find(kind) {
        Found::Fresh(catalogue) => return fresh(upstream, catalogue),
        Found::Reading(reading, begun) => (reading, begun),
    };
    // Nobody waits for a read that has already outlived one budget.
    let left = budget.saturating_sub(begun.elapsed());
    if left.is_zero() {
        return stale(upstream, kind);
    }
    match timeout(left, reading).await {
        Ok(Ok(catalogue)) => fresh(upstream, catalogue),
        Ok(Err(fault)) => {
            let mut share = stale(upstream, kind);
            // The read's own fault says more than the state. It is told only where nothing can be
            // shown.
            share.fault = share.fault.map(|_| fault);
            share
        }
        Err(_) => stale(upstream, kind),
    }
}

fn fresh(upstream: Arc<Upstream>, catalogue: Arc<Catalogue>) -> Share {
    Share { upstream, fresh: catalogue.fresh, catalogue: Some(catalogue), fault: None }
}

/// The last good catalogue, or why there is none.
fn stale(upstream: Arc<Upstream>, kind: CapabilityType) -> Share {
    let catalogue = upstream.last_good(kind);
    let fault = catalogue.is_none().then(|| upstream.fault());
    Share { upstream, catalogue, fresh: Fresh::Never, fault }
}

/// How fresh the answer is, and for whom.
fn hints(shares: &[Share]) -> Merged {
    shares.iter().fold(Merged::default(), |merged, share| {
        let scope = share.catalogue.as_ref().map_or(Scope::Private, |catalogue| catalogue.scope);
        merged.with(share.fresh, scope)
    })
}

/// How often each URI is listed.
fn doubled(shares: &[Share]) -> HashMap<&str, usize> {
    let mut count = HashMap::new();
    for item in shares.iter().flat_map(|share| &share.catalogue).flat_map(|c| &c.items) {
        *count.entry(item.key.as_str()).or_default() += 1;
    }
    count
}

fn place(shown: &[Shown], cursor: &Cursor) -> usize {
    let marks: HashMap<u64, usize> =
        shown.iter().enumerate().map(|(at, shown)| (shown.mark(), at)).collect();
    let nearest = |anchors: &[u64]| anchors.iter().find_map(|mark| marks.get(mark)).copied();
    let first_of = |upstream| shown.iter().position(|shown| shown.upstream.id.0 == upstream);
    nearest(&cursor.before[..cursor.before.len().min(1)])
        .map(|at| at + 1)
        .or_else(|| nearest(&cursor.after))
        .or_else(|| nearest(&cursor.before).map(|at| at + 1))
        .or_else(|| cursor.later.iter().skip(1).copied().find_map(first_of))
        .unwrap_or(cursor.index)
        .min(shown.len())
}

fn digest(shown: &[Shown]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for shown in shown {
        (shown.upstream.id, &shown.exposed, shown.item.digest).hash(&mut hasher);
    }
    hasher.finish()
}
