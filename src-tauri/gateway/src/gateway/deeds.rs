//! What a person did, as facts.

use super::Gateway;
use crate::{
    definition::{Definition, UpstreamSettings},
    events::{By, Event, Fact},
    names::UpstreamName,
    store::UpstreamId,
};

impl Gateway {
    /// Tells of a deed and the upstream that it was about. It is in the journal when this returns.
    pub(super) async fn did(
        &self,
        by: By,
        upstream: Option<(UpstreamId, &UpstreamName)>,
        fact: Fact,
    ) {
        let event = Event::new(fact).by(by);
        let event = match upstream {
            Some((id, name)) => event.of(id, name),
            None => event,
        };
        self.recorder.deed(event).await;
    }
}

/// What a change of a definition and its place amounts to.
pub(super) fn between(old: &Definition, new: &Definition, position: Option<usize>) -> Vec<Fact> {
    let mut facts = Vec::new();
    if new.name != old.name {
        facts.push(Fact::Renamed { from: old.name.clone() });
    }
    if new.transport != old.transport {
        facts.push(Fact::Edited);
    }
    let settings = different(&old.settings, &new.settings);
    if !settings.is_empty() {
        facts.push(Fact::SettingsChanged { settings });
    }
    if let Some(position) = position {
        facts.push(Fact::Moved { position });
    }
    if new.enabled != old.enabled {
        facts.push(if new.enabled { Fact::Enabled } else { Fact::Disabled });
    }
    facts
}

/// The settings that differ, by name.
fn different(old: &UpstreamSettings, new: &UpstreamSettings) -> Vec<String> {
    let members = |settings| match serde_json::to_value(settings) {
        Ok(serde_json::Value::Object(members)) => members,
        _ => serde_json::Map::new(),
    };
    let old = members(old);
    let new = members(new).into_iter();
    new.filter(|(key, value)| old.get(key) != Some(value)).map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Transport;

    #[test]
    fn a_change_is_told_part_by_part_and_without_values() {
        let old = Definition {
            name: UpstreamName::parse("files").expect("a name"),
            transport: Transport::Http {
                url: "http://127.0.0.1:1/mcp".to_owned(),
                headers: [("X-Key".to_owned(), "secret".to_owned())].into(),
                flavour: crate::definition::HttpFlavour::Auto,
            },
            enabled: true,
            settings: UpstreamSettings::default(),
        };
        assert_eq!(between(&old, &old, None), []);
        let mut new = old.clone();
        new.name = UpstreamName::parse("docs").expect("a name");
        new.enabled = false;
        new.settings.request_timeout = 9;
        new.settings.notifications = false;
        if let Transport::Http { headers, .. } = &mut new.transport {
            headers.clear();
        }
        let settings = vec!["notifications".to_owned(), "request_timeout".to_owned()];
        assert_eq!(
            between(&old, &new, Some(2)),
            [
                Fact::Renamed { from: old.name.clone() },
                Fact::Edited,
                Fact::SettingsChanged { settings },
                Fact::Moved { position: 2 },
                Fact::Disabled,
            ]
        );
    }
}
