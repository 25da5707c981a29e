//! What of the catalogues outlives this process: kept in the snapshot file, and taken from it at the
//! next start (design section 4.5).

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use super::Gateway;
use crate::{
    capability::CapabilityType,
    clock::{Moment, wall},
    definition::{Era, LegacyTtl},
    install_key::InstallKey,
    json::{RawObject, raw},
    names::NameLimit,
    settings::Settings,
    snapshot_file::{Entry, Listed, Loaded, SnapshotFile, Stored},
    store::UpstreamId,
    upstream::{
        Upstream,
        catalogue::{Catalogue, Fresh, Pages, Reader, Scope},
    },
};

/// Renewed catalogues are written at most this often. What may no longer be there goes at once.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// The snapshot file with what is known of it.
pub struct Shelf {
    file: SnapshotFile,
    /// Without a key nothing can be kept.
    key: Option<InstallKey>,
    /// Something may have to be written or removed.
    pub look: Notify,
    /// Written by one task at a time.
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the file holds; `None`: not known.
    holds: Option<Vec<Place>>,
    last_write: Option<Instant>,
    /// That it can't be used was said; it is not said again before it could be.
    complained: bool,
}

/// One entry, as far as it can be told from another.
#[derive(Clone, PartialEq)]
struct Place {
    upstream: UpstreamId,
    definition: String,
    kind: CapabilityType,
    digest: u64,
    read_at: i64,
    until: Moment,
}

impl Shelf {
    pub fn new(file: SnapshotFile, key: Option<InstallKey>) -> Self {
        Self { file, key, look: Notify::new(), state: tokio::sync::Mutex::default() }
    }
}

impl Gateway {
    /// Puts in place what an earlier process kept and what may still be used.
    pub(super) async fn restore(&self, settings: &Settings) {
        let Some(key) = self.shelf.key.as_ref().filter(|_| settings.snapshot) else { return };
        let file = self.shelf.file.clone();
        let loaded = tokio::task::spawn_blocking(move || file.load(wall())).await;
        let Loaded { entries, odd } = match loaded {
            Ok(Ok(Some(loaded))) => loaded,
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(why)) => {
                self.shelf.state.lock().await.complained = true;
                let path = self.shelf.file.path().display();
                warn!(file = %path, %why, "the kept catalogues are not used");
                return;
            }
        };
        if let Some(odd) = odd {
            warn!(file = %self.shelf.file.path().display(), "{odd}");
        }
        for entry in entries {
            let upstream = self.upstream(&entry.upstream).filter(|upstream| {
                upstream.is_enabled() && key.fingerprint(&upstream.definition()) == entry.definition
            });
            if let Some(upstream) = upstream {
                self.put_in_place(&upstream, &entry, settings.name_limit);
            }
        }
    }

    fn put_in_place(&self, upstream: &Upstream, entry: &Stored, name_limit: NameLimit) {
        let kind = entry.kind;
        let left = Duration::from_millis((entry.until - wall()).max(0) as u64);
        let until = Fresh::Until(self.clock.now().after(left));
        if let Some(catalogue) = revived(upstream, entry, name_limit, until) {
            debug!(upstream = %upstream.name, %kind, ?left, "a kept catalogue is used");
            upstream.list(kind).restore(Arc::new(catalogue), entry.written_at);
        }
    }

    /// Keeps the file in line with the catalogues until the end.
    pub(super) async fn keep_shelf(self: Arc<Self>) {
        loop {
            let next = self.settle_shelf(Haste::None).await;
            tokio::select! {
                () = self.shelf.look.notified() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = self.ended.cancelled() => break,
            }
        }
        self.settle_shelf(Haste::Now).await;
    }

    /// Brings the file in line with the catalogues. Returns when it is due, if that is later.
    pub(super) async fn settle_shelf(&self, haste: Haste) -> Option<Instant> {
        let mut state = self.shelf.state.lock().await;
        let (places, entries) = self.worth_keeping();
        if state.holds.as_ref() == Some(&places) {
            return None;
        }
        let due = state.last_write.map(|last| last + WRITE_EVERY);
        if haste == Haste::None
            && let Some(due) = due.filter(|due| *due > Instant::now())
            && !state.holds_too_much(&places, self.clock.now())
        {
            return Some(due);
        }
        let file = self.shelf.file.clone();
        let written = tokio::task::spawn_blocking(move || match entries[..] {
            [] => file.remove(),
            _ => file.write(&entries),
        });
        state.last_write = Some(Instant::now());
        match written.await {
            Ok(Ok(())) => state.complained = false,
            Ok(Err(error)) => {
                if !std::mem::replace(&mut state.complained, true) {
                    let file = self.shelf.file.path().display();
                    warn!(%file, %error, "the catalogues can't be kept for the next start");
                }
            }
            Err(_) => {}
        }
        // Also after a failure: the next change tries again, and nothing in between.
        state.holds = Some(places);
        None
    }

    /// Public catalogues of modern upstreams that gave them a time, and that nothing speaks against.
    fn worth_keeping(&self) -> (Vec<Place>, Vec<Entry<Listed>>) {
        let Some(key) = self.shelf.key.as_ref().filter(|_| self.settings().snapshot) else {
            return Default::default();
        };
        let mut kept = (Vec::new(), Vec::new());
        for upstream in self.upstreams().into_iter().filter(|upstream| upstream.is_enabled()) {
            let definition = key.fingerprint(&upstream.definition());
            for kind in CapabilityType::ALL {
                let found = upstream.list(kind).undoubted();
                let Some((catalogue, read_at)) = found else { continue };
                let (Scope::Public, Some(until)) = (catalogue.scope, catalogue.fresh.deadline())
                else {
                    continue;
                };
                let left = self.clock.now().until(until).as_millis() as i64;
                if left == 0 {
                    continue;
                }
                let definition = definition.clone();
                kept.0.push(Place {
                    upstream: upstream.id,
                    definition: definition.clone(),
                    kind,
                    digest: catalogue.digest,
                    read_at,
                    until,
                });
                kept.1.push(Entry {
                    upstream: upstream.name.clone(),
                    definition,
                    kind,
                    warnings: catalogue.warnings.clone(),
                    scope: Scope::Public.word().to_owned(),
                    until: wall() + left,
                    written_at: read_at,
                    items: Listed(catalogue),
                });
            }
        }
        kept
    }
}

/// Whether a write may wait for its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Haste {
    None,
    Now,
}

impl State {
    /// Whether something in the file must not be there any more: what turned private or doubtful, or
    /// belongs to a definition that is no more. That a time is over is harmless.
    fn holds_too_much(&self, places: &[Place], now: Moment) -> bool {
        let Some(holds) = &self.holds else { return true };
        let is_kept = |held: &Place| {
            places.iter().any(|place| {
                (place.upstream, place.kind, &place.definition)
                    == (held.upstream, held.kind, &held.definition)
            })
        };
        holds.iter().any(|held| held.until > now && !is_kept(held))
    }
}

/// The catalogue that an entry was written from, with the end of its freshness as it is now.
fn revived(
    upstream: &Upstream,
    entry: &Stored,
    name_limit: NameLimit,
    fresh: Fresh,
) -> Option<Catalogue> {
    let reader = Reader {
        kind: entry.kind,
        upstream: upstream.name.clone(),
        name_limit,
        era: Era::Modern,
        legacy_ttl: LegacyTtl::default(),
    };
    let mut page = RawObject::default();
    page.set(entry.kind.list_member(), raw(&entry.items));
    let now = upstream.now();
    let mut pages = Pages::new(reader);
    pages.take(&page.to_raw(), now).ok()?;
    for warning in &entry.warnings {
        pages.warn(warning.clone());
    }
    Some(pages.into_catalogue(now).with(fresh, Scope::Public))
}
