//! What people are told: one notice per outage and one per recovery, never one per try, and what
//! happens together is told together (design section 5.3).

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Moment,
    events::{Event, Fact, Names},
    names::UpstreamName,
    text::{count, lasted, one_line},
};

/// News is told when none has come for this long …
const QUIET: Duration = Duration::from_secs(2);
/// … or when the oldest has waited this long.
const LONGEST: Duration = Duration::from_secs(6);
/// After a start, a wake and a change of the network much fails at first and comes back by itself.
const GATE: Duration = Duration::from_secs(10);
/// One that was back only a while ago must stay up this long before it is called back again …
const STEADY: Duration = Duration::from_mins(1);
/// … where this is a while.
const A_WHILE: Duration = Duration::from_mins(10);
/// A heal that nobody had to notice is told at most this often per upstream, and so is that an
/// upstream changed what it offers.
const SELDOM: Duration = Duration::from_hours(1);

/// How many characters of a foreign name are told.
const NAME: usize = 80;

/// One notification, about one upstream or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// By upstream, in the order of their names.
    pub news: Vec<News>,
}

/// What is new about one upstream. A click opens its page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    pub upstream: UpstreamName,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    Unavailable {
        because: String,
    },
    NeedsSignIn {
        because: String,
    },
    Misconfigured {
        because: String,
    },
    Back {
        after_ms: u64,
    },
    Healed {
        after_ms: u64,
    },
    /// The last of so many calls.
    OutcomeUnknown {
        app: String,
        key: String,
        calls: usize,
    },
    Changed {
        added: usize,
        removed: usize,
        redescribed: usize,
    },
}

impl Notice {
    pub fn title(&self) -> String {
        if let [News { upstream, what }] = self.news.as_slice() {
            return match what {
                What::Unavailable { .. } => format!("{upstream} is unavailable"),
                What::NeedsSignIn { .. } => format!("{upstream} needs you to sign in"),
                What::Misconfigured { .. } => format!("{upstream} can't be started"),
                What::Back { .. } => format!("{upstream} is back"),
                What::Healed { .. } => format!("{upstream} was healed"),
                What::OutcomeUnknown { .. } => format!("A call of {upstream} may have run"),
                What::Changed { .. } => format!("{upstream} changed what it offers"),
            };
        }
        let number = self.news.len();
        match self.groups().as_slice() {
            [(words, _)] => format!("{number} upstreams {words}"),
            _ => format!("News of {number} upstreams"),
        }
    }

    pub fn body(&self) -> String {
        if let [News { what, .. }] = self.news.as_slice() {
            return match what {
                What::Unavailable { because } => {
                    format!("{} Traygate keeps trying.", sentence(because))
                }
                What::NeedsSignIn { because } | What::Misconfigured { because } => {
                    sentence(because)
                }
                What::Back { after_ms } => format!("It was away for {}.", lasted(*after_ms)),
                What::Healed { after_ms } => {
                    format!("Its connection died and was replaced within {}.", lasted(*after_ms))
                }
                What::OutcomeUnknown { app, key, calls } => {
                    let (app, key) = (one_line(app, NAME), one_line(key, NAME));
                    let others = match calls {
                        1 => String::new(),
                        _ => format!(", and {} with it", count(calls - 1, "other call")),
                    };
                    format!(
                        "{app} was using {key} when the connection died{others}. It was not run again: check whether its effect is there."
                    )
                }
                What::Changed { added, removed, redescribed } => {
                    let parts =
                        [(added, "added"), (removed, "removed"), (redescribed, "described anew")];
                    let told = parts.iter().filter(|(number, _)| **number > 0);
                    let told: Vec<_> =
                        told.map(|(number, verb)| format!("{number} {verb}")).collect();
                    format!(
                        "{}. Your choices are kept; new ones follow its policy.",
                        told.join(", ")
                    )
                }
            };
        }
        match self.groups().as_slice() {
            [(_, names)] => format!("{}.", listed(names)),
            groups => {
                let lines = groups.iter().map(|(words, names)| {
                    let verb = if names.len() == 1 { singular(words) } else { words };
                    format!("{} {verb}.", listed(names))
                });
                lines.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// The names by what is new about them, the worst first.
    fn groups(&self) -> Vec<(&'static str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> =
            PLURALS.iter().map(|(plural, _)| (*plural, Vec::new())).collect();
        for News { upstream, what } in &self.news {
            let group = match what {
                What::Unavailable { .. } => 0,
                What::NeedsSignIn { .. } => 1,
                What::Misconfigured { .. } => 2,
                What::Back { .. } => 3,
                What::Healed { .. } => 4,
                What::OutcomeUnknown { .. } => 5,
                What::Changed { .. } => 6,
            };
            groups[group].1.push(upstream.as_str());
        }
        groups.retain(|(_, names)| !names.is_empty());
        groups
    }
}

const PLURALS: [(&str, &str); 7] = [
    ("are unavailable", "is unavailable"),
    ("need you to sign in", "needs you to sign in"),
    ("can't be started", "can't be started"),
    ("are back", "is back"),
    ("were healed", "was healed"),
    ("have calls that may have run", "has a call that may have run"),
    ("changed what they offer", "changed what it offers"),
];

fn singular(plural: &str) -> &str {
    PLURALS.iter().find(|(word, _)| *word == plural).map_or(plural, |(_, singular)| singular)
}

fn sentence(words: &str) -> String {
    let mut chars = words.chars();
    let start = chars.next().into_iter().flat_map(char::to_uppercase);
    let end = if words.ends_with(['.', '?', '!']) { "" } else { "." };
    start.chain(chars).chain(end.chars()).collect()
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Turns facts into notices. Time comes from outside.
#[derive(Debug, Default)]
pub struct People {
    upstreams: BTreeMap<UpstreamName, Known>,
    /// Nothing is told before this.
    gate: Option<Moment>,
}

/// What people know of one upstream.
#[derive(Debug, Default)]
struct Known {
    outage: Outage,
    /// A link that was up died, and isn't replaced yet.
    lost: bool,
    /// A heal that nobody was told of yet: when, and after how long.
    heal: Option<(Moment, u64)>,
    heal_told: Option<Moment>,
    back_told: Option<Moment>,
    /// Calls whose outcome is unknown, and a change: since when, and what is to be told.
    unknown: Option<(Moment, What)>,
    changed: Option<(Moment, What)>,
    changed_told: Option<Moment>,
}

#[derive(Debug, Default)]
enum Outage {
    #[default]
    None,
    /// It began at this time and isn't told yet.
    New { since: Moment, what: What },
    /// Told, or kept quiet because its notifications are off.
    On { since: Moment, told: bool },
    /// It was told, and seems to be over.
    Ending { since: Moment, at: Moment },
}

impl People {
    pub fn hear(&mut self, now: Moment, event: &Event) {
        let Some(upstream) = &event.upstream else {
            if matches!(event.fact, Fact::Started { .. } | Fact::Woke { .. } | Fact::NetworkChanged)
            {
                self.gate = Some(now.after(GATE));
            }
            return;
        };
        match &event.fact {
            Fact::Unavailable { because } => {
                self.known(upstream).down(now, What::Unavailable { because: because.clone() });
            }
            Fact::NeedsSignIn { because } => {
                self.known(upstream).down(now, What::NeedsSignIn { because: because.clone() });
            }
            Fact::Misconfigured { because } => {
                self.known(upstream).down(now, What::Misconfigured { because: because.clone() });
            }
            Fact::Lost { .. } => self.known(upstream).lost(),
            Fact::Healed { after_ms } | Fact::Recovered { after_ms } => {
                self.known(upstream).up(now, *after_ms);
            }
            Fact::OutcomeUnknown { app, key, .. } => self.known(upstream).unknown(now, app, key),
            Fact::CatalogueChanged { added, removed, redescribed, .. } => {
                self.known(upstream).changed(now, [added, removed, redescribed].map(Names::len));
            }
            // Another connection takes its place, or none; whoever did that knows.
            Fact::Removed | Fact::Disabled | Fact::Enabled | Fact::Edited => {
                self.upstreams.remove(upstream);
            }
            Fact::Renamed { from } => {
                self.upstreams.remove(from);
            }
            _ => {}
        }
    }

    /// When there will be something to tell, if nothing else happens.
    pub fn due(&self) -> Option<Moment> {
        let waiting = self.upstreams.values().flat_map(Known::waits_since);
        let (oldest, newest) = waiting.fold((None, None), |(oldest, newest), at: Moment| {
            (Some(oldest.map_or(at, |o: Moment| o.min(at))), newest.max(Some(at)))
        });
        let together = oldest.zip(newest).map(|(oldest, newest): (Moment, Moment)| {
            oldest.after(LONGEST).min(newest.after(QUIET))
        });
        let steady = self.upstreams.values().flat_map(Known::not_before).min();
        let due = [together, steady].into_iter().flatten().min()?;
        Some(self.gate.map_or(due, |gate| gate.max(due)))
    }

    /// Everything that is to be told now. `wanted` says whether people want to hear of one.
    pub fn tell(&mut self, now: Moment, wanted: impl Fn(&UpstreamName) -> bool) -> Option<Notice> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        let news: Vec<News> = self
            .upstreams
            .iter_mut()
            .filter_map(|(upstream, known)| {
                let what = known.tell(now, wanted(upstream))?;
                Some(News { upstream: upstream.clone(), what })
            })
            .collect();
        (!news.is_empty()).then_some(Notice { news })
    }

    fn known(&mut self, upstream: &UpstreamName) -> &mut Known {
        self.upstreams.entry(upstream.clone()).or_default()
    }
}

impl Known {
    fn down(&mut self, now: Moment, what: What) {
        self.heal = None;
        self.outage = match std::mem::take(&mut self.outage) {
            Outage::None => Outage::New { since: now, what },
            Outage::New { since, .. } => Outage::New { since, what },
            Outage::On { since, told } => Outage::On { since, told },
            Outage::Ending { since, .. } => Outage::On { since, told: true },
        };
    }

    /// Back for a moment only: what was told is still true.
    fn lost(&mut self) {
        self.lost = true;
        if let Outage::Ending { since, .. } = self.outage {
            self.outage = Outage::On { since, told: true };
        }
    }

    fn up(&mut self, now: Moment, after_ms: u64) {
        // One that only took its time to start was not healed.
        let healed = std::mem::take(&mut self.lost);
        self.outage = match std::mem::take(&mut self.outage) {
            Outage::None | Outage::New { .. } => {
                self.heal = healed.then_some((now, after_ms)).or(self.heal);
                Outage::None
            }
            Outage::On { told: false, .. } => Outage::None,
            Outage::On { since, told: true } | Outage::Ending { since, .. } => {
                Outage::Ending { since, at: now }
            }
        };
    }

    fn unknown(&mut self, now: Moment, app: &str, key: &str) {
        let (since, before) = match self.unknown.take() {
            Some((since, What::OutcomeUnknown { calls, .. })) => (since, calls),
            _ => (now, 0),
        };
        let (app, key) = (app.to_owned(), key.to_owned());
        self.unknown = Some((since, What::OutcomeUnknown { app, key, calls: before + 1 }));
    }

    fn changed(&mut self, now: Moment, [more, fewer, anew]: [usize; 3]) {
        let (since, [added, removed, redescribed]) = match self.changed.take() {
            Some((since, What::Changed { added, removed, redescribed })) => {
                (since, [added, removed, redescribed])
            }
            _ => (now, [0; 3]),
        };
        let (added, removed, redescribed) = (added + more, removed + fewer, redescribed + anew);
        self.changed = Some((since, What::Changed { added, removed, redescribed }));
    }

    /// Since when something waits to be told together with others.
    fn waits_since(&self) -> impl Iterator<Item = Moment> {
        let outage = match self.outage {
            Outage::New { since, .. } => Some(since),
            Outage::Ending { at, .. } if !self.must_be_steady(at) => Some(at),
            _ => None,
        };
        let changed = self.changed.as_ref().filter(|_| self.changes_not_before().is_none());
        let since = |(at, _): &(Moment, What)| *at;
        let heal = self.heal.map(|(at, _)| at);
        [outage, heal, self.unknown.as_ref().map(since), changed.map(since)].into_iter().flatten()
    }

    /// When what must wait may be told: one that comes and goes may be called back, one that keeps
    /// changing be told of again.
    fn not_before(&self) -> impl Iterator<Item = Moment> {
        [self.steady_at(), self.changes_not_before()].into_iter().flatten()
    }

    fn changes_not_before(&self) -> Option<Moment> {
        let (at, _) = self.changed.as_ref()?;
        self.changed_told.filter(|told| told.until(*at) < SELDOM).map(|told| told.after(SELDOM))
    }

    fn steady_at(&self) -> Option<Moment> {
        match self.outage {
            Outage::Ending { at, .. } if self.must_be_steady(at) => Some(at.after(STEADY)),
            _ => None,
        }
    }

    fn must_be_steady(&self, at: Moment) -> bool {
        self.back_told.is_some_and(|told| told.until(at) < A_WHILE)
    }

    /// One thing at a time, the most pressing first.
    fn tell(&mut self, now: Moment, wanted: bool) -> Option<What> {
        self.tell_outage(now, wanted)
            .or_else(|| self.unknown.take().map(|(_, what)| what).filter(|_| wanted))
            .or_else(|| self.tell_heal(now, wanted))
            .or_else(|| self.tell_change(now, wanted))
    }

    fn tell_outage(&mut self, now: Moment, wanted: bool) -> Option<What> {
        if self.steady_at().is_some_and(|steady| now < steady) {
            return None;
        }
        match std::mem::take(&mut self.outage) {
            Outage::New { since, what } => {
                self.outage = Outage::On { since, told: wanted };
                wanted.then_some(what)
            }
            Outage::Ending { since, at } => {
                self.back_told = Some(now);
                let after_ms = since.until(at).as_millis() as u64;
                wanted.then_some(What::Back { after_ms })
            }
            outage => {
                self.outage = outage;
                None
            }
        }
    }

    fn tell_change(&mut self, now: Moment, wanted: bool) -> Option<What> {
        if self.changes_not_before().is_some_and(|at| now < at) {
            return None;
        }
        let (_, what) = self.changed.take()?;
        self.changed_told = Some(now);
        wanted.then_some(what)
    }

    fn tell_heal(&mut self, now: Moment, wanted: bool) -> Option<What> {
        let (_, after_ms) = self.heal.take()?;
        let often = self.heal_told.is_some_and(|told| told.until(now) < SELDOM);
        if often || !wanted {
            return None;
        }
        self.heal_told = Some(now);
        Some(What::Healed { after_ms })
    }
}

#[cfg(test)]
mod tests;
