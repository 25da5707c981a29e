//! The signals that ask Traygate to end.

use std::io;

/// Heard from the moment it is made, so that not even a start is cut off half-way.
#[cfg(unix)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// The terminal or the session is gone.
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Within a runtime.
    pub fn hear() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub async fn one(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

#[cfg(windows)]
pub struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    /// Within a runtime.
    pub fn hear() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    pub async fn one(&mut self) {
        self.0.recv().await;
    }
}
