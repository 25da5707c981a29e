//! What the user does: adds, changes, toggles, tests, removes. Each deed is stored first and then
//! takes effect, and touches only the upstream that it is about.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::value::RawValue;

use super::{
    Asker, Gateway, PAUSE_KEY, View, deeds, journal::Retention, relay::Relayed, shelf::Haste,
};
use crate::{
    api::{self, Added, CapabilityView, Change, Pause, PauseRequest, SettingView, Toggle},
    capability::CapabilityType,
    clock::wall,
    definition::{Definition, Isolation, Transport},
    events::{By, Fact},
    fault::{Code, Fault},
    json::{RawObject, raw},
    lock::lock,
    names::NameLimit,
    nearest::did_you_mean,
    settings::{self, SettingError, Settings},
    snippet,
    store::StoreError,
    upstream::{
        Upstream,
        lists::{Ended, Found},
    },
};

/// Why a deed was not done. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{0}")]
    BadInput(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Taken(String),
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Taken(_) => Self::Taken(error.to_string()),
            StoreError::Gone => Self::NotFound(error.to_string()),
            error => Self::Store(error),
        }
    }
}

impl From<SettingError> for Refused {
    fn from(error: SettingError) -> Self {
        Self::BadInput(error.to_string())
    }
}

impl Gateway {
    /// The upstream of this name, or a refusal that names the nearest one.
    pub fn named(&self, name: &str) -> Result<Arc<Upstream>, Refused> {
        let upstreams = self.upstreams();
        upstreams.iter().find(|upstream| upstream.name.as_str() == name).cloned().ok_or_else(|| {
            let hint = did_you_mean(name, upstreams.iter().map(|upstream| upstream.name.as_str()));
            let shown = crate::text::one_line(name, 60);
            Refused::NotFound(format!(
                "there is no upstream {shown:?}{hint}; traygate list shows them"
            ))
        })
    }

    /// Adds one definition, or what a pasted snippet holds.
    pub async fn add(&self, by: By, add: api::Add) -> Result<Added, Refused> {
        let (definitions, notes) = match add {
            api::Add::Definition(definition) => (vec![*definition], Vec::new()),
            api::Add::Snippet { snippet, name } => {
                let parsed = snippet::parse(&snippet, name.as_ref(), self.port())
                    .map_err(|error| Refused::BadInput(error.to_string()))?;
                let settings = self.settings().for_new_upstreams();
                let definitions = parsed
                    .definitions
                    .into_iter()
                    .map(|definition| Definition { settings: settings.clone(), ..definition });
                (definitions.collect(), parsed.notes)
            }
        };
        let _one_at_a_time = self.changing.lock().await;
        for definition in &definitions {
            self.check_new(definition)?;
        }
        let mut added = Added { upstreams: Vec::new(), notes };
        for definition in definitions {
            added.upstreams.push(definition.name.clone());
            let upstream = self.begin(definition).await?;
            self.did(by, Some((upstream.id, &upstream.name)), Fact::Added).await;
        }
        self.changed();
        Ok(added)
    }

    fn check_new(&self, definition: &Definition) -> Result<(), Refused> {
        let name = &definition.name;
        if self.upstream(name).is_some() {
            return Err(Refused::Taken(format!(
                "there is already an upstream {:?}; choose another name, or remove that one first",
                name.as_str()
            )));
        }
        check_transport(&definition.transport)?;
        check_isolation(definition.settings.isolation)
    }

    /// Stores and starts one.
    pub(super) async fn begin(&self, definition: Definition) -> Result<Arc<Upstream>, Refused> {
        let id = self.store.add_upstream(&definition).await?;
        let upstream = self.make(id, definition, None, Arc::default());
        self.upstreams_mut(|upstreams| upstreams.push(Arc::clone(&upstream)));
        upstream.start();
        Ok(upstream)
    }

    pub async fn remove(&self, by: By, name: &str) -> Result<(), Refused> {
        let _one_at_a_time = self.changing.lock().await;
        let upstream = self.named(name)?;
        self.store.remove_upstream(upstream.id).await?;
        self.upstreams_mut(|upstreams| upstreams.retain(|other| other.id != upstream.id));
        self.preferences().drop_upstream(upstream.id);
        self.changed();
        self.did(by, Some((upstream.id, &upstream.name)), Fact::Removed).await;
        upstream.stop().await;
        Ok(())
    }

    /// Changes what is given. Settings and the place in the order leave the link alone.
    pub async fn change(
        &self,
        by: By,
        name: &str,
        change: Change,
    ) -> Result<Arc<Upstream>, Refused> {
        let _one_at_a_time = self.changing.lock().await;
        let upstream = self.named(name)?;
        let old = upstream.definition();
        let mut new = Definition::clone(&old);
        for (key, value) in &change.settings {
            settings::apply(&mut new.settings, key, value)?;
        }
        check_isolation(new.settings.isolation)?;
        if let Some(rename) = change.rename.filter(|rename| *rename != old.name) {
            if self.upstream(&rename).is_some() {
                return Err(Refused::Taken(format!(
                    "there is already an upstream {:?}; choose another name",
                    rename.as_str()
                )));
            }
            new.name = rename;
        }
        if let Some(transport) = change.transport {
            check_transport(&transport)?;
            new.transport = transport;
        }
        new.enabled = change.enabled.unwrap_or(old.enabled);
        self.store_changes(&upstream, &old, &new).await?;
        if let Some(position) = change.position {
            self.reorder(&upstream, position).await?;
        }
        for fact in deeds::between(&old, &new, change.position) {
            self.did(by, Some((upstream.id, &new.name)), fact).await;
        }
        let needs_new_link =
            (&new.name, &new.transport, new.enabled) != (&old.name, &old.transport, old.enabled);
        let upstream = if needs_new_link {
            self.replace(&upstream, new).await
        } else {
            upstream.redefine(new);
            upstream
        };
        self.changed();
        Ok(upstream)
    }

    async fn store_changes(
        &self,
        upstream: &Upstream,
        old: &Definition,
        new: &Definition,
    ) -> Result<(), Refused> {
        if new.settings != old.settings {
            self.store.save_settings(upstream.id, &new.settings).await?;
        }
        if new.transport != old.transport {
            self.store.replace_transport(upstream.id, &new.transport).await?;
        }
        if new.enabled != old.enabled {
            self.store.set_upstream_enabled(upstream.id, new.enabled).await?;
        }
        if new.name != old.name {
            self.store.rename_upstream(upstream.id, &new.name).await?;
        }
        Ok(())
    }

    async fn reorder(&self, upstream: &Arc<Upstream>, position: usize) -> Result<(), Refused> {
        let count = self.upstreams().len();
        if !(1..=count).contains(&position) {
            return Err(Refused::BadInput(format!(
                "position {position} is out of range; use 1 to {count}"
            )));
        }
        self.store.move_upstream(upstream.id, position).await?;
        self.upstreams_mut(|upstreams| {
            if let Some(at) = upstreams.iter().position(|other| other.id == upstream.id) {
                let moved = upstreams.remove(at);
                upstreams.insert(position - 1, moved);
            }
        });
        Ok(())
    }

    /// Another takes its place, so that nothing of the old one in flight can revive it.
    async fn replace(&self, old: &Arc<Upstream>, definition: Definition) -> Arc<Upstream> {
        let new = self.make(old.id, definition, None, Arc::clone(old.log()));
        self.upstreams_mut(|upstreams| {
            if let Some(place) = upstreams.iter_mut().find(|other| other.id == old.id) {
                *place = Arc::clone(&new);
            }
        });
        self.changed();
        old.stop().await;
        new.start();
        new
    }

    /// Reads all catalogues anew. A failure is told, not papered over.
    pub async fn refresh(&self, name: &str) -> Result<Arc<Upstream>, Refused> {
        let upstream = self.named(name)?;
        must_be_enabled(&upstream)?;
        upstream.forgive();
        upstream.wake().await?;
        upstream.invalidate(&CapabilityType::ALL, Ended::Refreshed);
        for kind in CapabilityType::ALL {
            read_now(&upstream, kind).await?;
        }
        Ok(upstream)
    }

    pub async fn restart(&self, by: By, name: &str) -> Result<Arc<Upstream>, Refused> {
        let upstream = self.named(name)?;
        must_be_enabled(&upstream)?;
        self.did(by, Some((upstream.id, &upstream.name)), Fact::Restarted).await;
        upstream.forgive();
        upstream.restart().await?;
        Ok(upstream)
    }

    /// What it offers, read first if it isn't fresh; what can't be read is shown as remembered.
    pub async fn look(&self, name: &str) -> Result<Arc<Upstream>, Refused> {
        let upstream = self.named(name)?;
        if upstream.is_enabled() && !upstream.is_down() {
            self.read_within_budget(&upstream, &CapabilityType::ALL).await;
        }
        Ok(upstream)
    }

    /// Reads what nobody has read yet, so that the user sees numbers and not dashes. Waits for
    /// none that is still starting.
    pub async fn look_at_all(&self) {
        let upstreams = self.upstreams();
        let reads = upstreams.iter().filter(|upstream| upstream.is_up()).map(|upstream| async {
            let mut unread = CapabilityType::ALL.to_vec();
            unread.retain(|kind| upstream.last_good(*kind).is_none());
            self.read_within_budget(upstream, &unread).await;
        });
        futures::future::join_all(reads).await;
    }

    async fn read_within_budget(&self, upstream: &Arc<Upstream>, kinds: &[CapabilityType]) {
        let budget = self.settings().list_budget;
        let reads =
            kinds.iter().map(|kind| tokio::time::timeout(budget, upstream.catalogue(*kind)));
        futures::future::join_all(reads).await;
    }

    pub async fn toggle(
        &self,
        by: By,
        name: &str,
        toggle: Toggle,
    ) -> Result<CapabilityView, Refused> {
        let upstream = self.named(name)?;
        let Toggle { kind, key, enabled, pinned } = toggle;
        self.must_know(&upstream, kind, &key).await?;
        if let Some(enabled) = enabled {
            self.preferences().set(upstream.id, kind, &key, enabled, wall()).await?;
            self.changed();
            let fact = Fact::Toggled { kind, key: key.clone(), enabled };
            self.did(by, Some((upstream.id, &upstream.name)), fact).await;
        }
        if let Some(pinned) = pinned {
            self.preferences().pin(upstream.id, kind, &key, pinned).await?;
            self.changed();
            let fact = Fact::Pinned { kind, key: key.clone(), pinned };
            self.did(by, Some((upstream.id, &upstream.name)), fact).await;
        }
        Ok(self.remembered_view(&upstream, kind, &key))
    }

    pub async fn forget(
        &self,
        by: By,
        name: &str,
        kind: CapabilityType,
        key: &str,
    ) -> Result<(), Refused> {
        let upstream = self.named(name)?;
        self.must_know(&upstream, kind, key).await?;
        self.preferences().forget(upstream.id, kind, key).await?;
        self.changed();
        let fact = Fact::Forgotten { kind, key: key.to_owned() };
        self.did(by, Some((upstream.id, &upstream.name)), fact).await;
        Ok(())
    }

    /// Toggling a name that nobody ever saw would be a typing error, kept for ever. One that isn't
    /// known yet may be new: one read decides.
    async fn must_know(
        &self,
        upstream: &Arc<Upstream>,
        kind: CapabilityType,
        key: &str,
    ) -> Result<(), Refused> {
        let known = || {
            let catalogue = upstream.last_good(kind);
            catalogue.is_some_and(|catalogue| catalogue.get(key).is_some())
                || self.preferences().choice(upstream.id, kind, key).is_some()
        };
        if !known() && upstream.is_enabled() && !upstream.is_down() {
            self.read_within_budget(upstream, &[kind]).await;
        }
        if known() {
            return Ok(());
        }
        let catalogue = upstream.last_good(kind);
        let rows = self.preferences().of(upstream.id, kind);
        let items = catalogue.iter().flat_map(|catalogue| &catalogue.items);
        let names =
            items.map(|item| item.key.as_str()).chain(rows.iter().map(|(key, _)| key.as_str()));
        let hint = did_you_mean(key, names);
        let name = &upstream.name;
        let shown = crate::text::one_line(key, 200);
        Err(Refused::NotFound(format!(
            "{name} has no {kind} {shown:?}{hint}; traygate show {name} lists what it has"
        )))
    }

    /// Calls a tool for the user. An upstream's own error is a fault here.
    pub async fn call(&self, call: api::Call) -> Result<Box<RawValue>, Refused> {
        if RawObject::parse(&call.arguments).is_err() {
            return Err(Refused::BadInput("the arguments must be a JSON object".to_owned()));
        }
        let mut params = RawObject::default().with("name", &call.tool);
        params.set("arguments", call.arguments);
        let (route, asking) = self
            .relay(&Asker::user(), Relayed::CallTool, params)
            .await
            .map_err(super::relay::NotRelayed::into_fault)?;
        let answer = asking.answer().await?;
        self.learn(&route, Relayed::CallTool, answer.as_deref().map_err(|error| &**error));
        answer.map_err(|error| {
            let error = RawObject::parse(&error).unwrap_or_default();
            let code = error.get("code").map_or("no code", RawValue::get);
            let message = error.str("message").unwrap_or_default();
            Refused::BadInput(format!(
                "{} answered with an error: {} ({code})",
                route.upstream.name,
                crate::text::one_line(&message, 500)
            ))
        })
    }

    /// A new app's token, told here and never again.
    pub async fn new_app(&self, by: By, name: &str) -> Result<String, Refused> {
        let fits =
            !name.is_empty() && name.chars().count() <= 60 && !name.chars().any(char::is_control);
        if !fits || name != name.trim() {
            return Err(Refused::BadInput(format!(
                "{:?} can't name an app: use 1 to 60 characters, without spaces around them",
                crate::text::one_line(name, 60)
            )));
        }
        let token = self.apps().add(name).await?;
        self.changed();
        self.did(by, None, Fact::AppAdded { app: name.to_owned() }).await;
        Ok(token)
    }

    pub async fn revoke_app(&self, by: By, name: &str) -> Result<(), Refused> {
        if !self.apps().revoke(name).await? {
            let views = self.apps().views();
            let hint = did_you_mean(name, views.iter().map(|app| app.name.as_str()));
            return Err(Refused::NotFound(format!(
                "there is no app {name:?}{hint}; traygate token list shows them"
            )));
        }
        self.changed();
        self.did(by, None, Fact::AppRevoked { app: name.to_owned() }).await;
        Ok(())
    }

    pub fn setting_views(&self) -> Vec<SettingView> {
        settings::views(&lock(&self.stored_settings))
    }

    pub fn setting(&self, key: &str) -> Result<SettingView, Refused> {
        settings::view(key, &lock(&self.stored_settings))
            .map_err(|error| Refused::NotFound(error.to_string()))
    }

    /// `None`: back to its default.
    pub async fn set(
        &self,
        by: By,
        key: &str,
        value: Option<&str>,
    ) -> Result<SettingView, Refused> {
        self.setting(key)?;
        let value = value.map(|value| Settings::check(key, value)).transpose()?;
        self.store.set_setting(key, value.as_deref()).await?;
        let stored: BTreeMap<_, _> = {
            let mut stored = lock(&self.stored_settings);
            match value {
                Some(value) => stored.insert(key.to_owned(), value),
                None => stored.remove(key),
            };
            stored.clone()
        };
        let (settings, _) = Settings::from_stored(&stored);
        self.apply_name_limit(settings.name_limit);
        self.recorder.journal.retain(Retention::of(&settings));
        *self.settings.write().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Arc::new(settings);
        if key == settings::SNAPSHOT {
            // Who switches it off finds no file when that is done.
            self.settle_shelf(Haste::Now).await;
        }
        self.changed();
        self.did(by, None, Fact::SettingChanged { setting: key.to_owned() }).await;
        self.setting(key)
    }

    /// Names are made when a catalogue is read, so another limit means reading them again.
    fn apply_name_limit(&self, limit: NameLimit) {
        let limit = u16::from(limit);
        if self.name_limit.swap(limit, std::sync::atomic::Ordering::Relaxed) == limit {
            return;
        }
        for upstream in self.upstreams() {
            for kind in CapabilityType::ALL {
                upstream.list(kind).clear();
            }
            self.heard(upstream.id, crate::upstream::UpstreamEvent::LinkUp);
        }
    }

    /// Lists stay, use is refused; preferences are never touched.
    pub async fn set_pause(&self, by: By, request: Option<PauseRequest>) -> Result<(), Refused> {
        let pause = request.map(|request| Pause {
            what: request.what,
            until: request
                .seconds
                .map(|seconds| wall().saturating_add(seconds.saturating_mul(1000) as i64)),
        });
        let stored = pause.map(|pause| raw(&pause).get().to_owned());
        self.store.set_setting(PAUSE_KEY, stored.as_deref()).await?;
        *lock(&self.pause) = pause;
        self.changed();
        let fact = pause
            .map_or(Fact::Resumed, |Pause { what, until }| Fact::Paused { paused: what, until });
        self.did(by, None, fact).await;
        Ok(())
    }

    /// The upstream behind `/mcp/<name>`, for the endpoint.
    pub fn view_of(&self, name: &str) -> Result<View, Refused> {
        self.named(name).map(|upstream| View::One(upstream.name.clone()))
    }
}

/// The read itself, with its failure.
pub(super) async fn read_now(
    upstream: &Arc<Upstream>,
    kind: CapabilityType,
) -> Result<Arc<crate::upstream::catalogue::Catalogue>, Fault> {
    match upstream.find(kind) {
        Found::Fresh(catalogue) => Ok(catalogue),
        Found::Reading(reading, _) => reading.await,
    }
}

fn must_be_enabled(upstream: &Upstream) -> Result<(), Refused> {
    if upstream.is_enabled() {
        return Ok(());
    }
    let name = &upstream.name;
    Err(Refused::Fault(Fault::new(
        Code::CapabilityDisabled,
        Some(name),
        format!("{name} is disabled; enable it first: traygate enable {name}"),
    )))
}

pub(super) fn check_transport(transport: &Transport) -> Result<(), Refused> {
    match transport {
        Transport::Stdio { command, .. } if command.trim().is_empty() => {
            Err(Refused::BadInput("the command is empty; give the program to start".to_owned()))
        }
        Transport::Stdio { .. } => Ok(()),
        Transport::Http { url, headers, .. } => {
            crate::upstream::connect::check_target(url, headers)
                .map_err(|failure| Refused::BadInput(failure.reason))
        }
    }
}

/// Said plainly rather than accepted without effect.
fn check_isolation(isolation: Isolation) -> Result<(), Refused> {
    match isolation {
        Isolation::Shared => Ok(()),
        Isolation::Isolated => Err(Refused::BadInput(
            "isolation=isolated is not available in this version; all apps share one connection to an upstream".to_owned(),
        )),
    }
}
