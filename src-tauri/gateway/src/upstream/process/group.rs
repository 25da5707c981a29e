//! A running child with all its descendants: noticed when it exits, ended as a whole.
//!
//! On Unix the child leads a session and a process group of its own. It is reaped only after
//! everybody in that group has been signalled, so that a signal can't hit a stranger who was
//! given the id of a group that is no more.

use std::{fmt, io, time::Duration};

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::{process::Command, time};

/// How long a program may take to leave after its input was closed, and again after it was asked
/// to by a signal.
const GRACE: Duration = Duration::from_secs(2);
/// How long the system may take to carry out a kill.
const KILL: Duration = Duration::from_secs(2);
/// How often a group that outlives its leader is looked at. Nobody tells when it is empty.
#[cfg(unix)]
const LOOK: Duration = Duration::from_millis(20);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// Somebody else reaped it.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}

/// A child and everybody it started. Dropped, it is killed.
#[derive(Debug)]
pub struct Group {
    child: Box<dyn ChildWrapper>,
    #[cfg(unix)]
    exit: tokio::sync::watch::Receiver<Option<Exit>>,
    #[cfg(unix)]
    id: u32,
    /// Nothing of it may be signalled any more.
    over: bool,
}

impl Group {
    /// Starts `command` as the leader of a group of its own.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        command.kill_on_drop(true);
        let mut command = CommandWrap::from(command);
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessSession);
        #[cfg(windows)]
        command
            // No console window flashes up.
            .wrap(process_wrap::tokio::CreationFlags(
                windows::Win32::System::Threading::CREATE_NO_WINDOW,
            ))
            .wrap(process_wrap::tokio::JobObject);
        Self::watch(command.spawn()?)
    }

    #[cfg(unix)]
    fn watch(child: Box<dyn ChildWrapper>) -> io::Result<Self> {
        let id = child.id().ok_or_else(|| io::Error::other("the process has no id"))?;
        let (tell, exit) = tokio::sync::watch::channel(None);
        let group = Self { child, exit, id, over: false };
        // A thread, because nothing else waits without reaping on every Unix and in the presence
        // of libraries that take the signal of ended children for themselves. It ends with the
        // child.
        std::thread::Builder::new().name("child-exit".into()).stack_size(128 * 1024).spawn(
            move || {
                let exit = super::os::wait_without_reaping(id).unwrap_or(Exit::Unknown);
                // The group may be dropped by now.
                let _ = tell.send(Some(exit));
            },
        )?;
        Ok(group)
    }

    #[cfg(windows)]
    fn watch(child: Box<dyn ChildWrapper>) -> io::Result<Self> {
        Ok(Self { child, over: false })
    }

    pub fn stdio(
        &mut self,
    ) -> (
        Option<tokio::process::ChildStdin>,
        Option<tokio::process::ChildStdout>,
        Option<tokio::process::ChildStderr>,
    ) {
        (self.child.stdin().take(), self.child.stdout().take(), self.child.stderr().take())
    }

    /// Resolves when the leader has exited, whatever its descendants do. Can be asked again.
    #[cfg(unix)]
    pub async fn leader_exit(&mut self) -> Exit {
        let exit = match self.exit.wait_for(Option::is_some).await {
            Ok(exit) => (*exit).unwrap_or(Exit::Unknown),
            Err(_) => Exit::Unknown,
        };
        // Reaped by somebody else: its id is no longer ours to signal.
        self.over |= exit == Exit::Unknown;
        exit
    }

    #[cfg(windows)]
    pub async fn leader_exit(&mut self) -> Exit {
        match self.child.inner_mut().wait().await.map(|status| status.code()) {
            Ok(Some(code)) => Exit::Code(code),
            _ => Exit::Unknown,
        }
    }

    /// Ends everybody, gently first. The caller has closed the leader's standard input, which is
    /// how a stdio server is asked to leave. Takes at most 8 s.
    pub async fn stop(&mut self) -> Exit {
        if !self.empties(GRACE).await {
            self.terminate();
            self.empties(GRACE).await;
        }
        self.end().await
    }

    /// Kills everybody who is left and reaps the leader.
    pub async fn end(&mut self) -> Exit {
        self.kill();
        if !self.empties(KILL).await {
            tracing::warn!(group = ?self.child.id(), "a process doesn't end although it was killed");
        }
        let Ok(exit) = time::timeout(KILL, self.leader_exit()).await else { return Exit::Unknown };
        self.over = true;
        // Exited already, so this only reaps.
        if time::timeout(KILL, self.child.inner_mut().wait()).await.is_err() {
            tracing::warn!("an ended process can't be reaped");
        }
        exit
    }

    /// Waits for the leader, and leaves whomever it started to themselves.
    #[cfg(unix)]
    pub(super) async fn release(mut self) {
        if time::timeout(KILL, self.leader_exit()).await.is_ok() {
            self.over = true;
            // Exited already, so this only reaps.
            let _ = time::timeout(KILL, self.child.inner_mut().wait()).await;
        }
    }

    /// Kills everybody at once.
    pub fn kill(&mut self) {
        if !self.over {
            // Refused only if nobody is left.
            let _ = self.child.start_kill();
        }
    }

    #[cfg(unix)]
    fn terminate(&self) {
        if !self.over {
            // Refused only if nobody is left.
            let _ = self.child.signal(libc::SIGTERM);
        }
    }

    /// Windows knows no such request for programs without a window.
    #[cfg(windows)]
    fn terminate(&self) {}

    /// Whether nobody is left within this time.
    async fn empties(&mut self, within: Duration) -> bool {
        let empty = async {
            self.leader_exit().await;
            #[cfg(unix)]
            while !self.over && has_living_members(self.id).await {
                time::sleep(LOOK).await;
            }
        };
        time::timeout(within, empty).await.is_ok()
    }
}

#[cfg(unix)]
async fn has_living_members(group: u32) -> bool {
    // Reads a file per process of the whole system.
    tokio::task::spawn_blocking(move || super::os::has_living_members(group)).await.unwrap_or(false)
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
