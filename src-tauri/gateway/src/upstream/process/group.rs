//! A running child with all its descendants: noticed when it exits, ended as a whole.
//!
//! On Unix the child leads a session and a process group of its own. It is reaped only after
//! everybody in them has been signalled, so that a signal can't hit a stranger who was given the
//! id of a group that is no more.

use std::{fmt, io, sync::Arc, time::Duration};

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::{process::Command, time};

use super::children::Children;

/// How long the system may take to carry out a kill.
const KILL: Duration = Duration::from_secs(2);
/// How long a kill is waited for before it is sent again.
const AGAIN: Duration = Duration::from_millis(250);
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
    children: Arc<Children>,
    #[cfg(unix)]
    exit: tokio::sync::watch::Receiver<Option<Exit>>,
    #[cfg(unix)]
    id: u32,
    /// Nothing of it may be signalled any more.
    over: bool,
}

impl Group {
    /// Starts `command` as the leader of a group of its own, one of these children.
    pub fn spawn(command: Command, children: &Arc<Children>) -> io::Result<Self> {
        let mut command = CommandWrap::from(command);
        command.wrap(process_wrap::tokio::KillOnDrop);
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessSession);
        #[cfg(unix)]
        if let Some(pen) = children.pen() {
            // After the session has begun, which is what it announces.
            command.wrap(Announced(pen));
        }
        #[cfg(windows)]
        command
            // No console window flashes up.
            .wrap(process_wrap::tokio::CreationFlags(
                windows::Win32::System::Threading::CREATE_NO_WINDOW,
            ))
            // Ended with its last owner, which is this process: a crash leaves nobody behind.
            .wrap(process_wrap::tokio::JobObject);
        Self::watch(command.spawn()?, Arc::clone(children))
    }

    #[cfg(unix)]
    fn watch(child: Box<dyn ChildWrapper>, children: Arc<Children>) -> io::Result<Self> {
        let id = child.id().ok_or_else(|| io::Error::other("the process has no id"))?;
        let (tell, exit) = tokio::sync::watch::channel(None);
        children.started(id);
        let group = Self { child, children, exit, id, over: false };
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
    fn watch(child: Box<dyn ChildWrapper>, children: Arc<Children>) -> io::Result<Self> {
        Ok(Self { child, children, over: false })
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
        if !self.empties(self.children.grace()).await {
            self.terminate();
            self.empties(self.children.grace()).await;
        }
        self.end().await
    }

    /// Kills everybody who is left and reaps the leader.
    pub async fn end(&mut self) -> Exit {
        let patience = time::Instant::now() + KILL;
        loop {
            self.kill();
            if self.empties(AGAIN).await {
                break;
            }
            // Once more: somebody may have been started by one who wasn't dead yet.
            if time::Instant::now() > patience {
                tracing::warn!(group = ?self.child.id(), "a process doesn't end although it was killed");
                break;
            }
        }
        let Ok(exit) = time::timeout(KILL, self.leader_exit()).await else { return Exit::Unknown };
        if !self.reap().await {
            tracing::warn!("an ended process can't be reaped");
        }
        exit
    }

    /// Lets go of a leader that has exited.
    async fn reap(&mut self) -> bool {
        self.over = true;
        // First: from here on its number may be given to a stranger.
        #[cfg(unix)]
        self.children.ended(self.id);
        time::timeout(KILL, self.child.inner_mut().wait()).await.is_ok()
    }

    /// Waits for the leader, and leaves whomever it started to themselves.
    #[cfg(unix)]
    pub(super) async fn release(mut self) {
        if time::timeout(KILL, self.leader_exit()).await.is_ok() {
            self.reap().await;
        }
    }

    /// Kills everybody at once.
    pub fn kill(&mut self) {
        if !self.over {
            // Refused only if nobody is left.
            let _ = self.child.start_kill();
            #[cfg(unix)]
            super::os::signal_other_groups(self.id, libc::SIGKILL);
        }
    }

    #[cfg(unix)]
    fn terminate(&self) {
        if !self.over {
            // Refused only if nobody is left.
            let _ = self.child.signal(libc::SIGTERM);
            super::os::signal_other_groups(self.id, libc::SIGTERM);
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
async fn has_living_members(session: u32) -> bool {
    // Reads a file per process of the whole system.
    let look = move || super::os::has_living_members(session);
    tokio::task::spawn_blocking(look).await.unwrap_or(false)
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        #[cfg(unix)]
        self.children.ended(self.id);
    }
}

/// A child that tells the watcher of itself.
#[cfg(unix)]
#[derive(Debug)]
struct Announced(Arc<io::PipeWriter>);

#[cfg(unix)]
impl process_wrap::tokio::CommandWrapper for Announced {
    fn pre_spawn(&mut self, command: &mut Command, _core: &CommandWrap) -> io::Result<()> {
        super::os::announce_itself(command.as_std_mut(), Arc::clone(&self.0));
        Ok(())
    }
}
