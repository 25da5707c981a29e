//! The AI apps that may connect: tokens, and what was last seen of each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{
    api::AppView,
    clock::wall,
    definition::Era,
    lock::lock,
    store::{Store, StoreError, StoredApp},
};

/// `last_seen_at` moves on in the database at most this often, in milliseconds.
const SEEN_EVERY: i64 = 60_000;

/// What an app showed of itself since the host started.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    pub last_seen_at: Option<i64>,
    pub client: Option<String>,
    pub era: Option<Era>,
    pub protocol_version: Option<String>,
    pub listed_tools: Option<usize>,
    pub listed_at: Option<i64>,
    pub connections: usize,
    pub connected_since: Option<i64>,
}

impl Activity {
    /// A session or a subscription was opened.
    pub fn opened(&mut self) {
        self.connections += 1;
        self.connected_since = self.connected_since.or_else(|| Some(wall()));
    }

    pub fn closed(&mut self) {
        self.connections = self.connections.saturating_sub(1);
        self.connected_since = self.connected_since.filter(|_| self.connections > 0);
    }
}

pub struct Apps {
    store: Store,
    known: Mutex<Vec<(StoredApp, Arc<str>)>>,
    activity: Mutex<BTreeMap<Arc<str>, Activity>>,
}

impl Apps {
    pub async fn load(store: Store) -> Result<Self, StoreError> {
        let known = store.apps().await?.into_iter().map(named).collect();
        Ok(Self { store, known: Mutex::new(known), activity: Mutex::default() })
    }

    /// A new app's token. It is told here and kept nowhere.
    pub async fn add(&self, name: &str) -> Result<String, StoreError> {
        let token = new_token("tg_");
        let app = self.store.add_app(name, &hash(&token), wall()).await?;
        self.known().push(named(app));
        Ok(token)
    }

    pub async fn revoke(&self, name: &str) -> Result<bool, StoreError> {
        let revoked = self.store.revoke_app(name).await?;
        self.known().retain(|(app, _)| app.name != name);
        lock(&self.activity).remove(name);
        Ok(revoked)
    }

    /// The app whose token this is. Compared in constant time.
    pub fn authenticate(&self, token: &str) -> Option<Arc<str>> {
        let hash = hash(token);
        let known = self.known();
        known
            .iter()
            .find(|(app, _)| app.token_hash.ct_eq(&hash).into())
            .map(|(_, name)| Arc::clone(name))
    }

    /// Notes what was seen of an app.
    pub fn note(&self, app: &Arc<str>, note: impl FnOnce(&mut Activity)) {
        note(lock(&self.activity).entry(Arc::clone(app)).or_default());
    }

    /// Notes that an app did something. The database hears of it once a minute, and so do people:
    /// `true` if that is now.
    pub async fn seen(&self, app: &Arc<str>) -> bool {
        let now = wall();
        self.note(app, |activity| activity.last_seen_at = Some(now));
        let due = {
            let mut known = self.known();
            let known = known.iter_mut().find(|(known, _)| known.name == **app);
            known.and_then(|(known, _)| {
                let due = known.last_seen_at.is_none_or(|at| now - at >= SEEN_EVERY);
                due.then(|| known.last_seen_at = Some(now)).map(|()| known.id)
            })
        };
        if let Some(id) = due
            && let Err(error) = self.store.app_seen(id, now).await
        {
            tracing::warn!(%error, "can't note when an app was last seen");
        }
        due.is_some()
    }

    /// All apps that have a token, and those that came through the bridge.
    pub fn views(&self) -> Vec<AppView> {
        let activity = lock(&self.activity);
        let mut views: BTreeMap<String, AppView> = BTreeMap::new();
        for (app, _) in self.known().iter() {
            views.insert(app.name.clone(), view(&app.name, app.created_at, app.last_seen_at));
        }
        for (name, seen) in activity.iter() {
            let entry = views
                .entry(name.to_string())
                .or_insert_with(|| view(name, seen.last_seen_at.unwrap_or_default(), None));
            entry.last_seen_at = seen.last_seen_at.or(entry.last_seen_at);
            entry.client.clone_from(&seen.client);
            entry.era = seen.era;
            entry.protocol_version.clone_from(&seen.protocol_version);
            entry.listed_tools = seen.listed_tools;
            entry.listed_at = seen.listed_at;
            entry.connections = seen.connections;
            entry.connected_since = seen.connected_since;
        }
        views.into_values().collect()
    }

    fn known(&self) -> MutexGuard<'_, Vec<(StoredApp, Arc<str>)>> {
        lock(&self.known)
    }
}

/// 256 random bits as text.
pub fn new_token(prefix: &str) -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    format!("{prefix}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn named(app: StoredApp) -> (StoredApp, Arc<str>) {
    let name = app.name.as_str().into();
    (app, name)
}

fn view(name: &str, created_at: i64, last_seen_at: Option<i64>) -> AppView {
    AppView {
        name: name.to_owned(),
        created_at,
        last_seen_at,
        client: None,
        era: None,
        protocol_version: None,
        listed_tools: None,
        listed_at: None,
        connections: 0,
        connected_since: None,
    }
}
