//! What an upstream offers, known by (upstream, type, key): design section 1.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The four kinds of things an upstream lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapabilityType {
    Tool,
    Resource,
    Template,
    Prompt,
}

impl CapabilityType {
    pub const ALL: [Self; 4] = [Self::Tool, Self::Resource, Self::Template, Self::Prompt];

    /// The word in the database, in the control API and on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Template => "template",
            Self::Prompt => "prompt",
        }
    }

    /// The request that lists it.
    pub const fn list_method(self) -> &'static str {
        match self {
            Self::Tool => "tools/list",
            Self::Resource => "resources/list",
            Self::Template => "resources/templates/list",
            Self::Prompt => "prompts/list",
        }
    }

    /// The member of the list's result that holds the items.
    pub const fn list_member(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource => "resources",
            Self::Template => "resourceTemplates",
            Self::Prompt => "prompts",
        }
    }

    /// The member of an item that identifies it.
    pub const fn key_member(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }

    /// The capability that a server declares if it has any of these.
    pub const fn server_capability(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource | Self::Template => "resources",
            Self::Prompt => "prompts",
        }
    }

    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for CapabilityType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Not one of the four words.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a capability type; use tool, resource, template or prompt")]
pub struct UnknownType(String);

impl FromStr for CapabilityType {
    type Err = UnknownType;

    fn from_str(word: &str) -> Result<Self, UnknownType> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.word() == word || word.strip_suffix('s') == Some(kind.word()))
            .ok_or_else(|| UnknownType(word.to_owned()))
    }
}
