//! Says that something is still going on, once it takes longer than a second.

use std::{
    fmt::Display,
    future::Future,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval_at};

const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for `work`. On a terminal one line counts the seconds and goes away again; elsewhere a
/// line is written after the first second and then each ten.
pub async fn during<T>(doing: impl Display, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let terminal = io::stderr().is_terminal();
    let every = if terminal { Duration::from_millis(100) } else { Duration::from_secs(10) };
    let mut tick = interval_at(started + PATIENCE, every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut line = Line { terminal, turns: 0 };
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = tick.tick() => line.write(&doing, started.elapsed()),
        }
    }
}

struct Line {
    terminal: bool,
    turns: usize,
}

impl Line {
    fn write(&mut self, doing: &impl Display, elapsed: Duration) {
        let seconds = elapsed.as_secs();
        if self.terminal {
            let sign = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'][self.turns % 10];
            eprint!("\r{sign} still {doing}… {seconds} s\u{1b}[K");
        } else {
            eprintln!("still {doing}… {seconds} s");
        }
        // Progress is a courtesy: if nobody can see it, the work goes on.
        let _ = io::stderr().flush();
        self.turns += 1;
    }
}

impl Drop for Line {
    /// Also when the work ends early: nothing may be printed behind a half line.
    fn drop(&mut self) {
        if self.terminal && self.turns > 0 {
            eprint!("\r\u{1b}[K");
        }
    }
}
