//! From a person's text to a value, and back to the one way of writing it.

use std::{ops::RangeInclusive, time::Duration};

use url::Url;

use super::Kept;
use crate::{
    definition::{LegacyTtl, UntilTold},
    names::NameLimit,
};

pub const SWITCH: &str = "on or off";
pub const LEGACY_TTL: &str = "seconds from 0 to 86400, or until_told";

pub const DAYS: &str = "days from 1 to 36500, or forever";

pub fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

pub const fn show_switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

pub fn port(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|port| *port > 0)
}

pub fn budget(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    (0.1..=60.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

pub fn seconds(text: &str, range: RangeInclusive<u32>) -> Option<u32> {
    text.trim().parse().ok().filter(|seconds| range.contains(seconds))
}

/// Minutes; 0 is off.
pub fn minutes(text: &str) -> Option<u32> {
    match switch(text) {
        Some(false) => Some(0),
        _ => seconds(text, 1..=1440),
    }
}

pub fn legacy_ttl(text: &str) -> Option<LegacyTtl> {
    match text.trim().to_ascii_lowercase().replace(['-', ' '], "_").as_str() {
        "until_told" => Some(LegacyTtl::UntilTold(UntilTold::UntilTold)),
        _ => seconds(text, 0..=86_400).map(LegacyTtl::Seconds),
    }
}

pub fn show_legacy_ttl(ttl: LegacyTtl) -> String {
    match ttl {
        LegacyTtl::Seconds(seconds) => seconds.to_string(),
        LegacyTtl::UntilTold(_) => "until_told".to_owned(),
    }
}

pub fn days(text: &str) -> Option<Kept> {
    match text.trim().to_ascii_lowercase().replace(['-', '_', ' '], "").as_str() {
        "forever" => Some(Kept::ForEver),
        _ => text.trim().parse().ok().filter(|days| (1..=36_500).contains(days)).map(Kept::Days),
    }
}

pub fn show_days(kept: Kept) -> String {
    match kept {
        Kept::ForEver => "forever".to_owned(),
        Kept::Days(days) => days.to_string(),
    }
}

pub fn name_limit(text: &str) -> Option<NameLimit> {
    text.trim().parse::<u16>().ok()?.try_into().ok()
}

pub fn page(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|items| (1..=10_000).contains(items))
}

pub fn request_limit(text: &str) -> Option<usize> {
    bytes(text).filter(|bytes| (1 << 10..=256 << 20).contains(bytes))
}

pub fn message_limit(text: &str) -> Option<usize> {
    bytes(text).filter(|bytes| (1 << 20..=1 << 30).contains(bytes))
}

/// `4194304`, `4096KiB` or `4 MiB`.
fn bytes(text: &str) -> Option<usize> {
    let text = text.trim().to_ascii_lowercase();
    let units = [("kib", 1 << 10), ("mib", 1 << 20), ("gib", 1 << 30)];
    let scaled = units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
    let (number, unit) = scaled.unwrap_or((&text, 1));
    number.trim().parse::<usize>().ok()?.checked_mul(unit)
}

/// `None` if one of them is no origin.
pub fn origins(text: &str) -> Option<Vec<String>> {
    text.split(',').map(str::trim).filter(|origin| !origin.is_empty()).map(origin).collect()
}

/// As a browser writes it in `Origin`: no path, no default port, lower case.
fn origin(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let bare = matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let host = url.host_str().filter(|host| bare && !host.is_empty() && *host != "*")?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{}{port}", url.scheme(), host.to_ascii_lowercase()))
}
