//! How things are, in the tray's few words. Times are absolute, so that nothing ticks.

use jiff::{Timestamp, ZonedDateTime};
use traygate_gateway::{
    api::{AppView, CatalogueView, Freshness, Pause, Paused, State, UpstreamView},
    definition::Era,
    text::{count, one_line},
};

/// How many characters of another program's words stand in a row.
const REASON: usize = 70;
/// How many characters of a name.
pub const NAME: usize = 60;

/// `10:05`; with the day if that isn't `now`'s, with the date if it is a week away or more.
pub fn time(at: i64, now: &ZonedDateTime) -> String {
    let Ok(at) = Timestamp::from_millisecond(at) else { return "an unknown time".to_owned() };
    let at = at.to_zoned_datetime(now.time_zone().clone());
    let days = now.date().duration_until(at.date()).as_hours() / 24;
    let form = match days {
        0 => "%H:%M",
        -6..=6 => "%a %H:%M",
        _ => "%Y-%m-%d %H:%M",
    };
    at.strftime(form).to_string()
}

pub fn reason(words: &str) -> String {
    one_line(words, REASON)
}

/// `Everything is paused until 10:45`
pub fn pause(pause: &Pause, now: &ZonedDateTime) -> String {
    let what = match pause.what {
        Paused::All => "Everything is paused",
        Paused::Writes => "Writes are paused",
    };
    match pause.until {
        Some(until) => format!("{what} until {}", time(until, now)),
        None => format!("{what} until you resume"),
    }
}

/// `Ready · fresh until 10:05`
pub fn standing(upstream: &UpstreamView, now: &ZonedDateTime) -> String {
    let since = time(upstream.since, now);
    let state = match &upstream.state {
        State::Disabled => return "Off".to_owned(),
        State::Idle => "Idle: starts when it is needed".to_owned(),
        State::Connecting => match &upstream.progress {
            Some(progress) => format!("Connecting: {}", reason(progress)),
            None => "Connecting…".to_owned(),
        },
        State::Ready => "Ready".to_owned(),
        State::Degraded { .. } => format!("Degraded since {since}"),
        State::Unavailable { .. } => format!("Unavailable since {since}"),
        State::NeedsSignIn { .. } => format!("Needs you to sign in since {since}"),
        State::Misconfigured { .. } => "Can't be started".to_owned(),
    };
    match freshness(&upstream.catalogues, now) {
        Some(freshness) => format!("{state} · {freshness}"),
        None => state,
    }
}

/// Of all its lists together: as far as the worst of them can be trusted.
fn freshness(catalogues: &[CatalogueView], now: &ZonedDateTime) -> Option<String> {
    let all = || catalogues.iter().map(|catalogue| &catalogue.freshness);
    let stale = all().filter_map(|freshness| match freshness {
        Freshness::Stale { since, .. } => Some(*since),
        _ => None,
    });
    if let Some(since) = stale.min() {
        return Some(format!("stale since {}", time(since, now)));
    }
    let until = all().filter_map(|freshness| match freshness {
        Freshness::Fresh { until } => Some(*until),
        _ => None,
    });
    // Without an end is later than any.
    let earliest = until.min_by_key(|until| until.unwrap_or(i64::MAX));
    match earliest {
        Some(Some(until)) => Some(format!("fresh until {}", time(until, now))),
        Some(None) => Some("fresh until it says otherwise".to_owned()),
        None if all().any(|freshness| *freshness == Freshness::Unread) => {
            Some("not read yet".to_owned())
        }
        None => None,
    }
}

/// `claude · since 10:02 · MCP 2025-11-25 (legacy) · 84 tools`
pub fn app(app: &AppView, now: &ZonedDateTime) -> String {
    let seen = match (app.connected_since, app.last_seen_at) {
        (Some(since), _) => format!("connected since {}", time(since, now)),
        (None, Some(at)) => format!("last seen {}", time(at, now)),
        (None, None) => "never seen".to_owned(),
    };
    let era = app.era.map(|era| {
        let era = match era {
            Era::Modern => "modern",
            Era::Legacy => "legacy",
        };
        match &app.protocol_version {
            Some(version) => format!("MCP {} ({era})", one_line(version, NAME)),
            None => format!("MCP ({era})"),
        }
    });
    let tools = app.listed_tools.map(|tools| count(tools, "tool"));
    let parts = [Some(one_line(&app.name, NAME)), Some(seen), era, tools];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}
