//! Notices sentence by sentence, on a clock that the test drives.

use super::*;
use crate::{clock::Clock, events::By, store::UpstreamId};

struct Desk {
    people: People,
    now: Moment,
    off: Vec<&'static str>,
}

impl Desk {
    /// Well after the start.
    fn new() -> Self {
        let now = Clock::Driven(std::sync::Arc::default()).now();
        Self { people: People::default(), now, off: Vec::new() }
    }

    fn hear(&mut self, upstream: &str, fact: Fact) {
        let event = Event::new(fact).of(UpstreamId(1), &name(upstream));
        self.people.hear(self.now, &event);
    }

    fn whole(&mut self, fact: Fact) {
        self.people.hear(self.now, &Event::new(fact));
    }

    fn down(&mut self, upstream: &str) {
        let because = "the server was killed by signal 9".to_owned();
        self.hear(upstream, Fact::Unavailable { because });
    }

    fn lost(&mut self, upstream: &str) {
        self.hear(upstream, Fact::Lost { because: "the connection was lost".to_owned() });
    }

    fn back(&mut self, upstream: &str) {
        self.hear(upstream, Fact::Recovered { after_ms: 1_000 });
    }

    /// Lets time pass, and returns what people were told meanwhile: `title: body`.
    fn pass(&mut self, seconds: u64) -> Vec<String> {
        let end = self.now.after(Duration::from_secs(seconds));
        let mut told = Vec::new();
        while let Some(due) = self.people.due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let wanted = |upstream: &UpstreamName| !self.off.contains(&upstream.as_str());
            if let Some(notice) = self.people.tell(self.now, wanted) {
                told.push(format!("{}: {}", notice.title(), notice.body()));
            }
        }
        self.now = end;
        told
    }
}

fn name(text: &str) -> UpstreamName {
    UpstreamName::parse(text).expect("a name")
}

const NOTHING: [String; 0] = [];

#[test]
fn an_outage_is_told_once_and_its_end_once() {
    let mut desk = Desk::new();
    desk.lost("files");
    desk.down("files");
    assert_eq!(
        desk.pass(60),
        ["files is unavailable: The server was killed by signal 9. Traygate keeps trying."
            .to_owned()]
    );
    for _ in 0..5 {
        desk.down("files");
        assert_eq!(desk.pass(600), NOTHING, "never one per try");
    }
    desk.back("files");
    assert_eq!(desk.pass(60), ["files is back: It was away for 51 min 0 s.".to_owned()]);
    assert_eq!(desk.pass(600), NOTHING);
}

#[test]
fn what_only_the_user_can_mend_says_so() {
    let mut desk = Desk::new();
    desk.hear("github", Fact::NeedsSignIn { because: "it asks for a sign-in".to_owned() });
    assert_eq!(desk.pass(5), ["github needs you to sign in: It asks for a sign-in.".to_owned()]);
    let because = "its command or address can't be used".to_owned();
    desk.hear("files", Fact::Misconfigured { because });
    assert_eq!(
        desk.pass(5),
        ["files can't be started: Its command or address can't be used.".to_owned()]
    );
}

#[test]
fn several_within_a_few_seconds_are_one_notice() {
    let mut desk = Desk::new();
    for upstream in ["one", "two", "three", "four"] {
        desk.down(upstream);
        assert_eq!(desk.pass(1), NOTHING);
    }
    assert_eq!(
        desk.pass(60),
        ["4 upstreams are unavailable: four, one, three and two.".to_owned()]
    );
    desk.back("one");
    desk.back("two");
    desk.down("five");
    desk.lost("six");
    desk.hear("six", Fact::Healed { after_ms: 40 });
    assert_eq!(
        desk.pass(60),
        ["News of 4 upstreams: five is unavailable.\none and two are back.\nsix was healed."
            .to_owned()]
    );
}

#[test]
fn a_stream_of_news_is_not_waited_out() {
    let mut desk = Desk::new();
    let told: Vec<_> = ('a'..='j')
        .flat_map(|upstream| {
            desk.down(&upstream.to_string());
            desk.pass(1)
        })
        .collect();
    assert_eq!(told, ["6 upstreams are unavailable: a, b, c, d, e and f.".to_owned()]);
}

#[test]
fn at_start_and_after_a_wake_ten_that_flap_are_at_most_one_notice() {
    let started = Fact::Started { version: "1".to_owned() };
    for beginning in [started, Fact::Woke { asleep_ms: 3_600_000 }, Fact::NetworkChanged] {
        let mut desk = Desk::new();
        desk.whole(beginning);
        let upstreams: Vec<_> = (0..10).map(|n| format!("u{n}")).collect();
        let mut told = Vec::new();
        for _ in 0..2 {
            for upstream in &upstreams {
                desk.lost(upstream);
                desk.down(upstream);
            }
            told.extend(desk.pass(2));
            for upstream in &upstreams {
                desk.back(upstream);
            }
            told.extend(desk.pass(2));
        }
        assert_eq!(told, NOTHING, "nothing before it has settled");
        desk.down("u3");
        told.extend(desk.pass(600));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("u3 is unavailable"), "{told:?}");
    }
}

#[test]
fn a_heal_that_nobody_had_to_notice_is_told_at_most_once_an_hour() {
    let mut desk = Desk::new();
    let mut told = Vec::new();
    for _ in 0..60 {
        desk.lost("files");
        desk.hear("files", Fact::Healed { after_ms: 320 });
        told.extend(desk.pass(60));
    }
    let sentence = "files was healed: Its connection died and was replaced within 320 ms.";
    assert_eq!(told, [sentence.to_owned()]);
    desk.lost("docs");
    desk.hear("docs", Fact::Healed { after_ms: 320 });
    assert_eq!(desk.pass(5).len(), 1, "another upstream's is its own");
    desk.lost("files");
    desk.hear("files", Fact::Healed { after_ms: 320 });
    assert_eq!(desk.pass(5).len(), 1, "an hour later");
}

#[test]
fn an_outage_that_was_over_before_it_was_told_is_a_heal() {
    let mut desk = Desk::new();
    desk.lost("files");
    desk.down("files");
    assert_eq!(desk.pass(1), NOTHING);
    desk.back("files");
    assert_eq!(
        desk.pass(60),
        ["files was healed: Its connection died and was replaced within 1.0 s.".to_owned()]
    );
}

#[test]
fn one_that_only_took_its_time_to_start_is_not_told() {
    let mut desk = Desk::new();
    desk.whole(Fact::Started { version: "1".to_owned() });
    desk.down("files");
    assert_eq!(desk.pass(5), NOTHING);
    desk.back("files");
    assert_eq!(desk.pass(3_600), NOTHING);
}

#[test]
fn a_renewed_session_and_a_changed_list_are_not_told() {
    let mut desk = Desk::new();
    desk.hear("files", Fact::SessionRenewed);
    desk.hear("files", Fact::Degraded { kind: crate::capability::CapabilityType::Tool });
    assert_eq!(desk.pass(3_600), NOTHING);
}

#[test]
fn one_that_comes_and_goes_is_called_back_only_when_it_stays() {
    let mut desk = Desk::new();
    let mut told = Vec::new();
    for _ in 0..30 {
        desk.lost("files");
        desk.down("files");
        told.extend(desk.pass(10));
        desk.back("files");
        told.extend(desk.pass(10));
    }
    let titles: Vec<_> = told.iter().filter_map(|told| told.split(':').next()).collect();
    assert_eq!(
        titles,
        ["files is unavailable", "files is back", "files is unavailable"],
        "ten minutes of coming and going"
    );
    assert_eq!(desk.pass(60).len(), 1, "now it stays");
}

#[test]
fn a_flap_every_second_is_one_outage() {
    let mut desk = Desk::new();
    let mut told = Vec::new();
    desk.down("files");
    told.extend(desk.pass(3));
    for _ in 0..300 {
        desk.back("files");
        told.extend(desk.pass(1));
        desk.lost("files");
        desk.down("files");
        told.extend(desk.pass(1));
    }
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn a_switch_silences_one_upstream_from_its_outage_to_its_recovery() {
    let mut desk = Desk::new();
    desk.off.push("files");
    desk.down("files");
    desk.down("docs");
    let told = desk.pass(60);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("docs is unavailable"), "{told:?}");
    desk.off.clear();
    desk.back("files");
    assert_eq!(desk.pass(60), NOTHING, "what was not told has no end to tell");
    desk.down("files");
    assert_eq!(desk.pass(60).len(), 1, "the next outage is told");
}

#[test]
fn an_upstream_that_its_user_takes_away_or_changes_begins_anew() {
    for fact in [Fact::Removed, Fact::Disabled, Fact::Edited] {
        let mut desk = Desk::new();
        desk.down("files");
        assert_eq!(desk.pass(5).len(), 1);
        let event = Event::new(fact).of(UpstreamId(1), &name("files")).by(By::Cli);
        desk.people.hear(desk.now, &event);
        assert_eq!(desk.pass(600), NOTHING);
        desk.down("files");
        assert_eq!(desk.pass(5).len(), 1, "a new outage is told");
    }
}

fn unknown(key: &str) -> Fact {
    let kind = crate::capability::CapabilityType::Tool;
    Fact::OutcomeUnknown { app: "claude".to_owned(), kind, key: key.to_owned() }
}

fn changed(added: &[&str]) -> Fact {
    let names = |names: &[&str]| names.iter().copied().collect();
    let kind = crate::capability::CapabilityType::Tool;
    let (added, removed, redescribed) = (names(added), names(&[]), names(&["x"]));
    Fact::CatalogueChanged { kind, added, removed, redescribed }
}

#[test]
fn a_call_that_may_have_run_is_told_before_the_heal_and_several_together() {
    let mut desk = Desk::new();
    desk.lost("files");
    desk.hear("files", unknown("write"));
    desk.hear("files", unknown("move"));
    desk.hear("files", Fact::Healed { after_ms: 320 });
    let told = desk.pass(60);
    assert_eq!(told.len(), 2, "{told:?}");
    let call = "A call of files may have run: claude was using move when the connection died, and 1 other call with it. It was not run again: check whether its effect is there.";
    assert_eq!(told[0], call);
    assert!(told[1].starts_with("files was healed"), "{told:?}");
    assert_eq!(desk.pass(600), NOTHING);
}

#[test]
fn what_changed_is_told_at_most_once_an_hour_and_then_all_of_it() {
    let mut desk = Desk::new();
    desk.hear("files", changed(&["a", "b"]));
    let told = |what: &str| {
        format!(
            "files changed what it offers: {what}. Your choices are kept; new ones follow its policy."
        )
    };
    assert_eq!(desk.pass(60), [told("2 added, 1 described anew")]);
    for _ in 0..3 {
        desk.hear("files", changed(&["c"]));
        assert_eq!(desk.pass(600), NOTHING);
    }
    assert_eq!(desk.pass(3_600), [told("3 added, 3 described anew")]);
    desk.off = vec!["files"];
    desk.hear("files", unknown("write"));
    desk.hear("files", changed(&["d"]));
    assert_eq!(desk.pass(7_200), NOTHING, "who wants to hear nothing hears nothing");
}
