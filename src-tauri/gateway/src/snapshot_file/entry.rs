//! One catalogue as it stands in the snapshot file.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, value::RawValue};
use sha2::{Digest as _, Sha256};

use crate::{
    capability::CapabilityType,
    names::UpstreamName,
    text::hex,
    upstream::{
        catalogue::Catalogue,
        hints::{LONGEST_TTL, Scope},
    },
};

/// An entry with its items: as they were read back, or in the catalogue that is to be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry<Items> {
    pub upstream: UpstreamName,
    /// The fingerprint of its definition.
    pub definition: String,
    #[serde(rename = "type")]
    pub kind: CapabilityType,
    pub items: Items,
    pub warnings: Vec<String>,
    /// As the protocol writes it. Nothing but `public` is ever written or believed.
    pub scope: String,
    /// The end of its freshness, and when it was read, in milliseconds of Unix time.
    pub until: i64,
    pub written_at: i64,
}

/// As it was read back.
pub type Stored = Entry<Vec<Box<RawValue>>>;

/// The items of a catalogue, each as the upstream sent it.
#[derive(Clone, Debug)]
pub struct Listed(pub Arc<Catalogue>);

impl Serialize for Listed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.items.iter().map(|item| &item.raw))
    }
}

/// Why an entry is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it is not public")]
    NotPublic,
    #[error("it was written in the future")]
    FromTheFuture,
    #[error("its time is longer than any")]
    TooLong,
    #[error("its time is over")]
    Over,
}

impl Stored {
    /// Whether it may be used at this moment of the wall clock.
    pub fn check(&self, now: i64) -> Result<(), Refusal> {
        if self.scope != Scope::Public.word() {
            return Err(Refusal::NotPublic);
        }
        if self.written_at > now {
            return Err(Refusal::FromTheFuture);
        }
        let longest = LONGEST_TTL.as_millis() as i64;
        if self.until.saturating_sub(self.written_at) > longest {
            return Err(Refusal::TooLong);
        }
        if self.until <= now {
            return Err(Refusal::Over);
        }
        Ok(())
    }
}

/// The format's version. It follows from the shape of an entry, so that no change of it can be
/// forgotten.
pub fn format() -> &'static str {
    static FORMAT: OnceLock<String> = OnceLock::new();
    FORMAT.get_or_init(|| {
        let sample = serde_json::to_value(sample()).expect("texts and numbers serialize");
        let digest = Sha256::digest(shape(&sample).as_bytes());
        format!("traygate-catalogues-{}", hex(&digest[..8]))
    })
}

/// Every member, with a value of its kind.
fn sample() -> Stored {
    Entry {
        upstream: UpstreamName::parse("a").expect("a valid name"),
        definition: String::new(),
        kind: CapabilityType::Tool,
        items: vec![crate::json::raw(&"any")],
        warnings: vec![String::new()],
        scope: String::new(),
        until: 0,
        written_at: 0,
    }
}

/// The names and kinds of everything in a value, in the order of the names.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "text".to_owned(),
        Value::Array(items) => format!("[{}]", items.first().map(shape).unwrap_or_default()),
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(name, value)| format!("{name}:{}", shape(value))).collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_from_an_entrys_shape() {
        let sample = serde_json::to_value(sample()).expect("json");
        assert_eq!(
            shape(&sample),
            "{definition:text,items:[text],scope:text,type:text,until:number,upstream:text,warnings:[text],written_at:number}"
        );
        let mut other = sample.clone();
        other["origin"] = "x".into();
        assert_ne!(shape(&sample), shape(&other));
    }

    #[test]
    fn only_a_public_entry_of_the_past_with_time_left_is_used() {
        let now = 1_000_000_000_000;
        let entry =
            Entry { scope: "public".to_owned(), written_at: now - 1, until: now + 1, ..sample() };
        assert_eq!(entry.check(now), Ok(()));
        for (entry, why) in [
            (Entry { scope: "private".to_owned(), ..entry.clone() }, Refusal::NotPublic),
            (Entry { scope: "Public".to_owned(), ..entry.clone() }, Refusal::NotPublic),
            (Entry { scope: String::new(), ..entry.clone() }, Refusal::NotPublic),
            (Entry { written_at: now + 1, ..entry.clone() }, Refusal::FromTheFuture),
            (Entry { until: now, ..entry.clone() }, Refusal::Over),
            (Entry { until: i64::MAX, ..entry.clone() }, Refusal::TooLong),
            (Entry { until: i64::MAX, written_at: i64::MIN, ..entry.clone() }, Refusal::TooLong),
        ] {
            assert_eq!(entry.check(now), Err(why));
        }
    }
}
