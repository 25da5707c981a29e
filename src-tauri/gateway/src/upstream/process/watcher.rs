//! The watcher: this very program once more, in a process that does nothing but wait for the end of
//! the host, however that comes, and then end the children that the host leaves behind.
//!
//! It reads lines from the host and from each child before that becomes its program: `+<pid>` for
//! somebody who starts, `-<pid>` for somebody who is gone. The end of the pipe is the end of the
//! host. (A signal at a parent's death reaches no grandchild, and comes when a thread ends.)

use std::{
    ffi::OsString,
    io::{self, BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use super::{
    leader::{Graces, Leader},
    os,
    roll::Roll,
};

/// The argument by which a program of Traygate's is asked to watch; the file of children follows.
pub const ASKED: &str = "watch-children";
/// What the watcher says when it watches.
pub const READY: &str = "watching";

/// The host's children lost their input with it: most leave by themselves. Nobody is left after two
/// seconds, as after an orderly end.
const GRACES: Graces =
    Graces { to_leave: Duration::from_millis(600), to_end: Duration::from_millis(900) };
/// After a change the file is confirmed a few times: launchers take a while to start the real
/// server, which the file then proves to be the host's (see [`Leader`]).
const CONFIRM_AFTER: i32 = 15_000;
const CONFIRMATIONS: u32 = 8;

/// Watches, if that is what these arguments ask for. The first thing that a program of Traygate's
/// does.
pub fn run_if_asked(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != ASKED {
        return None;
    }
    let file = PathBuf::from(arguments.next()?);
    let watcher = Watcher { roll: Roll::inherited(&file), file };
    os::stand_aside();
    Some(watcher.watch())
}

struct Watcher {
    file: PathBuf,
    roll: Roll,
}

impl Watcher {
    fn watch(mut self) -> ExitCode {
        // A host that has ended meanwhile reads nothing, and its pipe says so below.
        let _ = writeln!(io::stdout(), "{READY}").and_then(|()| io::stdout().flush());
        let mut lines = BufReader::new(io::stdin());
        let mut line = String::new();
        let mut confirmations = 0u32;
        loop {
            let wait = if confirmations > 0 { CONFIRM_AFTER } else { -1 };
            if lines.buffer().is_empty() && !os::readable(lines.get_ref(), wait) {
                confirmations = confirmations.saturating_sub(1);
                self.keep();
                continue;
            }
            line.clear();
            match lines.read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if self.take(line.trim()) {
                confirmations = CONFIRMATIONS;
                self.keep();
            }
        }
        self.roll.confirm();
        self.roll.end(GRACES);
        self.roll.leaders.clear();
        // The next start removes what can't be removed now.
        let _ = self.roll.write(&self.file);
        ExitCode::SUCCESS
    }

    /// Whether the line changed anything.
    fn take(&mut self, line: &str) -> bool {
        let leaders = &mut self.roll.leaders;
        let Some((sign, Ok(pid))) = line.split_at_checked(1).map(|(s, pid)| (s, pid.parse()))
        else {
            return false;
        };
        let known = leaders.iter().position(|leader| leader.pid == pid);
        match (sign, Leader::of(pid)) {
            ("+", Some(leader)) if known.is_none_or(|at| leaders[at] != leader) => {
                leaders.retain(|known| known.pid != pid);
                leaders.push(leader);
                true
            }
            ("-", _) if known.is_some() => {
                leaders.retain(|known| known.pid != pid);
                true
            }
            _ => false,
        }
    }

    fn keep(&mut self) {
        self.roll.confirm();
        // The file is for the case that this process is killed too; watching goes on without it.
        let _ = self.roll.write(&self.file);
    }
}
