//! One request of an app, as the journal keeps it: who used what, for how long, and how it ended.

use serde::{Deserialize, Serialize};

use crate::{capability::CapabilityType, fault::Code, names::UpstreamName, store::UpstreamId};

/// A call, get, read or completion. There is no argument and no result in it, and no text of an
/// error: of what an upstream answers only the code is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename = "call")]
pub struct Invocation {
    /// When it began, in milliseconds of Unix time.
    pub at: i64,
    #[serde(skip)]
    pub upstream_id: Option<UpstreamId>,
    /// Absent where no upstream was found for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamName>,
    pub app: String,
    #[serde(rename = "type")]
    pub kind: CapabilityType,
    /// Absent where it would tell more than a capability's name: what a template was filled with,
    /// or a text that names nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub duration_ms: u64,
    pub outcome: Outcome,
    /// The number of the upstream's own error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// How an outage touched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched: Option<Touched>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    /// A tool's result with `isError`.
    ToolError,
    /// The upstream's own JSON-RPC error.
    Error,
    /// The app no longer wanted it.
    Cancelled,
    /// One of Traygate's stable codes.
    #[serde(untagged)]
    Fault(Code),
}

/// What an outage cost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Touched {
    /// There was no connection when it came; it waited for one.
    Waited,
    /// It was asked once more on a fresh connection.
    Repeated,
}

impl Invocation {
    /// Whether the story of an outage would be incomplete without it.
    pub fn belongs_to_an_outage(&self) -> bool {
        let by_outage = matches!(
            self.outcome,
            Outcome::Fault(
                Code::UpstreamUnavailable | Code::UpstreamTimeout | Code::UpstreamNeedsSignIn
            )
        );
        // An unknown outcome is an event of its own.
        by_outage
            || (self.touched.is_some() && self.outcome != Outcome::Fault(Code::OutcomeUnknown))
    }
}
