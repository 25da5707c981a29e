//! The tray's menu: a pure function of the gateway's snapshot. It knows nothing of how it is drawn.

use jiff::ZonedDateTime;
use traygate_gateway::{
    api::{AppView, Paused, PinView, Snapshot, State, ToolView, UpstreamView},
    capability::CapabilityType,
    names::UpstreamName,
    text::{count, one_line},
};

use super::words;
use crate::gateway::Failure;

/// How many rows there are at the top level at most; favourites give way.
const DOZEN: usize = 12;
/// How many favourites there are at the top level at most.
const FAVOURITES: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct Menu {
    pub mood: Mood,
    pub rows: Vec<Row>,
}

/// What the icon shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// An upstream doesn't work.
    Attention,
    /// Use is refused, because the user wants it so.
    Paused,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Of its own in the whole menu, and the same from snapshot to snapshot.
    pub id: String,
    pub label: String,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Only to be read.
    Text,
    Separator,
    Item(Deed),
    Check {
        on: bool,
        deed: Deed,
    },
    Submenu(Vec<Row>),
}

/// What a click does.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    Open,
    /// The window with its log.
    ShowLog(UpstreamName),
    /// The window with all its tools.
    ShowTools(UpstreamName),
    Quit,
    CopyEndpoint,
    /// Enables or disables an upstream.
    Switch {
        upstream: UpstreamName,
        enabled: bool,
    },
    /// Reads everything anew, and connects for it.
    Refresh(UpstreamName),
    Restart(UpstreamName),
    Toggle {
        upstream: UpstreamName,
        kind: CapabilityType,
        key: String,
        enabled: bool,
    },
    Pause(Paused, HowLong),
    Resume,
    StartAtLogin(bool),
    Notify(bool),
    /// With the port that was taken.
    TryAgain,
    UseAnotherPort(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowLong {
    Minutes(u64),
    /// Until midnight.
    Tomorrow,
    /// Until the user resumes.
    Open,
}

/// What isn't the gateway's; where the desktop can't do it, it has no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Whether Traygate starts with the session, where that can be chosen.
    pub start_at_login: Option<bool>,
    /// Whether anything shows notifications.
    pub shows_notifications: bool,
}

pub fn menu(snapshot: &Snapshot, around: Around, now: &ZonedDateTime) -> Menu {
    let mut head = truth(snapshot, now);
    head.extend(attention(snapshot));
    let use_of_it = vec![
        submenu("pause", "Pause", pause_rows(snapshot, now)),
        submenu("apps", "AI apps", app_rows(snapshot, now)),
    ];
    let tail = vec![
        item("open", "Open Traygate…", Deed::Open),
        submenu("settings", "Settings", settings_rows(snapshot, around)),
        item("quit", "Quit", Deed::Quit),
    ];
    let upstreams = submenu("upstreams", "Upstreams", upstream_rows(snapshot, now));
    let room = DOZEN.saturating_sub(head.len() + 1 + use_of_it.len() + tail.len());
    let mut middle = vec![upstreams];
    middle.extend(favourites(&snapshot.pins, room));
    Menu { mood: mood(snapshot), rows: in_sections([head, middle, use_of_it, tail]) }
}

/// What is left of it where the gateway could not start.
pub fn without_a_gateway(failure: &Failure) -> Menu {
    let mut head = vec![text("truth", &format!("Not running: {}", words::reason(&failure.words)))];
    if let Some(port) = failure.port {
        head.push(item("again", "Try again", Deed::TryAgain));
        head.push(item("another-port", "Use another port", Deed::UseAnotherPort(port)));
    }
    let tail = vec![item("open", "Open Traygate…", Deed::Open), item("quit", "Quit", Deed::Quit)];
    Menu { mood: Mood::Attention, rows: in_sections([head, tail]) }
}

/// The first line: also what the icon says when it is pointed at.
pub fn first_line(menu: &Menu) -> &str {
    menu.rows.first().map_or("Traygate", |row| &row.label)
}

fn mood(snapshot: &Snapshot) -> Mood {
    match snapshot.pause {
        Some(_) => Mood::Paused,
        None if snapshot.upstreams.iter().any(is_in_need) => Mood::Attention,
        None => Mood::Well,
    }
}

fn truth(snapshot: &Snapshot, now: &ZonedDateTime) -> Vec<Row> {
    let pause = snapshot.pause.map(|pause| text("pause-is-on", &words::pause(&pause, now)));
    pause.into_iter().chain([text("truth", &counts(&snapshot.upstreams))]).collect()
}

/// `5 of 6 upstreams ready · 84 of 120 tools on`, of those that are enabled.
fn counts(upstreams: &[UpstreamView]) -> String {
    let enabled = || upstreams.iter().filter(|upstream| upstream.enabled);
    if upstreams.is_empty() {
        return "No upstreams yet".to_owned();
    }
    if enabled().next().is_none() {
        return format!("0 of {} on", count(upstreams.len(), "upstream"));
    }
    // An idle one is ready to be started by the next request.
    let ready = enabled().filter(|it| matches!(it.state, State::Ready | State::Idle)).count();
    let tools = || {
        let lists = enabled().flat_map(|upstream| &upstream.catalogues);
        lists.filter(|list| list.kind == CapabilityType::Tool)
    };
    let (on, total) = tools().fold((0, 0), |(on, all), list| (on + list.on, all + list.total));
    format!(
        "{ready} of {} ready · {on} of {} on",
        count(enabled().count(), "upstream"),
        count(total, "tool")
    )
}

fn is_in_need(upstream: &UpstreamView) -> bool {
    upstream.enabled && upstream.state.reason().is_some()
}

/// One row, however many upstreams need attention: the menu stays short.
fn attention(snapshot: &Snapshot) -> Option<Row> {
    let mut rows: Vec<_> = snapshot.upstreams.iter().filter_map(need).collect();
    match rows.len() {
        0 | 1 => rows.pop(),
        number => Some(submenu("attention", &format!("{number} upstreams need attention"), rows)),
    }
}

fn need(upstream: &UpstreamView) -> Option<Row> {
    let why = words::reason(upstream.state.reason().filter(|_| upstream.enabled)?);
    let name = &upstream.name;
    let id = format!("need/{name}");
    let retry = || Deed::Refresh(name.clone());
    Some(match &upstream.state {
        // What has to be done there, only the window has the room to say.
        State::NeedsSignIn { .. } => item(&id, &format!("Sign in to {name}…"), Deed::Open),
        State::Misconfigured { .. } => {
            item(&id, &format!("{name} can't be started: {why}. Retry now"), retry())
        }
        State::Degraded { .. } => item(&id, &format!("{name}: {why}. Retry now"), retry()),
        _ => item(&id, &format!("{name} is unavailable: {why}. Retry now"), retry()),
    })
}

fn upstream_rows(snapshot: &Snapshot, now: &ZonedDateTime) -> Vec<Row> {
    if snapshot.upstreams.is_empty() {
        return vec![text("no-upstreams", "Add one in a terminal: traygate add")];
    }
    let one = |upstream: &UpstreamView| {
        let name = &upstream.name;
        submenu(&format!("upstream/{name}"), name.as_str(), rows_of(upstream, now))
    };
    snapshot.upstreams.iter().map(one).collect()
}

fn rows_of(upstream: &UpstreamView, now: &ZonedDateTime) -> Vec<Row> {
    let (name, enabled) = (&upstream.name, upstream.enabled);
    let id = |what: &str| format!("upstream/{name}/{what}");
    let mut state = vec![text(&id("state"), &words::standing(upstream, now))];
    if let Some(why) = upstream.state.reason() {
        state.push(text(&id("why"), &words::reason(why)));
    }
    let switch = Deed::Switch { upstream: name.clone(), enabled: !enabled };
    let mut deeds = vec![check(&id("enabled"), "Enabled", enabled, switch)];
    if enabled {
        deeds.push(item(&id("refresh"), "Refresh", Deed::Refresh(name.clone())));
        deeds.push(item(&id("restart"), "Restart", Deed::Restart(name.clone())));
    }
    deeds.push(item(&id("log"), "Show log", Deed::ShowLog(name.clone())));
    in_sections_of(&id("section"), [state, deeds, tool_rows(upstream)])
}

/// The first tools, those that change nothing apart from the rest.
fn tool_rows(upstream: &UpstreamView) -> Vec<Row> {
    let name = &upstream.name;
    let row = |tool: &ToolView| {
        let toggle = Deed::Toggle {
            upstream: name.clone(),
            kind: CapabilityType::Tool,
            key: tool.key.clone(),
            enabled: !tool.enabled,
        };
        let id = format!("upstream/{name}/tool/{}", tool.key);
        check(&id, &one_line(&tool.key, words::NAME), tool.enabled, toggle)
    };
    let (reading, writing): (Vec<_>, Vec<_>) =
        upstream.tools.iter().partition(|tool| tool.read_only);
    let with_heads = !reading.is_empty() && !writing.is_empty();
    let group = |what: &str, head: &str, tools: Vec<&ToolView>| {
        let head = with_heads.then(|| text(&format!("upstream/{name}/{what}"), head));
        head.into_iter().chain(tools.into_iter().map(row)).collect::<Vec<_>>()
    };
    let mut rows = group("reading", "Only read:", reading);
    rows.extend(group("writing", "May change things:", writing));
    let lists = upstream.catalogues.iter();
    let total: usize =
        lists.filter(|it| it.kind == CapabilityType::Tool).map(|list| list.total).sum();
    if total > upstream.tools.len() {
        let all = format!("All {total} in the window…");
        let id = format!("upstream/{name}/all");
        rows.push(item(&id, &all, Deed::ShowTools(name.clone())));
    }
    rows
}

/// What the user pinned, in `room` rows.
fn favourites(pins: &[PinView], room: usize) -> Vec<Row> {
    let mut rows: Vec<_> = pins.iter().map(favourite).collect();
    let most = FAVOURITES.min(room);
    if rows.len() > most {
        let shown = FAVOURITES.min(room.saturating_sub(1));
        let more = rows.split_off(shown);
        rows.push(submenu("favourites", "Favourites", more));
    }
    rows
}

fn favourite(pin: &PinView) -> Row {
    let PinView { upstream, kind, key, enabled } = pin;
    let toggle = Deed::Toggle {
        upstream: upstream.clone(),
        kind: *kind,
        key: key.clone(),
        enabled: !enabled,
    };
    let label = format!("{} · {upstream}", one_line(key, words::NAME));
    check(&format!("favourite/{upstream}/{kind}/{key}"), &label, *enabled, toggle)
}

fn pause_rows(snapshot: &Snapshot, now: &ZonedDateTime) -> Vec<Row> {
    let times = [
        ("15 minutes", HowLong::Minutes(15)),
        ("1 hour", HowLong::Minutes(60)),
        ("Until tomorrow", HowLong::Tomorrow),
        ("Until I say", HowLong::Open),
    ];
    let choice = |id: &str, label: &str, what: Paused| {
        let row = |(label, how_long): (&str, HowLong)| {
            item(&format!("{id}/{label}"), label, Deed::Pause(what, how_long))
        };
        submenu(id, label, times.map(row).into())
    };
    let ended = snapshot.pause.map_or_else(Vec::new, |pause| {
        vec![
            text("pause/is-on", &words::pause(&pause, now)),
            item("pause/resume", "Resume", Deed::Resume),
        ]
    });
    let choices = vec![
        choice("pause/all", "Everything", Paused::All),
        choice("pause/writes", "Writes only", Paused::Writes),
    ];
    in_sections_of("pause/section", [ended, choices])
}

fn app_rows(snapshot: &Snapshot, now: &ZonedDateTime) -> Vec<Row> {
    if snapshot.apps.is_empty() {
        return vec![text("no-apps", "Let one in in a terminal: traygate token new")];
    }
    let mut apps: Vec<_> = snapshot.apps.iter().collect();
    apps.sort_by_key(|app| app.connected_since.is_none());
    let row = |app: &AppView| text(&format!("app/{}", app.name), &words::app(app, now));
    apps.into_iter().map(row).collect()
}

fn settings_rows(snapshot: &Snapshot, around: Around) -> Vec<Row> {
    let start = around
        .start_at_login
        .map(|on| check("start-at-login", "Start at login", on, Deed::StartAtLogin(!on)));
    let on = snapshot.notifications;
    let notify = around
        .shows_notifications
        .then(|| check("notifications", "Notifications", on, Deed::Notify(!on)));
    let copy = item("copy-endpoint", "Copy endpoint address", Deed::CopyEndpoint);
    [Some(copy), start, notify].into_iter().flatten().collect()
}

fn row(id: &str, label: &str, kind: Kind) -> Row {
    Row { id: id.to_owned(), label: label.to_owned(), kind }
}

fn text(id: &str, label: &str) -> Row {
    row(id, label, Kind::Text)
}

fn item(id: &str, label: &str, deed: Deed) -> Row {
    row(id, label, Kind::Item(deed))
}

fn check(id: &str, label: &str, on: bool, deed: Deed) -> Row {
    row(id, label, Kind::Check { on, deed })
}

fn submenu(id: &str, label: &str, rows: Vec<Row>) -> Row {
    row(id, label, Kind::Submenu(rows))
}

fn in_sections<const N: usize>(sections: [Vec<Row>; N]) -> Vec<Row> {
    in_sections_of("section", sections)
}

/// A line between one section and the next; none around an empty one.
fn in_sections_of<const N: usize>(id: &str, sections: [Vec<Row>; N]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (number, section) in sections.into_iter().enumerate() {
        if !rows.is_empty() && !section.is_empty() {
            rows.push(row(&format!("{id}/{number}"), "", Kind::Separator));
        }
        rows.extend(section);
    }
    rows
}

#[cfg(test)]
mod tests;
