//! What is different between two readings of a catalogue, by name: no text of it goes any further.

use super::catalogue::{Catalogue, Item};
use crate::events::{Fact, Names};

/// `None`: the same items, in whatever order.
pub fn between(old: &Catalogue, new: &Catalogue) -> Option<Fact> {
    if old.digest == new.digest {
        return None;
    }
    let only_in = |one: &'_ Catalogue, other: &Catalogue| -> Names {
        let items = one.items.iter().map(|item| item.key.as_str());
        items.filter(|key| other.get(key).is_none()).collect()
    };
    let differs =
        |item: &&Item| old.get(&item.key).is_some_and(|before| before.digest != item.digest);
    let added = only_in(new, old);
    let removed = only_in(old, new);
    let redescribed: Names =
        new.items.iter().filter(differs).map(|item| item.key.as_str()).collect();
    if added.is_empty() && removed.is_empty() && redescribed.is_empty() {
        return None;
    }
    Some(Fact::CatalogueChanged { kind: new.kind, added, removed, redescribed })
}
