//! The writer with a real database: its end, its full queue, and what it deletes.

use super::*;
use crate::{
    events::{By, Invocation, Outcome},
    store::Calls,
};

struct Fixture {
    journal: Journal,
    store: Store,
    _directory: tempfile::TempDir,
}

const FOR_EVER: Retention = Retention { events: Kept::ForEver, invocations: Kept::ForEver };

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(&directory.path().join("traygate.db")).await.expect("a store");
        let journal = Journal::open(store.clone(), FOR_EVER).await.expect("a journal");
        Self { journal, store, _directory: directory }
    }

    async fn entries(&self) -> Vec<Entry> {
        let query = JournalQuery { calls: Calls::All, limit: 100_000, ..Default::default() };
        self.journal.read(&query).await.expect("entries")
    }
}

fn call(at: i64) -> Record {
    Record::Invocation(Invocation {
        at,
        upstream_id: None,
        upstream: None,
        app: "claude".to_owned(),
        kind: crate::capability::CapabilityType::Tool,
        key: None,
        duration_ms: 1,
        outcome: Outcome::Ok,
        code: None,
        touched: None,
    })
}

fn fact(at: i64) -> Record {
    Record::Event(Event { at, ..Event::new(Fact::SessionRenewed) })
}

#[tokio::test]
async fn what_is_in_the_queue_is_written_before_the_end() {
    let fixture = Fixture::new().await;
    for at in 0..1_000 {
        fixture.journal.note(call(at));
    }
    fixture.journal.finish().await;
    let entries = fixture.entries().await;
    assert_eq!(entries.len(), 1_000);
    assert!(entries.iter().zip(1..).all(|(entry, seq)| entry.seq == seq), "in order");
    let journal = Journal::open(fixture.store.clone(), FOR_EVER).await.expect("opened again");
    journal.note(fact(5_000));
    journal.finish().await;
    assert_eq!(fixture.entries().await.last().map(|entry| entry.seq), Some(1_001));
}

#[tokio::test]
async fn a_full_queue_says_how_many_are_missing_and_loses_nothing_that_a_person_did() {
    let fixture = Fixture::new().await;
    let sent = QUEUE as i64 + 300;
    // No await in between, so the writer can't make room.
    for at in 0..sent {
        fixture.journal.note(call(at));
    }
    fixture.journal.keep(Event::new(Fact::Resumed).by(By::Tray)).await;
    let entries = fixture.entries().await;
    assert!(
        entries.iter().any(|entry| matches!(
            &entry.record,
            Record::Event(Event { fact: Fact::Resumed, by: Some(By::Tray), .. })
        )),
        "it waited for room, and is on disk when the wait is over"
    );
    let missing: Vec<u64> = entries
        .iter()
        .filter_map(|entry| match &entry.record {
            Record::Event(Event { fact: Fact::Dropped { entries }, .. }) => Some(*entries),
            _ => None,
        })
        .collect();
    assert_eq!(missing, [300]);
    assert_eq!(entries.len(), QUEUE + 2);
}

#[tokio::test]
async fn a_note_never_waits_and_a_deed_is_on_disk_when_it_is_done() {
    let fixture = Fixture::new().await;
    let mut written = fixture.journal.written();
    fixture.journal.note(fact(1));
    assert_eq!(*written.borrow_and_update(), 0, "only queued");
    fixture.journal.keep(Event::new(Fact::Resumed).by(By::Cli)).await;
    assert_eq!(*written.borrow_and_update(), 2);
}

#[tokio::test]
async fn entries_older_than_the_retention_go_in_small_batches_each_table_by_its_own() {
    let fixture = Fixture::new().await;
    let old = wall() - 3 * DAY;
    let young = wall();
    for _ in 0..PRUNED + 100 {
        fixture.journal.note(call(old));
        fixture.journal.note(fact(old));
    }
    fixture.journal.note(call(young));
    fixture.journal.note(fact(young));
    fixture.journal.keep(Event::new(Fact::Resumed).by(By::Cli)).await;
    fixture.journal.retain(Retention { events: Kept::Days(10), invocations: Kept::Days(2) });
    let left = async || {
        let entries = fixture.entries().await;
        let calls = entries.iter().filter(|entry| matches!(entry.record, Record::Invocation(_)));
        (calls.count(), entries.len())
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while left().await.0 > 1 {
        assert!(Instant::now() < deadline, "{:?}", left().await);
        sleep(PRUNE_PAUSE).await;
    }
    let facts = PRUNED + 102;
    assert_eq!(left().await, (1, 1 + facts), "events of three days are within ten");
    fixture.journal.retain(Retention { events: Kept::Days(1), invocations: Kept::ForEver });
    while left().await.1 > 3 {
        assert!(Instant::now() < deadline, "{:?}", left().await);
        sleep(PRUNE_PAUSE).await;
    }
    assert_eq!(left().await, (1, 3));
}
