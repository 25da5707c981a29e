//! The user's choice for each capability: the database's rows, mirrored in memory so that no
//! request waits for a disk.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use futures::{FutureExt as _, future::BoxFuture};
use tracing::error;

use crate::{
    capability::CapabilityType,
    clock::wall,
    store::{Store, StoreError, UpstreamId},
    upstream::{Remember, Upstream, catalogue::Catalogue},
};

/// `last_seen_at` of a row moves at most this often, in milliseconds.
const SEEN_EVERY: i64 = 60_000;
/// A resource gone for this long whose choice is the policy's own is forgotten: URIs with dates in
/// them would grow without bound.
const RESOURCE_LIFE: i64 = 90 * 24 * 60 * 60 * 1000;

impl Remember for Preferences {
    fn remember<'a>(
        &'a self,
        upstream: &'a Upstream,
        catalogue: &'a Catalogue,
    ) -> BoxFuture<'a, ()> {
        async move {
            let policy = upstream.definition().settings.auto_enable_new_capabilities;
            match self.reconcile(upstream.id, catalogue, policy, wall()).await {
                // Removed while it was read: there is nothing to remember.
                Ok(()) | Err(StoreError::Gone) => {}
                Err(error) => {
                    error!(upstream = %upstream.name, %error, "can't note what it offers");
                }
            }
        }
        .boxed()
    }
}

/// What is remembered of one capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub enabled: bool,
    pub first_seen_at: i64,
    pub last_seen_at: Option<i64>,
}

type Rows = [BTreeMap<String, Choice>; 4];
type Pin = (UpstreamId, CapabilityType, String);

pub struct Preferences {
    store: Store,
    rows: RwLock<HashMap<UpstreamId, Rows>>,
    pins: RwLock<BTreeSet<Pin>>,
}

impl Preferences {
    pub async fn load(store: Store) -> Result<Self, StoreError> {
        let mut rows: HashMap<UpstreamId, Rows> = HashMap::new();
        for row in store.preferences().await? {
            let choice = Choice {
                enabled: row.enabled,
                first_seen_at: row.first_seen_at,
                last_seen_at: row.last_seen_at,
            };
            rows.entry(row.upstream).or_default()[row.kind.index()].insert(row.key, choice);
        }
        let pins = store.pins().await?.into_iter().collect();
        Ok(Self { store, rows: RwLock::new(rows), pins: RwLock::new(pins) })
    }

    /// The stored choice, or the policy for what was never seen.
    pub fn is_enabled(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        key: &str,
        policy: bool,
    ) -> bool {
        self.choice(upstream, kind, key).map_or(policy, |choice| choice.enabled)
    }

    pub fn choice(&self, upstream: UpstreamId, kind: CapabilityType, key: &str) -> Option<Choice> {
        self.rows().get(&upstream)?[kind.index()].get(key).copied()
    }

    /// Everything remembered of one type, by key.
    pub fn of(&self, upstream: UpstreamId, kind: CapabilityType) -> Vec<(String, Choice)> {
        let rows = self.rows();
        let rows = rows.get(&upstream).map(|rows| &rows[kind.index()]);
        rows.into_iter().flatten().map(|(key, choice)| (key.clone(), *choice)).collect()
    }

    /// Brings the rows in line with a catalogue that was just read (design section 2): a new key
    /// gets a row, a known one is seen, and one that has gone keeps its row.
    pub async fn reconcile(
        &self,
        upstream: UpstreamId,
        catalogue: &Catalogue,
        policy: bool,
        now: i64,
    ) -> Result<(), StoreError> {
        let kind = catalogue.kind;
        let (mut new, mut seen, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        {
            let rows = self.rows();
            let rows = rows.get(&upstream).map(|rows| &rows[kind.index()]);
            for item in &catalogue.items {
                match rows.and_then(|rows| rows.get(&item.key)) {
                    None => new.push(item.key.as_str()),
                    Some(choice) if choice.last_seen_at.is_none_or(|at| now - at >= SEEN_EVERY) => {
                        seen.push(item.key.as_str());
                    }
                    Some(_) => {}
                }
            }
            if kind == CapabilityType::Resource {
                gone.extend(rows.into_iter().flatten().filter_map(|(key, choice)| {
                    let last = choice.last_seen_at.unwrap_or(choice.first_seen_at);
                    let old = now - last > RESOURCE_LIFE && choice.enabled == policy;
                    (old && catalogue.get(key).is_none()).then(|| key.clone())
                }));
            }
        }
        if !new.is_empty() {
            self.store.insert_new(upstream, kind, &new, policy, now).await?;
        }
        if !seen.is_empty() {
            self.store.seen(upstream, kind, &seen, now).await?;
        }
        for key in &gone {
            self.store.forget(upstream, kind, key).await?;
        }
        let mut rows = self.rows_mut();
        let rows = &mut rows.entry(upstream).or_default()[kind.index()];
        for key in new {
            let first = Choice { enabled: policy, first_seen_at: now, last_seen_at: Some(now) };
            // A toggle may have come in between.
            rows.entry(key.to_owned()).or_insert(first);
        }
        for key in seen {
            if let Some(choice) = rows.get_mut(key) {
                choice.last_seen_at = Some(now);
            }
        }
        for key in &gone {
            rows.remove(key);
        }
        Ok(())
    }

    /// Stored when it is toggled, whether the upstream is there or not.
    pub async fn set(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        key: &str,
        enabled: bool,
        now: i64,
    ) -> Result<(), StoreError> {
        self.store.set_enabled(upstream, kind, key, enabled, now).await?;
        let mut rows = self.rows_mut();
        let rows = &mut rows.entry(upstream).or_default()[kind.index()];
        rows.entry(key.to_owned())
            .and_modify(|choice| choice.enabled = enabled)
            .or_insert(Choice { enabled, first_seen_at: now, last_seen_at: None });
        Ok(())
    }

    /// Forgets the choice and the pin. Returns whether there was a choice.
    pub async fn forget(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        key: &str,
    ) -> Result<bool, StoreError> {
        self.pin(upstream, kind, key, false).await?;
        let forgotten = self.store.forget(upstream, kind, key).await?;
        if let Some(rows) = self.rows_mut().get_mut(&upstream) {
            rows[kind.index()].remove(key);
        }
        Ok(forgotten)
    }

    pub async fn pin(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        key: &str,
        pinned: bool,
    ) -> Result<(), StoreError> {
        self.store.set_pin(upstream, kind, key, pinned).await?;
        let pin = (upstream, kind, key.to_owned());
        let mut pins = self.pins.write().unwrap_or_else(PoisonError::into_inner);
        if pinned {
            pins.insert(pin);
        } else {
            pins.remove(&pin);
        }
        Ok(())
    }

    pub fn is_pinned(&self, upstream: UpstreamId, kind: CapabilityType, key: &str) -> bool {
        let pins = self.pins.read().unwrap_or_else(PoisonError::into_inner);
        pins.contains(&(upstream, kind, key.to_owned()))
    }

    /// By type, then by key.
    pub fn pins_of(&self, upstream: UpstreamId) -> Vec<(CapabilityType, String)> {
        let pins = self.pins.read().unwrap_or_else(PoisonError::into_inner);
        let of_it = pins.iter().filter(|(id, ..)| *id == upstream);
        of_it.map(|(_, kind, key)| (*kind, key.clone())).collect()
    }

    /// The upstream was removed: the database dropped its rows with it.
    pub fn drop_upstream(&self, upstream: UpstreamId) {
        self.rows_mut().remove(&upstream);
        let mut pins = self.pins.write().unwrap_or_else(PoisonError::into_inner);
        pins.retain(|(id, ..)| *id != upstream);
    }

    fn rows(&self) -> RwLockReadGuard<'_, HashMap<UpstreamId, Rows>> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows_mut(&self) -> RwLockWriteGuard<'_, HashMap<UpstreamId, Rows>> {
        self.rows.write().unwrap_or_else(PoisonError::into_inner)
    }
}
