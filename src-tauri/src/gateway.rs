//! The gateway as the desktop sees it: its newest snapshot, and its orderly end.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinHandle,
};
use tracing::error;
use traygate_gateway::{api::Snapshot, clock::wall, host::Host};

use crate::signals::Signals;

/// How long ending may take before Traygate leaves without having seen the end of it.
const STOP: Duration = Duration::from_secs(10);

/// What the window shows: the newest snapshot, or why there is none.
pub type View = Result<watch::Receiver<Arc<Snapshot>>, Failure>;

/// Why the gateway could not start.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// One sentence, with what to do.
    pub words: String,
    /// The port, if it is in use by another program.
    pub port: Option<u16>,
}

/// What acts on a running gateway.
#[derive(Clone)]
pub struct Hands {
    pub gateway: Arc<traygate_gateway::gateway::Gateway>,
    /// The address for AI apps.
    pub endpoint: String,
    /// Notified when another start of Traygate wants this one's window seen.
    pub window_wanted: Arc<Notify>,
}

/// A gateway that was asked to start.
pub struct Gateway {
    view: View,
    hands: Option<Hands>,
    keeper: Option<Keeper>,
}

/// The task that owns the host from its start to its end.
struct Keeper {
    ask_to_end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Gateway {
    /// Keeps a started host, and one snapshot of it that is never older than its last change.
    pub fn keep(host: Host) -> Self {
        // Before the first snapshot, so that no change falls between the two.
        let changes = host.changes();
        let hands = Hands {
            gateway: Arc::clone(host.gateway()),
            endpoint: host.endpoint().to_owned(),
            window_wanted: host.window_wanted().unwrap_or_default(),
        };
        let (publish, newest) = watch::channel(Arc::new(host.snapshot()));
        let (ask_to_end, asked_to_end) = oneshot::channel();
        let task = tokio::spawn(keep(host, changes, publish, asked_to_end));
        Self { view: Ok(newest), hands: Some(hands), keeper: Some(Keeper { ask_to_end, task }) }
    }

    /// Stands for a gateway that could not start, and says why.
    pub fn failed(why: Failure) -> Self {
        Self { view: Err(why), hands: None, keeper: None }
    }

    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// Nothing if it could not start.
    pub fn hands(&self) -> Option<Hands> {
        self.hands.clone()
    }

    pub fn failure(&self) -> Option<&Failure> {
        self.view.as_ref().err()
    }

    /// Ends the host in good order, with all its children; returns when it has ended.
    pub async fn stop(self) {
        let Some(Keeper { ask_to_end, task }) = self.keeper else { return };
        // Nobody hears it if the host has ended by itself.
        let _ = ask_to_end.send(());
        match tokio::time::timeout(STOP, task).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => error!(%failure, "the gateway ended in disorder"),
            Err(_) => error!(seconds = STOP.as_secs(), "the gateway didn't end in time"),
        }
    }
}

async fn keep(
    host: Host,
    mut changes: watch::Receiver<u64>,
    publish: watch::Sender<Arc<Snapshot>>,
    mut asked_to_end: oneshot::Receiver<()>,
) {
    loop {
        let until = publish.borrow().true_until();
        tokio::select! {
            Ok(()) = changes.changed() => {}
            () = reached(until) => {}
            () = host.ended() => break,
            _ = &mut asked_to_end => break,
        }
        publish.send_replace(Arc::new(host.snapshot()));
    }
    // Whoever watches hears of the end before it has been waited for.
    drop(publish);
    host.stop().await;
}

/// Returns when this time has passed: milliseconds of Unix time.
async fn reached(time: Option<i64>) {
    match time {
        // A millisecond later, so that what lasts until then is over.
        Some(time) => {
            let left = time.saturating_sub(wall()).max(0).unsigned_abs();
            tokio::time::sleep(Duration::from_millis(left + 1)).await;
        }
        None => std::future::pending().await,
    }
}

/// Returns when Traygate is to end: by a signal, or because the gateway ended (over the control API).
pub async fn asked_to_end(view: View, mut signals: Signals) {
    let gateway_ended = async {
        match view {
            Ok(mut newest) => while newest.changed().await.is_ok() {},
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.one() => {}
        () = gateway_ended => {}
    }
}
