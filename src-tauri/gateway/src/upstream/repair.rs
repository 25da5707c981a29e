//! Items that would make apps throw a whole list away: put right in small things, or left out.

use serde_json::value::RawValue;

use crate::{
    capability::CapabilityType,
    json::{RawObject, as_str, depth, raw},
};

/// Members that apps expect to be of one kind, and refuse the whole list for if they aren't.
const TEXTS: [&str; 3] = ["title", "description", "mimeType"];
const OBJECTS: [&str; 3] = ["annotations", "_meta", "outputSchema"];

/// The item as it came, or with small things put right for which apps would throw away the whole
/// list; or why it is left out. One bad item costs that item.
pub fn repaired(
    kind: CapabilityType,
    item: &RawValue,
) -> Result<(Box<RawValue>, Vec<String>), String> {
    let object = RawObject::parse(item)
        .map_err(|_| format!("a {kind} that is not an object was left out"))?;
    let key_member = kind.key_member();
    let key = object
        .str(key_member)
        .ok_or_else(|| format!("a {kind} without a {key_member} was left out"))?;
    if key.is_empty() {
        return Err(format!("a {kind} with an empty {key_member} was left out"));
    }
    let left_out = |why: &str| format!("{kind} {key:?} was left out: {why}");
    // Parsers differ in which of two they take.
    if object.iter().filter(|(name, _)| *name == key_member).count() > 1 {
        return Err(left_out(&format!("it has {key_member} twice")));
    }
    if is_unreadable(item) {
        return Err(left_out(
            "many apps can't read its JSON, and would lose the whole list (half a surrogate pair, a number too large, or nested too deeply)",
        ));
    }
    let mut right = object.clone();
    let mut repairs = Vec::new();
    let optional = TEXTS.iter().chain(&OBJECTS).chain(&["icons"]);
    for name in optional.filter(|name| object.get(name).is_some_and(|value| value.get() == "null"))
    {
        right.retain(|member| member != *name);
        repairs.push(format!("{kind} {key:?} has a {name} of null; it is shown without it"));
    }
    if let Some(name) =
        TEXTS.iter().find(|name| right.get(name).is_some_and(|value| !value.get().starts_with('"')))
    {
        return Err(left_out(&format!("its {name} is not a text")));
    }
    if let Some(name) =
        OBJECTS.iter().find(|name| right.get(name).is_some() && right.object(name).is_none())
    {
        return Err(left_out(&format!("its {name} is not an object")));
    }
    let needs_name = matches!(kind, CapabilityType::Resource | CapabilityType::Template);
    if needs_name && object.str("name").is_none() {
        right.set("name", raw(&key));
        repairs.push(format!("{kind} {key:?} has no name; its URI serves as one"));
    }
    if kind == CapabilityType::Tool
        && let Some(schema) = input_schema(&object).map_err(left_out)?
    {
        right.set("inputSchema", schema);
        repairs.push(format!("the inputSchema of tool {key:?} does not say that it is for objects; apps see it with that"));
    }
    if repairs.is_empty() {
        return Ok((item.to_owned(), repairs));
    }
    Ok((right.to_raw(), repairs))
}

/// Whether usual parsers give up on an item, and with it on the list: they take no half of a
/// surrogate pair, no number beyond a double, and no more than 128 levels, of which a list's own
/// message has four.
fn is_unreadable(item: &RawValue) -> bool {
    let text = item.get();
    // Almost none is suspicious, and those are not parsed a second time.
    let suspicious = depth(item) > 100
        || text.contains("\\u")
        || text
            .as_bytes()
            .windows(2)
            .any(|pair| pair[0].is_ascii_digit() && matches!(pair[1], b'e' | b'E'))
        || text.bytes().filter(u8::is_ascii_digit).count() > 300;
    suspicious && (depth(item) > 124 || serde_json::from_str::<serde_json::Value>(text).is_err())
}

/// The root of an `inputSchema` must be for objects, and say so. A schema that allows objects
/// without saying so, or among others, is returned put right.
fn input_schema(tool: &RawObject) -> Result<Option<Box<RawValue>>, &'static str> {
    let schema = tool.get("inputSchema").ok_or("it has no inputSchema")?;
    let schema = RawObject::parse(schema).map_err(|_| "its inputSchema is not an object")?;
    let Some(types) = schema.get("type") else {
        return Ok(Some(schema.with("type", "object").to_raw()));
    };
    if as_str(types).as_deref() == Some("object") {
        return Ok(None);
    }
    if allows_objects(types) {
        return Ok(Some(schema.with("type", "object").to_raw()));
    }
    Err("its inputSchema is not for objects")
}

/// `"type": ["object", "null"]`
fn allows_objects(types: &RawValue) -> bool {
    let types: Option<Vec<&RawValue>> = serde_json::from_str(types.get()).ok();
    types.is_some_and(|types| types.iter().any(|one| as_str(one).as_deref() == Some("object")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(kind: CapabilityType, text: &str) -> Result<usize, String> {
        let item: Box<RawValue> = serde_json::from_str(text).expect("json");
        repaired(kind, &item).map(|(_, repairs)| repairs.len())
    }

    #[test]
    fn a_bad_item_of_any_kind_costs_itself_and_is_named() {
        for kind in CapabilityType::ALL {
            let key = kind.key_member();
            let name = if key == "name" { "" } else { r#""name":"x","# };
            let good =
                format!(r#"{{"{key}":"mem://x",{name}"inputSchema":{{"type":"object"}},"x":1e3}}"#);
            assert_eq!(outcome(kind, &good), Ok(0), "{kind}");
            let with = |member: &str| good.replace(r#""x":1e3"#, member);
            let deep = format!(r#""x":{}{}"#, "[".repeat(200), "]".repeat(200));
            for bad in [
                "7".to_owned(),
                r#"{"title":"nameless"}"#.to_owned(),
                good.replace("mem://x", ""),
                with(&format!(r#""{key}":"again""#)),
                with(r#""title":7"#),
                with(r#""_meta":[]"#),
                with(r#""x":"\ud800""#),
                with(r#""x":1e400"#),
                with(&deep),
            ] {
                let why = outcome(kind, &bad).expect_err(&bad);
                assert!(why.contains("left out") && why.contains(kind.word()), "{why}");
            }
            assert_eq!(outcome(kind, &with(r#""description":null"#)), Ok(1), "{kind}");
            assert_eq!(outcome(kind, &with(r#""x":"\ud83d\ude00 \u0000""#)), Ok(0), "{kind}");
        }
    }
}
