//! The journal in plain English: one sentence for each entry, without its time.

use super::{By, Entry, Event, Fact, Invocation, Names, Outcome, Record, Touched};
use crate::{
    api::Paused,
    capability::CapabilityType,
    fault::Code,
    text::{count, lasted, one_line},
};

/// How many characters of a name stand in a sentence.
const SHOWN: usize = 80;
/// How many names of a changed list stand in a sentence.
const LISTED: usize = 5;

impl Entry {
    pub fn sentence(&self) -> String {
        match &self.record {
            Record::Event(event) => event.sentence(),
            Record::Invocation(call) => call.sentence(),
        }
    }
}

impl Event {
    pub fn sentence(&self) -> String {
        match self.by {
            Some(by) => format!("{} {}", self.deed(), through(by)),
            None => match &self.upstream {
                Some(upstream) => format!("{upstream}: {}", self.happening()),
                None => self.happening(),
            },
        }
    }

    /// What became of an upstream, or of Traygate, by itself.
    fn happening(&self) -> String {
        match &self.fact {
            Fact::Lost { because } => format!("lost: {because}"),
            Fact::Healed { after_ms } => {
                format!("healed after {}: connected afresh and read its list", lasted(*after_ms))
            }
            Fact::Unavailable { because } => {
                format!("unavailable: {because}; Traygate keeps trying")
            }
            Fact::NeedsSignIn { because } => format!("waits for you: {because}"),
            Fact::Misconfigured { because } => format!("can't be started: {because}"),
            Fact::Recovered { after_ms } => {
                format!("back after {}: connected and read its list", lasted(*after_ms))
            }
            Fact::Degraded { kind } => {
                format!("its {kind}s could not be read; the list from before is used")
            }
            Fact::SessionRenewed => "had forgotten the session; a new one was opened".to_owned(),
            Fact::OutcomeUnknown { app, kind, key } => format!(
                "{} may have run when the connection died, and was not run again; check whether its effect is there",
                use_of(app, *kind, Some(key))
            ),
            Fact::CatalogueChanged { kind, added, removed, redescribed } => {
                format!("its {kind}s changed: {}", changes(added, removed, redescribed))
            }
            Fact::Started { version } => format!("Traygate {version} started"),
            Fact::Stopped => "Traygate stopped".to_owned(),
            Fact::Woke { asleep_ms } => format!(
                "the machine woke after {}; every connection is verified",
                lasted(*asleep_ms)
            ),
            Fact::NetworkChanged => "the network changed; every connection is verified".to_owned(),
            Fact::Dropped { entries } => format!(
                "more happened at once than the journal could keep: {} missing here",
                if *entries == 1 {
                    "1 entry is".to_owned()
                } else {
                    format!("{entries} entries are")
                }
            ),
            // A deed of somebody unknown.
            _ => self.deed(),
        }
    }

    /// What a person did.
    fn deed(&self) -> String {
        let upstream = self.upstream.as_ref().map_or("Traygate", |name| name.as_str());
        let capability =
            |kind: &CapabilityType, key: &str| format!("{upstream}/{kind}/{}", shown(key));
        match &self.fact {
            Fact::Added => format!("you added {upstream}"),
            Fact::Removed => format!("you removed {upstream}"),
            Fact::Renamed { from } => format!("you renamed {from} to {upstream}"),
            Fact::Edited => format!("you changed how {upstream} is reached"),
            Fact::SettingsChanged { settings } => {
                format!("you set {} of {upstream}", settings.join(", "))
            }
            Fact::Moved { position } => format!("you moved {upstream} to place {position}"),
            Fact::Enabled => format!("you enabled {upstream}"),
            Fact::Disabled => format!("you disabled {upstream}"),
            Fact::Restarted => format!("you restarted {upstream}"),
            Fact::Toggled { kind, key, enabled } => {
                let verb = if *enabled { "enabled" } else { "disabled" };
                format!("you {verb} {}", capability(kind, key))
            }
            Fact::Pinned { kind, key, pinned } => {
                let verb = if *pinned { "pinned" } else { "unpinned" };
                format!("you {verb} {}", capability(kind, key))
            }
            Fact::Forgotten { kind, key } => {
                format!("you had the choice about {} forgotten", capability(kind, key))
            }
            Fact::Paused { paused, until } => {
                let what = match paused {
                    Paused::All => "everything",
                    Paused::Writes => "every tool that isn't read-only",
                };
                format!("you paused {what} {}", until_when(*until))
            }
            Fact::Resumed => "you ended the pause".to_owned(),
            Fact::SettingChanged { setting } => format!("you set {setting}"),
            Fact::AppAdded { app } => format!("you made a token for {}", shown(app)),
            Fact::AppRevoked { app } => format!("you revoked the token of {}", shown(app)),
            Fact::Imported { added, merged } => {
                format!("you imported {}; {added} new", count(added + merged, "upstream"))
            }
            _ => self.happening(),
        }
    }
}

impl Invocation {
    pub fn sentence(&self) -> String {
        let upstream = self.upstream.as_ref().map_or("?", |name| name.as_str());
        let used = use_of(&self.app, self.kind, self.key.as_deref());
        let touched = match self.touched {
            Some(Touched::Waited) => " waited for the connection and",
            Some(Touched::Repeated) => " was asked once more and",
            None => "",
        };
        let ended = match (self.outcome, self.code) {
            (Outcome::Ok, _) => "was answered".to_owned(),
            (Outcome::ToolError, _) => "reported an error".to_owned(),
            (Outcome::Error, Some(code)) => format!("was answered with error {code}"),
            (Outcome::Error, None) => "was answered with an error".to_owned(),
            (Outcome::Cancelled, _) => "was cancelled".to_owned(),
            (Outcome::Fault(Code::Paused), _) => "was refused: paused".to_owned(),
            (Outcome::Fault(Code::CapabilityDisabled), _) => "was refused: disabled".to_owned(),
            (Outcome::Fault(Code::UnknownCapability), _) => "was refused: unknown".to_owned(),
            (Outcome::Fault(Code::UpstreamUnavailable), _) => "failed: unavailable".to_owned(),
            (Outcome::Fault(Code::UpstreamTimeout), _) => "failed: no answer in time".to_owned(),
            (Outcome::Fault(Code::OutcomeUnknown), _) => "may have run".to_owned(),
            (Outcome::Fault(Code::UpstreamNeedsSignIn), _) => "failed: needs sign-in".to_owned(),
        };
        format!("{upstream}: {used}{touched} {ended} after {}", lasted(self.duration_ms))
    }
}

fn use_of(app: &str, kind: CapabilityType, key: Option<&str>) -> String {
    let (app, key) = (shown(app), key.map_or_else(|| "a name not kept".to_owned(), shown));
    match kind {
        CapabilityType::Tool => format!("{app}'s call of {key}"),
        CapabilityType::Prompt => format!("{app}'s use of the prompt {key}"),
        CapabilityType::Resource | CapabilityType::Template => format!("{app}'s read of {key}"),
    }
}

fn changes(added: &Names, removed: &Names, redescribed: &Names) -> String {
    let parts = [("added", added), ("removed", removed), ("described anew:", redescribed)];
    let told = parts.into_iter().filter(|(_, names)| !names.is_empty());
    told.map(|(verb, names)| format!("{verb} {}", listed(names))).collect::<Vec<_>>().join("; ")
}

fn listed(names: &Names) -> String {
    let shown: Vec<_> = names.names.iter().take(LISTED).map(|name| shown(name)).collect();
    let more = names.names.len() - shown.len() + names.more;
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Foreign names must not forge lines.
fn shown(name: &str) -> String {
    one_line(name, SHOWN)
}

const fn through(by: By) -> &'static str {
    match by {
        By::Cli => "(command line)",
        By::Window => "(window)",
        By::Tray => "(tray)",
        By::Api => "(control API)",
    }
}

fn until_when(until: Option<i64>) -> String {
    let at = until.and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map_or("until you resume".to_owned(), |at| {
        let here = at.to_zoned_datetime(jiff::tz::TimeZone::system());
        format!("until {}", here.strftime("%Y-%m-%d %H:%M"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{names::UpstreamName, store::UpstreamId};

    fn about(fact: Fact) -> Event {
        Event::new(fact).of(UpstreamId(1), &UpstreamName::parse("files").expect("a name"))
    }

    fn names(names: &[&str]) -> Names {
        names.iter().copied().collect()
    }

    #[test]
    fn what_happens_by_itself_names_the_upstream_and_says_what_was_done() {
        let because = || "it was ended by signal 9".to_owned();
        let (app, key) = ("claude".to_owned(), "write_file".to_owned());
        for (fact, sentence) in [
            (Fact::Lost { because: because() }, "files: lost: it was ended by signal 9"),
            (
                Fact::Healed { after_ms: 320 },
                "files: healed after 320 ms: connected afresh and read its list",
            ),
            (
                Fact::Unavailable { because: because() },
                "files: unavailable: it was ended by signal 9; Traygate keeps trying",
            ),
            (
                Fact::Recovered { after_ms: 184_500 },
                "files: back after 3 min 4 s: connected and read its list",
            ),
            (Fact::SessionRenewed, "files: had forgotten the session; a new one was opened"),
            (
                Fact::OutcomeUnknown { app, kind: CapabilityType::Tool, key },
                "files: claude's call of write_file may have run when the connection died, and was not run again; check whether its effect is there",
            ),
            (
                Fact::CatalogueChanged {
                    kind: CapabilityType::Tool,
                    added: names(&["a", "b", "c", "d", "e", "f", "g"]),
                    removed: names(&[]),
                    redescribed: names(&["h\u{1b}\ni"]),
                },
                "files: its tools changed: added a, b, c, d, e and 2 more; described anew: h i",
            ),
        ] {
            assert_eq!(about(fact).sentence(), sentence);
        }
        let dropped = Event::new(Fact::Dropped { entries: 7 }).sentence();
        assert_eq!(
            dropped,
            "more happened at once than the journal could keep: 7 entries are missing here"
        );
    }

    #[test]
    fn what_a_person_did_says_through_what() {
        let key = "write_file".to_owned();
        let toggled = Fact::Toggled { kind: CapabilityType::Tool, key, enabled: false };
        assert_eq!(
            about(toggled).by(By::Tray).sentence(),
            "you disabled files/tool/write_file (tray)"
        );
        assert_eq!(about(Fact::Added).by(By::Cli).sentence(), "you added files (command line)");
        let paused =
            Event::new(Fact::Paused { paused: Paused::Writes, until: None }).by(By::Window);
        assert_eq!(
            paused.sentence(),
            "you paused every tool that isn't read-only until you resume (window)"
        );
    }

    #[test]
    fn a_call_says_who_what_and_how_it_ended() {
        let call = Invocation {
            at: 0,
            upstream_id: None,
            upstream: UpstreamName::parse("files").ok(),
            app: "claude".to_owned(),
            kind: CapabilityType::Tool,
            key: Some("echo".to_owned()),
            duration_ms: 1_250,
            outcome: Outcome::Ok,
            code: None,
            touched: Some(Touched::Repeated),
        };
        assert_eq!(
            call.sentence(),
            "files: claude's call of echo was asked once more and was answered after 1.2 s"
        );
        let refused = Invocation {
            outcome: Outcome::Error,
            code: Some(-32602),
            touched: None,
            kind: CapabilityType::Template,
            key: Some("db://{table}".to_owned()),
            ..call
        };
        assert_eq!(
            refused.sentence(),
            "files: claude's read of db://{table} was answered with error -32602 after 1.2 s"
        );
    }
}
