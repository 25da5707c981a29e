//! From a name or URI to the upstream that serves it: "if it lists, it calls" (design section 3).

use std::sync::Arc;

use super::{Asker, Gateway, View, uri};
use crate::{
    api::Paused,
    capability::CapabilityType,
    fault::{Code, Fault},
    names::{ExposedName, UpstreamName},
    nearest::nearest,
    upstream::{Upstream, ask::Nature, catalogue::Catalogue, reads::Ticket},
};

/// Where a request goes.
pub struct Route {
    pub upstream: Arc<Upstream>,
    pub kind: CapabilityType,
    /// The upstream's own name or URI of it.
    pub key: String,
    /// The key of the capability itself: for a URI that a template made, the template's. `None`
    /// for a URI that is no listed capability's.
    pub capability: Option<String>,
    pub nature: Nature,
    pub read_only: bool,
    /// A read whose result may be kept.
    pub keep: Option<Ticket>,
}

impl Gateway {
    /// A tool or prompt by the name that the app sees.
    pub async fn route(
        &self,
        asker: &Asker,
        kind: CapabilityType,
        name: &str,
    ) -> Result<Route, Fault> {
        let upstreams = self.visible(&asker.view);
        for upstream in &upstreams {
            if let Some(key) = listed(&asker.view, upstream, kind, name) {
                return self.allow(upstream, kind, key);
            }
        }
        if let Some((upstream, key)) = self.remembered(&asker.view, kind, name) {
            return self.allow(&upstream, kind, key);
        }
        // Never seen, but it may be new: one read decides.
        for upstream in &upstreams {
            if asker.view == View::All && !carries_prefix(name, &upstream.name) {
                continue;
            }
            upstream.hurry();
            upstream.catalogue(kind).await?;
            if let Some(key) = listed(&asker.view, upstream, kind, name) {
                return self.allow(upstream, kind, key);
            }
        }
        Err(self.unknown(asker, kind, name))
    }

    /// A resource by the URI that the app knows.
    pub async fn route_uri(&self, asker: &Asker, wanted: &str) -> Result<Route, Fault> {
        let kind = CapabilityType::Resource;
        let inside = |name: &UpstreamName| match &asker.view {
            View::All => true,
            View::One(one) => one == name,
        };
        if let Some((name, original)) = uri::original(wanted)
            && inside(&name)
            && let Some(upstream) = self.upstream(&name)
        {
            return self.allow_uri(&upstream, original);
        }
        let upstreams = self.visible(&asker.view);
        if let Some(upstream) = holder(&upstreams, |upstream| lists(upstream, kind, wanted)) {
            return self.allow_uri(upstream, wanted.to_owned());
        }
        if let Some((upstream, key)) = self.remembered(&asker.view, kind, wanted) {
            return self.allow_uri(&upstream, key);
        }
        let fits = |upstream: &Arc<Upstream>| template_of(upstream, wanted).is_some();
        if let Some(upstream) = holder(&upstreams, fits) {
            return self.allow_uri(upstream, wanted.to_owned());
        }
        if let Some(id) = self.handed_out(wanted)
            && let Some(upstream) = upstreams.iter().find(|upstream| upstream.id == id)
        {
            return self.allow_uri(upstream, wanted.to_owned());
        }
        // Nobody is known to have it: whoever was not read yet is asked what it lists.
        let mut away = None;
        for upstream in &upstreams {
            let unread = [kind, CapabilityType::Template]
                .into_iter()
                .filter(|kind| upstream.last_good(*kind).is_none());
            let mut looked = false;
            for kind in unread {
                // One that can't be read doesn't hide the resources of the others.
                match upstream.catalogue(kind).await {
                    Ok(_) => looked = true,
                    Err(fault) => away = away.or(Some(fault)),
                }
            }
            if looked && (lists(upstream, kind, wanted) || fits(upstream)) {
                return self.allow_uri(upstream, wanted.to_owned());
            }
        }
        // With only one that may have it, its own answer says more than ours.
        if let (View::One(_), [upstream]) = (&asker.view, &upstreams[..]) {
            return self.allow_uri(upstream, wanted.to_owned());
        }
        // One that is away may well have it.
        Err(away.unwrap_or_else(|| self.unknown(asker, kind, wanted)))
    }

    /// What goes under this name by the stored preferences, for an upstream that is away or switched off.
    fn remembered(
        &self,
        view: &View,
        kind: CapabilityType,
        name: &str,
    ) -> Option<(Arc<Upstream>, String)> {
        let limit = self.settings().name_limit;
        self.upstreams().into_iter().find_map(|upstream| {
            let key = match view {
                View::One(one) if upstream.name != *one => return None,
                View::One(_) => {
                    self.preferences().choice(upstream.id, kind, name).map(|_| name.to_owned())
                }
                View::All if kind == CapabilityType::Resource => {
                    self.preferences().choice(upstream.id, kind, name).map(|_| name.to_owned())
                }
                View::All => self
                    .preferences()
                    .of(upstream.id, kind)
                    .into_iter()
                    .map(|(key, _)| key)
                    .find(|key| ExposedName::new(&upstream.name, key, limit).as_str() == name),
            };
            key.map(|key| (upstream, key))
        })
    }

    /// Refuses what the user switched off, and what is paused.
    fn allow(
        &self,
        upstream: &Arc<Upstream>,
        kind: CapabilityType,
        key: String,
    ) -> Result<Route, Fault> {
        let definition = upstream.definition();
        if !definition.enabled {
            return Err(Fault::new(
                Code::CapabilityDisabled,
                Some(&upstream.name),
                format!("{} is disabled in Traygate; its user can enable it there", upstream.name),
            ));
        }
        let policy = definition.settings.auto_enable_new_capabilities;
        if !self.preferences().is_enabled(upstream.id, kind, &key, policy) {
            return Err(Fault::new(
                Code::CapabilityDisabled,
                Some(&upstream.name),
                format!(
                    "the {kind} {key:?} of {} is disabled in Traygate; its user can enable it there",
                    upstream.name
                ),
            ));
        }
        let catalogue = upstream.last_good(kind);
        let item = catalogue.as_ref().and_then(|catalogue| catalogue.get(&key));
        let read_only = item.is_some_and(|item| item.read_only);
        let nature = match kind {
            CapabilityType::Tool if read_only || item.is_some_and(|item| item.idempotent) => {
                Nature::RepeatableCall
            }
            CapabilityType::Tool => Nature::Call,
            _ => Nature::Harmless,
        };
        let route = Route {
            upstream: Arc::clone(upstream),
            kind,
            capability: Some(key.clone()),
            key,
            nature,
            read_only,
            keep: None,
        };
        self.check_pause(&route)?;
        Ok(route)
    }

    /// A resource is off if it is itself, or if it comes from a template that is.
    fn allow_uri(&self, upstream: &Arc<Upstream>, key: String) -> Result<Route, Fault> {
        let listed = lists(upstream, CapabilityType::Resource, &key)
            || self.preferences().choice(upstream.id, CapabilityType::Resource, &key).is_some();
        if let Some(template) = template_of(upstream, &key).filter(|_| !listed) {
            let route = self.allow(upstream, CapabilityType::Template, template)?;
            Ok(Route { key, ..route })
        } else {
            let route = self.allow(upstream, CapabilityType::Resource, key)?;
            Ok(Route { capability: route.capability.filter(|_| listed), ..route })
        }
    }

    fn check_pause(&self, route: &Route) -> Result<(), Fault> {
        let Some(pause) = self.pause() else { return Ok(()) };
        let stops = match pause.what {
            Paused::All => true,
            Paused::Writes => route.kind == CapabilityType::Tool && !route.read_only,
        };
        if !stops {
            return Ok(());
        }
        let what = match pause.what {
            Paused::All => "everything",
            Paused::Writes => "every tool that isn't read-only",
        };
        let until = match pause.until.and_then(|at| jiff::Timestamp::from_millisecond(at).ok()) {
            Some(at) => format!(
                "until {}",
                at.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M")
            ),
            None => "until its user resumes".to_owned(),
        };
        Err(Fault::new(
            Code::Paused,
            Some(&route.upstream.name),
            format!("Traygate has paused {what} {until}"),
        ))
    }

    fn unknown(&self, asker: &Asker, kind: CapabilityType, name: &str) -> Fault {
        let catalogues: Vec<Arc<Catalogue>> = self
            .visible(&asker.view)
            .iter()
            .filter_map(|upstream| upstream.last_good(kind))
            .collect();
        let known = catalogues.iter().flat_map(|catalogue| &catalogue.items).map(|item| {
            match (&asker.view, &item.exposed) {
                (View::All, Some(exposed)) => exposed.as_str(),
                _ => item.key.as_str(),
            }
        });
        let hint =
            nearest(name, known).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        let shown = crate::text::one_line(name, 200);
        Fault::new(Code::UnknownCapability, None, format!("unknown {kind} {shown:?}{hint}"))
    }
}

/// The upstream's key of what it lists under this name now.
fn listed(view: &View, upstream: &Upstream, kind: CapabilityType, name: &str) -> Option<String> {
    let catalogue = upstream.last_good(kind)?;
    let item = match view {
        View::All => catalogue.exposed(name),
        View::One(_) => catalogue.get(name),
    };
    item.map(|item| item.key.clone())
}

fn carries_prefix(name: &str, upstream: &UpstreamName) -> bool {
    name.strip_prefix(upstream.as_str()).is_some_and(|rest| rest.starts_with("__"))
}

fn lists(upstream: &Upstream, kind: CapabilityType, key: &str) -> bool {
    upstream.last_good(kind).is_some_and(|catalogue| catalogue.get(key).is_some())
}

fn template_of(upstream: &Upstream, wanted: &str) -> Option<String> {
    let catalogue = upstream.last_good(CapabilityType::Template)?;
    let fits = |key: &&str| uri::matches_template(key, wanted);
    catalogue.items.iter().map(|item| item.key.as_str()).find(fits).map(ToOwned::to_owned)
}

fn holder(
    upstreams: &[Arc<Upstream>],
    has: impl Fn(&Arc<Upstream>) -> bool,
) -> Option<&Arc<Upstream>> {
    upstreams.iter().find(|upstream| has(upstream))
}
