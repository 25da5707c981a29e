//! One upstream's list of one type, as last read live: raw items next to the few fields that the
//! gateway needs. Immutable once read; nothing of it goes to the database.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
};

use serde_json::value::RawValue;

pub use super::hints::Scope;
use super::{hints::Hints, repair::repaired};
use crate::{
    capability::CapabilityType,
    clock::Moment,
    definition::{Era, LegacyTtl},
    json::{Members, RawObject, as_str, raw},
    names::{ExposedName, NameLimit, UpstreamName},
    text::count,
};

/// How many warnings are kept in words.
const WARNINGS: usize = 20;

/// One tool, resource, template or prompt.
#[derive(Debug)]
pub struct Item {
    pub key: String,
    /// As the upstream sent it (repaired where it would break the apps' whole list).
    pub raw: Box<RawValue>,
    /// Tools and prompts: the name that apps see.
    pub exposed: Option<ExposedName>,
    /// Where in `raw` the value of `name` or `uri` stands, with its quotes.
    key_at: Range<usize>,
    /// `annotations.readOnlyHint`
    pub read_only: bool,
    /// `annotations.idempotentHint`
    pub idempotent: bool,
    /// An `outputSchema` for something else than an object, which only modern apps understand.
    pub modern_output: bool,
    /// Of the raw text; differs when a description or a schema does.
    pub digest: u64,
}

impl Item {
    /// The item for an app of the legacy era, which refuses a whole list for such a schema.
    pub fn without_modern_output(&self) -> Option<Self> {
        let mut object = self.modern_output.then(|| RawObject::parse(&self.raw).ok()).flatten()?;
        object.retain(|key| key != "outputSchema");
        let raw = object.to_raw();
        let key_at = place(Members::of(&raw).ok()?.get("name")?, &raw);
        Some(Self {
            key: self.key.clone(),
            exposed: self.exposed.clone(),
            key_at,
            modern_output: false,
            raw,
            ..*self
        })
    }

    /// Appends the item with another name or URI in the place of its own; the rest byte for byte.
    pub fn write_as(&self, exposed: &str, out: &mut String) {
        let text = self.raw.get();
        out.push_str(&text[..self.key_at.start]);
        out.push_str(raw(exposed).get());
        out.push_str(&text[self.key_at.end..]);
    }
}

/// How long a catalogue may be used (design section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    Until(Moment),
    /// Only a `list_changed`, a refresh or a new link ends it.
    UntilTold,
    /// Stale as soon as it is read: a modern upstream that gave no valid `ttlMs`.
    Never,
}

impl Fresh {
    /// Of a modern result that came at this moment.
    pub fn of(hints: Hints, received: Moment) -> Self {
        hints.positive_ttl().map_or(Self::Never, |ttl| Self::Until(received.after(ttl)))
    }

    pub fn at(self, now: Moment) -> bool {
        match self {
            Self::Until(deadline) => now < deadline,
            Self::UntilTold => true,
            Self::Never => false,
        }
    }

    /// When it ends, if that is known now.
    pub const fn deadline(self) -> Option<Moment> {
        match self {
            Self::Until(deadline) => Some(deadline),
            Self::UntilTold | Self::Never => None,
        }
    }

    /// The one that ends first.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::UntilTold, one) | (one, Self::UntilTold) => one,
            (Self::Until(one), Self::Until(other)) => Self::Until(one.min(other)),
        }
    }
}

/// All pages of one list.
#[derive(Debug)]
pub struct Catalogue {
    pub kind: CapabilityType,
    pub items: Vec<Item>,
    /// What was wrong with what the upstream sent, in words.
    pub warnings: Vec<String>,
    pub fresh: Fresh,
    pub scope: Scope,
    by_key: HashMap<String, usize>,
    by_exposed: HashMap<ExposedName, usize>,
    /// Over all items, in order.
    pub digest: u64,
}

impl Catalogue {
    /// Of a server that doesn't have this type at all, for as long as that is known.
    pub fn empty(kind: CapabilityType, fresh: Fresh, scope: Scope) -> Self {
        Self {
            kind,
            items: Vec::new(),
            warnings: Vec::new(),
            fresh,
            scope,
            by_key: HashMap::new(),
            by_exposed: HashMap::new(),
            digest: 0,
        }
    }

    /// As hints that were read elsewhere have it.
    #[must_use]
    pub fn with(self, fresh: Fresh, scope: Scope) -> Self {
        Self { fresh, scope, ..self }
    }

    pub fn is_fresh(&self, now: Moment) -> bool {
        self.fresh.at(now)
    }

    pub fn get(&self, key: &str) -> Option<&Item> {
        self.by_key.get(key).map(|at| &self.items[*at])
    }

    pub fn exposed(&self, name: &str) -> Option<&Item> {
        self.by_exposed.get(name).map(|at| &self.items[*at])
    }
}

/// What the gateway must know to make a catalogue of pages.
#[derive(Clone, Debug)]
pub struct Reader {
    pub kind: CapabilityType,
    pub upstream: UpstreamName,
    pub name_limit: NameLimit,
    pub era: Era,
    pub legacy_ttl: LegacyTtl,
}

/// Pages on their way to becoming a catalogue.
#[derive(Debug)]
pub struct Pages {
    reader: Reader,
    items: Vec<Item>,
    by_key: HashMap<String, usize>,
    warnings: Vec<String>,
    untold: usize,
    /// The first item that came again word for word, and how many did.
    again: Option<(String, usize)>,
    /// The earliest end over the pages, each counted from when it came (modern only).
    fresh: Fresh,
    scope: Scope,
}

/// One page that isn't a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its answer to {method} has no list of {member}")]
pub struct NoList {
    method: &'static str,
    member: &'static str,
}

impl Pages {
    pub fn new(reader: Reader) -> Self {
        Self {
            reader,
            items: Vec::new(),
            by_key: HashMap::new(),
            warnings: Vec::new(),
            untold: 0,
            again: None,
            fresh: Fresh::UntilTold,
            scope: Scope::Public,
        }
    }

    pub fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS {
            self.warnings.push(warning);
        } else {
            self.untold += 1;
        }
    }

    /// The list isn't all there: what a person must read before anything else.
    pub fn cut_short(&mut self, warning: String) {
        self.warnings.insert(0, warning);
    }

    /// Takes one page in, as it came at this moment, and returns the cursor of the next. Any string
    /// is a cursor, the empty one too (protocol 2026-07-28, "Pagination").
    pub fn take(&mut self, page: &RawValue, received: Moment) -> Result<Option<String>, NoList> {
        let kind = self.reader.kind;
        let no_list = NoList { method: kind.list_method(), member: kind.list_member() };
        let page = RawObject::parse(page).map_err(|_| no_list.clone())?;
        let items = page.get(kind.list_member()).ok_or(no_list.clone())?;
        let items: Vec<&RawValue> = serde_json::from_str(items.get()).map_err(|_| no_list)?;
        for item in items {
            self.add(item);
        }
        let hints = Hints::of(&page);
        self.fresh = self.fresh.and(Fresh::of(hints, received));
        self.scope = self.scope.and(hints.scope);
        let cursor = page.get("nextCursor").filter(|cursor| cursor.get() != "null");
        let Some(cursor) = cursor else { return Ok(None) };
        let text = as_str(cursor);
        if text.is_none() {
            self.cut_short(format!(
                "{} gave a nextCursor that is not a string; later pages are missing",
                kind.list_method()
            ));
        }
        Ok(text)
    }

    fn add(&mut self, item: &RawValue) {
        let kind = self.reader.kind;
        let item = match repaired(kind, item) {
            Ok((item, repairs)) => {
                for repair in repairs {
                    self.warn(repair);
                }
                item
            }
            Err(why) => return self.warn(why),
        };
        let seen = Members::of(&item).expect("`repaired` lets only objects pass");
        let key_value = seen.get(kind.key_member()).expect("`repaired` lets only keyed items pass");
        let key = as_str(key_value).expect("`repaired` lets only string keys pass");
        if let Some(at) = self.by_key.get(&key) {
            // A server that repeats a page repeats all of it.
            if self.items[*at].raw.get() == item.get() {
                self.again.get_or_insert((key, 0)).1 += 1;
                return;
            }
            return self.warn(format!("{kind} {key:?} is listed twice; the first one stays"));
        }
        let key_at = place(key_value, &item);
        let annotations = seen.get("annotations").and_then(|one| Members::of(one).ok());
        let hints = |name| {
            let hint = annotations.as_ref().and_then(|annotations| annotations.get(name));
            hint.is_some_and(|value| value.get() == "true")
        };
        let exposed = matches!(kind, CapabilityType::Tool | CapabilityType::Prompt)
            .then(|| ExposedName::new(&self.reader.upstream, &key, self.reader.name_limit));
        let mut hasher = DefaultHasher::new();
        item.get().hash(&mut hasher);
        self.by_key.insert(key.clone(), self.items.len());
        self.items.push(Item {
            key,
            exposed,
            key_at,
            read_only: hints("readOnlyHint"),
            idempotent: hints("idempotentHint"),
            modern_output: seen.get("outputSchema").is_some_and(|schema| {
                let schema = RawObject::parse(schema).unwrap_or_default();
                schema.str("type").as_deref() != Some("object")
            }),
            digest: hasher.finish(),
            raw: item,
        });
    }

    /// The catalogue, whose last page came at `received`, fresh as its era has it.
    pub fn into_catalogue(mut self, received: Moment) -> Catalogue {
        if let Some((first, number)) = &self.again {
            let others = match number - 1 {
                0 => String::new(),
                more => format!(" and {}", count(more, "more")),
            };
            let kind = self.reader.kind;
            self.warnings.push(format!(
                "{kind} {first:?}{others} came again word for word; each is shown once"
            ));
        }
        if self.untold > 0 {
            self.warnings.push(format!("and {}", count(self.untold, "more warning")));
        }
        let fresh = match self.reader.era {
            Era::Legacy => match self.reader.legacy_ttl.duration() {
                Some(ttl) => Fresh::Until(received.after(ttl)),
                None => Fresh::UntilTold,
            },
            Era::Modern => self.fresh,
        };
        let scope = match self.reader.era {
            Era::Legacy => Scope::Private,
            Era::Modern => self.scope,
        };
        let by_exposed = (self.items.iter().enumerate())
            .filter_map(|(at, item)| item.exposed.clone().map(|name| (name, at)))
            .collect();
        let mut hasher = DefaultHasher::new();
        for item in &self.items {
            item.digest.hash(&mut hasher);
        }
        Catalogue {
            kind: self.reader.kind,
            items: self.items,
            warnings: self.warnings,
            fresh,
            scope,
            by_key: self.by_key,
            by_exposed,
            digest: hasher.finish(),
        }
    }
}

/// Where a value that was read from an item stands in it.
fn place(value: &RawValue, item: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr() as usize - item.get().as_ptr() as usize;
    start..start + value.get().len()
}

#[cfg(test)]
mod tests;
