//! JSON that is looked at without being rebuilt: payloads stay the bytes they were.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
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

/// A JSON object of which only the keys are read: their order is kept, and every key and value
/// stays the text it was. Of a doubled key the last value counts, as in most parsers.
#[derive(Clone, Debug, Default)]
pub struct RawObject(Vec<(Key, Box<RawValue>)>);

/// A key, and how it is written where that isn't the plain way: an escape that nothing asks for,
/// or half of a surrogate pair, which no text can hold.
#[derive(Clone, Debug)]
struct Key {
    /// What it is compared by; for one that is no text, its writing.
    name: String,
    written: Option<Box<RawValue>>,
}

impl Key {
    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), written: None }
    }

    fn read(written: &RawValue) -> Self {
        let name = meaning(written).into_owned();
        // Most are written plainly, and then nothing has to be kept of how.
        let plain = raw(&name).get() == written.get();
        Self { name, written: (!plain).then(|| written.to_owned()) }
    }
}

impl RawObject {
    pub fn parse(raw: &RawValue) -> serde_json::Result<Self> {
        serde_json::from_str(raw.get())
    }

    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(k, _)| k.name == key).map(|(_, v)| &**v)
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
        self.0.iter().map(|(key, value)| (key.name.as_str(), &**value))
    }

    /// Replaces in place, so that the order of the others does not change.
    pub fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().rev().find(|(k, _)| k.name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((Key::named(key), value)),
        }
    }

    /// `set`, for a builder's chain.
    #[must_use]
    pub fn with(mut self, key: &str, value: &(impl Serialize + ?Sized)) -> Self {
        self.set(key, raw(value));
        self
    }

    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(k, _)| keep(&k.name));
    }

    pub fn to_raw(&self) -> Box<RawValue> {
        if self.0.iter().all(|(key, _)| key.written.is_none()) {
            return raw(&Plain(self));
        }
        // serde_json writes every key its own way, so these are put together here, and looked
        // through once more.
        RawValue::from_string(self.to_text()).expect("members of JSON, put together as JSON")
    }

    /// The object as text.
    pub fn to_text(&self) -> String {
        let size = |(key, value): &(Key, Box<RawValue>)| key.name.len() + value.get().len() + 8;
        let mut text = String::with_capacity(2 + self.0.iter().map(size).sum::<usize>());
        text.push('{');
        for (at, (key, value)) in self.0.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            match &key.written {
                Some(written) => text.push_str(written.get()),
                None => text.push_str(raw(&key.name).get()),
            }
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        text
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Members(members) = Members::deserialize(deserializer)?;
        let owned = |(key, value): (&RawValue, &RawValue)| (Key::read(key), value.to_owned());
        Ok(Self(members.into_iter().map(owned).collect()))
    }
}

/// The members of an object, each a slice of its text.
#[derive(Debug, Default)]
pub struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'a> Members<'a> {
    pub fn of(object: &'a RawValue) -> serde_json::Result<Self> {
        serde_json::from_str(object.get())
    }

    /// The last member of this name, as most parsers have it.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Keys by what they mean; one that is no text is given as it is written.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Cow<'a, str>, &'a RawValue)> {
        self.0.iter().map(|(key, value)| (meaning(key), *value))
    }
}

fn meaning(key: &RawValue) -> Cow<'_, str> {
    let written = key.get();
    if !written.contains('\\') {
        return Cow::Borrowed(&written[1..written.len() - 1]);
    }
    as_str(key).map_or(Cow::Borrowed(written), Cow::Owned)
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// How deeply arrays and objects are nested; 0 for a plain value.
pub fn depth(value: &RawValue) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in value.get().bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth -= 1,
            _ => {}
        }
    }
    deepest
}

/// An object whose keys are all written the plain way.
struct Plain<'a>(&'a RawObject);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
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
    fn keys_keep_their_writing_and_are_found_by_what_they_mean() {
        let text = r#"{"\u0061":1,"\ud800":2,"é":3,"\/":4,"a\"b":5,"\u0061":6}"#;
        let mut object: RawObject = serde_json::from_str(text).expect("an object");
        assert_eq!(object.to_text(), text);
        assert_eq!(object.to_raw().get(), text);
        assert_eq!(object.get("a").map(RawValue::get), Some("6"), "the last of two");
        object.set("a", raw(&7));
        object.set("new", raw(&8));
        let want = text.replace(":6}", r#":7,"new":8}"#);
        assert_eq!(object.to_raw().get(), want);
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        for (text, want) in [("7", 0), (r#""[{""#, 0), (r#"{"a\"[":[[],{}],"b":1}"#, 3)] {
            let value: &RawValue = serde_json::from_str(text).expect("json");
            assert_eq!(depth(value), want, "{text}");
        }
    }

    #[test]
    fn a_null_result_is_a_result() {
        let message: Envelope = serde_json::from_str(r#"{"id":null,"result":null}"#).expect("json");
        assert_eq!(message.result.map(RawValue::get), Some("null"));
        assert_eq!(message.id.map(RawValue::get), Some("null"));
        assert!(message.error.is_none());
    }
}
