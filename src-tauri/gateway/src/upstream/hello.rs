//! What a server's first answer says: its era, its version, what it offers, who it is.

use serde_json::value::RawValue;

use super::{
    hints::Hints,
    link::Hello,
    wire::{Failure, FailureKind, Ran},
};
use crate::{
    definition::Era,
    json::{RawObject, as_str},
};

/// The revision of the modern era that Traygate speaks.
pub const MODERN: &str = "2026-07-28";
/// The legacy revisions, newest first. A server may answer `initialize` with any of them.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// What became of `server/discover`.
pub enum Discovery {
    Modern(Hello),
    /// Not an answer of the modern era.
    Legacy,
    /// Modern, in versions that Traygate doesn't speak.
    Foreign(Vec<String>),
}

pub fn discovered(result: &RawValue) -> Discovery {
    let Ok(result) = RawObject::parse(result) else { return Discovery::Legacy };
    let versions = result.get("supportedVersions").and_then(strings);
    let Some(versions) = versions else { return Discovery::Legacy };
    if versions.iter().any(|version| version == MODERN) {
        return Discovery::Modern(Hello {
            era: Era::Modern,
            version: MODERN.to_owned(),
            capabilities: result.object("capabilities").unwrap_or_default(),
            server: result
                .object("_meta")
                .and_then(|meta| meta.object("io.modelcontextprotocol/serverInfo"))
                .and_then(|info| introduced(&info)),
            instructions: result.str("instructions"),
            hints: Hints::of(&result),
        });
    }
    foreign_or_legacy(versions)
}

/// The errors that only the modern era has; its `supported` list says what to do.
pub fn refused(error: &RawValue) -> Discovery {
    let Ok(error) = RawObject::parse(error) else { return Discovery::Legacy };
    let code: Option<i64> = error.get("code").and_then(|code| code.get().parse().ok());
    if !matches!(code, Some(-32022..=-32020)) {
        return Discovery::Legacy;
    }
    let data = error.object("data").unwrap_or_default();
    foreign_or_legacy(data.get("supported").and_then(strings).unwrap_or_default())
}

/// A server may list legacy versions beside modern ones, and speaks those by `initialize` only.
fn foreign_or_legacy(versions: Vec<String>) -> Discovery {
    let all_legacy = !versions.is_empty() && versions.iter().all(|v| LEGACY.contains(&v.as_str()));
    if all_legacy { Discovery::Legacy } else { Discovery::Foreign(versions) }
}

pub fn legacy(result: &RawValue) -> Result<Hello, Failure> {
    let garbage = |why: String| Failure::new(FailureKind::Garbage, Ran::Perhaps, why);
    let result = RawObject::parse(result)
        .map_err(|_| garbage("its answer to initialize is not an object".to_owned()))?;
    let version = result
        .str("protocolVersion")
        .ok_or_else(|| garbage("its answer to initialize names no protocolVersion".to_owned()))?;
    if !LEGACY.contains(&version.as_str()) {
        return Err(garbage(format!(
            "it answered initialize with protocol version {version}, which Traygate doesn't speak (it speaks {}, and {MODERN} without initialize)",
            LEGACY.join(", ")
        )));
    }
    Ok(Hello {
        era: Era::Legacy,
        version,
        capabilities: result.object("capabilities").unwrap_or_default(),
        server: result.object("serverInfo").and_then(|info| introduced(&info)),
        instructions: result.str("instructions"),
        hints: Hints::NONE,
    })
}

fn introduced(info: &RawObject) -> Option<String> {
    let name = info.str("name")?;
    Some(match info.str("version") {
        Some(version) => format!("{name} {version}"),
        None => name,
    })
}

fn strings(list: &RawValue) -> Option<Vec<String>> {
    let list: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    Some(list.into_iter().filter_map(as_str).collect())
}

pub fn refusal(method: &str, error: &RawValue) -> Failure {
    let error = RawObject::parse(error).unwrap_or_default();
    let code: i32 = error.get("code").and_then(|code| code.get().parse().ok()).unwrap_or_default();
    let message = error.str("message").unwrap_or_default();
    Failure::new(
        FailureKind::Refused(code),
        Ran::Perhaps,
        format!("it refused {method}: {} ({code})", crate::text::one_line(&message, 200)),
    )
}

pub fn speaks_only(versions: &[String]) -> Failure {
    let theirs = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
    Failure::new(
        FailureKind::Garbage,
        Ran::CertainlyNot,
        format!(
            "it supports protocol versions that Traygate doesn't speak ({theirs}); Traygate speaks {MODERN} and {}",
            LEGACY.join(", ")
        ),
    )
}
