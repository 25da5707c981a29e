//! Programs start a few at a time: thirty at once would make each of them slow. What a person or an
//! app asks for does not wait for the others.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use super::{log::Mark, log::UpstreamLog, process::Program};
use crate::lock::lock;

/// How long one program may keep the next from starting: what costs the machine most comes first,
/// and one that waits for a network or for nothing must hold up nobody.
const TURN: Duration = Duration::from_secs(2);
/// After this long without a word, people are told what may take so long.
const QUIET: Duration = Duration::from_secs(3);
/// Programs that may have to fetch what they run: the first word, and the one that tells it from
/// other uses.
const RUNNERS: [(&str, Option<&str>); 9] = [
    ("npx", None),
    ("uvx", None),
    ("bunx", None),
    ("pipx", Some("run")),
    ("pnpm", Some("dlx")),
    ("yarn", Some("dlx")),
    ("npm", Some("exec")),
    ("uv", Some("tool")),
    ("docker", Some("run")),
];

/// How many programs start at once, on the whole machine.
#[derive(Debug)]
pub struct Starts(Arc<Semaphore>);

impl Default for Starts {
    /// Two for each core, since a start is also waiting for a disk.
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self::at_once((2 * cores).clamp(4, 16))
    }
}

impl Starts {
    pub fn at_once(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }
}

/// One upstream's place among those who start, and how far it is.
#[derive(Debug, Default)]
pub struct Start {
    starts: Arc<Starts>,
    wanted: Notify,
    stage: Mutex<Stage>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Over,
    Waiting,
    Begun {
        at: Instant,
        words_from: Mark,
        fetches: bool,
    },
}

impl Start {
    pub fn among(starts: &Arc<Starts>) -> Self {
        Self { starts: Arc::clone(starts), ..Self::default() }
    }

    /// Somebody waits for it: it starts at once, whoever else waits.
    pub fn hurry(&self) {
        self.wanted.notify_one();
    }

    /// Does the work of starting when it is this one's turn.
    pub async fn when_its_turn<T>(
        &self,
        program: &Program,
        log: &UpstreamLog,
        work: impl Future<Output = T>,
    ) -> T {
        // Also where nobody waits any more for what was begun.
        let _over = Over(&self.stage);
        *lock(&self.stage) = Stage::Waiting;
        let turn = self.turn().await;
        *lock(&self.stage) =
            Stage::Begun { at: Instant::now(), words_from: log.mark(), fetches: fetches(program) };
        let mut work = pin!(work);
        if let Ok(done) = timeout(TURN, &mut work).await {
            return done;
        }
        drop(turn);
        work.await
    }

    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            turn = Arc::clone(&self.starts.0).acquire_owned() => turn.ok(),
            () = self.wanted.notified() => None,
        }
    }

    /// What people are told while it goes on.
    pub fn progress(&self, log: &UpstreamLog) -> Option<String> {
        let (at, words_from, fetches) = match &*lock(&self.stage) {
            Stage::Over => return None,
            Stage::Waiting => return Some("waiting for its turn to start".to_owned()),
            Stage::Begun { at, words_from, fetches } => (*at, *words_from, *fetches),
        };
        if let Some(words) = log.last_stderr_since(words_from, 1).pop() {
            return Some(crate::text::one_line(&words, 200));
        }
        let quiet = at.elapsed() > QUIET;
        match (quiet, fetches) {
            (true, true) => Some("downloading what it runs, or starting it".to_owned()),
            _ => Some("starting".to_owned()),
        }
    }
}

/// Notes that nothing is being started any more.
struct Over<'a>(&'a Mutex<Stage>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        *lock(self.0) = Stage::Over;
    }
}

/// Whether the program may first have to download what it is to run.
pub fn fetches(program: &Program) -> bool {
    let mut words =
        program.command.split_whitespace().chain(program.args.iter().map(String::as_str));
    let Some(command) = words.next() else { return false };
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let name = name.split('.').next().unwrap_or(name);
    RUNNERS.iter().any(|(runner, use_of)| {
        *runner == name && use_of.is_none_or(|word| words.clone().any(|given| given == word))
    })
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn program(line: &[&str]) -> Program {
        Program {
            command: line[0].to_owned(),
            args: line[1..].iter().map(|arg| (*arg).to_owned()).collect(),
            env: std::collections::BTreeMap::default(),
            cwd: None,
        }
    }

    async fn hang(start: &Start) {
        start.when_its_turn(&program(&["sleep"]), &UpstreamLog::new(), pending::<()>()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_holds_up_the_next_for_a_moment_only() {
        let starts = Arc::new(Starts::at_once(1));
        let (hung, next) = (Start::among(&starts), Start::among(&starts));
        let begun = Instant::now();
        tokio::select! {
            () = hang(&hung) => {}
            () = async {
                tokio::task::yield_now().await;
                next.when_its_turn(&program(&["x"]), &UpstreamLog::new(), ready(())).await;
            } => {}
        }
        assert_eq!(begun.elapsed(), TURN);
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_asks_for_starts_at_once() {
        let starts = Arc::new(Starts::at_once(1));
        let (hung, wanted) = (Start::among(&starts), Start::among(&starts));
        let (log, short) = (UpstreamLog::new(), program(&["x"]));
        let begun = Instant::now();
        let ask = async {
            tokio::task::yield_now().await;
            assert_eq!(wanted.progress(&log).as_deref(), Some("waiting for its turn to start"));
            wanted.hurry();
            pending::<()>().await;
        };
        tokio::select! {
            () = hang(&hung) => {}
            () = wanted.when_its_turn(&short, &log, ready(())) => {}
            () = ask => {}
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(wanted.progress(&log), None, "it is over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_says_what_the_program_says_or_what_may_take_so_long() {
        let (start, log) = (Start::default(), UpstreamLog::new());
        log.push("stderr", "the words of an earlier process");
        let npx = program(&["/usr/bin/npx", "-y", "some-server"]);
        let look = async {
            tokio::task::yield_now().await;
            assert_eq!(start.progress(&log).as_deref(), Some("starting"));
            tokio::time::sleep(Duration::from_secs(4)).await;
            let said = start.progress(&log).expect("it goes on");
            assert!(said.contains("downloading"), "{said}");
            log.push("stderr", "fetching 3 of 7\n");
            assert_eq!(start.progress(&log).as_deref(), Some("fetching 3 of 7"));
        };
        tokio::select! {
            () = start.when_its_turn(&npx, &log, pending()) => {}
            () = look => {}
        }
        assert_eq!(start.progress(&log), None);
    }

    #[test]
    fn what_may_have_to_download_first_is_known_by_its_name() {
        for line in [
            &["npx", "-y", "x"][..],
            &["uvx x"],
            &[r"C:\node\npx.cmd", "x"],
            &["docker", "run", "-i", "x"],
            &["uv", "tool", "run", "x"],
        ] {
            assert!(fetches(&program(line)), "{line:?}");
        }
        for line in [&["node", "npx"][..], &["docker", "exec", "x"], &["uv", "run", "x"], &[""]] {
            assert!(!fetches(&program(line)), "{line:?}");
        }
    }
}
