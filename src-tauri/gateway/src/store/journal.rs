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
mod tests;
