//! JSON-RPC as text: what comes in is cut, what goes out is written, nothing is rebuilt.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

/// One message that came in.
#[derive(Debug, Deserialize)]
pub struct Message {
    #[serde(default, deserialize_with = "present")]
    pub id: Option<Box<RawValue>>,
    pub method: Option<String>,
    pub params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    pub result: Option<Box<RawValue>>,
    pub error: Option<Box<RawValue>>,
}

/// An `Option` would take `null` for absence.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

impl Message {
    /// The params, for looking into.
    pub fn params(&self) -> Value {
        self.params.as_deref().map(|params| tree(params.get())).unwrap_or_default()
    }

    /// The text of one member of the params, as it came.
    pub fn raw_param(&self, name: &str) -> Option<Box<RawValue>> {
        let params = self.params.as_deref()?;
        let mut members: std::collections::HashMap<String, Box<RawValue>> =
            serde_json::from_str(params.get()).ok()?;
        members.remove(name)
    }
}

/// As much of a JSON text as fits a tree, for looking into: members that are too deep, or hold
/// numbers or texts that a tree can't, are null.
pub fn tree(text: &str) -> Value {
    // A message, its params, their `_meta`, and what stands in there.
    part(text, 4)
}

fn part(text: &str, levels: usize) -> Value {
    if let Ok(value) = serde_json::from_str(text) {
        return value;
    }
    let members = serde_json::from_str::<std::collections::HashMap<String, Box<RawValue>>>(text);
    match members {
        Ok(members) if levels > 0 => members
            .into_iter()
            .map(|(key, value)| (key, part(value.get(), levels - 1)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        _ => Value::Null,
    }
}

/// A JSON-RPC error to answer with, and what HTTP says with it.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: i64,
    pub message: String,
    /// JSON text.
    pub data: Option<String>,
    pub status: u16,
}

impl Refusal {
    /// No answer at all: the stream is closed.
    pub const CLOSED: Self = Self { code: 0, message: String::new(), data: None, status: 0 };

    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, status: 200 }
    }

    pub fn params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    #[must_use]
    pub fn data(mut self, data: impl Into<String>) -> Self {
        self.data = Some(data.into());
        self
    }

    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn text(&self, id: Option<&RawValue>) -> String {
        let data = self.data.as_ref().map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{},"message":{}{data}}}}}"#,
            id.map_or("null", RawValue::get),
            self.code,
            json!(self.message),
        )
    }
}

/// `result` is JSON text.
pub fn answer(id: &RawValue, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.get())
}

pub fn notification(method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

pub fn request(id: &str, method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#)
}

/// Puts members (JSON text, without braces) before those of an object's text.
pub fn with_members(members: &str, object: &str) -> String {
    let rest = object.strip_prefix('{').unwrap_or(object);
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    format!("{{{members}{comma}{rest}")
}
