//! Comparing JSON as text, member by member, where a tree would lose digits and order.

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};
use traygate_gateway::json::RawObject;

/// The members of an object in their order, each with its text.
///
/// # Panics
/// If the text is no JSON object.
pub fn members(text: &str) -> Vec<(String, String)> {
    let object: RawObject =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("no object ({error}): {text}"));
    object.iter().map(|(key, value)| (key.to_owned(), value.get().to_owned())).collect()
}

/// Asserts that `text` holds all members of `original` to the byte and in their order; a gateway may
/// add members of its own, also to `_meta`.
pub fn assert_carries(text: &str, original: &str) {
    let found: BTreeMap<_, _> = members(text).into_iter().collect();
    let wanted = members(original);
    for (key, value) in &wanted {
        let Some(carried) = found.get(key) else { panic!("{key} is missing in {text}") };
        if key == "_meta" {
            assert_carries(carried, value);
        } else {
            assert_eq!(carried, value, "{key} passes unchanged, to the digit");
        }
    }
    let order = |members: &[(String, String)]| -> Vec<String> {
        let keys = members.iter().map(|(key, _)| key.clone());
        keys.filter(|key| wanted.iter().any(|(wanted, _)| wanted == key)).collect()
    };
    assert_eq!(order(&members(text)), order(&wanted), "the members keep their order");
}

/// The items of a list's member, each as its text.
pub fn items(result: &RawValue, member: &str) -> Vec<Box<RawValue>> {
    let object = RawObject::parse(result).unwrap_or_default();
    object.get(member).and_then(|items| serde_json::from_str(items.get()).ok()).unwrap_or_default()
}

/// A tree, for looking into.
pub fn tree(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}
