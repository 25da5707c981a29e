//! JSON that is looked at without being rebuilt: payloads stay the bytes they were.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::{RawValue, to_raw_value};

/// One JSON-RPC message, top level only. The payloads borrow from the line or the body.
#[derive(Debug, Deserialize)]
pub struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    pub id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub params: Option<&'a RawValue>,
    /// `"result": null` is a result, and differs from no result.
    #[serde(borrow, default, deserialize_with = "present")]
    pub result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub error: Option<&'a RawValue>,
}

/// An `Option` would take `null` for absence.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Puts JSON on one line, as stdio and SSE need it. Raw line ends in JSON are white space (inside
/// strings they are escaped), so only the layout changes.
pub fn one_line(json: &mut [u8]) {
    for byte in json {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

/// Raw JSON made of something that always serializes: strings, numbers and the types of this
/// crate, whose map keys are strings.
pub fn raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("strings, numbers and maps with string keys always serialize")
}

/// A string member's text, if the value is a string.
pub fn as_str(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// A JSON object of which only the keys are read: their order is kept, and every value stays the
/// text it was. Of a doubled key the last value counts, as in most parsers.
#[derive(Clone, Debug, Default)]
pub struct RawObject(Vec<(String, Box<RawValue>)>);

impl RawObject {
    pub fn parse(raw: &RawValue) -> serde_json::Result<Self> {
        serde_json::from_str(raw.get())
    }

    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| &**v)
    }

    /// The text of a string member.
    pub fn str(&self, key: &str) -> Option<String> {
        self.get(key).and_then(as_str)
    }

    /// A member that is itself an object.
    pub fn object(&self, key: &str) -> Option<Self> {
        self.get(key).and_then(|value| Self::parse(value).ok())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_str(), &**value))
    }

    /// Replaces in place, so that the order of the others does not change.
    pub fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().rev().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// `set`, for a builder's chain.
    #[must_use]
    pub fn with(mut self, key: &str, value: &(impl Serialize + ?Sized)) -> Self {
        self.set(key, raw(value));
        self
    }

    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(k, _)| keep(k));
    }

    pub fn to_raw(&self) -> Box<RawValue> {
        raw(self)
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawObject;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut entries = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(RawObject(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_touches_one_member_and_leaves_the_rest_to_the_digit() {
        let text =
            r#"{"zeta":18446744073709551616,"alpha":{"b": 1e3},"name":"old","e":"\u00e9\/"}"#;
        let mut object: RawObject = serde_json::from_str(text).expect("an object");
        object.set("name", raw("new"));
        assert_eq!(
            object.to_raw().get(),
            text.replace("old", "new"),
            "order, digits, escapes and inner white space stay"
        );
    }

    #[test]
    fn a_null_result_is_a_result() {
        let message: Envelope = serde_json::from_str(r#"{"id":null,"result":null}"#).expect("json");
        assert_eq!(message.result.map(RawValue::get), Some("null"));
        assert_eq!(message.id.map(RawValue::get), Some("null"));
        assert!(message.error.is_none());
    }
}
