//! Entries as the database gives them back.

use super::{super::tests::Fixture, *};
use crate::{
    capability::CapabilityType,
    events::{By, Fact, Outcome, Touched},
    fault::Code,
};

fn name(text: &str) -> UpstreamName {
    UpstreamName::parse(text).expect("a name")
}

fn fact(at: i64, upstream: &str, fact: Fact) -> Record {
    let id = UpstreamId(i64::from(upstream == "files") + 1);
    Record::Event(Event { at, ..Event::new(fact).of(id, &name(upstream)) })
}

fn called(at: i64, upstream: &str, outcome: Outcome, touched: Option<Touched>) -> Record {
    Record::Invocation(Invocation {
        at,
        upstream_id: Some(UpstreamId(i64::from(upstream == "files") + 1)),
        upstream: Some(name(upstream)),
        app: "claude".to_owned(),
        kind: CapabilityType::Tool,
        key: Some("echo".to_owned()),
        duration_ms: 3,
        outcome,
        code: None,
        touched,
    })
}

async fn append(store: &Store, records: Vec<Record>) -> Vec<Entry> {
    let first = store.newest_entry().await.expect("the newest") + 1;
    let entries: Vec<_> =
        (first..).zip(records).map(|(seq, record)| Entry { seq, record }).collect();
    store.append_entries(&entries).await.expect("appended");
    entries
}

fn all() -> JournalQuery {
    JournalQuery { calls: Calls::All, limit: 100, ..JournalQuery::default() }
}

#[tokio::test]
async fn entries_are_read_back_as_they_were_written_after_a_restart() {
    let fixture = Fixture::new().await;
    let toggled =
        Fact::Toggled { kind: CapabilityType::Prompt, key: "greet".to_owned(), enabled: true };
    let Record::Event(event) = fact(2, "files", toggled) else { panic!("an event") };
    let written = append(
        &fixture.store,
        vec![
            fact(1, "files", Fact::Lost { because: "it exited".to_owned() }),
            Record::Event(event.by(By::Tray)),
            called(3, "files", Outcome::Ok, Some(Touched::Waited)),
            called(4, "docs", Outcome::Fault(Code::OutcomeUnknown), None),
            Record::Event(Event { at: 5, ..Event::new(Fact::Stopped) }),
        ],
    )
    .await;
    let store = fixture.reopen().await;
    assert_eq!(store.entries(&all()).await.expect("entries"), written);
    assert_eq!(store.newest_entry().await.expect("the newest"), 5);
}

#[tokio::test]
async fn a_query_chooses_by_upstream_time_calls_and_cursor() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let written = append(
        store,
        vec![
            fact(1, "files", Fact::Healed { after_ms: 5 }),
            called(2, "files", Outcome::Ok, None),
            called(3, "docs", Outcome::Ok, Some(Touched::Repeated)),
            called(4, "docs", Outcome::Fault(Code::OutcomeUnknown), Some(Touched::Waited)),
            called(5, "docs", Outcome::Fault(Code::UpstreamTimeout), None),
            fact(6, "docs", Fact::Healed { after_ms: 6 }),
        ],
    )
    .await;
    let seqs = async |query: JournalQuery| -> Vec<u64> {
        let entries = store.entries(&query).await.expect("entries");
        entries.iter().map(|entry| entry.seq).collect()
    };
    assert_eq!(seqs(JournalQuery { calls: Calls::None, ..all() }).await, [1, 6]);
    let touched = JournalQuery { calls: Calls::Touched, ..all() };
    assert_eq!(seqs(touched).await, [1, 3, 5, 6], "an unknown outcome is an event of its own");
    let belongs = |entry: &&Entry| match &entry.record {
        Record::Event(_) => true,
        Record::Invocation(call) => call.belongs_to_an_outage(),
    };
    let same: Vec<u64> = written.iter().filter(belongs).map(|entry| entry.seq).collect();
    assert_eq!(same, [1, 3, 5, 6], "the rule is the same in memory");
    assert_eq!(seqs(JournalQuery { upstream: Some(name("files")), ..all() }).await, [1, 2]);
    let renamed =
        JournalQuery { upstream: Some(name("new")), upstream_id: Some(UpstreamId(1)), ..all() };
    assert_eq!(seqs(renamed).await, [3, 4, 5, 6], "by its number through renames");
    assert_eq!(seqs(JournalQuery { since: Some(5), ..all() }).await, [5, 6]);
    assert_eq!(seqs(JournalQuery { limit: 2, ..all() }).await, [5, 6], "the newest");
    let from = From::Cursor { after: 1, upto: 5 };
    assert_eq!(seqs(JournalQuery { from, limit: 3, ..all() }).await, [2, 3, 4], "the oldest");
}

#[tokio::test]
async fn what_is_too_old_is_pruned_in_small_batches_and_the_sequence_goes_on() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let old = (0..7).map(|at| fact(at, "files", Fact::Healed { after_ms: 1 }));
    let calls = (0..3).map(|at| called(at, "files", Outcome::Ok, None));
    append(store, old.chain(calls).collect()).await;
    append(store, vec![fact(100, "docs", Fact::Recovered { after_ms: 1 })]).await;
    assert_eq!(store.prune_events(100, 5).await.expect("pruned"), 5);
    assert_eq!(store.prune_events(100, 5).await.expect("pruned"), 2);
    assert_eq!(store.prune_events(100, 5).await.expect("pruned"), 0);
    assert_eq!(store.prune_events(i64::MAX, 5).await.expect("pruned"), 0, "the newest stays");
    assert_eq!(store.prune_invocations(2, 5).await.expect("pruned"), 2);
    let left = store.entries(&all()).await.expect("entries");
    assert_eq!(left.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [10, 11]);
    assert_eq!(store.newest_entry().await.expect("the newest"), 11);
    assert_eq!(store.heals_since(50).await.expect("heals"), [(UpstreamId(1), 100)]);
}
