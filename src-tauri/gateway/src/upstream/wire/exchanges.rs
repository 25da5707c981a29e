//! The tasks of one HTTP wire: requests under way, its streams, and how all of them end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::mpsc::Sender, time::timeout};
use tokio_util::{
    sync::{CancellationToken, DropGuard, WaitForCancellationFuture},
    task::TaskTracker,
};

use super::{Event, Failure, FailureKind, Ran};

use crate::lock::lock;

/// Ended tasks are gone at their next await. Only a link that reads no more could hold one up.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) struct Exchanges {
    /// Taken when the wire ends, so that the receiver sees the end.
    events: Mutex<Option<Sender<Event>>>,
    /// The requests under way, each with what ends it.
    running: Mutex<HashMap<u64, CancellationToken>>,
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Exchanges {
    pub fn new(events: Sender<Event>) -> Arc<Self> {
        Arc::new(Self {
            events: Mutex::new(Some(events)),
            running: Mutex::default(),
            tasks: TaskTracker::new(),
            end: CancellationToken::new(),
        })
    }

    /// For the wire itself: if it is dropped without being closed, its tasks end all the same.
    pub fn guard(&self) -> DropGuard {
        self.end.clone().drop_guard()
    }

    /// The way to the link, as long as the wire lives.
    pub fn events(&self) -> Result<Sender<Event>, Failure> {
        lock(&self.events).clone().ok_or_else(|| {
            Failure::new(FailureKind::Gone, Ran::CertainlyNot, "the connection has ended")
        })
    }

    /// Runs a request's exchange until it is over or forgotten. Dropping it closes its HTTP stream.
    pub fn begin(self: &Arc<Self>, tag: u64, exchange: impl Future<Output = ()> + Send + 'static) {
        let end = self.end.child_token();
        lock(&self.running).insert(tag, end.clone());
        let exchanges = self.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = exchange => {}
            }
            lock(&exchanges.running).remove(&tag);
        });
    }

    /// Runs what watches [`ended`](Self::ended) itself.
    pub fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    pub fn forget(&self, tag: u64) {
        if let Some(exchange) = lock(&self.running).remove(&tag) {
            exchange.cancel();
        }
    }

    pub fn ended(&self) -> WaitForCancellationFuture<'_> {
        self.end.cancelled()
    }

    /// Ends everything and says why, as the last event.
    pub async fn fail(&self, events: Sender<Event>, failure: Failure) {
        self.stop();
        // Without a receiver nobody needs to know.
        let _ = events.send(Event::Closed(failure)).await;
    }

    /// Ends everything, with nothing more to say.
    pub fn stop(&self) {
        lock(&self.events).take();
        self.end.cancel();
        self.tasks.close();
    }

    /// Waits for the end of all tasks.
    pub async fn stopped(&self) {
        let _ = timeout(LAST_WORDS, self.tasks.wait()).await;
    }
}
