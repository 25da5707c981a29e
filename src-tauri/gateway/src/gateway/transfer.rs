//! Export and import: definitions, preferences and settings, without secrets.

use std::collections::BTreeMap;

use super::{Gateway, manage::Refused};
use crate::{
    api::{Export, ExportedPreference, ExportedUpstream, Imported},
    capability::CapabilityType,
    clock::wall,
    definition::{Definition, Transport},
    events::{By, Fact},
    lock::lock,
    settings::{INTERNAL, Settings},
    upstream::Upstream,
};

/// The format that this program writes and reads.
const FORMAT: u32 = 1;

impl Gateway {
    pub fn export(&self) -> Export {
        let settings = lock(&self.stored_settings)
            .iter()
            .filter(|(key, _)| !key.starts_with(INTERNAL))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let upstreams = self.upstreams().iter().map(|upstream| self.exported(upstream)).collect();
        Export { traygate_export: FORMAT, upstreams, settings }
    }

    fn exported(&self, upstream: &Upstream) -> ExportedUpstream {
        let preferences = CapabilityType::ALL.into_iter().flat_map(|kind| {
            self.preferences().of(upstream.id, kind).into_iter().map(move |(key, choice)| {
                ExportedPreference {
                    pinned: self.preferences().is_pinned(upstream.id, kind, &key),
                    kind,
                    key,
                    enabled: choice.enabled,
                }
            })
        });
        ExportedUpstream {
            definition: without_secrets(&upstream.definition()),
            preferences: preferences.collect(),
        }
    }

    /// Adds what isn't there; of what is, only the preferences are taken over. Whatever is refused
    /// is said, and doesn't keep the rest out.
    pub async fn import(&self, by: By, import: Export) -> Result<Imported, Refused> {
        if import.traygate_export != FORMAT {
            return Err(Refused::BadInput(format!(
                "this export has format {}, and this version of Traygate reads format {FORMAT}; export it again with the same version",
                import.traygate_export
            )));
        }
        let mut imported = Imported::default();
        for (key, value) in &import.settings {
            if let Err(error) = self.import_setting(by, key, value).await {
                imported.notes.push(error.to_string());
            }
        }
        let _one_at_a_time = self.changing.lock().await;
        for ExportedUpstream { definition, preferences } in import.upstreams {
            let name = definition.name.clone();
            let upstream = if let Some(upstream) = self.upstream(&name) {
                imported.merged.push(name);
                upstream
            } else {
                imported.notes.extend(left_out(&definition));
                imported.added.push(name);
                let upstream = self.begin(definition).await?;
                self.did(by, Some((upstream.id, &upstream.name)), Fact::Added).await;
                upstream
            };
            for preference in preferences {
                let ExportedPreference { kind, key, enabled, pinned } = preference;
                self.preferences().set(upstream.id, kind, &key, enabled, wall()).await?;
                if pinned {
                    self.preferences().pin(upstream.id, kind, &key, true).await?;
                }
            }
        }
        self.changed();
        let (added, merged) = (imported.added.len(), imported.merged.len());
        self.did(by, None, Fact::Imported { added, merged }).await;
        Ok(imported)
    }

    async fn import_setting(&self, by: By, key: &str, value: &str) -> Result<(), Refused> {
        Settings::check(key, value)?;
        self.set(by, key, Some(value)).await.map(drop)
    }
}

/// Every value of an environment variable, a header or a URL's query stands as `${NAME}`.
pub fn without_secrets(definition: &Definition) -> Definition {
    let mut definition = definition.clone();
    match &mut definition.transport {
        Transport::Stdio { env, .. } => mask(env),
        Transport::Http { url, headers, .. } => {
            mask(headers);
            *url = masked_url(url);
        }
    }
    definition
}

fn mask(values: &mut BTreeMap<String, String>) {
    for (name, value) in values {
        *value = placeholder(name);
    }
}

fn placeholder(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("${{{name}}}")
}

fn masked_url(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else { return text.to_owned() };
    if url.password().is_some() {
        let _ = url.set_password(Some("PASSWORD"));
    }
    if url.query().is_none() {
        return if url.password().is_some() { url.to_string() } else { text.to_owned() };
    }
    let query: Vec<String> =
        url.query_pairs().map(|(name, _)| format!("{name}={}", placeholder(&name))).collect();
    url.set_query(None);
    format!("{url}?{}", query.join("&"))
}

/// What to say of the values that an export left out.
fn left_out(definition: &Definition) -> Option<String> {
    let values = match &definition.transport {
        Transport::Stdio { env, .. } => env,
        Transport::Http { headers, .. } => headers,
    };
    let blank =
        |(name, value): (&String, &String)| (*value == placeholder(name)).then(|| name.clone());
    let blanks: Vec<_> = values.iter().filter_map(blank).collect();
    (!blanks.is_empty()).then(|| {
        format!(
            "{} needs a value for {}: exports carry no secrets; set it in the environment of Traygate, or add the upstream again with it",
            definition.name,
            blanks.join(", ")
        )
    })
}
