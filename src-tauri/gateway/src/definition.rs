//! What the user says about an upstream: how to reach it, and how Traygate treats it.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::names::UpstreamName;

/// One upstream as the user defined it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    pub name: UpstreamName,
    pub transport: Transport,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default)]
    pub settings: UpstreamSettings,
}

fn yes() -> bool {
    true
}

/// How an upstream is reached. Every value of `env` and `headers` counts as a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Transport {
    /// A program on this machine that speaks MCP on its standard input and output.
    Stdio {
        command: String,
        #[serde(default)]
        args: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    },
    /// A server behind a URL.
    Http {
        url: String,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        flavour: HttpFlavour,
    },
}

impl Transport {
    /// Whether no network lies between.
    pub fn stays_on_this_machine(&self) -> bool {
        match self {
            Self::Stdio { .. } => true,
            Self::Http { url, .. } => Url::parse(url).is_ok_and(|url| is_on_this_machine(&url)),
        }
    }
}

pub fn is_on_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(domain)) => domain == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback() || address.is_unspecified(),
        Some(Host::Ipv6(address)) => address.is_loopback() || address.is_unspecified(),
        None => false,
    }
}

/// Which of MCP's HTTP transports a URL speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpFlavour {
    /// Streamable HTTP, and the old HTTP+SSE if the server turns that down.
    #[default]
    Auto,
    StreamableHttp,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// How Traygate treats one upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamSettings {
    /// Whether a capability never seen before starts enabled.
    pub auto_enable_new_capabilities: bool,
    pub legacy_ttl: LegacyTtl,
    pub isolation: Isolation,
    /// How long a list, read, get or completion may take, in seconds.
    pub request_timeout: u32,
    /// How long a call may be silent, in seconds; progress begins it anew.
    pub call_idle_timeout: u32,
    /// How long a call may take in all, in seconds.
    pub call_total_timeout: u32,
    pub notifications: bool,
    /// A program that no app has used for so many minutes is stopped until the next call; 0: never.
    pub idle_stop: u32,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            auto_enable_new_capabilities: true,
            legacy_ttl: LegacyTtl::default(),
            isolation: Isolation::default(),
            request_timeout: 30,
            call_idle_timeout: 5 * 60,
            call_total_timeout: 60 * 60,
            notifications: true,
            idle_stop: 0,
        }
    }
}

/// How long a legacy upstream's catalogue stays fresh: seconds, or `"until_told"` (only a
/// `list_changed`, a refresh or a new link ends it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LegacyTtl {
    Seconds(u32),
    UntilTold(UntilTold),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UntilTold {
    UntilTold,
}

impl Default for LegacyTtl {
    fn default() -> Self {
        Self::Seconds(60)
    }
}

impl LegacyTtl {
    /// `None`: for as long as nothing ends it.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::Seconds(seconds) => Some(Duration::from_secs(seconds.into())),
            Self::UntilTold(_) => None,
        }
    }
}

/// Whether all apps share one link to the upstream (design section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    #[default]
    Shared,
    Isolated,
}

/// The generation of the protocol that a link or an app speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// 2026-07-28 and later: stateless, no handshake.
    Modern,
    /// 2025-11-25 and earlier: `initialize` and sessions.
    Legacy,
}

/// The levels of syslog, from the least to the most severe (protocol 2025-11-25, "Logging").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Transport {
    /// One line for people, without any secret.
    pub fn summary(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => {
                shell_words::join(std::iter::once(command).chain(args))
            }
            Self::Http { url, .. } => match url::Url::parse(url) {
                Ok(mut parsed) => {
                    // A URL may carry a key in any of these.
                    let _ = parsed.set_password(None);
                    let _ = parsed.set_username("");
                    parsed.set_query(parsed.query().map(|_| "…"));
                    parsed.set_fragment(None);
                    parsed.to_string().replace("%E2%80%A6", "…")
                }
                Err(_) => "an unreadable URL".to_owned(),
            },
        }
    }
}
