//! The settings of one upstream, from text: `traygate set <upstream> key=value`.

use super::{SettingError, value};
use crate::definition::{Isolation, UpstreamSettings};

/// Every key that [`apply`] takes by its full name.
pub const UPSTREAM_KEYS: [&str; 8] = [
    "auto_enable_new_capabilities",
    "legacy_ttl",
    "isolation",
    "request_timeout",
    "call_idle_timeout",
    "call_total_timeout",
    "notifications",
    "idle_stop",
];

const IDLE_STOP: &str = "minutes from 1 to 1440, or off";
const TIMEOUT: &str = "seconds from 1 to 86400";

/// Changes one setting, or nothing. `policy` is short for `auto_enable_new_capabilities`. A value
/// may also be written as JSON.
pub fn apply(settings: &mut UpstreamSettings, key: &str, text: &str) -> Result<(), SettingError> {
    let key = canonical(key)?;
    let plain = unquoted(text);
    let refuse = |allowed| SettingError::Value { key, value: text.to_owned(), allowed };
    let switch = || value::switch(plain).ok_or_else(|| refuse(value::SWITCH));
    let timeout = || value::seconds(plain, 1..=86_400).ok_or_else(|| refuse(TIMEOUT));
    match key {
        "auto_enable_new_capabilities" => settings.auto_enable_new_capabilities = switch()?,
        "notifications" => settings.notifications = switch()?,
        "request_timeout" => settings.request_timeout = timeout()?,
        "idle_stop" => {
            settings.idle_stop = value::minutes(plain).ok_or_else(|| refuse(IDLE_STOP))?;
        }
        "call_idle_timeout" => settings.call_idle_timeout = timeout()?,
        "call_total_timeout" => settings.call_total_timeout = timeout()?,
        "legacy_ttl" => {
            settings.legacy_ttl =
                value::legacy_ttl(plain).ok_or_else(|| refuse(value::LEGACY_TTL))?;
        }
        _ => settings.isolation = isolation(plain).ok_or_else(|| refuse("shared or isolated"))?,
    }
    Ok(())
}

fn canonical(key: &str) -> Result<&'static str, SettingError> {
    let written = key.trim().to_ascii_lowercase().replace('-', "_");
    let wanted = match written.as_str() {
        "policy" | "auto_enable" => "auto_enable_new_capabilities",
        "ttl" => "legacy_ttl",
        "notify" => "notifications",
        other => other,
    };
    let found = UPSTREAM_KEYS.into_iter().find(|known| *known == wanted);
    found.ok_or_else(|| SettingError::unknown(key, UPSTREAM_KEYS.into_iter()))
}

fn isolation(text: &str) -> Option<Isolation> {
    match text.to_ascii_lowercase().as_str() {
        "shared" => Some(Isolation::Shared),
        "isolated" => Some(Isolation::Isolated),
        _ => None,
    }
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{LegacyTtl, UntilTold};

    #[test]
    fn every_field_can_be_set_from_text() {
        let mut settings = UpstreamSettings::default();
        for (key, text) in [
            ("policy", "off"),
            ("legacy-ttl", "\"until_told\""),
            ("isolation", "Isolated"),
            ("request_timeout", "1"),
            ("call_idle_timeout", "86400"),
            ("call_total_timeout", "7200"),
            ("notifications", "no"),
            ("idle-stop", "15"),
        ] {
            apply(&mut settings, key, text).expect(key);
        }
        let expected = UpstreamSettings {
            auto_enable_new_capabilities: false,
            legacy_ttl: LegacyTtl::UntilTold(UntilTold::UntilTold),
            isolation: Isolation::Isolated,
            request_timeout: 1,
            call_idle_timeout: 86_400,
            call_total_timeout: 7200,
            notifications: false,
            idle_stop: 15,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn every_field_has_its_key() {
        let all = serde_json::to_value(UpstreamSettings::default()).expect("json");
        let fields: Vec<_> = all.as_object().expect("an object").keys().collect();
        let mut keys = UPSTREAM_KEYS;
        keys.sort_unstable();
        assert_eq!(fields, keys);
    }

    #[test]
    fn a_bad_value_or_key_changes_nothing_and_says_what_would_do() {
        let mut settings = UpstreamSettings::default();
        for (key, text, hint) in [
            ("policy", "perhaps", "on or off"),
            ("request_timeout", "0", "from 1 to 86400"),
            ("call_idle_timeout", "86401", "from 1 to 86400"),
            ("legacy_ttl", "soon", "until_told"),
            ("idle_stop", "1441", "or off"),
            ("isolation", "both", "shared or isolated"),
            ("notificatoins", "on", "did you mean \"notifications\"?"),
        ] {
            let error = apply(&mut settings, key, text).expect_err(text).to_string();
            assert!(error.contains(hint), "{error}");
        }
        assert_eq!(settings, UpstreamSettings::default());
    }
}
