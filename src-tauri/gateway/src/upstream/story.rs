//! What an upstream's states amount to: one outage from its first sign to its proven end, however
//! often it was tried in between (design sections 5.2 and 5.3).

use std::time::Duration;

use super::wire::{Failure, FailureKind};
use crate::{api::State, clock::Moment, events::Fact};

/// What fails within this time of another failure fails because of it: a link that is given up
/// also closes.
const CONSEQUENCE: Duration = Duration::from_secs(2);

/// Turns states into facts, each told once.
#[derive(Debug, Default)]
pub struct Story {
    /// What the failure behind the next state may be called in the journal, and when it came.
    because: Option<Because>,
    outage: Option<Outage>,
    /// The server forgot its session: a new one is no heal that anybody wants to hear of.
    renewing: bool,
    /// The user wanted a new link, so the old one's end is no loss.
    expected: bool,
}

#[derive(Debug)]
struct Because {
    at: Moment,
    words: String,
    session_lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Moment,
    depth: Depth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// The link died; whether a fresh one can be had isn't known yet.
    Lost,
    /// A fresh one could not be had.
    Down,
}

impl Story {
    /// Why the state that follows is what it is. Whether it isn't just what another failure led to.
    pub fn failed(&mut self, now: Moment, failure: &Failure) -> bool {
        let caused = |first: &Because| first.at.until(now) < CONSEQUENCE;
        let first = !self.because.as_ref().is_some_and(caused);
        if first {
            let session_lost = failure.kind == FailureKind::SessionLost;
            self.because = Some(Because { at: now, words: failure.plainly(), session_lost });
        }
        first
    }

    /// The user asked for a new link.
    pub fn expect(&mut self) {
        self.expected = true;
    }

    pub fn is_in_outage(&self) -> bool {
        self.outage.is_some()
    }

    /// The state turned from one into the other.
    pub fn turned(&mut self, now: Moment, old: &State, new: &State) -> Option<Fact> {
        match new {
            State::Ready | State::Degraded { .. } if is_up(old) => None,
            State::Ready | State::Degraded { .. } => {
                (self.expected, self.because) = (false, None);
                std::mem::take(&mut self.renewing).then_some(Fact::SessionRenewed)
            }
            State::Disabled | State::Idle => {
                self.outage = None;
                None
            }
            _ if is_up(old) => self.lost(now, new),
            State::Connecting => None,
            _ => self.down(now, new),
        }
    }

    /// A list was read on the link that is up: whatever was wrong is over.
    pub fn proved(&mut self, now: Moment) -> Option<Fact> {
        let outage = self.outage.take()?;
        let after_ms = outage.since.until(now).as_millis() as u64;
        Some(match outage.depth {
            Depth::Lost => Fact::Healed { after_ms },
            Depth::Down => Fact::Recovered { after_ms },
        })
    }

    fn lost(&mut self, now: Moment, new: &State) -> Option<Fact> {
        // The link of one that wants a sign-in lives; there is nothing to heal.
        if matches!(new, State::NeedsSignIn { .. }) {
            return self.down(now, new);
        }
        if self.expected {
            return None;
        }
        let session_lost = self.because.as_ref().is_some_and(|because| because.session_lost);
        let because = self.because();
        // A link that dies before it proved itself goes on with the outage that it was to end.
        if self.outage.is_some() {
            return None;
        }
        if session_lost {
            self.renewing = true;
            return None;
        }
        self.outage = Some(Outage { since: now, depth: Depth::Lost });
        Some(Fact::Lost { because })
    }

    fn down(&mut self, now: Moment, new: &State) -> Option<Fact> {
        (self.expected, self.renewing) = (false, false);
        let because = self.because();
        let outage = self.outage.get_or_insert(Outage { since: now, depth: Depth::Lost });
        if outage.depth == Depth::Down {
            return None;
        }
        outage.depth = Depth::Down;
        Some(match new {
            State::NeedsSignIn { .. } => Fact::NeedsSignIn { because },
            State::Misconfigured { .. } => Fact::Misconfigured { because },
            _ => Fact::Unavailable { because },
        })
    }

    fn because(&mut self) -> String {
        let because = self.because.take().map(|because| because.words);
        because.unwrap_or_else(|| "the connection was lost".to_owned())
    }
}

const fn is_up(state: &State) -> bool {
    matches!(state, State::Ready | State::Degraded { .. })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        clock::Clock,
        upstream::wire::{FailureKind, Ran},
    };

    struct Told {
        story: Story,
        state: State,
        now: Moment,
    }

    impl Told {
        fn new() -> Self {
            let now = Clock::Driven(std::sync::Arc::default()).now();
            Self { story: Story::default(), state: State::Idle, now }
        }

        fn to(&mut self, state: State) -> Option<Fact> {
            let fact = self.story.turned(self.now, &self.state, &state);
            self.state = state;
            fact
        }

        fn up(&mut self) {
            assert_eq!(self.to(State::Connecting), None);
            assert_eq!(self.to(State::Ready), None);
        }

        fn fails(&mut self, words: &str) -> Option<Fact> {
            self.note(words);
            self.to(unavailable())
        }

        fn note(&mut self, words: &str) {
            let failure = Failure::new(FailureKind::Gone, Ran::Perhaps, "its secret words");
            self.story.failed(self.now, &failure.told_as(words));
        }

        fn later(&mut self, milliseconds: u64) {
            self.now = self.now.after(Duration::from_millis(milliseconds));
        }
    }

    fn unavailable() -> State {
        State::Unavailable { reason: "in any words".to_owned(), next_try: None }
    }

    fn lost(because: &str) -> Fact {
        Fact::Lost { because: because.to_owned() }
    }

    #[test]
    fn a_link_that_is_replaced_at_once_is_lost_and_healed() {
        let mut told = Told::new();
        told.up();
        assert_eq!(told.story.proved(told.now), None, "a start is no recovery");
        told.note("it was killed");
        assert_eq!(told.to(State::Connecting), Some(lost("it was killed")));
        told.later(300);
        assert_eq!(told.to(State::Ready), None, "not before it is proved");
        told.later(20);
        assert_eq!(told.story.proved(told.now), Some(Fact::Healed { after_ms: 320 }));
        assert_eq!(told.story.proved(told.now), None, "once");
    }

    #[test]
    fn an_outage_is_told_once_however_often_it_is_tried() {
        let mut told = Told::new();
        told.up();
        assert_eq!(told.fails("it exited"), Some(lost("it exited")));
        for attempt in 0..5 {
            assert_eq!(told.to(State::Connecting), None);
            let because = "it refused".to_owned();
            let expected = (attempt == 0).then_some(Fact::Unavailable { because });
            assert_eq!(told.fails("it refused"), expected, "attempt {attempt}");
            told.later(1_000);
        }
        told.up();
        assert_eq!(told.story.proved(told.now), Some(Fact::Recovered { after_ms: 5_000 }));
    }

    #[test]
    fn a_fresh_link_that_dies_unproved_goes_on_with_the_same_outage() {
        let mut told = Told::new();
        told.up();
        assert_eq!(told.fails("it exited"), Some(lost("it exited")));
        told.up();
        assert_eq!(told.fails("it exited"), None);
        told.later(40);
        told.up();
        assert_eq!(told.story.proved(told.now), Some(Fact::Healed { after_ms: 40 }));
    }

    #[test]
    fn a_session_that_is_renewed_is_no_outage_and_one_that_can_not_be_is() {
        let session_lost = Failure::new(FailureKind::SessionLost, Ran::CertainlyNot, "404");
        let mut told = Told::new();
        told.up();
        told.story.failed(told.now, &session_lost);
        assert_eq!(told.to(State::Connecting), None);
        assert_eq!(told.to(State::Ready), Some(Fact::SessionRenewed));
        assert_eq!(told.story.proved(told.now), None, "nobody had to be healed");
        told.story.failed(told.now, &session_lost);
        assert_eq!(told.to(State::Connecting), None);
        told.later(3_000);
        let because = "it refused".to_owned();
        assert_eq!(told.fails("it refused"), Some(Fact::Unavailable { because }));
    }

    #[test]
    fn the_first_of_two_failures_is_the_reason_of_the_other() {
        let mut told = Told::new();
        told.up();
        told.note("it didn't know the session any more");
        told.later(5);
        let because = "it didn't know the session any more";
        assert_eq!(told.fails("the connection was closed"), Some(lost(because)));
        let mut told = Told::new();
        told.up();
        told.note("something that led to nothing");
        told.later(10_000);
        assert_eq!(told.fails("it exited"), Some(lost("it exited")));
    }

    #[test]
    fn one_that_never_started_is_unavailable_and_not_lost() {
        let mut told = Told::new();
        assert_eq!(told.to(State::Connecting), None);
        let because = "the connection was lost".to_owned();
        assert_eq!(told.to(unavailable()), Some(Fact::Unavailable { because }));
    }

    #[test]
    fn a_link_that_the_user_replaces_is_not_lost() {
        let mut told = Told::new();
        told.up();
        told.story.expect();
        assert_eq!(told.fails("it was closed"), None);
        told.up();
        assert_eq!(told.story.proved(told.now), None);
        assert_eq!(told.fails("it exited"), Some(lost("it exited")), "the next one is");
    }

    #[test]
    fn what_only_the_user_can_mend_is_told_at_once() {
        let mut told = Told::new();
        told.up();
        told.note("it asks for a sign-in");
        let state = State::NeedsSignIn { reason: String::new() };
        let because = "it asks for a sign-in".to_owned();
        assert_eq!(told.to(state), Some(Fact::NeedsSignIn { because }));
        let mut told = Told::new();
        assert_eq!(told.to(State::Connecting), None);
        told.note("its command can't be started");
        let state = State::Misconfigured { reason: String::new() };
        let because = "its command can't be started".to_owned();
        assert_eq!(told.to(state), Some(Fact::Misconfigured { because }));
    }
}
