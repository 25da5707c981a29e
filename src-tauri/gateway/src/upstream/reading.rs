//! The reading of an upstream's lists: once for many askers, and for nobody only where that disturbs
//! nobody (design section 4.4).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::timeout;

use super::{
    Upstream, UpstreamEvent, ask,
    catalogue::{Catalogue, Fresh, Reader, Scope},
    changes,
    link::Link,
    lists::{self, Found, Reading},
};
use crate::{capability::CapabilityType, fault::Fault, lock::lock, names::NameLimit};

/// How long a read that nobody waits for lets the requests go first that are made again.
const STAND_BACK: Duration = Duration::from_secs(1);

impl Upstream {
    /// The fresh catalogue, or the read that all askers share.
    pub fn find(self: &Arc<Self>, kind: CapabilityType) -> Found {
        if !self.is_resting() && self.fresh(kind).is_none() {
            // Before it begins, since it looks at this at once.
            self.wanted[kind.index()].store(true, Ordering::Relaxed);
            // One that has begun for nobody stands back no longer.
            self.repeated.send_modify(|_| ());
        }
        self.find_unasked(kind)
    }

    /// The same where nobody asks. A program that rests isn't started for a list: what was last
    /// read stays.
    fn find_unasked(self: &Arc<Self>, kind: CapabilityType) -> Found {
        if self.is_resting()
            && let Some(catalogue) = self.last_good(kind)
        {
            return Found::Fresh(catalogue);
        }
        self.list(kind).find(&self.clock, |number| self.begin_reading(kind, number))
    }

    /// Whether an app or a person waits for this list. A read that nobody waits for dials nothing:
    /// what keeps the upstream up does, slower each time.
    pub(super) fn is_wanted(&self, kind: CapabilityType) -> bool {
        self.wanted[kind.index()].load(Ordering::Relaxed)
    }

    /// The catalogue, read if it isn't fresh; the last good one if that fails.
    pub async fn catalogue(
        self: &Arc<Self>,
        kind: CapabilityType,
    ) -> Result<Arc<Catalogue>, Fault> {
        match self.find(kind) {
            Found::Fresh(catalogue) => Ok(catalogue),
            Found::Reading(reading, _) => match reading.await {
                Ok(catalogue) => Ok(catalogue),
                Err(fault) => self.last_good(kind).ok_or(fault),
            },
        }
    }

    /// Has the catalogue read if it isn't fresh, for nobody in particular.
    pub async fn read_unasked(self: &Arc<Self>, kind: CapabilityType) {
        if let Found::Reading(reading, _) = self.find_unasked(kind) {
            // Its failure is the upstream's state.
            let _ = reading.await;
        }
    }

    fn begin_reading(self: &Arc<Self>, kind: CapabilityType, number: u64) -> Reading {
        let upstream = Arc::clone(self);
        let lost = Fault::unavailable(&self.name, "reading its list was given up");
        let work = async move {
            let mut generation = 0;
            let outcome = tokio::select! {
                outcome = upstream.read(kind, number, &mut generation) => outcome,
                () = upstream.ended.cancelled() => Err(upstream.fault()),
            };
            if let (Ok(catalogue), Some(memory)) = (&outcome, &upstream.memory) {
                memory.remember(&upstream, catalogue).await;
            }
            let before = upstream.last_good(kind);
            upstream.wanted[kind.index()].store(false, Ordering::Relaxed);
            upstream.list(kind).settle(number, generation, &outcome);
            match &outcome {
                Ok(catalogue) => {
                    upstream.tell(UpstreamEvent::Read);
                    upstream.recovered();
                    if let Some(fact) = before.and_then(|old| changes::between(&old, catalogue)) {
                        upstream.happened(fact);
                    }
                }
                Err(fault) => upstream.degraded(kind, fault),
            }
            outcome
        };
        lists::spawn_reading(&self.tasks, work, lost)
    }

    /// All pages of one list (design section 4.4).
    async fn read(
        self: &Arc<Self>,
        kind: CapabilityType,
        number: u64,
        generation: &mut u64,
    ) -> Result<Arc<Catalogue>, Fault> {
        if self.is_down() && !self.is_wanted(kind) {
            return Err(self.fault());
        }
        let link = self.link().await.map_err(|failure| self.faulted(&failure))?;
        self.let_the_repeated_pass(kind).await;
        *generation = self.list(kind).asks(number);
        // What is not declared is not asked.
        if !self.offers(kind, &link)
            && let Some(empty) = self.declared_empty(kind).await?
        {
            return Ok(Arc::new(empty));
        }
        let reader = Reader {
            kind,
            upstream: self.name.clone(),
            name_limit: NameLimit::try_from(self.name_limit.load(Ordering::Relaxed))
                .unwrap_or_default(),
            era: link.hello().era,
            legacy_ttl: self.definition().settings.legacy_ttl,
        };
        let catalogue = match ask::walk(self, &reader).await? {
            Some(pages) => pages.into_catalogue(self.clock.now()),
            None => self.empty(kind),
        };
        Ok(Arc::new(catalogue))
    }

    /// A request that met a dead link has waited already, and some servers give a session few
    /// requests: it goes before the reads that nobody waits for.
    async fn let_the_repeated_pass(&self, kind: CapabilityType) {
        let mut repeated = self.repeated.subscribe();
        let passed = repeated.wait_for(|requests| *requests == 0 || self.is_wanted(kind));
        // Later than that it is a long one at work.
        let _ = timeout(STAND_BACK, passed).await;
    }

    fn offers(&self, kind: CapabilityType, link: &Link) -> bool {
        match self.introduction() {
            Some((hello, _)) => hello.offers(kind),
            None => link.hello().offers(kind),
        }
    }

    /// `None`: asked again, the server says that it has this type now.
    async fn declared_empty(
        self: &Arc<Self>,
        kind: CapabilityType,
    ) -> Result<Option<Catalogue>, Fault> {
        let (hello, _) = self.introduction_now().await?;
        Ok((!hello.offers(kind)).then(|| self.empty(kind)))
    }

    /// That it lacks a type is as true, and for as long, as what it says of itself.
    fn empty(&self, kind: CapabilityType) -> Catalogue {
        match self.introduction() {
            Some((hello, fresh)) => Catalogue::empty(kind, fresh, hello.hints.scope),
            None => Catalogue::empty(kind, Fresh::Never, Scope::Private),
        }
    }

    /// Whether a fresh link has refused this list in the same way.
    pub(super) fn is_known_refusal(&self, kind: CapabilityType, code: Option<i64>) -> bool {
        lock(&self.refused).get(&kind) == Some(&code)
    }

    pub(super) fn remember_refusal(&self, kind: CapabilityType, code: Option<i64>) {
        lock(&self.refused).insert(kind, code);
    }

    pub(super) fn forget_refusal(&self, kind: CapabilityType) {
        lock(&self.refused).remove(&kind);
    }
}
