//! Names of upstreams, and the names under which their tools and prompts are exposed: design
//! section 3.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What the user calls an upstream: `[a-z0-9][a-z0-9-]{0,30}`, so it never contains `__`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UpstreamName(Arc<str>);

/// Why a text is no name for an upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error(
        "{0:?} can't name an upstream: use 1 to 31 of a-z, 0-9 and -, beginning with a letter or digit"
    )]
    Shape(String),
    #[error("\"traygate\" is reserved for Traygate itself; choose another name")]
    Reserved,
}

impl UpstreamName {
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let valid = !text.is_empty()
            && text.len() <= 31
            && !text.starts_with('-')
            && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        match text {
            "traygate" => Err(BadName::Reserved),
            _ if valid => Ok(Self(text.into())),
            _ => Err(BadName::Shape(text.to_owned())),
        }
    }

    /// The nearest valid name to what a README or another app's configuration calls a server.
    pub fn suggest(text: &str) -> Option<Self> {
        let mut name = String::new();
        for c in text.chars() {
            match c.to_ascii_lowercase() {
                c @ ('a'..='z' | '0'..='9') => name.push(c),
                _ if name.is_empty() || name.ends_with('-') => {}
                _ => name.push('-'),
            }
        }
        name.truncate(31);
        Self::parse(name.trim_end_matches('-')).ok()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UpstreamName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for UpstreamName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        Self::parse(&text)
    }
}

impl From<UpstreamName> for String {
    fn from(name: UpstreamName) -> Self {
        name.0.to_string()
    }
}

/// How long an exposed name may be, in bytes: 32 to 128. The default leaves room for the
/// `mcp__traygate__` that apps put before it in 64, and for Cursor's 60.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct NameLimit(u16);

impl Default for NameLimit {
    fn default() -> Self {
        Self(49)
    }
}

impl TryFrom<u16> for NameLimit {
    type Error = String;

    fn try_from(bytes: u16) -> Result<Self, String> {
        if (32..=128).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(format!("a name limit of {bytes} is out of range; use 32 to 128"))
        }
    }
}

impl From<NameLimit> for u16 {
    fn from(limit: NameLimit) -> Self {
        limit.0
    }
}

/// The name of a tool or prompt as apps see it: `<upstream>__<name>`.
///
/// Always `[A-Za-z0-9_-]` and within the limit. It depends on (upstream, name, limit) only, never
/// on the order of connection or on other upstreams, and two names of one upstream never share
/// one: a name that had to be changed ends in a hash, and a name that already looks like that is
/// given one too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ExposedName(Arc<str>);

/// Lookups by text. The name hashes and compares as its text does.
impl std::borrow::Borrow<str> for ExposedName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// `_` and eight digits of 32 symbols: 40 bits.
const HASH_LENGTH: usize = 9;
const SYMBOLS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl ExposedName {
    pub fn new(upstream: &UpstreamName, name: &str, limit: NameLimit) -> Self {
        let limit = usize::from(limit.0);
        let joined = format!("{upstream}__{name}");
        let plain = !name.is_empty() && joined.bytes().all(is_plain) && joined.len() <= limit;
        if plain && !looks_hashed(name) {
            return Self(joined.into());
        }
        let mut exposed: String = joined
            .chars()
            .map(|c| if c.is_ascii() && is_plain(c as u8) { c } else { '_' })
            .collect();
        exposed.truncate(limit - HASH_LENGTH);
        exposed.push('_');
        exposed.push_str(&hash(upstream, name));
        Self(exposed.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExposedName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn looks_hashed(name: &str) -> bool {
    name.as_bytes().last_chunk::<HASH_LENGTH>().is_some_and(|[underscore, digits @ ..]| {
        *underscore == b'_' && digits.iter().all(|digit| SYMBOLS.contains(digit))
    })
}

fn hash(upstream: &UpstreamName, name: &str) -> String {
    let digest = Sha256::new()
        .chain_update(upstream.as_str())
        .chain_update([0])
        .chain_update(name)
        .finalize();
    digest[..HASH_LENGTH - 1]
        .iter()
        .map(|byte| char::from(SYMBOLS[usize::from(byte % 32)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn upstream(name: &str) -> UpstreamName {
        UpstreamName::parse(name).expect("a valid name")
    }

    fn exposed(name: &str) -> String {
        ExposedName::new(&upstream("files"), name, NameLimit::default()).to_string()
    }

    #[test]
    fn a_name_that_fits_is_only_prefixed() {
        assert_eq!(exposed("read_file"), "files__read_file");
    }

    #[test]
    fn a_long_or_odd_name_is_cleaned_and_ends_in_a_hash() {
        let long = "x".repeat(200);
        for name in ["a.b", "a/b", "ä", "", long.as_str()] {
            let exposed = exposed(name);
            assert!(looks_hashed(&exposed), "{exposed}");
            assert!(exposed.len() <= 49, "{exposed}");
        }
    }

    #[test]
    fn a_name_that_looks_hashed_can_not_pretend_to_be_another() {
        let victim = exposed("a.b");
        let forged = victim.strip_prefix("files__").expect("the prefix").to_owned();
        assert_ne!(exposed(&forged), victim);
    }

    #[test]
    fn names_of_upstreams_are_checked() {
        for good in ["a", "0", "git-hub", &"a".repeat(31)] {
            assert!(UpstreamName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a_b", "a b", "ä", "traygate", &"a".repeat(32)] {
            assert!(UpstreamName::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(UpstreamName::suggest("My Server.v2!"), Some(upstream("my-server-v2")));
        assert_eq!(UpstreamName::suggest("!!"), None);
    }

    proptest! {
        #[test]
        fn exposed_names_are_injective_stable_valid_and_short(
            names in proptest::collection::hash_set(".{0,200}|[a-z_]{1,60}", 1..40),
            limit in 32u16..=128,
        ) {
            let limit = NameLimit::try_from(limit).expect("in range");
            let upstream = upstream("an-upstream-of-thirty-one-chars");
            let exposed: Vec<_> = names.iter().map(|n| ExposedName::new(&upstream, n, limit)).collect();
            for (name, exposed) in names.iter().zip(&exposed) {
                prop_assert!(exposed.as_str().bytes().all(is_plain));
                prop_assert!(exposed.as_str().len() <= usize::from(u16::from(limit)));
                prop_assert_eq!(exposed, &ExposedName::new(&upstream, name, limit));
            }
            prop_assert_eq!(exposed.iter().collect::<HashSet<_>>().len(), names.len());
        }
    }
}
