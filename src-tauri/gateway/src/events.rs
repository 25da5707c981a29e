//! What happens, as facts: what the journal keeps and what people are told of.
//!
//! A fact names what it is about and carries codes, counts and Traygate's own words. It never
//! carries an argument, a result, a secret or anything that an upstream wrote (design section 7).

mod invocation;
mod words;

use serde::{Deserialize, Serialize};

pub use self::invocation::{Invocation, Outcome, Touched};
use crate::{
    api::Paused, capability::CapabilityType, clock::wall, names::UpstreamName, store::UpstreamId,
    text::one_line,
};

/// How many names of a changed catalogue are kept; of the rest only the number.
const NAMES: usize = 50;
/// How many characters of a name are kept.
const NAME: usize = 200;

/// One fact, with its time, its upstream and the person behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds of Unix time.
    pub at: i64,
    /// Outlives a rename. Known inside the host only.
    #[serde(skip)]
    pub upstream_id: Option<UpstreamId>,
    /// As it was called then; absent for what concerns all of Traygate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamName>,
    /// Through what a person did it; absent for what happened by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    #[serde(flatten)]
    pub fact: Fact,
}

impl Event {
    /// Of Traygate as a whole, now.
    pub fn new(fact: Fact) -> Self {
        Self { at: wall(), upstream_id: None, upstream: None, by: None, fact }
    }

    #[must_use]
    pub fn of(self, id: UpstreamId, name: &UpstreamName) -> Self {
        Self { upstream_id: Some(id), upstream: Some(name.clone()), ..self }
    }

    #[must_use]
    pub fn by(self, by: By) -> Self {
        Self { by: Some(by), ..self }
    }
}

/// One entry of the journal: a fact, or a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Grows from entry to entry, over restarts too.
    pub seq: u64,
    #[serde(flatten)]
    pub record: Record,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    Event(Event),
    Invocation(Invocation),
}

impl Record {
    /// When it was over: a call is told by its end. Milliseconds of Unix time.
    pub fn told_at(&self) -> i64 {
        match self {
            Self::Event(event) => event.at,
            Self::Invocation(call) => call.at + call.duration_ms as i64,
        }
    }
}

/// Through what a person acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    Cli,
    Window,
    Tray,
    /// A program of the user's own, over the control API.
    Api,
}

/// What can happen. `because` is Traygate's own words; a duration runs from the loss, or from the
/// first failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Fact {
    /// A link that was up has died.
    Lost {
        because: String,
    },
    /// A fresh link took the dead one's place, and it works: a list was read over it.
    Healed {
        after_ms: u64,
    },
    /// It can't be reached: connecting to it failed. Told once per outage.
    Unavailable {
        because: String,
    },
    /// Only the user can help: it asks for credentials.
    NeedsSignIn {
        because: String,
    },
    /// Only the user can help: its command can't be run.
    Misconfigured {
        because: String,
    },
    /// It works again after it was unavailable: a list was read.
    Recovered {
        after_ms: u64,
    },
    /// Its list of this type could not be read; the older one is used.
    Degraded {
        #[serde(rename = "type")]
        kind: CapabilityType,
    },
    /// The server had forgotten its HTTP session; a new one was opened. Nobody is told.
    SessionRenewed,
    /// A call that may have run, and was not run again.
    OutcomeUnknown {
        app: String,
        #[serde(rename = "type")]
        kind: CapabilityType,
        key: String,
    },
    /// A list isn't what it was at the last reading.
    CatalogueChanged {
        #[serde(rename = "type")]
        kind: CapabilityType,
        #[serde(default, skip_serializing_if = "Names::is_empty")]
        added: Names,
        #[serde(default, skip_serializing_if = "Names::is_empty")]
        removed: Names,
        /// Same name, other content.
        #[serde(default, skip_serializing_if = "Names::is_empty")]
        redescribed: Names,
    },

    Added,
    Removed,
    Renamed {
        from: UpstreamName,
    },
    /// Another command, address, environment or header. Which one isn't told: it may be secret.
    Edited,
    /// Settings of the upstream, by name.
    SettingsChanged {
        settings: Vec<String>,
    },
    Moved {
        position: usize,
    },
    Enabled,
    Disabled,
    Restarted,
    Toggled {
        #[serde(rename = "type")]
        kind: CapabilityType,
        key: String,
        enabled: bool,
    },
    Pinned {
        #[serde(rename = "type")]
        kind: CapabilityType,
        key: String,
        pinned: bool,
    },
    Forgotten {
        #[serde(rename = "type")]
        kind: CapabilityType,
        key: String,
    },
    Paused {
        paused: Paused,
        until: Option<i64>,
    },
    Resumed,
    /// A setting of Traygate's own.
    SettingChanged {
        setting: String,
    },
    AppAdded {
        app: String,
    },
    AppRevoked {
        app: String,
    },
    Imported {
        added: usize,
        merged: usize,
    },

    Started {
        version: String,
    },
    Stopped,
    /// The machine slept; every link is verified.
    Woke {
        asleep_ms: u64,
    },
    /// The machine has other network addresses now; every link is verified.
    NetworkChanged,
    /// The journal could not keep up, and so many entries are missing here.
    Dropped {
        entries: u64,
    },
}

/// Some names, and how many more there were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    pub names: Vec<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Names {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Those whose names aren't kept included.
    pub fn len(&self) -> usize {
        self.names.len() + self.more
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut names = names.into_iter();
        let kept = names.by_ref().take(NAMES).map(|name| one_line(name, NAME)).collect();
        Self { names: kept, more: names.count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(event: &Event) -> String {
        serde_json::to_string(event).expect("an event always serializes")
    }

    #[test]
    fn an_event_reads_as_one_flat_object_and_back() {
        let name = UpstreamName::parse("files").expect("a name");
        let toggled = Fact::Toggled {
            kind: CapabilityType::Tool,
            key: "write_file".to_owned(),
            enabled: false,
        };
        let event = Event { at: 5, ..Event::new(toggled).of(UpstreamId(3), &name).by(By::Tray) };
        let text = r#"{"at":5,"upstream":"files","by":"tray","what":"toggled","type":"tool","key":"write_file","enabled":false}"#;
        assert_eq!(json(&event), text);
        let read: Event = serde_json::from_str(text).expect("an event");
        assert_eq!(read, Event { upstream_id: None, ..event });
        let bare = Event { at: 7, ..Event::new(Fact::SessionRenewed) };
        assert_eq!(json(&bare), r#"{"at":7,"what":"session_renewed"}"#);
    }

    #[test]
    fn a_call_reads_as_one_flat_object_and_back() {
        let call = Invocation {
            at: 9,
            upstream_id: Some(UpstreamId(3)),
            upstream: UpstreamName::parse("files").ok(),
            app: "claude".to_owned(),
            kind: CapabilityType::Tool,
            key: Some("echo".to_owned()),
            duration_ms: 12,
            outcome: Outcome::Fault(crate::fault::Code::UpstreamTimeout),
            code: None,
            touched: Some(Touched::Repeated),
        };
        let entry = Entry { seq: 4, record: Record::Invocation(call.clone()) };
        let text = serde_json::to_string(&entry).expect("json");
        assert_eq!(
            text,
            r#"{"seq":4,"what":"call","at":9,"upstream":"files","app":"claude","type":"tool","key":"echo","duration_ms":12,"outcome":"UPSTREAM_TIMEOUT","touched":"repeated"}"#
        );
        let read: Entry = serde_json::from_str(&text).expect("an entry");
        let call = Invocation { upstream_id: None, ..call };
        assert_eq!(read.record, Record::Invocation(call));
        let text = r#"{"seq":5,"at":9,"what":"session_renewed"}"#;
        let read: Entry = serde_json::from_str(text).expect("an entry");
        assert!(matches!(read.record, Record::Event(_)), "{read:?}");
    }

    #[test]
    fn names_are_bounded_in_number_and_length() {
        let many: Vec<String> = (0..NAMES + 7).map(|n| format!("{n}{}", "x".repeat(300))).collect();
        let names: Names = many.iter().map(String::as_str).collect();
        assert_eq!((names.names.len(), names.more), (NAMES, 7));
        assert!(names.names.iter().all(|name| name.chars().count() <= NAME + 1));
    }
}
