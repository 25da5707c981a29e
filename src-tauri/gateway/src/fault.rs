//! What an app or a person is told when something didn't work: design section 5.4.

use serde::{Deserialize, Serialize};

use crate::names::UpstreamName;

/// The stable codes. Everything that can go wrong between an app and an upstream is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    UpstreamUnavailable,
    UpstreamTimeout,
    OutcomeUnknown,
    UpstreamNeedsSignIn,
    Paused,
    CapabilityDisabled,
    UnknownCapability,
}

impl Code {
    /// The JSON-RPC number. The protocol asks for -32602 where a name is unknown, and forbids new
    /// numbers in -32099…-32000, so ours lie outside the reserved range.
    pub const fn number(self) -> i32 {
        match self {
            Self::UpstreamUnavailable => -31001,
            Self::UpstreamTimeout => -31002,
            Self::OutcomeUnknown => -31003,
            Self::UpstreamNeedsSignIn => -31004,
            Self::Paused => -31005,
            Self::CapabilityDisabled | Self::UnknownCapability => -32602,
        }
    }

    /// Whether it makes sense for the app to ask again later by itself.
    pub const fn retryable(self) -> bool {
        matches!(self, Self::UpstreamUnavailable | Self::UpstreamTimeout | Self::Paused)
    }
}

/// One failure, in words that name the upstream and say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Fault {
    pub code: Code,
    pub upstream: Option<UpstreamName>,
    pub message: String,
    /// Since when, in milliseconds of Unix time, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
}

impl Fault {
    pub fn new(code: Code, upstream: Option<&UpstreamName>, message: impl Into<String>) -> Self {
        Self { code, upstream: upstream.cloned(), message: message.into(), since: None }
    }

    pub fn unavailable(upstream: &UpstreamName, why: impl std::fmt::Display) -> Self {
        Self::new(
            Code::UpstreamUnavailable,
            Some(upstream),
            format!("{upstream} is unavailable: {why}"),
        )
    }

    #[must_use]
    pub fn since(mut self, since: Option<i64>) -> Self {
        self.since = since;
        self
    }

    /// The object under `traygate/error` in a tool result's `_meta`, and a JSON-RPC error's `data`.
    pub fn data(&self) -> serde_json::Value {
        serde_json::json!({
            "code": self.code,
            "upstream": self.upstream,
            "retryable": self.code.retryable(),
            "since": self.since,
        })
    }
}
