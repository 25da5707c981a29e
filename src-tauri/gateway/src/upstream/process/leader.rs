//! A program that Traygate started, as somebody knows it who has only its number and the time of
//! its start: who belongs to it, and its end.
//!
//! A program of Traygate's leads a session of its own, and what it starts stays in that session
//! unless it begins another one. Whoever does that has left on purpose (a browser that was opened
//! for a sign-in must outlive its server) and is let go.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    os,
    table::{self, Seen},
};

/// How often those who were told to end are looked at. Nobody tells when they are gone.
const LOOK: Duration = Duration::from_millis(20);
/// How long the system may take to carry out a kill.
const KILL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    pub pid: u32,
    pub started: u64,
}

impl Leader {
    /// The process of this number, if it leads a session.
    pub fn of(pid: u32) -> Option<Self> {
        let seen = table::look(pid).filter(|seen| seen.session == pid)?;
        Some(Self { pid, started: seen.started })
    }

    /// Those of `everybody` who live and belong to it, if its number was its own `until` then.
    ///
    /// A number is given away again only when no process, group or session has it any more. So it
    /// still means this session as long as one member is there that was started within the time
    /// in which the number was certainly its own; that member came by the session only by birth.
    fn members(self, until: u64, everybody: &[Seen]) -> Vec<Seen> {
        let session: Vec<Seen> =
            everybody.iter().filter(|seen| seen.session == self.pid).copied().collect();
        let proves = |seen: &Seen| {
            if seen.pid == self.pid {
                seen.started == self.started
            } else {
                (self.started..=until).contains(&seen.started)
            }
        };
        let is_own = self.pid <= 1 || os::is_own_session(self.pid);
        let number_was_given_away =
            everybody.iter().any(|seen| seen.pid == self.pid && seen.started != self.started);
        if is_own || number_was_given_away || !session.iter().any(proves) {
            return Vec::new();
        }
        session.into_iter().filter(|seen| seen.lives).collect()
    }
}

/// How long those who are to end may take.
#[derive(Clone, Copy, Debug)]
pub struct Graces {
    /// Their standard input was closed, which is how a stdio server is asked to leave.
    pub to_leave: Duration,
    /// They were asked to by a signal.
    pub to_end: Duration,
}

/// Ends everybody who belongs to these, gently first; blocks until they are gone. `until` is the
/// last moment at which all of them were known to be Traygate's. Returns how many had to be told.
pub fn end_all(leaders: &[Leader], until: u64, graces: Graces) -> usize {
    let everybody = || -> Vec<Seen> {
        let table = table::all();
        leaders.iter().flat_map(|leader| leader.members(until, &table)).collect()
    };
    if leaders.is_empty() || all_gone(&everybody, graces.to_leave) {
        return 0;
    }
    let left = everybody();
    signal(&left, libc::SIGTERM);
    if all_gone(&everybody, graces.to_end) {
        return left.len();
    }
    let patience = Instant::now() + KILL;
    while Instant::now() < patience {
        let left = everybody();
        if left.is_empty() {
            break;
        }
        // Again and again, since one that isn't dead yet may start another.
        signal(&left, libc::SIGKILL);
        thread::sleep(LOOK);
    }
    left.len()
}

fn signal(these: &[Seen], signal: i32) {
    for seen in these {
        os::signal_exactly(seen, signal);
    }
}

fn all_gone(everybody: &impl Fn() -> Vec<Seen>, within: Duration) -> bool {
    let patience = Instant::now() + within;
    loop {
        if everybody().is_empty() {
            return true;
        }
        if Instant::now() >= patience {
            return false;
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: Leader = Leader { pid: 5_000_000, started: 100 };

    fn seen(pid: u32, session: u32, started: u64) -> Seen {
        Seen { pid, group: session, session, started, lives: true }
    }

    #[test]
    fn everybody_in_its_session_belongs_to_it_whatever_their_groups() {
        let mut child = seen(5_000_001, LEADER.pid, 101);
        child.group = child.pid;
        let table = [seen(LEADER.pid, LEADER.pid, 100), child, seen(7, 7, 101)];
        assert_eq!(LEADER.members(200, &table), table[..2]);
    }

    #[test]
    fn who_was_given_its_number_later_is_a_stranger_with_all_its_children() {
        let table = [seen(LEADER.pid, LEADER.pid, 300), seen(5_000_001, LEADER.pid, 301)];
        assert_eq!(LEADER.members(200, &table), []);
        let without_a_session = [seen(LEADER.pid, 7, 300), seen(5_000_001, LEADER.pid, 101)];
        assert_eq!(LEADER.members(200, &without_a_session), [], "not even where it leads nothing");
    }

    #[test]
    fn without_its_leader_a_session_is_known_by_who_was_there_while_it_was_ours() {
        let table = [seen(5_000_001, LEADER.pid, 150), seen(5_000_002, LEADER.pid, 900)];
        assert_eq!(LEADER.members(200, &table), table, "one of them proves it for both");
        assert_eq!(LEADER.members(120, &table), [], "nobody proves it: these may be strangers");
    }

    #[test]
    fn a_zombie_proves_the_number_and_needs_no_signal() {
        let mut leader = seen(LEADER.pid, LEADER.pid, 100);
        leader.lives = false;
        let child = seen(5_000_001, LEADER.pid, 900);
        assert_eq!(LEADER.members(200, &[leader, child]), [child]);
    }

    #[test]
    fn nobody_ends_itself() {
        let own = Leader::of(os::own_session());
        let table = table::all();
        if let Some(own) = own {
            assert_eq!(own.members(table::now(), &table), []);
        }
        let everybody = Leader { pid: 1, started: table::look(1).map_or(0, |seen| seen.started) };
        assert_eq!(everybody.members(table::now(), &table), []);
    }
}
