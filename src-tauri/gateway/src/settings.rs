//! The user's settings: their keys, defaults and meaning, and the way from text to a value.

mod upstream;
mod value;

use std::{collections::BTreeMap, time::Duration};

pub use self::upstream::{UPSTREAM_KEYS, apply};
use crate::{
    api::SettingView,
    definition::{LegacyTtl, UpstreamSettings},
    names::NameLimit,
    nearest::did_you_mean,
};

/// Keys that begin so hold Traygate's own state; they are no settings of the user's.
pub const INTERNAL: &str = "internal.";
/// Whether public catalogues are kept over a restart.
pub const SNAPSHOT: &str = "snapshot";

/// All settings, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub port: u16,
    pub list_budget: Duration,
    /// For upstreams that are added from now on.
    pub legacy_ttl: LegacyTtl,
    pub name_limit: NameLimit,
    pub list_page: usize,
    /// Bytes of a request to the endpoint.
    pub request_limit: usize,
    /// Bytes of one message of an upstream.
    pub message_limit: usize,
    pub notifications: bool,
    pub offer_start_at_login: bool,
    pub journal_events_days: Kept,
    pub journal_calls_days: Kept,
    /// Whether public catalogues are kept over a restart.
    pub snapshot: bool,
    /// As a browser writes them: `https://example.org`.
    pub allowed_origins: Vec<String>,
}

/// For how long the journal keeps an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Days(u32),
    ForEver,
}

/// Why a setting was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("unknown setting {key:?}{hint}; the settings are {known}", known = known.join(", "))]
    Unknown {
        key: String,
        /// Names the nearest one, if any is near.
        hint: String,
        known: Vec<&'static str>,
    },
    #[error("{key:?} is state of Traygate's own and can't be set")]
    Internal { key: String },
    #[error("{key} can't be {value:?}; use {allowed}")]
    Value { key: &'static str, value: String, allowed: &'static str },
}

impl SettingError {
    fn unknown(key: &str, known: impl Iterator<Item = &'static str>) -> Self {
        let known: Vec<_> = known.collect();
        let hint = did_you_mean(key, known.iter().copied());
        Self::Unknown { key: key.to_owned(), hint, known }
    }
}

/// What one setting is.
struct Setting {
    key: &'static str,
    default: &'static str,
    about: &'static str,
    allowed: &'static str,
    /// The one way to write this value, if it is one.
    normalise: fn(&str) -> Option<String>,
}

const SETTINGS: [Setting; 13] = [
    Setting {
        key: "port",
        default: "8717",
        about: "the port of the endpoint and the control API; takes effect at the next start",
        allowed: "a number from 1 to 65535",
        normalise: |text| value::port(text).map(|port| port.to_string()),
    },
    Setting {
        key: "list_budget",
        default: "5",
        about: "how many seconds an app's list waits for a slow upstream",
        allowed: "seconds from 0.1 to 60",
        normalise: |text| value::budget(text).map(|budget| budget.as_secs_f64().to_string()),
    },
    Setting {
        key: "legacy_ttl",
        default: "60",
        about: "how long lists of a legacy upstream stay fresh; for upstreams added from now on",
        allowed: value::LEGACY_TTL,
        normalise: |text| value::legacy_ttl(text).map(value::show_legacy_ttl),
    },
    Setting {
        key: "name_limit",
        default: "49",
        about: "how many bytes the name of a tool or prompt may have as apps see it",
        allowed: "a number from 32 to 128",
        normalise: |text| value::name_limit(text).map(|limit| u16::from(limit).to_string()),
    },
    Setting {
        key: "list_page",
        default: "1000",
        about: "how many items an app gets in one page of a list",
        allowed: "a number from 1 to 10000",
        normalise: |text| value::page(text).map(|items| items.to_string()),
    },
    Setting {
        key: "request_limit",
        default: "33554432",
        about: "how many bytes an app's request may have",
        allowed: "bytes from 1024 to 268435456, or like 32MiB",
        normalise: |text| value::request_limit(text).map(|bytes| bytes.to_string()),
    },
    Setting {
        key: "message_limit",
        default: "67108864",
        about: "how many bytes one message of an upstream may have",
        allowed: "bytes from 1048576 to 1073741824, or like 64MiB",
        normalise: |text| value::message_limit(text).map(|bytes| bytes.to_string()),
    },
    Setting {
        key: "notifications",
        default: "on",
        about: "whether the desktop tells of outages and recoveries",
        allowed: value::SWITCH,
        normalise: |text| value::switch(text).map(|on| value::show_switch(on).to_owned()),
    },
    Setting {
        key: "offer_start_at_login",
        default: "on",
        about: "whether the window asks if Traygate is to start with your session",
        allowed: value::SWITCH,
        normalise: |text| value::switch(text).map(|on| value::show_switch(on).to_owned()),
    },
    Setting {
        key: "journal_events_days",
        default: "30",
        about: "for how many days the journal keeps what happened to upstreams and what you did",
        allowed: value::DAYS,
        normalise: |text| value::days(text).map(value::show_days),
    },
    Setting {
        key: "journal_calls_days",
        default: "30",
        about: "for how many days the journal keeps which app called what, and how it ended",
        allowed: value::DAYS,
        normalise: |text| value::days(text).map(value::show_days),
    },
    Setting {
        key: SNAPSHOT,
        default: "on",
        about: "whether lists that upstreams declare public are kept for the next start",
        allowed: value::SWITCH,
        normalise: |text| value::switch(text).map(|on| value::show_switch(on).to_owned()),
    },
    Setting {
        key: "allowed_origins",
        default: "",
        about: "web origins that may use the endpoint, with a comma between",
        allowed: "origins like https://example.org, with a comma between, or nothing",
        normalise: |text| value::origins(text).map(|origins| origins.join(",")),
    },
];

impl Settings {
    /// A stored value that can't be used is replaced by its default, and a note says so.
    pub fn from_stored(stored: &BTreeMap<String, String>) -> (Self, Vec<String>) {
        let mut reading = Reading { stored, notes: Vec::new() };
        let settings = Self {
            port: reading.get("port", value::port),
            list_budget: reading.get("list_budget", value::budget),
            legacy_ttl: reading.get("legacy_ttl", value::legacy_ttl),
            name_limit: reading.get("name_limit", value::name_limit),
            list_page: reading.get("list_page", value::page),
            request_limit: reading.get("request_limit", value::request_limit),
            message_limit: reading.get("message_limit", value::message_limit),
            notifications: reading.get("notifications", value::switch),
            offer_start_at_login: reading.get("offer_start_at_login", value::switch),
            journal_events_days: reading.get("journal_events_days", value::days),
            journal_calls_days: reading.get("journal_calls_days", value::days),
            snapshot: reading.get(SNAPSHOT, value::switch),
            allowed_origins: reading.get("allowed_origins", value::origins),
        };
        (settings, reading.notes)
    }

    /// The value as it is to be stored.
    pub fn check(key: &str, value: &str) -> Result<String, SettingError> {
        let setting = find(key)?;
        (setting.normalise)(value).ok_or_else(|| SettingError::Value {
            key: setting.key,
            value: value.to_owned(),
            allowed: setting.allowed,
        })
    }

    /// How an upstream is treated that is added now and says nothing of its own.
    pub fn for_new_upstreams(&self) -> UpstreamSettings {
        UpstreamSettings { legacy_ttl: self.legacy_ttl, ..UpstreamSettings::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::from_stored(&BTreeMap::new()).0
    }
}

/// Every setting with the value in force, in the order of the documentation.
pub fn views(stored: &BTreeMap<String, String>) -> Vec<SettingView> {
    SETTINGS.iter().map(|setting| setting.view(stored)).collect()
}

/// One setting with the value in force.
pub fn view(key: &str, stored: &BTreeMap<String, String>) -> Result<SettingView, SettingError> {
    find(key).map(|setting| setting.view(stored))
}

impl Setting {
    fn view(&self, stored: &BTreeMap<String, String>) -> SettingView {
        let value = stored.get(self.key).and_then(|value| (self.normalise)(value));
        SettingView {
            key: self.key.to_owned(),
            value: value.unwrap_or_else(|| self.default.to_owned()),
            default: self.default.to_owned(),
            about: self.about.to_owned(),
        }
    }
}

fn find(key: &str) -> Result<&'static Setting, SettingError> {
    if key.starts_with(INTERNAL) {
        return Err(SettingError::Internal { key: key.to_owned() });
    }
    let found = SETTINGS.iter().find(|setting| setting.key == key);
    found.ok_or_else(|| SettingError::unknown(key, SETTINGS.iter().map(|setting| setting.key)))
}

struct Reading<'a> {
    stored: &'a BTreeMap<String, String>,
    notes: Vec<String>,
}

impl Reading<'_> {
    fn get<T>(&mut self, key: &str, parse: fn(&str) -> Option<T>) -> T {
        let setting = find(key).expect("only known keys are asked for");
        if let Some(text) = self.stored.get(key) {
            if let Some(value) = parse(text) {
                return value;
            }
            self.notes.push(format!(
                "the stored setting {key} is {text:?}, which can't be used, so the default {:?} is; set it to {}",
                setting.default, setting.allowed
            ));
        }
        parse(setting.default).expect("a default is a value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(key: &str, value: &str) -> BTreeMap<String, String> {
        [(key.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn nothing_stored_means_the_documented_defaults() {
        let expected = Settings {
            port: 8717,
            list_budget: Duration::from_secs(5),
            legacy_ttl: LegacyTtl::Seconds(60),
            name_limit: NameLimit::default(),
            list_page: 1000,
            request_limit: 32 << 20,
            message_limit: 64 << 20,
            notifications: true,
            offer_start_at_login: true,
            journal_events_days: Kept::Days(30),
            journal_calls_days: Kept::Days(30),
            snapshot: true,
            allowed_origins: Vec::new(),
        };
        assert_eq!(Settings::from_stored(&BTreeMap::new()), (expected, Vec::new()));
    }

    #[test]
    fn a_default_is_written_as_it_would_be_stored() {
        for SettingView { key, value, default, .. } in views(&BTreeMap::new()) {
            assert_eq!(Settings::check(&key, &default), Ok(value), "{key}");
        }
    }

    #[test]
    fn what_is_checked_is_read_back_the_same() {
        for (key, text, normal) in [
            ("port", " 9000 ", "9000"),
            ("list_budget", "0.250", "0.25"),
            ("legacy_ttl", "Until-Told", "until_told"),
            ("name_limit", "64", "64"),
            ("request_limit", "16 MiB", "16777216"),
            ("message_limit", "1GiB", "1073741824"),
            ("notifications", "No", "off"),
            ("journal_events_days", " 7 ", "7"),
            ("journal_calls_days", "For ever", "forever"),
            ("snapshot", "False", "off"),
            ("allowed_origins", "", ""),
            (
                "allowed_origins",
                "HTTPS://Example.org:443/, http://localhost:6274 ,tauri://localhost",
                "https://example.org,http://localhost:6274,tauri://localhost",
            ),
        ] {
            let checked = Settings::check(key, text).expect(key);
            assert_eq!(checked, normal, "{key}");
            let stored = stored(key, &checked);
            assert_eq!(Settings::from_stored(&stored).1, [""; 0], "{key}");
            assert_eq!(view(key, &stored).expect(key).value, normal);
        }
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_what_is_allowed() {
        for (key, text) in [
            ("port", "0"),
            ("port", "65536"),
            ("port", "http"),
            ("list_budget", "0.09"),
            ("list_budget", "60.1"),
            ("list_budget", "nan"),
            ("list_budget", "inf"),
            ("legacy_ttl", "-1"),
            ("name_limit", "31"),
            ("name_limit", "129"),
            ("list_page", "0"),
            ("list_page", "10001"),
            ("request_limit", "1023"),
            ("request_limit", "257MiB"),
            ("message_limit", "99999999999999999999GiB"),
            ("notifications", "maybe"),
            ("journal_events_days", "0"),
            ("journal_calls_days", "36501"),
            ("snapshot", "sometimes"),
            ("allowed_origins", "*"),
            ("allowed_origins", "example.org"),
            ("allowed_origins", "https://example.org/path"),
            ("allowed_origins", "https://user@example.org"),
        ] {
            let error = Settings::check(key, text).expect_err(text).to_string();
            assert!(error.contains(key) && error.contains("use "), "{error}");
        }
    }

    #[test]
    fn an_unknown_key_hears_the_nearest_and_an_internal_one_is_out_of_reach() {
        let error = Settings::check("prot", "1").expect_err("unknown").to_string();
        assert!(
            error.contains("did you mean \"port\"?") && error.contains("list_budget"),
            "{error}"
        );
        let error = Settings::check("internal.pause", "x").expect_err("internal").to_string();
        assert!(error.contains("Traygate's own"), "{error}");
        let keys = views(&stored("internal.pause", "x"));
        assert!(keys.iter().all(|view| !view.key.starts_with(INTERNAL)));
    }

    #[test]
    fn an_unreadable_stored_value_falls_back_and_says_so() {
        let stored = stored("port", "lots");
        let (settings, notes) = Settings::from_stored(&stored);
        assert_eq!(settings, Settings::default());
        assert!(notes[0].contains("port") && notes[0].contains("8717"), "{notes:?}");
        assert_eq!(views(&stored)[0].value, "8717", "the value in force is shown");
    }
}
