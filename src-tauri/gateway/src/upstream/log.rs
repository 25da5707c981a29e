//! What one upstream said and what Traygate noted about it: the last thousand lines, in memory
//! only, for the window and for `traygate logs`.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use tokio::sync::broadcast;

use crate::{api::LogLine, lock::lock};

/// How many lines are kept.
pub const LINES: usize = 1_000;
/// How long a line may be, in bytes; the rest is cut off and marked.
pub const LINE_LENGTH: usize = 8 * 1024;
/// How far a follower may fall behind before it misses lines.
const FOLLOWER_LAG: usize = 1_024;
const CUT: &str = "… (cut)";
const STDERR: &str = "stderr";

/// One upstream's log, shared by its wire, its link and whoever reads along.
#[derive(Debug)]
pub struct UpstreamLog {
    state: Mutex<State>,
    followers: broadcast::Sender<LogLine>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<LogLine>,
    /// How many lines there ever were.
    pushed: u64,
    activity: Option<Instant>,
}

/// A place in a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(u64);

impl Default for UpstreamLog {
    fn default() -> Self {
        Self { state: Mutex::default(), followers: broadcast::channel(FOLLOWER_LAG).0 }
    }
}

impl UpstreamLog {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `text`, line by line, without what would steer a terminal. `from` is `stderr`,
    /// `stdout`, `server` or `traygate`.
    pub fn push(&self, from: &'static str, text: &str) {
        let at = jiff::Timestamp::now().as_millisecond();
        for line in text.split('\n') {
            let text = presentable(line);
            if !text.is_empty() {
                self.keep(LogLine { at, from: from.to_owned(), text });
            }
        }
        if from == STDERR {
            self.note_activity();
        }
    }

    /// The newest `n` lines, oldest first.
    pub fn last(&self, n: usize) -> Vec<LogLine> {
        newest(&self.state(), n)
    }

    /// Every line from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<LogLine> {
        self.followers.subscribe()
    }

    /// The newest `n` lines and every line after them: none is missed or doubled in between.
    pub fn follow(&self, n: usize) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        let state = self.state();
        (newest(&state, n), self.followers.subscribe())
    }

    /// The newest `n` lines that the program wrote to its standard error, oldest first.
    pub fn last_stderr(&self, n: usize) -> Vec<String> {
        self.last_stderr_since(Mark(0), n)
    }

    /// This moment, as a place between two lines.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.state().pushed)
    }

    /// [`last_stderr`](Self::last_stderr) without the words of an earlier process.
    pub(crate) fn last_stderr_since(&self, Mark(mark): Mark, n: usize) -> Vec<String> {
        let state = self.state();
        let since = usize::try_from(state.pushed - mark).unwrap_or(usize::MAX);
        let newest =
            state.lines.iter().rev().take(since).filter(|line| line.from == STDERR).take(n);
        let mut lines: Vec<_> = newest.map(|line| line.text.clone()).collect();
        lines.reverse();
        lines
    }

    /// When the program last wrote to its standard error: a slow start that shows progress is
    /// given more time than a silent one.
    pub fn activity(&self) -> Option<Instant> {
        self.state().activity
    }

    /// The program wrote to its standard error, if not a whole line.
    pub(crate) fn note_activity(&self) {
        self.state().activity = Some(Instant::now());
    }

    /// Kept and told under one lock, so that followers hear the lines in the order kept.
    fn keep(&self, line: LogLine) {
        let mut state = self.state();
        if state.lines.len() == LINES {
            state.lines.pop_front();
        }
        if self.followers.receiver_count() > 0 {
            // Nobody left in this instant: nothing to do.
            let _ = self.followers.send(line.clone());
        }
        state.lines.push_back(line);
        state.pushed += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Lines are pushed whole: a panic elsewhere leaves nothing half done.
        lock(&self.state)
    }
}

fn newest(state: &State, n: usize) -> Vec<LogLine> {
    let from = state.lines.len().saturating_sub(n);
    state.lines.iter().skip(from).cloned().collect()
}

/// A line as a terminal would show it in the end, without colours, control characters and marks
/// that turn the direction of writing; cut at [`LINE_LENGTH`].
fn presentable(line: &str) -> String {
    let line = line.trim_end();
    // A progress bar writes over itself: what counts is what stands there last.
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut text = String::with_capacity(line.len().min(LINE_LENGTH));
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\t' => text.push(c),
            _ if c.is_control() || turns_direction(c) => {}
            _ => text.push(c),
        }
        if text.len() > LINE_LENGTH {
            text.truncate(text.floor_char_boundary(LINE_LENGTH));
            text.push_str(CUT);
            break;
        }
    }
    text
}

const fn turns_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Skips the rest of an ANSI escape sequence.
fn skip_escape(chars: &mut std::str::Chars) {
    match chars.next() {
        // Control sequence: parameters, then a final byte.
        Some('[') => while chars.next().is_some_and(|c| !matches!(c, '@'..='~')) {},
        // Strings (window titles, links): up to BEL or ESC \.
        Some(']' | 'P' | '^' | '_' | 'X') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' {
                    return;
                }
                if c == '\u{1b}' {
                    chars.next();
                    return;
                }
            }
        }
        // Choice of a character set: one more byte.
        Some('(' | ')' | '*' | '+' | '#' | '%') => {
            chars.next();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &UpstreamLog) -> Vec<String> {
        log.last(LINES).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn the_last_thousand_lines_are_kept_in_order() {
        let log = UpstreamLog::new();
        for n in 0..1_500 {
            log.push(STDERR, &n.to_string());
        }
        let texts = texts(&log);
        assert_eq!(texts.len(), 1_000);
        assert_eq!((texts[0].as_str(), texts[999].as_str()), ("500", "1499"));
        assert_eq!(log.last(2).iter().map(|l| &l.text[..]).collect::<Vec<_>>(), ["1498", "1499"]);
    }

    #[test]
    fn what_would_steer_a_terminal_is_left_out() {
        let log = UpstreamLog::new();
        for text in [
            "\u{1b}[31mred\u{1b}[0m",
            "\u{1b}]0;a title\u{7}after\u{1b}]8;;x\u{1b}\\link",
            "bell\u{7} back\u{8} c1\u{9b}31m",
            "turn\u{202e}ed",
            "10%\r50%\r100%\r\n",
            "tab\tstays, ümläuts too",
            "\u{1b}[unfinished",
        ] {
            log.push(STDERR, text);
        }
        assert_eq!(
            texts(&log),
            [
                "red",
                "afterlink",
                "bell back c131m",
                "turned",
                "100%",
                "tab\tstays, ümläuts too",
                "nfinished"
            ]
        );
    }

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        let log = UpstreamLog::new();
        log.push("server", &"ä".repeat(LINE_LENGTH));
        let line = &texts(&log)[0];
        assert!(line.ends_with(CUT), "the cut is marked");
        assert_eq!(line.len(), LINE_LENGTH + CUT.len());
    }

    #[test]
    fn a_text_of_several_lines_becomes_several() {
        let log = UpstreamLog::new();
        log.push("traygate", "one\r\n\ntwo\n");
        assert_eq!(texts(&log), ["one", "two"]);
    }

    #[test]
    fn only_the_programs_own_words_count_as_activity() {
        let log = UpstreamLog::new();
        log.push("traygate", "starting");
        assert_eq!(log.activity(), None);
        log.push(STDERR, "loading");
        assert!(log.activity().is_some());
        assert_eq!(log.last_stderr(3), ["loading"]);
        let mark = log.mark();
        log.push("traygate", "started anew");
        assert!(log.last_stderr_since(mark, 3).is_empty(), "those were an earlier process's words");
    }

    #[tokio::test]
    async fn a_follower_misses_nothing_and_hears_nothing_twice() {
        let log = UpstreamLog::new();
        log.push(STDERR, "before");
        let (lines, mut following) = log.follow(10);
        log.push(STDERR, "after");
        assert_eq!(lines.len(), 1);
        assert_eq!(following.recv().await.expect("a line").text, "after");
        assert!(following.is_empty());
    }
}
