//! Who hosts (design section 8): this desktop, unless another one of the same user does already.

use anyhow::anyhow;
use tokio::runtime::Runtime;
use tracing::{error, info, warn};
use traygate_gateway::{
    host::{DESKTOP, HEADLESS, Host, HostError, HostOptions, has_display},
    other_host::OtherHost,
    paths::Paths,
};

use crate::gateway::{Failure, Gateway};

pub enum Started {
    /// Here, or here and in vain: the window says why.
    Here(Gateway),
    /// Another desktop of this user hosts.
    Elsewhere,
}

pub fn start(runtime: &Runtime, paths: &Paths, port: Option<u16>, hidden: bool) -> Started {
    // One without a display has no window to show, and gives way to one that has.
    let kind = if has_display() { DESKTOP } else { HEADLESS };
    let mut options = HostOptions { paths: paths.clone(), port, kind };
    let mut started = runtime.block_on(Host::start(options.clone()));
    if let Err(HostError::AlreadyRunning { .. }) = started
        && let Some(other) = OtherHost::of(paths)
    {
        if !other.is_headless() || kind == HEADLESS {
            return runtime.block_on(leave_it_to(&other, hidden));
        }
        info!(pid = other.pid(), "a headless Traygate gives way to this one");
        options.port = options.port.or(Some(other.port()));
        started = match runtime.block_on(other.give_way(paths)) {
            Ok(()) => runtime.block_on(Host::start(options)),
            Err(why) => {
                warn!(why, "it does not");
                started
            }
        };
    }
    match started {
        Ok(host) => {
            println!("Traygate serves {}", host.endpoint());
            let _within = runtime.enter();
            Started::Here(Gateway::keep(host))
        }
        // Neither has a window to show: nothing is left to do here.
        Err(error @ HostError::AlreadyRunning { .. }) => {
            println!("{error}");
            Started::Elsewhere
        }
        // A person who clicked an icon sees no terminal: the window says it, too.
        Err(error) => {
            error!("the gateway isn't running: {error}");
            let port = match &error {
                HostError::PortTaken { port, .. } => Some(*port),
                _ => None,
            };
            Started::Here(Gateway::failed(Failure { words: error.to_string(), port }))
        }
    }
}

async fn leave_it_to(other: &OtherHost, hidden: bool) -> Started {
    let running = format!("Traygate is already running (process {})", other.pid());
    if hidden || other.is_headless() {
        println!("{running}");
    } else {
        match other.show_window().await {
            Ok(()) => println!("{running}; its window opens"),
            Err(why) => println!("{}", anyhow!("{running}, but its window doesn't open: {why}")),
        }
    }
    Started::Elsewhere
}
