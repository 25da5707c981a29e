//! Items that would make apps throw a whole list away: put right in small things, or left out.

use serde_json::value::RawValue;

use crate::{
    capability::CapabilityType,
    json::{RawObject, as_str, raw},
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
    let left_out = |why: &str| format!("{kind} {key:?} was left out: {why}");
    // Parsers differ in which of two they take.
    if object.iter().filter(|(name, _)| *name == key_member).count() > 1 {
        return Err(left_out(&format!("it has {key_member} twice")));
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
        TEXTS.iter().find(|name| right.get(name).is_some() && right.str(name).is_none())
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
