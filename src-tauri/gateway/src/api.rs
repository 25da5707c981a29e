//! The words of the control API (`/control/v1`), shared by the gateway, the command line and the
//! window. `docs/control-api.md` tells the routes.
//!
//! Times are milliseconds of Unix time; durations say their unit in their name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    capability::CapabilityType,
    definition::{Definition, Era, Transport, UpstreamSettings},
    fault::Code,
    names::UpstreamName,
};

/// Everything that the tray, the window and `traygate status` show, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Grows with each change, so that an older snapshot can be told from a newer one.
    pub revision: u64,
    pub version: String,
    pub pid: u32,
    /// `http://127.0.0.1:8717/mcp`
    pub endpoint: String,
    pub data_dir: String,
    pub started_at: i64,
    pub pause: Option<Pause>,
    /// Whether the user wants notifications at all.
    #[serde(default)]
    pub notifications: bool,
    /// In the user's order.
    pub upstreams: Vec<UpstreamView>,
    /// What the user pinned to the tray, in the same order.
    #[serde(default)]
    pub pins: Vec<PinView>,
    pub apps: Vec<AppView>,
}

impl Snapshot {
    /// When time alone makes it untrue: a list isn't fresh any more, or a pause is over.
    pub fn true_until(&self) -> Option<i64> {
        let lists = self.upstreams.iter().flat_map(|upstream| &upstream.catalogues);
        let fresh_until = lists.filter_map(|list| match list.freshness {
            Freshness::Fresh { until } => until,
            _ => None,
        });
        fresh_until.chain(self.pause.and_then(|pause| pause.until)).min()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpstreamView {
    pub name: UpstreamName,
    pub enabled: bool,
    /// One line, without secrets: `npx -y some-server`.
    pub reached_by: String,
    pub transport_kind: String,
    pub era: Option<Era>,
    pub protocol_version: Option<String>,
    /// `serverInfo` as the server gave it: name and version.
    pub server: Option<String>,
    pub state: State,
    /// Since when it is in this state.
    pub since: i64,
    /// While it is connecting: what its program last said on standard error, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// What went wrong last, however well it is now.
    #[serde(default)]
    pub last_error: Option<LastError>,
    /// How often Traygate healed it in the last 24 hours.
    #[serde(default)]
    pub heals: usize,
    pub catalogues: Vec<CatalogueView>,
    /// Its first tools, as many as the tray shows; its capabilities are all.
    #[serde(default)]
    pub tools: Vec<ToolView>,
    pub settings: UpstreamSettings,
}

/// One tool, as far as a menu shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolView {
    pub key: String,
    pub enabled: bool,
    /// Marked so by its upstream; unknown, and so `false`, while its list isn't read.
    pub read_only: bool,
}

/// What the user pinned to the tray.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinView {
    pub upstream: UpstreamName,
    #[serde(rename = "type")]
    pub kind: CapabilityType,
    pub key: String,
    pub enabled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    pub at: i64,
    pub reason: String,
}

/// The states of design section 5.2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Disabled,
    /// Not started yet.
    Idle,
    Connecting,
    Ready,
    /// The link is up; the last read of a catalogue failed.
    Degraded {
        error: String,
    },
    Unavailable {
        reason: String,
        /// When Traygate tries next by itself.
        next_try: Option<i64>,
    },
    NeedsSignIn {
        reason: String,
    },
    /// The command is missing or not executable.
    Misconfigured {
        reason: String,
    },
}

impl State {
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Degraded { .. } => "degraded",
            Self::Unavailable { .. } => "unavailable",
            Self::NeedsSignIn { .. } => "needs sign-in",
            Self::Misconfigured { .. } => "misconfigured",
        }
    }

    /// Why it isn't ready, if there is something to say.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Degraded { error: reason }
            | Self::Unavailable { reason, .. }
            | Self::NeedsSignIn { reason }
            | Self::Misconfigured { reason } => Some(reason),
            _ => None,
        }
    }
}

/// One of an upstream's four catalogues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueView {
    #[serde(rename = "type")]
    pub kind: CapabilityType,
    pub freshness: Freshness,
    /// How many there are: live ones if it was ever read, else those with a stored preference.
    pub total: usize,
    /// How many of them are enabled.
    pub on: usize,
    /// What was wrong with what the upstream sent, in words; one bad tool costs that tool.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Freshness {
    /// `None`: until the upstream says that it changed.
    Fresh {
        until: Option<i64>,
    },
    Stale {
        since: i64,
        because: String,
    },
    /// Never read well so far.
    Unavailable {
        because: String,
    },
    /// The server has none of these.
    Empty,
    /// The upstream is disabled.
    Off,
    /// Not read yet.
    Unread,
}

/// One app that may connect, and what was last seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppView {
    pub name: String,
    pub created_at: i64,
    pub last_seen_at: Option<i64>,
    /// What it called itself at its last handshake: `claude-code 2.1`.
    pub client: Option<String>,
    pub era: Option<Era>,
    pub protocol_version: Option<String>,
    /// How many tools its last `tools/list` gave it.
    pub listed_tools: Option<usize>,
    /// When that was.
    #[serde(default)]
    pub listed_at: Option<i64>,
    /// Open sessions (legacy) and subscriptions (modern).
    pub connections: usize,
    /// Since when there is at least one.
    #[serde(default)]
    pub connected_since: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub what: Paused,
    /// `None`: until the user resumes.
    pub until: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Paused {
    All,
    /// Tools that aren't marked read-only.
    Writes,
}

/// `GET /upstreams/{name}/capabilities`: what it offers and what the user chose.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Capabilities {
    pub upstream: UpstreamView,
    pub items: Vec<CapabilityView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
// Four answers to four questions, all of which can be yes.
#[allow(clippy::struct_excessive_bools)]
pub struct CapabilityView {
    #[serde(rename = "type")]
    pub kind: CapabilityType,
    pub key: String,
    pub enabled: bool,
    /// In the catalogue as last read; otherwise known from the stored preference only.
    pub live: bool,
    /// The name or URI that apps see.
    pub exposed: String,
    pub read_only: bool,
    pub pinned: bool,
    pub first_seen_at: Option<i64>,
    pub last_seen_at: Option<i64>,
    /// The item as the upstream sent it; only on `?live=true`, never stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Box<RawValue>>,
}

/// `POST /upstreams`: a definition, or several from a snippet as READMEs print them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Add {
    Definition(Box<Definition>),
    Snippet { snippet: String, name: Option<UpstreamName> },
}

/// What was added; and what the user should know about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Added {
    pub upstreams: Vec<UpstreamName>,
    pub notes: Vec<String>,
}

/// `PATCH /upstreams/{name}`: only what is given changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename: Option<UpstreamName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The place in the user's order, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Settings by name, as text or JSON: `legacy_ttl` = `120`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// `PATCH /upstreams/{name}/capabilities`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Toggle {
    #[serde(rename = "type")]
    pub kind: CapabilityType,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
}

/// `POST /upstreams/{name}/test` and `POST /test`: a fresh transient connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestReport {
    pub era: Era,
    pub protocol_version: String,
    pub server: Option<String>,
    /// How many of each type; absent where the server has none of the kind.
    pub found: BTreeMap<CapabilityType, usize>,
    pub connected_ms: u64,
    pub total_ms: u64,
    pub warnings: Vec<String>,
}

/// `POST /call`: a tool by its exposed name.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    pub tool: String,
    pub arguments: Box<RawValue>,
}

/// `POST /apps`, and the only time that the token is seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewApp {
    pub name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewToken {
    pub name: String,
    pub token: String,
    pub endpoint: String,
}

/// A line of an upstream's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub at: i64,
    /// `stderr`, `stdout` (noise between messages), `server` (a log notification) or `traygate`.
    pub from: String,
    pub text: String,
}

/// One setting with its value, its default and what it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingView {
    pub key: String,
    pub value: String,
    pub default: String,
    pub about: String,
}

/// `PUT /settings/{key}`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettingValue {
    pub value: String,
}

/// `POST /pause`
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PauseRequest {
    pub what: Paused,
    /// `None`: until the user resumes.
    pub seconds: Option<u64>,
}

/// `GET /export` and `POST /import`: what the user chose, without secrets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Export {
    /// The format's number; this program writes and reads 1.
    pub traygate_export: u32,
    pub upstreams: Vec<ExportedUpstream>,
    pub settings: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportedUpstream {
    /// Values of environment variables and headers stand as `${NAME}`.
    #[serde(flatten)]
    pub definition: Definition,
    #[serde(default)]
    pub preferences: Vec<ExportedPreference>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportedPreference {
    #[serde(rename = "type")]
    pub kind: CapabilityType,
    pub key: String,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// What an import did, and what it could not do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Imported {
    pub added: Vec<UpstreamName>,
    /// Already there: their preferences were merged.
    pub merged: Vec<UpstreamName>,
    pub notes: Vec<String>,
}

/// Every failure of the control API, with its HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub message: String,
    /// One of the stable codes, where an upstream or a capability is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamName>,
}

/// The run file: who hosts, where, and the token for the control API. Mode 0600.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    pub pid: u32,
    pub port: u16,
    pub token: String,
    pub version: String,
    /// `headless` or `desktop`.
    pub host: String,
}
