//! What a modern result says about its own reuse, read from the text as it came: *absent* differs
//! from 0 and from every library's default (protocol 2026-07-28, "Caching").

use std::time::Duration;

use crate::json::RawObject;

/// A deadline further away than this is cut to it.
pub const LONGEST_TTL: Duration = Duration::from_hours(24);

/// Who may be served from a result (design section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Public,
    Private,
}

impl Scope {
    /// As the protocol writes it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
        }
    }

    /// Of two results in one answer.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == Self::Public { other } else { self }
    }
}

/// Both hints of one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    /// `None`: absent, or not a TTL. Never longer than [`LONGEST_TTL`].
    pub ttl: Option<Duration>,
    pub scope: Scope,
}

impl Hints {
    /// What may not be kept at all; also how a legacy result counts, whatever it says.
    pub const NONE: Self = Self { ttl: None, scope: Scope::Private };

    pub fn of(result: &RawObject) -> Self {
        let public = result.str("cacheScope").as_deref() == Some("public");
        Self {
            ttl: result.get("ttlMs").and_then(|ttl| milliseconds(ttl.get())),
            scope: if public { Scope::Public } else { Scope::Private },
        }
    }

    /// The time for which the result may be reused, if there is any.
    pub fn positive_ttl(self) -> Option<Duration> {
        self.ttl.filter(|ttl| !ttl.is_zero())
    }
}

/// A `ttlMs` is an integer of 0 or more, written as one; else it is as good as absent. A larger
/// one than fits is still one.
fn milliseconds(text: &str) -> Option<Duration> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let milliseconds = text.parse::<u64>().map_or(LONGEST_TTL, Duration::from_millis);
    Some(milliseconds.min(LONGEST_TTL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(members: &str) -> Hints {
        Hints::of(&serde_json::from_str(&format!("{{{members}}}")).expect("an object"))
    }

    #[test]
    fn only_an_integer_of_zero_or_more_is_a_ttl() {
        for (ttl, want) in [
            ("0", Some(Duration::ZERO)),
            ("1", Some(Duration::from_millis(1))),
            ("300000", Some(Duration::from_mins(5))),
            ("9223372036854775808", Some(LONGEST_TTL)),
            ("99999999999999999999999999", Some(LONGEST_TTL)),
            ("-1", None),
            ("-0", None),
            ("1.5", None),
            ("1000.0", None),
            ("1e3", None),
            ("1e300", None),
            ("\"60\"", None),
            ("null", None),
            ("true", None),
            ("[60]", None),
            ("{}", None),
        ] {
            assert_eq!(hints(&format!("\"ttlMs\":{ttl}")).ttl, want, "{ttl}");
        }
        assert_eq!(hints("").ttl, None, "absent");
    }

    #[test]
    fn only_the_very_word_makes_a_result_public() {
        assert_eq!(hints(r#""cacheScope":"public""#).scope, Scope::Public);
        for odd in
            ["\"private\"", "\"Public\"", "\"PUBLIC\"", "\" public\"", "\"\"", "null", "7", "[]"]
        {
            assert_eq!(hints(&format!("\"cacheScope\":{odd}")).scope, Scope::Private, "{odd}");
        }
        assert_eq!(hints(""), Hints::NONE, "absent");
    }
}
