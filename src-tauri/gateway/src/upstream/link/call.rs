//! One request: who asks for it, what happens to it, and how it is followed.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::{COURTESY, Link, queue::Ear};
use crate::{
    json::RawObject,
    upstream::wire::{Failure, Ran},
};

/// Which app a request is asked for. Two requests of one app have equal callers.
pub type CallerId = u64;

/// One request to make.
pub struct Request<'a> {
    pub method: &'a str,
    pub params: RawObject,
    /// On whose behalf; `None` for Traygate's own.
    pub caller: Option<Caller>,
    /// `Mcp-Param-*` headers.
    pub headers: Vec<(String, String)>,
}

impl<'a> Request<'a> {
    /// One that Traygate makes for itself.
    pub fn own(method: &'a str, params: RawObject) -> Self {
        Self { method, params, caller: None, headers: Vec::new() }
    }
}

/// The app behind a request, as far as an upstream may know.
#[derive(Clone, Debug)]
pub struct Caller {
    pub id: CallerId,
    pub capabilities: RawObject,
    pub client_info: Option<Box<RawValue>>,
    pub wants_progress: bool,
}

/// What happens to one request, in order.
#[derive(Debug)]
pub enum CallEvent {
    /// The params of a progress notification; the token in it is the link's.
    Progress(RawObject),
    /// The params of a log message.
    Log(Box<RawValue>),
    /// The upstream asks the app something before it answers.
    Question(Question),
    /// A subscription is heard, with what it was granted.
    Acknowledged(RawObject),
    Result(Box<RawValue>),
    Error(Box<RawValue>),
    Failed(Failure),
}

/// A request from an upstream to the app whose call caused it.
#[derive(Debug)]
pub struct Question {
    pub method: String,
    pub params: Option<Box<RawValue>>,
    /// Dropped without an answer, the upstream is told that the app can't.
    pub reply: oneshot::Sender<Reply>,
}

/// A result or an error, raw.
pub type Reply = Result<Box<RawValue>, Box<RawValue>>;

/// A request under way. Dropped before its answer, it is cancelled upstream.
pub struct Call {
    pub(super) link: Arc<Link>,
    pub(super) tag: u64,
    pub(super) events: Ear,
    pub(super) over: bool,
}

impl Call {
    /// What happens next. After a result, an error or a failure there is nothing more.
    pub async fn next(&mut self) -> CallEvent {
        let event = match self.events.next().await {
            Some(event) => event,
            None => CallEvent::Failed(self.link.obituary(Ran::Perhaps)),
        };
        self.over |=
            matches!(event, CallEvent::Result(_) | CallEvent::Error(_) | CallEvent::Failed(_));
        event
    }

    /// The answer alone, for requests of Traygate's own. An error is the upstream's, raw.
    pub async fn answer(mut self) -> Result<Reply, Failure> {
        loop {
            match self.next().await {
                CallEvent::Result(result) => return Ok(Ok(result)),
                CallEvent::Error(error) => return Ok(Err(error)),
                CallEvent::Failed(failure) => return Err(failure),
                // A question nobody asked for is answered "can't" by being dropped.
                CallEvent::Progress(_)
                | CallEvent::Log(_)
                | CallEvent::Question(_)
                | CallEvent::Acknowledged(_) => {}
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.over || self.link.strike(self.tag).is_none() {
            return;
        }
        let (link, tag) = (Arc::clone(&self.link), self.tag);
        if link.cancels_by_closing() {
            link.wire.forget(tag);
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let params = RawObject::default()
                .with("requestId", &tag)
                .with("reason", "the app no longer waits for it");
            let notice = link.notify("notifications/cancelled", params);
            let _ = tokio::time::timeout(COURTESY, notice).await;
            link.wire.forget(tag);
        });
    }
}
