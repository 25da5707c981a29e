//! The programs that run for this host, as those who outlive it know them: on Unix a watcher that
//! ends them when the host is gone. (On Windows each program's job ends with the host.)

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

#[cfg(unix)]
pub use unix::Watch;

/// How long a program may take to leave after its input was closed, and again after it was asked
/// to by a signal.
const GRACE: Duration = Duration::from_secs(2);
/// The same while the whole host ends: its user waits, or the system is about to kill it.
const LAST_GRACE: Duration = Duration::from_millis(500);

/// Everybody who runs.
#[derive(Debug, Default)]
pub struct Children {
    #[cfg(unix)]
    known: std::sync::Mutex<unix::Known>,
    host_ends: AtomicBool,
}

impl Children {
    /// Whom nobody watches until [`watch`](Self::watch).
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// From now on everybody's end is short.
    pub fn host_ends(&self) {
        self.host_ends.store(true, Ordering::Relaxed);
    }

    pub(super) fn grace(&self) -> Duration {
        if self.host_ends.load(Ordering::Relaxed) { LAST_GRACE } else { GRACE }
    }
}

/// Nobody has to watch: the system ends a job with the last of its owners.
#[cfg(not(unix))]
pub struct Watch;

#[cfg(not(unix))]
impl Watch {
    pub async fn end(self) {}
}

#[cfg(not(unix))]
impl Children {
    pub async fn watch(self: &Arc<Self>, _data: &std::path::Path) -> Watch {
        Watch
    }
}

#[cfg(unix)]
mod unix {
    use std::{
        collections::BTreeSet,
        env, io,
        io::{PipeWriter, Write as _},
        path::{Path, PathBuf},
        process::Stdio,
        sync::Arc,
        time::Duration,
    };

    use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
    use tokio::{
        io::{AsyncBufReadExt as _, BufReader},
        process::Command,
        task::JoinHandle,
        time,
    };
    use tokio_util::sync::CancellationToken;
    use tracing::{debug, warn};

    use super::{
        super::{os, roll, watcher},
        Children,
    };
    use crate::lock::lock;

    /// How long a watcher may take to begin, and to leave when there is nobody left to watch.
    const BEGIN: Duration = Duration::from_secs(10);
    const LEAVE: Duration = Duration::from_millis(500);
    /// Between two watchers, should somebody kill each.
    const PAUSE: Duration = Duration::from_secs(1);

    #[derive(Debug, Default)]
    pub struct Known {
        running: BTreeSet<u32>,
        pen: Option<Arc<PipeWriter>>,
    }

    impl Known {
        /// A watcher that is gone is noticed by whoever waits for it; the next one is told all.
        fn write(&self, sign: char, pid: u32) {
            if let Some(pen) = &self.pen {
                let _ = pen.as_ref().write_all(format!("{sign}{pid}\n").as_bytes());
            }
        }
    }

    impl Children {
        /// What a child writes its number to before it becomes its program.
        pub(in super::super) fn pen(&self) -> Option<Arc<PipeWriter>> {
            lock(&self.known).pen.clone()
        }

        /// This child leads a session of its own now.
        pub(in super::super) fn started(&self, pid: u32) {
            let mut known = lock(&self.known);
            known.running.insert(pid);
            // Once more: its own word may have gone to a watcher that is no more.
            known.write('+', pid);
        }

        /// Nobody of its session is left, or ours to end. Said before it is reaped, as long as the
        /// number is certainly its own.
        pub(in super::super) fn ended(&self, pid: u32) {
            let mut known = lock(&self.known);
            if known.running.remove(&pid) {
                known.write('-', pid);
            }
        }

        /// Has a watcher run from now on, and another one should it be killed. Returns when the
        /// first one watches, or says why there is none.
        pub async fn watch(self: &Arc<Self>, data: &Path) -> Watch {
            let file = roll::file(data, std::process::id());
            let (children, ended) = (Arc::clone(self), CancellationToken::new());
            let first = children.begin(&file).await;
            let over = ended.clone();
            let task = tokio::spawn(async move { children.keep(first, &file, &over).await });
            Watch { children: Arc::clone(self), ended, task }
        }

        async fn keep(
            &self,
            mut watcher: Option<Box<dyn ChildWrapper>>,
            file: &Path,
            over: &CancellationToken,
        ) {
            while let Some(mut current) = watcher {
                tokio::select! {
                    _ = current.wait() => {}
                    () = over.cancelled() => {
                        // It ends by itself; what it still has to end is no longer this host's.
                        let _ = time::timeout(LEAVE, current.wait()).await;
                        return;
                    }
                }
                warn!("the watcher of Traygate's children was ended; another one is started");
                tokio::select! {
                    () = time::sleep(PAUSE) => {}
                    () = over.cancelled() => return,
                }
                watcher = self.begin(file).await;
            }
        }

        /// Starts a watcher and tells it of everybody who runs.
        async fn begin(&self, file: &Path) -> Option<Box<dyn ChildWrapper>> {
            for program in programs() {
                match time::timeout(BEGIN, start(&program, file)).await {
                    Ok(Ok((watcher, pen))) => {
                        let mut known = lock(&self.known);
                        known.pen = Some(Arc::new(pen));
                        known.running.iter().for_each(|pid| known.write('+', *pid));
                        return Some(watcher);
                    }
                    Ok(Err(error)) => debug!(program = %program.display(), %error, "no watcher"),
                    Err(_) => debug!(program = %program.display(), "a watcher doesn't begin"),
                }
            }
            warn!(
                "nobody could be started to watch Traygate's children; a crash may leave programs behind until the next start"
            );
            None
        }
    }

    /// The programs that may watch, the best first: the command line beside this program is small,
    /// while the desktop's brings its whole toolkit along. Last what runs, even if an upgrade has
    /// taken its file away.
    fn programs() -> Vec<PathBuf> {
        let Ok(own) = env::current_exe() else { return Vec::new() };
        let mut programs = vec![own.with_file_name("traygate"), own];
        if cfg!(target_os = "linux") {
            programs.push("/proc/self/exe".into());
        }
        programs.dedup();
        programs.retain(|program| program.is_file());
        programs
    }

    /// Resolves when it watches.
    async fn start(program: &Path, file: &Path) -> io::Result<(Box<dyn ChildWrapper>, PipeWriter)> {
        let (reader, pen) = io::pipe()?;
        os::never_block(&pen)?;
        let mut command = Command::new(program);
        command
            .arg0("traygate")
            .arg(watcher::ASKED)
            .arg(file)
            // It needs nothing, and holds on to nothing.
            .env_clear()
            .current_dir("/")
            .stdin(reader)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // Of its own: what ends the host's group must not end its watcher.
        let mut watcher = CommandWrap::from(command).wrap(ProcessSession).spawn()?;
        let stdout =
            watcher.stdout().take().ok_or_else(|| io::Error::other("a pipe is missing"))?;
        let said = BufReader::new(stdout).lines().next_line().await?;
        if said.as_deref() == Some(watcher::READY) {
            return Ok((watcher, pen));
        }
        // It is none, or of another version: without its pipe it ends.
        watcher.start_kill()?;
        time::timeout(LEAVE, watcher.wait()).await.map(drop)?;
        Err(io::Error::other("it doesn't say that it watches"))
    }

    /// The watching, which ends with [`end`](Self::end).
    pub struct Watch {
        children: Arc<Children>,
        ended: CancellationToken,
        task: JoinHandle<()>,
    }

    impl Watch {
        /// Lets the watcher go. Whoever still runs is ended by it.
        pub async fn end(self) {
            lock(&self.children.known).pen = None;
            self.ended.cancel();
            let _ = time::timeout(2 * LEAVE, self.task).await;
        }
    }
}
