use std::fmt::Write as _;

use traygate_gateway::{
    api::{AppView, CatalogueView, Freshness, Pause},
    definition::{Era, UpstreamSettings},
};

use super::*;

/// 2026-12-01, a Tuesday, 10:00 in Berlin.
fn now() -> ZonedDateTime {
    "2026-12-01T10:00:00+01:00[Europe/Berlin]".parse().expect("a time")
}

/// So many minutes after ten.
fn at(minutes: i64) -> i64 {
    now().timestamp().as_millisecond() + minutes * 60_000
}

fn snapshot(upstreams: Vec<UpstreamView>) -> Snapshot {
    Snapshot {
        revision: 1,
        version: "0".to_owned(),
        pid: 1,
        endpoint: "http://127.0.0.1:8717/mcp".to_owned(),
        data_dir: "/".to_owned(),
        started_at: 0,
        pause: None,
        notifications: true,
        upstreams,
        pins: Vec::new(),
        apps: Vec::new(),
    }
}

fn name(name: &str) -> UpstreamName {
    UpstreamName::parse(name).expect("a name")
}

fn tool(key: &str, enabled: bool, read_only: bool) -> ToolView {
    ToolView { key: key.to_owned(), enabled, read_only }
}

/// Ready, fresh until five past ten, with these tools.
fn upstream(called: &str, tools: Vec<ToolView>) -> UpstreamView {
    let on = tools.iter().filter(|tool| tool.enabled).count();
    UpstreamView {
        name: name(called),
        enabled: true,
        reached_by: "npx".to_owned(),
        transport_kind: "stdio".to_owned(),
        era: Some(Era::Modern),
        protocol_version: None,
        server: None,
        state: State::Ready,
        since: at(-60),
        progress: None,
        last_error: None,
        heals: 0,
        catalogues: vec![CatalogueView {
            kind: CapabilityType::Tool,
            freshness: Freshness::Fresh { until: Some(at(5)) },
            total: tools.len(),
            on,
            warnings: Vec::new(),
        }],
        tools,
        settings: UpstreamSettings::default(),
    }
}

fn files() -> UpstreamView {
    upstream("files", vec![tool("read", true, true), tool("write", false, false)])
}

fn unavailable(called: &str) -> UpstreamView {
    let reason = "connection refused".to_owned();
    let state = State::Unavailable { reason, next_try: Some(at(1)) };
    UpstreamView { state, since: at(-1), ..upstream(called, vec![tool("ask", true, false)]) }
}

fn pin(upstream: &str, key: &str, enabled: bool) -> PinView {
    let (upstream, key) = (name(upstream), key.to_owned());
    PinView { upstream, kind: CapabilityType::Tool, key, enabled }
}

fn drawn(snapshot: &Snapshot) -> Menu {
    menu(snapshot, Around::default(), &now())
}

/// As a person sees it.
fn seen(rows: &[Row]) -> String {
    fn draw(rows: &[Row], depth: usize, seen: &mut String) {
        for row in rows {
            let mark = match &row.kind {
                Kind::Separator => "--",
                Kind::Text => "  ",
                Kind::Item(_) => "> ",
                Kind::Check { on: true, .. } => "x ",
                Kind::Check { on: false, .. } => "o ",
                Kind::Submenu(_) => "+ ",
            };
            let line = format!("{:indent$}{mark}{}", "", row.label, indent = 2 * depth);
            writeln!(seen, "{}", line.trim_end()).expect("a text takes all");
            if let Kind::Submenu(rows) = &row.kind {
                draw(rows, depth + 1, seen);
            }
        }
    }
    let mut text = String::new();
    draw(rows, 0, &mut text);
    text
}

fn labels(menu: &Menu) -> Vec<&str> {
    let rows = menu.rows.iter().filter(|row| row.kind != Kind::Separator);
    rows.map(|row| row.label.as_str()).collect()
}

/// The rows of the submenu with this id, wherever it is.
fn below<'a>(rows: &'a [Row], id: &str) -> &'a [Row] {
    fn search<'a>(rows: &'a [Row], id: &str) -> Option<&'a [Row]> {
        rows.iter().find_map(|row| match &row.kind {
            Kind::Submenu(below) if row.id == id => Some(below.as_slice()),
            Kind::Submenu(below) => search(below, id),
            _ => None,
        })
    }
    search(rows, id).unwrap_or_else(|| panic!("no submenu {id} in\n{}", seen(rows)))
}

#[test]
fn the_whole_menu_of_a_quiet_day() {
    let mut snapshot = snapshot(vec![files()]);
    snapshot.pins = vec![pin("files", "write", false)];
    snapshot.apps = vec![AppView {
        name: "claude".to_owned(),
        created_at: 0,
        last_seen_at: Some(at(0)),
        client: None,
        era: Some(Era::Legacy),
        protocol_version: Some("2025-11-25".to_owned()),
        listed_tools: Some(1),
        listed_at: Some(at(0)),
        connections: 1,
        connected_since: Some(at(-2)),
    }];
    let menu = drawn(&snapshot);
    assert_eq!(menu.mood, Mood::Well);
    let expected = "  1 of 1 upstream ready · 1 of 2 tools on
--
+ Upstreams
  + files
      Ready · fresh until 10:05
    --
    x Enabled
    > Refresh
    > Restart
    > Show log
    --
      Only read:
    x read
      May change things:
    o write
o write · files
--
+ Pause
  + Everything
    > 15 minutes
    > 1 hour
    > Until tomorrow
    > Until I say
  + Writes only
    > 15 minutes
    > 1 hour
    > Until tomorrow
    > Until I say
+ AI apps
    claude · connected since 09:58 · MCP 2025-11-25 (legacy) · 1 tool
--
> Open Traygate…
+ Settings
  > Copy endpoint address
> Quit
";
    assert_eq!(seen(&menu.rows), expected);
}

#[test]
fn a_click_asks_for_the_other_of_what_is_shown() {
    let menu = drawn(&snapshot(vec![files()]));
    let rows = below(&menu.rows, "upstream/files");
    let deeds: Vec<_> = rows
        .iter()
        .filter_map(|row| match &row.kind {
            Kind::Check { deed, .. } => Some(deed.clone()),
            _ => None,
        })
        .collect();
    let toggle = |key: &str, enabled| Deed::Toggle {
        upstream: name("files"),
        kind: CapabilityType::Tool,
        key: key.to_owned(),
        enabled,
    };
    let switch = Deed::Switch { upstream: name("files"), enabled: false };
    assert_eq!(deeds, [switch, toggle("read", false), toggle("write", true)]);
}

#[test]
fn the_first_line_counts_what_is_enabled() {
    let mut off = files();
    (off.enabled, off.state) = (false, State::Disabled);
    let first = |upstreams| first_line(&drawn(&snapshot(upstreams))).to_owned();
    assert_eq!(first(vec![]), "No upstreams yet");
    assert_eq!(first(vec![off.clone()]), "0 of 1 upstream on");
    assert_eq!(
        first(vec![off, files(), unavailable("web")]),
        "1 of 2 upstreams ready · 2 of 3 tools on"
    );
}

#[test]
fn one_that_is_down_has_a_line_that_retries_and_several_have_one_together() {
    let menu = drawn(&snapshot(vec![files(), unavailable("web")]));
    assert_eq!(menu.mood, Mood::Attention);
    let row = &menu.rows[1];
    assert_eq!(row.label, "web is unavailable: connection refused. Retry now");
    assert_eq!(row.kind, Kind::Item(Deed::Refresh(name("web"))));
    assert!(seen(below(&menu.rows, "upstream/web")).starts_with(
        "  Unavailable since 09:59 · fresh until 10:05\n  connection refused\n--\nx Enabled\n"
    ));

    let mut asks = files();
    asks.state = State::NeedsSignIn { reason: "401".to_owned() };
    let menu = drawn(&snapshot(vec![asks, unavailable("web")]));
    assert_eq!(menu.rows[1].label, "2 upstreams need attention");
    assert_eq!(
        seen(below(&menu.rows, "attention")),
        "> Sign in to files…\n> web is unavailable: connection refused. Retry now\n"
    );

    let mut off = unavailable("web");
    off.enabled = false;
    assert_eq!(drawn(&snapshot(vec![off])).mood, Mood::Well, "nobody misses it");
}

#[test]
fn a_pause_is_the_first_thing_that_is_said() {
    let mut snapshot = snapshot(vec![unavailable("web")]);
    snapshot.pause = Some(Pause { what: Paused::All, until: Some(at(45)) });
    let menu = drawn(&snapshot);
    assert_eq!(menu.mood, Mood::Paused);
    assert_eq!(first_line(&menu), "Everything is paused until 10:45");
    assert!(
        seen(below(&menu.rows, "pause"))
            .starts_with("  Everything is paused until 10:45\n> Resume\n--\n+ Everything\n")
    );
    snapshot.pause = Some(Pause { what: Paused::Writes, until: Some(at(20 * 60)) });
    assert_eq!(first_line(&drawn(&snapshot)), "Writes are paused until Wed 06:00");
    snapshot.pause = Some(Pause { what: Paused::Writes, until: None });
    assert_eq!(first_line(&drawn(&snapshot)), "Writes are paused until you resume");
}

#[test]
fn at_the_top_are_at_most_a_dozen_rows_and_four_favourites() {
    let mut snapshot = snapshot(vec![files()]);
    snapshot.pins = (0..4).map(|n| pin("files", &format!("t{n}"), true)).collect();
    let shown = |snapshot: &Snapshot| {
        let menu = drawn(snapshot);
        let labels = labels(&menu);
        assert!(labels.len() <= DOZEN, "{labels:?}");
        labels.iter().filter(|label| label.contains("· files")).count()
    };
    assert_eq!(shown(&snapshot), 4);
    snapshot.pins.extend((4..9).map(|n| pin("files", &format!("t{n}"), true)));
    assert_eq!(shown(&snapshot), 4);
    let more = drawn(&snapshot);
    assert_eq!(below(&more.rows, "favourites").len(), 5);

    snapshot.pause = Some(Pause { what: Paused::All, until: None });
    snapshot.upstreams.push(unavailable("web"));
    assert_eq!(shown(&snapshot), 2, "favourites give way to what has to be said");
    assert_eq!(below(&drawn(&snapshot).rows, "favourites").len(), 7, "none is lost");
}

#[test]
fn more_tools_than_are_shown_are_counted() {
    let tools = (0..20).map(|n| tool(&format!("t{n}"), true, false)).collect();
    let mut big = upstream("big", tools);
    big.catalogues[0].total = 63;
    let menu = drawn(&snapshot(vec![big]));
    let rows = below(&menu.rows, "upstream/big");
    let tools = rows.iter().filter(|row| row.id.starts_with("upstream/big/tool/")).count();
    assert_eq!(tools, 20);
    let last = rows.last().expect("rows");
    assert_eq!(
        (last.label.as_str(), &last.kind),
        ("All 63 in the window…", &Kind::Item(Deed::ShowTools(name("big"))))
    );
}

#[test]
fn freshness_is_that_of_the_worst_list_in_absolute_times() {
    let standing = |lists: &[Freshness]| {
        let mut upstream = files();
        let list = upstream.catalogues[0].clone();
        let with =
            |freshness: &Freshness| CatalogueView { freshness: freshness.clone(), ..list.clone() };
        upstream.catalogues = lists.iter().map(with).collect();
        words::standing(&upstream, &now())
    };
    let fresh = |minutes| Freshness::Fresh { until: Some(at(minutes)) };
    let stale = |minutes| Freshness::Stale { since: at(minutes), because: String::new() };
    assert_eq!(standing(&[fresh(9), fresh(4), Freshness::Empty]), "Ready · fresh until 10:04");
    assert_eq!(standing(&[fresh(9), stale(-3), stale(-5)]), "Ready · stale since 09:55");
    let untold = Freshness::Fresh { until: None };
    assert_eq!(standing(&[untold.clone(), fresh(1)]), "Ready · fresh until 10:01");
    assert_eq!(standing(&[untold]), "Ready · fresh until it says otherwise");
    assert_eq!(standing(&[Freshness::Unread]), "Ready · not read yet");
    assert_eq!(standing(&[Freshness::Empty]), "Ready");
}

#[test]
fn settings_have_rows_only_for_what_the_desktop_can_do() {
    let rows = |around| seen(below(&menu(&snapshot(vec![]), around, &now()).rows, "settings"));
    assert_eq!(rows(Around::default()), "> Copy endpoint address\n");
    let all = Around { start_at_login: Some(false), shows_notifications: true };
    assert_eq!(rows(all), "> Copy endpoint address\no Start at login\nx Notifications\n");
}

#[test]
fn without_a_gateway_the_menu_says_why_and_lets_quit() {
    let words = "port 8717 is in use by nginx".to_owned();
    let menu = without_a_gateway(&Failure { words: words.clone(), port: Some(8717) });
    assert_eq!(menu.mood, Mood::Attention);
    let head = "  Not running: port 8717 is in use by nginx\n";
    let tail = "--\n> Open Traygate…\n> Quit\n";
    let ways_out = "> Try again\n> Use another port\n";
    assert_eq!(seen(&menu.rows), format!("{head}{ways_out}{tail}"));
    let menu = without_a_gateway(&Failure { words, port: None });
    assert_eq!(seen(&menu.rows), format!("{head}{tail}"));
}

#[test]
fn foreign_text_stays_on_its_row() {
    let key = format!("a\nb\u{7}{}", "x".repeat(200));
    let menu = drawn(&snapshot(vec![upstream("odd", vec![tool(&key, true, false)])]));
    let row = below(&menu.rows, "upstream/odd").last().expect("a tool");
    assert!(row.label.starts_with("a bx") && row.label.chars().count() <= 61, "{}", row.label);
    let Kind::Check { deed: Deed::Toggle { key: toggled, .. }, .. } = &row.kind else {
        panic!("{row:?}")
    };
    assert_eq!(*toggled, key, "what is toggled is the very name");
}

#[test]
fn every_row_has_an_id_of_its_own() {
    fn collect<'a>(rows: &'a [Row], ids: &mut Vec<&'a str>) {
        for row in rows {
            ids.push(&row.id);
            if let Kind::Submenu(rows) = &row.kind {
                collect(rows, ids);
            }
        }
    }
    let mut snapshot = snapshot(vec![files(), unavailable("web"), unavailable("other")]);
    snapshot.pins = (0..9).map(|n| pin("files", &format!("t{n}"), true)).collect();
    snapshot.pause = Some(Pause { what: Paused::All, until: None });
    let menu = drawn(&snapshot);
    let mut ids = Vec::new();
    collect(&menu.rows, &mut ids);
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}
