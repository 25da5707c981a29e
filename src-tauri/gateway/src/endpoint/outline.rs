//! What rmcp is shown of an app's message: enough to serve it, and nothing that it can't take.
//!
//! The handler reads the message itself, as the bytes it was. rmcp reads it into a tree whose parser
//! stops at 128 levels, at numbers beyond a double and at half a surrogate pair, and would refuse
//! the whole message for any of them.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::json::{Envelope, Members, RawObject, as_str, depth, raw};

/// Stands before an id or a progress token that rmcp can't take, or would write in another way, in
/// the string that it gets instead.
pub const MARK: &str = "traygate/id:";
/// Deeper members are kept from rmcp, which reads nothing that deep.
const DEEPEST: usize = 32;

/// The message for rmcp.
pub fn outline(message: &Envelope) -> Bytes {
    let mut shown = RawObject::default().with("jsonrpc", "2.0");
    if let Some(id) = message.id {
        shown.set("id", marked(id).into_owned());
    }
    if let Some(method) = &message.method {
        shown.set("method", raw(method.as_ref()));
    }
    if let Some(params) = message.params {
        shown.set("params", outlined(params));
    }
    // Of an answer only whether it is one: who asked fetches the bytes.
    if message.result.is_some() {
        shown.set("result", RawObject::default().to_raw());
    }
    if let Some(error) = message.error {
        shown.set("error", without_data(error));
    }
    shown.to_text().into()
}

fn outlined(params: &RawValue) -> Box<RawValue> {
    let Ok(members) = Members::of(params) else { return params.to_owned() };
    let mut shown = RawObject::default();
    for (key, value) in members.iter() {
        match &*key {
            "arguments" if value.get().starts_with('{') => {
                shown.set(&key, RawObject::default().to_raw());
            }
            "_meta" => shown.set(&key, outlined(value)),
            "requestId" | "progressToken" => shown.set(&key, marked(value).into_owned()),
            _ if is_readable(value) => shown.set(&key, value.to_owned()),
            _ => {}
        }
    }
    shown.to_raw()
}

/// Whether rmcp's parser takes it: no half of a surrogate pair, no number beyond a double, not too
/// deep.
fn is_readable(value: &RawValue) -> bool {
    depth(value) <= DEEPEST && serde_json::from_str::<serde_json::Value>(value.get()).is_ok()
}

fn without_data(error: &RawValue) -> Box<RawValue> {
    let Ok(mut error) = RawObject::parse(error) else { return error.to_owned() };
    error.retain(|key| matches!(key, "code" | "message"));
    error.to_raw()
}

/// An id as rmcp takes it and gives it back unchanged.
pub fn marked(id: &RawValue) -> Cow<'_, RawValue> {
    let text = id.get();
    let plain = match text.strip_prefix('"') {
        Some(string) => !string.contains('\\') && !string.starts_with(MARK),
        None => text.parse::<i64>().is_ok_and(|number| number.to_string() == text),
    };
    if plain || text == "null" {
        return Cow::Borrowed(id);
    }
    Cow::Owned(raw(&format!("{MARK}{text}")))
}

/// The id that an app gave, from one that rmcp writes.
pub fn unmarked(id: &RawValue) -> Option<Box<RawValue>> {
    let text = as_str(id)?;
    RawValue::from_string(text.strip_prefix(MARK)?.to_owned()).ok()
}

/// A message of rmcp's own with the app's ids in it; `None` if there is none to put right.
pub fn with_own_ids(message: &str) -> Option<String> {
    const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    let mut message: RawObject = serde_json::from_str(message).ok()?;
    let mut changed = put_right(&mut message, "id");
    for member in ["params", "result"] {
        let Some(mut object) = message.object(member) else { continue };
        let mut meta = object.object("_meta").unwrap_or_default();
        let tagged = put_right(&mut meta, SUBSCRIPTION);
        if tagged {
            object.set("_meta", meta.to_raw());
        }
        if put_right(&mut object, "requestId") || tagged {
            message.set(member, object.to_raw());
            changed = true;
        }
    }
    changed.then(|| message.to_text())
}

fn put_right(object: &mut RawObject, member: &str) -> bool {
    let Some(own) = object.get(member).and_then(unmarked) else { return false };
    object.set(member, own);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let message: Envelope = serde_json::from_str(text).expect("json");
        String::from_utf8(outline(&message).to_vec()).expect("text")
    }

    #[test]
    fn rmcp_sees_what_it_needs_to_serve_a_call() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x","arguments":{{"a":{deep}}},"future":{deep},"far":1e400,"_meta":{{"k":{deep},"half":"\ud800","progressToken":18446744073709551616}}}}}}"#
        );
        assert_eq!(
            shown(&text),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{},"_meta":{"progressToken":"traygate/id:18446744073709551616"}}}"#
        );
    }

    #[test]
    fn an_id_comes_back_as_it_was_written() {
        for id in [
            "18446744073709551616",
            "-9223372036854775809",
            "-0",
            r#""\ud800""#,
            r#""\u0061""#,
            r#""traygate/id:5""#,
        ] {
            let id: &RawValue = serde_json::from_str(id).expect("json");
            let marked = marked(id);
            assert!(marked.get().starts_with("\"traygate/id:"), "{marked}");
            assert_eq!(unmarked(&marked).expect("marked").get(), id.get());
            let answer = format!(
                r#"{{"jsonrpc":"2.0","id":{marked},"result":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{marked}}}}}}}"#
            );
            let want = answer.replace(marked.get(), id.get());
            assert_eq!(with_own_ids(&answer), Some(want));
        }
        for id in ["0", "-5", "9007199254740991", "9223372036854775807", r#""1""#, r#""""#] {
            let id: &RawValue = serde_json::from_str(id).expect("json");
            assert!(matches!(marked(id), Cow::Borrowed(_)), "{id} needs no mark");
            assert!(unmarked(id).is_none());
        }
    }
}
