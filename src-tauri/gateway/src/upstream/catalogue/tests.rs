//! What pages become.

use std::time::Duration;

use super::{super::hints::LONGEST_TTL, *};
use crate::clock::Clock;

fn reader(kind: CapabilityType, era: Era) -> Reader {
    Reader {
        kind,
        upstream: UpstreamName::parse("up").expect("a valid name"),
        name_limit: NameLimit::default(),
        era,
        legacy_ttl: LegacyTtl::default(),
    }
}

fn read(era: Era, pages: &[&str]) -> Catalogue {
    let mut read = Pages::new(reader(CapabilityType::Tool, era));
    for page in pages {
        let page: Box<RawValue> = serde_json::from_str(page).expect("json");
        read.take(&page, Clock::default().now()).expect("a list");
    }
    read.into_catalogue(Clock::default().now())
}

#[test]
fn an_item_is_shown_under_its_exposed_name_and_else_byte_for_byte() {
    let tool = r#"{"zeta":1e3, "name" : "add","inputSchema":{"type":"object","max":18446744073709551616}}"#;
    let catalogue = read(Era::Legacy, &[&format!(r#"{{"tools":[{tool}]}}"#)]);
    let mut shown = String::new();
    catalogue.items[0].write_as("up__add", &mut shown);
    assert_eq!(shown, tool.replace("\"add\"", "\"up__add\""));
    assert!(catalogue.exposed("up__add").is_some(), "if it lists, it calls");
}

#[test]
fn one_bad_tool_costs_that_tool() {
    let page = r#"{"tools":[{"name":"good","inputSchema":{"type":"object"}},{"name":7},"text",
        {"name":"good","inputSchema":{"type":"object"}},{"name":"str","inputSchema":{"type":"string"}},
        {"name":"null","inputSchema":null},{"name":"untyped","inputSchema":{"properties":{}}},
        {"name":"titled","title":7,"inputSchema":{"type":"object"}},
        {"name":"blank","description":null,"inputSchema":{"type":["object","null"]}}]}"#;
    let catalogue = read(Era::Legacy, &[page]);
    let names: Vec<_> = catalogue.items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(names, ["good", "untyped", "blank"]);
    assert_eq!(catalogue.warnings.len(), 9, "{:?}", catalogue.warnings);
}

#[test]
fn a_modern_catalogue_lives_as_long_as_its_shortest_page() {
    let now = Clock::default().now();
    for (pages, want) in [
        (&["60000", "1000"][..], Some(Duration::from_secs(1))),
        (&["60000", "0"], None),
        (&["-1"], None),
        (&["1.5"], None),
        (&["1e300"], None),
        (&["\"60\""], None),
        (&["null"], None),
        (&["9223372036854775808"], Some(LONGEST_TTL)),
    ] {
        let mut read = Pages::new(reader(CapabilityType::Tool, Era::Modern));
        for ttl in pages {
            let page = format!(r#"{{"tools":[],"ttlMs":{ttl},"cacheScope":"public"}}"#);
            let page: Box<RawValue> = serde_json::from_str(&page).expect("json");
            read.take(&page, now).expect("a list");
        }
        let want = want.map_or(Fresh::Never, |ttl| Fresh::Until(now.after(ttl)));
        assert_eq!(read.into_catalogue(now).fresh, want, "{pages:?}");
    }
}

#[test]
fn each_page_is_fresh_from_when_it_came() {
    let began = Clock::default().now();
    let later = began.after(Duration::from_secs(50));
    let mut read = Pages::new(reader(CapabilityType::Tool, Era::Modern));
    for (received, ttl) in [(began, 60_000), (later, 20_000)] {
        let page = format!(r#"{{"tools":[],"ttlMs":{ttl},"cacheScope":"public"}}"#);
        let page: Box<RawValue> = serde_json::from_str(&page).expect("json");
        read.take(&page, received).expect("a list");
    }
    let catalogue = read.into_catalogue(later);
    assert_eq!(catalogue.fresh, Fresh::Until(began.after(Duration::from_mins(1))));
}

#[test]
fn a_page_without_a_hint_makes_a_modern_catalogue_stale_at_once_but_not_a_legacy_one() {
    assert_eq!(read(Era::Modern, &[r#"{"tools":[]}"#]).fresh, Fresh::Never);
    let legacy = read(Era::Legacy, &[r#"{"tools":[],"ttlMs":0}"#]);
    assert!(matches!(legacy.fresh, Fresh::Until(_)), "hints are not part of that era");
}

#[test]
fn one_page_that_is_not_public_makes_all_private() {
    let page = |scope: &str| format!(r#"{{"tools":[],"ttlMs":1,"cacheScope":{scope}}}"#);
    let read = |scopes: &[&str]| {
        let pages: Vec<_> = scopes.iter().map(|scope| page(scope)).collect();
        read(Era::Modern, &pages.iter().map(String::as_str).collect::<Vec<_>>()).scope
    };
    assert_eq!(read(&["\"public\"", "\"public\""]), Scope::Public);
    for odd in ["\"private\"", "\"Public\"", "\"\"", "null", "7"] {
        assert_eq!(read(&["\"public\"", odd]), Scope::Private, "{odd}");
    }
}

#[test]
fn the_empty_string_is_a_cursor_and_null_is_the_end() {
    let mut pages = Pages::new(reader(CapabilityType::Tool, Era::Legacy));
    let mut next = |page: &str| {
        let page: Box<RawValue> = serde_json::from_str(page).expect("json");
        pages.take(&page, Clock::default().now()).expect("a list")
    };
    assert_eq!(next(r#"{"tools":[],"nextCursor":""}"#), Some(String::new()));
    assert_eq!(next(r#"{"tools":[],"nextCursor":null}"#), None);
    assert_eq!(next(r#"{"tools":[]}"#), None);
}
