//! The journal's one writer. No call waits for it: what happens goes into a bounded queue and is
//! written in batches. What a person did waits for room, and is written before it is answered.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{debug, warn};

use crate::{
    clock::wall,
    events::{Entry, Event, Fact, Record},
    lock::lock,
    settings::{Kept, Settings},
    store::{JournalQuery, Store, StoreError},
};

/// How many entries may wait to be written.
const QUEUE: usize = 4_096;
/// How many entries are written in one transaction.
const BATCH: usize = 512;
/// How long what follows a first entry is waited for, so that a busy minute isn't a sync a call.
const GATHER: Duration = Duration::from_millis(200);
/// How long what a person did may wait for the disk before its answer is given all the same.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many entries are deleted in one go: a call's own writes must not wait for it.
const PRUNED: usize = 500;
const PRUNE_PAUSE: Duration = Duration::from_millis(20);
const PRUNE_EVERY: Duration = Duration::from_hours(1);
const DAY: i64 = 24 * 60 * 60 * 1000;

/// For how long entries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub events: Kept,
    pub invocations: Kept,
}

impl Retention {
    pub fn of(settings: &Settings) -> Self {
        Self { events: settings.journal_events_days, invocations: settings.journal_calls_days }
    }
}

/// Where entries go in, and are read.
pub struct Journal {
    store: Store,
    queue: mpsc::Sender<Queued>,
    /// How many found no room since the last batch.
    dropped: std::sync::Arc<AtomicU64>,
    /// The number of the newest entry on disk.
    written: watch::Receiver<u64>,
    retention: watch::Sender<Retention>,
    finish: Mutex<Option<oneshot::Sender<()>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Queued {
    record: Record,
    /// Told when it is on disk.
    waiting: Option<oneshot::Sender<()>>,
}

impl Journal {
    pub async fn open(store: Store, retention: Retention) -> Result<Self, StoreError> {
        let newest = store.newest_entry().await?;
        let (queue, queued) = mpsc::channel(QUEUE);
        let (tell_written, written) = watch::channel(newest);
        let (retention, retained) = watch::channel(retention);
        let (finish, finished) = oneshot::channel();
        let dropped = std::sync::Arc::<AtomicU64>::default();
        let writer = Writer {
            store: store.clone(),
            queued,
            dropped: std::sync::Arc::clone(&dropped),
            written: tell_written,
            retention: retained,
            kept: Vec::new(),
        };
        let writer = tokio::spawn(writer.run(finished));
        Ok(Self {
            store,
            queue,
            dropped,
            written,
            retention,
            finish: Mutex::new(Some(finish)),
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Puts it in the queue, or counts it as dropped if there is no room.
    pub fn note(&self, record: Record) {
        if self.queue.try_send(Queued { record, waiting: None }).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns when it is on disk. Never dropped for want of room.
    pub async fn keep(&self, event: Event) {
        let (waiting, written) = oneshot::channel();
        let queued = Queued { record: Record::Event(event), waiting: Some(waiting) };
        let kept = async {
            if self.queue.send(queued).await.is_err() || written.await.is_err() {
                debug!("the journal is closed");
            }
        };
        if timeout(PATIENCE, kept).await.is_err() {
            warn!("the journal is slow: what was done is written later");
        }
    }

    /// Holds from now on; what is too old by it is deleted soon.
    pub fn retain(&self, retention: Retention) {
        self.retention.send_if_modified(|now| std::mem::replace(now, retention) != retention);
    }

    /// Grows when entries are on disk.
    pub fn written(&self) -> watch::Receiver<u64> {
        self.written.clone()
    }

    pub async fn read(&self, query: &JournalQuery) -> Result<Vec<Entry>, StoreError> {
        self.store.entries(query).await
    }

    /// Writes what is still in the queue. Nothing is taken any more.
    pub async fn finish(&self) {
        drop(lock(&self.finish).take());
        let writer = lock(&self.writer).take();
        if let Some(writer) = writer
            && timeout(PATIENCE, writer).await.is_err()
        {
            warn!("the journal's last entries could not be written in time");
        }
    }
}

struct Writer {
    store: Store,
    queued: mpsc::Receiver<Queued>,
    dropped: std::sync::Arc<AtomicU64>,
    written: watch::Sender<u64>,
    retention: watch::Receiver<Retention>,
    /// What a person did and could not be written yet.
    kept: Vec<Record>,
}

impl Writer {
    async fn run(mut self, mut finished: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut prune_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                // Dropped or told, it is the end.
                _ = &mut finished, if !self.queued.is_closed() => self.queued.close(),
                received = self.queued.recv_many(&mut batch, BATCH) => {
                    if received == 0 {
                        return;
                    }
                    self.gather(&mut batch, &mut finished).await;
                    self.write(&mut batch).await;
                }
                Ok(()) = self.retention.changed() => prune_at = Instant::now(),
                () = sleep_until(prune_at) => {
                    let pause = if self.prune().await { PRUNE_PAUSE } else { PRUNE_EVERY };
                    prune_at = Instant::now() + pause;
                }
            }
        }
    }

    /// Waits for a moment for more, unless somebody waits for what is there.
    async fn gather(&mut self, batch: &mut Vec<Queued>, finished: &mut oneshot::Receiver<()>) {
        let enough = sleep(GATHER);
        tokio::pin!(enough);
        while batch.len() < BATCH && batch.iter().all(|queued| queued.waiting.is_none()) {
            let room = BATCH - batch.len();
            tokio::select! {
                received = self.queued.recv_many(batch, room) => {
                    if received == 0 {
                        return;
                    }
                }
                () = &mut enough => return,
                _ = &mut *finished, if !self.queued.is_closed() => self.queued.close(),
            }
        }
    }

    async fn write(&mut self, batch: &mut Vec<Queued>) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let gap =
            (dropped > 0).then(|| Record::Event(Event::new(Fact::Dropped { entries: dropped })));
        let kept = std::mem::take(&mut self.kept);
        let (records, waiting): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|queued| (queued.record, queued.waiting)).unzip();
        let first = *self.written.borrow() + 1;
        // They came over several ways, and are told as they happened.
        let mut records: Vec<_> = kept.into_iter().chain(gap).chain(records).collect();
        records.sort_by_key(Record::told_at);
        let entries: Vec<Entry> =
            (first..).zip(records).map(|(seq, record)| Entry { seq, record }).collect();
        match self.store.append_entries(&entries).await {
            Ok(()) => {
                self.written.send_replace(first + entries.len() as u64 - 1);
            }
            Err(error) => self.not_written(entries, dropped, &error),
        }
        for waiting in waiting.into_iter().flatten() {
            // Whoever asked may have lost patience.
            let _ = waiting.send(());
        }
    }

    /// What a person did goes into the next batch; the rest is counted.
    fn not_written(&mut self, entries: Vec<Entry>, dropped: u64, error: &StoreError) {
        let deed = |record: &Record| matches!(record, Record::Event(event) if event.by.is_some());
        let gap = |record: &Record| {
            matches!(record, Record::Event(Event { fact: Fact::Dropped { .. }, .. }))
        };
        let records = entries.into_iter().map(|entry| entry.record).filter(|record| !gap(record));
        let (deeds, rest): (Vec<_>, Vec<_>) = records.partition(deed);
        self.kept = deeds;
        self.dropped.fetch_add(dropped + rest.len() as u64, Ordering::Relaxed);
        warn!(%error, entries = rest.len(), "the journal could not be written");
    }

    /// One small batch of each table. Whether there is more.
    async fn prune(&self) -> bool {
        let Retention { events, invocations } = *self.retention.borrow();
        let before = |days: u32| wall() - i64::from(days) * DAY;
        let mut deleted = 0;
        if let Kept::Days(days) = events {
            deleted = deleted.max(pruned(self.store.prune_events(before(days), PRUNED).await));
        }
        if let Kept::Days(days) = invocations {
            let done = self.store.prune_invocations(before(days), PRUNED).await;
            deleted = deleted.max(pruned(done));
        }
        deleted >= PRUNED
    }
}

fn pruned(done: Result<usize, StoreError>) -> usize {
    done.unwrap_or_else(|error| {
        warn!(%error, "old entries of the journal could not be deleted");
        0
    })
}

#[cfg(test)]
mod tests;
