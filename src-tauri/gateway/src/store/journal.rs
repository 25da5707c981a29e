//! The journal: facts and calls, in one sequence over two tables.

use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Sqlite, Transaction};

use super::{Store, StoreError, UpstreamId, kind};
use crate::{
    events::{Entry, Event, Invocation, Record},
    names::UpstreamName,
};

/// What to read of the journal.
#[derive(Clone, Debug, Default)]
pub struct JournalQuery {
    /// By its name then or, through renames, by its number.
    pub upstream: Option<UpstreamName>,
    pub upstream_id: Option<UpstreamId>,
    /// Milliseconds of Unix time.
    pub since: Option<i64>,
    pub calls: Calls,
    pub from: From,
    pub limit: usize,
}

/// Which calls to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    #[default]
    None,
    /// Those that an outage touched.
    Touched,
    All,
}

/// Which end to read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// The newest ones.
    #[default]
    End,
    /// The oldest ones after `after`, up to `upto`.
    Cursor { after: u64, upto: u64 },
}

type EventRow = (i64, i64, Option<i64>, Option<String>, Option<String>, String);
type CallRow = (
    i64,
    i64,
    Option<i64>,
    Option<String>,
    String,
    String,
    Option<String>,
    i64,
    String,
    Option<i64>,
    Option<String>,
);

macro_rules! select_events {
    ($order:literal) => {
        concat!(
            "SELECT seq, at, upstream_id, upstream, by, fact FROM journal_events
             WHERE seq > ?1 AND seq <= ?2 AND at >= ?3
               AND (?4 IS NULL OR upstream = ?4 OR upstream_id = ?5)
             ORDER BY seq ",
            $order,
            " LIMIT ?6"
        )
    };
}

macro_rules! select_calls {
    ($order:literal) => {
        concat!(
            "SELECT seq, at, upstream_id, upstream, app, capability_type, capability_key,
                    duration_ms, outcome, code, touched
             FROM journal_invocations
             WHERE seq > ?1 AND seq <= ?2 AND at >= ?3
               AND (?4 IS NULL OR upstream = ?4 OR upstream_id = ?5)
               AND (?7 OR ((touched IS NOT NULL AND outcome <> 'OUTCOME_UNKNOWN')
                    OR outcome IN ('UPSTREAM_UNAVAILABLE', 'UPSTREAM_TIMEOUT', 'UPSTREAM_NEEDS_SIGN_IN')))
             ORDER BY seq ",
            $order,
            " LIMIT ?6"
        )
    };
}

impl Store {
    /// The number of the newest entry; 0 if there is none.
    pub async fn newest_entry(&self) -> Result<u64, StoreError> {
        let newest: i64 = sqlx::query_scalar(
            "SELECT max(coalesce((SELECT max(seq) FROM journal_events), 0),
                        coalesce((SELECT max(seq) FROM journal_invocations), 0))",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(newest as u64)
    }

    /// Appends all of them, or none.
    pub async fn append_entries(&self, entries: &[Entry]) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for Entry { seq, record } in entries {
            match record {
                Record::Event(event) => insert_event(&mut transaction, *seq, event).await?,
                Record::Invocation(call) => insert_call(&mut transaction, *seq, call).await?,
            }
        }
        transaction.commit().await?;
        Ok(())
    }

    /// The oldest first.
    pub async fn entries(&self, query: &JournalQuery) -> Result<Vec<Entry>, StoreError> {
        let mut entries = self.events(query).await?;
        if query.calls != Calls::None {
            entries.extend(self.calls(query).await?);
        }
        entries.sort_by_key(|entry| entry.seq);
        match query.from {
            From::End => {
                let extra = entries.len().saturating_sub(query.limit);
                entries.drain(..extra);
            }
            From::Cursor { .. } => entries.truncate(query.limit),
        }
        Ok(entries)
    }

    async fn events(&self, query: &JournalQuery) -> Result<Vec<Entry>, StoreError> {
        let (statement, after, upto) = match query.from {
            From::End => (select_events!("DESC"), 0, i64::MAX),
            From::Cursor { after, upto } => (select_events!("ASC"), after as i64, upto as i64),
        };
        let rows: Vec<EventRow> = sqlx::query_as(statement)
            .bind(after)
            .bind(upto)
            .bind(query.since.unwrap_or(i64::MIN))
            .bind(query.upstream.as_ref().map(UpstreamName::as_str))
            .bind(query.upstream_id.map(|id| id.0))
            .bind(query.limit as i64)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().filter_map(event).collect())
    }

    async fn calls(&self, query: &JournalQuery) -> Result<Vec<Entry>, StoreError> {
        let (statement, after, upto) = match query.from {
            From::End => (select_calls!("DESC"), 0, i64::MAX),
            From::Cursor { after, upto } => (select_calls!("ASC"), after as i64, upto as i64),
        };
        let rows: Vec<CallRow> = sqlx::query_as(statement)
            .bind(after)
            .bind(upto)
            .bind(query.since.unwrap_or(i64::MIN))
            .bind(query.upstream.as_ref().map(UpstreamName::as_str))
            .bind(query.upstream_id.map(|id| id.0))
            .bind(query.limit as i64)
            .bind(query.calls == Calls::All)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().filter_map(call).collect())
    }

    /// When which upstream was healed or came back, since then.
    pub async fn heals_since(&self, since: i64) -> Result<Vec<(UpstreamId, i64)>, StoreError> {
        let rows: Vec<(i64, i64)> = sqlx::query_as(
            "SELECT upstream_id, at FROM journal_events
             WHERE at >= ? AND what IN ('healed', 'recovered') AND upstream_id IS NOT NULL
             ORDER BY at",
        )
        .bind(since)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|(id, at)| (UpstreamId(id), at)).collect())
    }

    /// Deletes at most so many events from before then, and returns how many that were. The newest
    /// entry stays: the sequence goes on from it.
    pub async fn prune_events(&self, before: i64, most: usize) -> Result<usize, StoreError> {
        let done = sqlx::query(
            "DELETE FROM journal_events WHERE seq IN (
                 SELECT seq FROM journal_events
                 WHERE at < ?1 AND seq < (SELECT max(seq) FROM journal_events)
                 ORDER BY at LIMIT ?2)",
        )
        .bind(before)
        .bind(most as i64)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() as usize)
    }

    /// The same for calls.
    pub async fn prune_invocations(&self, before: i64, most: usize) -> Result<usize, StoreError> {
        let done = sqlx::query(
            "DELETE FROM journal_invocations WHERE seq IN (
                 SELECT seq FROM journal_invocations
                 WHERE at < ?1 AND seq < (SELECT max(seq) FROM journal_invocations)
                 ORDER BY at LIMIT ?2)",
        )
        .bind(before)
        .bind(most as i64)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() as usize)
    }
}

async fn insert_event(
    transaction: &mut Transaction<'static, Sqlite>,
    seq: u64,
    event: &Event,
) -> Result<(), StoreError> {
    let fact = serde_json::to_string(&event.fact).expect("a fact always serializes");
    sqlx::query(
        "INSERT INTO journal_events (seq, at, upstream_id, upstream, by, fact)
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(seq as i64)
    .bind(event.at)
    .bind(event.upstream_id.map(|id| id.0))
    .bind(event.upstream.as_ref().map(UpstreamName::as_str))
    .bind(event.by.map(|by| word(&by)))
    .bind(fact)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn insert_call(
    transaction: &mut Transaction<'static, Sqlite>,
    seq: u64,
    call: &Invocation,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO journal_invocations
         (seq, at, upstream_id, upstream, app, capability_type, capability_key, duration_ms,
          outcome, code, touched)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(seq as i64)
    .bind(call.at)
    .bind(call.upstream_id.map(|id| id.0))
    .bind(call.upstream.as_ref().map(UpstreamName::as_str))
    .bind(&call.app)
    .bind(call.kind.word())
    .bind(&call.key)
    .bind(call.duration_ms as i64)
    .bind(word(&call.outcome))
    .bind(call.code)
    .bind(call.touched.map(|touched| word(&touched)))
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// One of our unit enums as the word that it is in JSON.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("a word always serializes");
    value.as_str().expect("it serializes as a word").to_owned()
}

fn parsed<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(word.to_owned())).ok()
}

/// `None`: of a kind that another version wrote and this one has no words for.
fn event((seq, at, id, upstream, by, fact): EventRow) -> Option<Entry> {
    let event = Event {
        at,
        upstream_id: id.map(UpstreamId),
        upstream: upstream.and_then(|name| UpstreamName::parse(&name).ok()),
        by: by.and_then(|by| parsed(&by)),
        fact: serde_json::from_str(&fact).ok()?,
    };
    Some(Entry { seq: seq as u64, record: Record::Event(event) })
}

fn call(row: CallRow) -> Option<Entry> {
    let (seq, at, id, upstream, app, capability, key, duration, outcome, code, touched) = row;
    let call = Invocation {
        at,
        upstream_id: id.map(UpstreamId),
        upstream: upstream.and_then(|name| UpstreamName::parse(&name).ok()),
        app,
        kind: kind(&capability),
        key,
        duration_ms: duration as u64,
        outcome: parsed(&outcome)?,
        code,
        touched: touched.and_then(|touched| parsed(&touched)),
    };
    Some(Entry { seq: seq as u64, record: Record::Invocation(call) })
}

#[cfg(test)]
mod tests {
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
}
