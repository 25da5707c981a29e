//! What the user sees, at one moment.

use std::{fmt::Write as _, sync::Arc};

use super::{Gateway, View};
use crate::{
    api::{Capabilities, CapabilityView, CatalogueView, PinView, Snapshot, ToolView, UpstreamView},
    capability::CapabilityType,
    definition::Transport,
    names::{ExposedName, UpstreamName},
    upstream::{Upstream, catalogue::Item},
};

/// How many characters of instructions an app is given.
const INSTRUCTIONS: usize = 8_000;
/// How many tools of an upstream a snapshot shows; it is made at every change.
const TOOLS: usize = 20;

/// Where the host is reached and keeps its files: what the gateway itself doesn't know.
#[derive(Clone, Debug)]
pub struct Place {
    pub endpoint: String,
    pub data_dir: String,
}

impl Gateway {
    pub fn snapshot(&self, place: &Place) -> Snapshot {
        Snapshot {
            revision: *self.revision.borrow(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            endpoint: place.endpoint.clone(),
            data_dir: place.data_dir.clone(),
            started_at: self.started_at,
            pause: self.pause(),
            notifications: self.settings().notifications,
            upstreams: self.upstreams().iter().map(|upstream| self.view(upstream)).collect(),
            pins: self.pin_views(),
            apps: self.apps().views(),
        }
    }

    pub fn view(&self, upstream: &Arc<Upstream>) -> UpstreamView {
        let definition = upstream.definition();
        let standing = upstream.standing();
        let hello = standing.hello.as_ref();
        UpstreamView {
            name: definition.name.clone(),
            enabled: definition.enabled,
            reached_by: definition.transport.summary(),
            transport_kind: match definition.transport {
                Transport::Stdio { .. } => "stdio".to_owned(),
                Transport::Http { .. } => "http".to_owned(),
            },
            era: hello.map(|hello| hello.era),
            protocol_version: hello.map(|hello| hello.version.clone()),
            server: hello.and_then(|hello| hello.server.clone()),
            progress: upstream.progress(),
            state: standing.state,
            since: standing.since,
            last_error: standing.last_error,
            heals: self.recorder.heals(upstream.id),
            catalogues: CapabilityType::ALL.map(|kind| self.catalogue_view(upstream, kind)).into(),
            tools: self.tool_views(upstream),
            settings: definition.settings.clone(),
        }
    }

    /// Its first tools, live or remembered.
    fn tool_views(&self, upstream: &Upstream) -> Vec<ToolView> {
        let kind = CapabilityType::Tool;
        if let Some(catalogue) = upstream.last_good(kind) {
            let policy = upstream.definition().settings.auto_enable_new_capabilities;
            let view = |item: &Item| ToolView {
                key: item.key.clone(),
                enabled: self.preferences().is_enabled(upstream.id, kind, &item.key, policy),
                read_only: item.read_only,
            };
            return catalogue.items.iter().take(TOOLS).map(view).collect();
        }
        let rows = self.preferences().of(upstream.id, kind).into_iter().take(TOOLS);
        rows.map(|(key, choice)| ToolView { key, enabled: choice.enabled, read_only: false })
            .collect()
    }

    fn pin_views(&self) -> Vec<PinView> {
        let pins_of = |upstream: Arc<Upstream>| {
            let policy = upstream.definition().settings.auto_enable_new_capabilities;
            let pins = self.preferences().pins_of(upstream.id).into_iter();
            pins.map(move |(kind, key)| PinView {
                upstream: upstream.name.clone(),
                enabled: self.preferences().is_enabled(upstream.id, kind, &key, policy),
                kind,
                key,
            })
            .collect::<Vec<_>>()
        };
        self.upstreams().into_iter().flat_map(pins_of).collect()
    }

    fn catalogue_view(&self, upstream: &Upstream, kind: CapabilityType) -> CatalogueView {
        let policy = upstream.definition().settings.auto_enable_new_capabilities;
        let enabled = |key: &str| self.preferences().is_enabled(upstream.id, kind, key, policy);
        let catalogue = upstream.last_good(kind);
        let (total, on, warnings) = if let Some(catalogue) = &catalogue {
            let on = catalogue.items.iter().filter(|item| enabled(&item.key)).count();
            (catalogue.items.len(), on, catalogue.warnings.clone())
        } else {
            let rows = self.preferences().of(upstream.id, kind);
            let on = rows.iter().filter(|(_, choice)| choice.enabled).count();
            (rows.len(), on, Vec::new())
        };
        CatalogueView { kind, freshness: upstream.freshness(kind), total, on, warnings }
    }

    /// What the upstreams of a view say about their use, for models. Bounded: it takes room in
    /// every conversation.
    pub fn instructions(&self, view: &View) -> Option<String> {
        let mut all = String::new();
        for upstream in self.visible(view) {
            let hello = upstream.standing().hello;
            let Some(text) = hello.and_then(|hello| hello.instructions) else { continue };
            match view {
                View::One(_) => all.push_str(&text),
                View::All => {
                    // Names are how a model tells whose tools are meant.
                    let _ = write!(all, "# {}\n{}\n\n", upstream.name, text.trim());
                }
            }
        }
        if let Some((cut, _)) = all.char_indices().nth(INSTRUCTIONS) {
            all.truncate(cut);
            all.push('…');
        }
        let all = all.trim_end();
        (!all.is_empty()).then(|| all.to_owned())
    }

    /// What it offers, live or remembered, with the user's choices.
    pub fn capabilities(&self, upstream: &Arc<Upstream>, live: bool) -> Capabilities {
        let items = CapabilityType::ALL
            .into_iter()
            .flat_map(|kind| self.capabilities_of(upstream, kind, live))
            .collect();
        Capabilities { upstream: self.view(upstream), items }
    }

    fn capabilities_of(
        &self,
        upstream: &Upstream,
        kind: CapabilityType,
        live: bool,
    ) -> Vec<CapabilityView> {
        let catalogue = upstream.last_good(kind);
        let listed = catalogue.iter().flat_map(|catalogue| &catalogue.items);
        let mut views: Vec<_> = listed
            .map(|item| CapabilityView {
                live: true,
                read_only: item.read_only,
                item: live.then(|| item.raw.clone()),
                ..self.remembered_view(upstream, kind, &item.key)
            })
            .collect();
        // Gone, or its upstream is away: known by the stored choice.
        for (key, _) in self.preferences().of(upstream.id, kind) {
            if catalogue.as_ref().is_none_or(|catalogue| catalogue.get(&key).is_none()) {
                views.push(self.remembered_view(upstream, kind, &key));
            }
        }
        views
    }

    /// One capability as far as the stored choice tells.
    pub(super) fn remembered_view(
        &self,
        upstream: &Upstream,
        kind: CapabilityType,
        key: &str,
    ) -> CapabilityView {
        let policy = upstream.definition().settings.auto_enable_new_capabilities;
        let choice = self.preferences().choice(upstream.id, kind, key);
        CapabilityView {
            kind,
            key: key.to_owned(),
            enabled: choice.map_or(policy, |choice| choice.enabled),
            live: false,
            exposed: self.exposed(&upstream.name, kind, key),
            read_only: false,
            pinned: self.preferences().is_pinned(upstream.id, kind, key),
            first_seen_at: choice.map(|choice| choice.first_seen_at),
            last_seen_at: choice.and_then(|choice| choice.last_seen_at),
            item: None,
        }
    }

    fn exposed(&self, upstream: &UpstreamName, kind: CapabilityType, key: &str) -> String {
        match kind {
            CapabilityType::Tool | CapabilityType::Prompt => {
                ExposedName::new(upstream, key, self.settings().name_limit).to_string()
            }
            CapabilityType::Resource | CapabilityType::Template => key.to_owned(),
        }
    }
}
