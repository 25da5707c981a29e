//! `GET /journal`: its newest entries, or what came after one, or all that comes.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Query, State},
    response::{IntoResponse, Response},
};
use futures::{StreamExt as _, stream};
use serde::Deserialize;
use tokio::sync::watch;
use tracing::warn;

use super::Control;
use crate::{
    events::Entry,
    gateway::{Gateway, manage::Refused},
    names::UpstreamName,
    store::{Calls, JournalFrom, JournalQuery},
};

/// How many entries without a number asked for, and at most.
const ENTRIES: usize = 200;
const MOST: usize = 10_000;

#[derive(Deserialize)]
pub struct Wanted {
    upstream: Option<String>,
    /// Milliseconds of Unix time.
    since: Option<i64>,
    /// The number of an entry: what came after it, the oldest first.
    after: Option<u64>,
    #[serde(default)]
    calls: WantedCalls,
    limit: Option<usize>,
    #[serde(default)]
    follow: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WantedCalls {
    None,
    #[default]
    Touched,
    All,
}

/// An array; with `follow`, one entry a line, without end.
pub async fn journal(
    State(control): State<Control>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let gateway = control.gateway;
    let mut written = gateway.journal_written();
    let upto = *written.borrow_and_update();
    let mut query = query(&gateway, &wanted)?;
    query.from = match wanted.after {
        Some(after) => JournalFrom::Cursor { after, upto },
        None => JournalFrom::End,
    };
    let entries = gateway.journal(&query).await?;
    if !wanted.follow {
        return Ok(Json(entries).into_response());
    }
    // Where more was there than one answer holds, it is read on from its last entry.
    let cut = wanted.after.is_some() && entries.len() == query.limit;
    let cursor =
        entries.last().map_or(upto, |last| if cut { last.seq } else { upto.max(last.seq) });
    let ended = gateway.ended().clone();
    let follower = Follower { gateway, query, written, cursor, ready: entries.into() };
    let lines = stream::unfold(follower, Follower::next)
        .map(Ok::<_, Infallible>)
        .take_until(async move { ended.cancelled_owned().await });
    Ok(([("content-type", "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

fn query(gateway: &Gateway, wanted: &Wanted) -> Result<JournalQuery, Refused> {
    let upstream = wanted.upstream.as_deref().map(UpstreamName::parse).transpose();
    let upstream = upstream.map_err(|error| Refused::BadInput(error.to_string()))?;
    Ok(JournalQuery {
        // One that was removed is still in the journal by its name.
        upstream_id: upstream.as_ref().and_then(|name| gateway.upstream(name)).map(|one| one.id),
        upstream,
        since: wanted.since,
        calls: match wanted.calls {
            WantedCalls::None => Calls::None,
            WantedCalls::Touched => Calls::Touched,
            WantedCalls::All => Calls::All,
        },
        from: JournalFrom::End,
        limit: wanted.limit.unwrap_or(ENTRIES).clamp(1, MOST),
    })
}

/// One who reads on whenever something was written. Whoever is slow reads from the disk.
struct Follower {
    gateway: Arc<Gateway>,
    query: JournalQuery,
    written: watch::Receiver<u64>,
    /// Everything up to this entry was read.
    cursor: u64,
    ready: VecDeque<Entry>,
}

impl Follower {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some((super::as_line(&entry), self));
            }
            let upto = *self.written.borrow_and_update();
            if upto <= self.cursor {
                self.written.changed().await.ok()?;
                continue;
            }
            self.query.from = JournalFrom::Cursor { after: self.cursor, upto };
            match self.gateway.journal(&self.query).await {
                Ok(entries) => {
                    let cut = entries.len() == self.query.limit;
                    self.cursor = entries.last().filter(|_| cut).map_or(upto, |last| last.seq);
                    self.ready = entries.into();
                }
                Err(error) => {
                    warn!(%error, "the journal could not be read");
                    return None;
                }
            }
        }
    }
}
