//! What a link reads, handed to the request that it belongs to.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::{
    COURTESY, CallEvent, Link, METHOD_NOT_FOUND, News, PROTOCOL_META, Question, Reply, Waiting,
    error, outgoing::line,
};
use crate::{
    capability::CapabilityType,
    json::{Envelope, RawObject},
    upstream::wire::{Failure, FailureKind, Kind, Outgoing, Ran},
};

impl Link {
    pub(super) fn message(self: &Arc<Self>, bytes: &Bytes, origin: Option<u64>) {
        let Ok(message) = serde_json::from_slice::<Envelope>(bytes) else {
            self.noise(&String::from_utf8_lossy(bytes));
            return;
        };
        match (&message.method, message.id) {
            (Some(method), Some(id)) => {
                self.question(method, id.to_owned(), message.params, origin);
            }
            (Some(method), None) => self.notification(method, message.params, origin),
            (None, _) if message.result.is_none() && message.error.is_none() => {
                self.noise(&String::from_utf8_lossy(bytes));
            }
            (None, _) => self.answer(&message, origin),
        }
    }

    fn answer(&self, message: &Envelope, origin: Option<u64>) {
        let event = match (message.result, message.error) {
            (_, Some(error)) if error.get() != "null" => CallEvent::Error(error.to_owned()),
            (Some(result), _) => CallEvent::Result(result.to_owned()),
            _ => return,
        };
        // On a request's own stream only its answer comes, whatever id a server gives it. Late,
        // doubled and unknown answers find nobody and are harmless.
        let Some(tag) =
            origin.or_else(|| message.id.and_then(tag_of)).or_else(|| self.only_request(&event))
        else {
            return self.stray(message.id, event);
        };
        if let Some(waiting) = self.strike(tag) {
            waiting.events.say(event);
        }
    }

    /// Some servers answer errors with a null id. With one request under way it can only be that.
    fn only_request(&self, event: &CallEvent) -> Option<u64> {
        let CallEvent::Error(_) = event else { return None };
        let waiting = self.waiting();
        let mut tags = waiting.as_ref()?.keys();
        tags.next().copied().filter(|_| tags.next().is_none())
    }

    fn notification(&self, method: &str, params: Option<&RawValue>, origin: Option<u64>) {
        let news = match method {
            "notifications/progress" => return self.progress(params),
            "notifications/message" => return self.log_message(params, origin),
            "notifications/subscriptions/acknowledged" => {
                return self.acknowledged(params, origin);
            }
            "notifications/cancelled" => return self.unsubscribed(params),
            "notifications/tools/list_changed" => News::ListChanged(vec![CapabilityType::Tool]),
            "notifications/prompts/list_changed" => News::ListChanged(vec![CapabilityType::Prompt]),
            "notifications/resources/list_changed" => {
                News::ListChanged(vec![CapabilityType::Resource, CapabilityType::Template])
            }
            "notifications/resources/updated" => {
                let params = params.and_then(|params| RawObject::parse(params).ok());
                match params.and_then(|params| params.str("uri")) {
                    Some(uri) => News::ResourceUpdated(uri),
                    None => return,
                }
            }
            _ => return,
        };
        let _ = self.news.send(news);
    }

    /// Over stdio only the subscription's id in `_meta` says which one it is.
    fn acknowledged(&self, params: Option<&RawValue>, origin: Option<u64>) {
        let Some(params) = params.and_then(|params| RawObject::parse(params).ok()) else { return };
        let meta = params.object("_meta").unwrap_or_default();
        let named = meta.get(&format!("{PROTOCOL_META}subscriptionId")).and_then(tag_of);
        let Some(tag) = origin.or(named) else { return };
        if let Some(waiting) = self.waiting().as_ref().and_then(|waiting| waiting.get(&tag)) {
            let granted = params.object("notifications").unwrap_or_default();
            waiting.events.say(CallEvent::Acknowledged(granted));
        }
    }

    /// A server that ends a subscription over stdio may say so by cancelling it; nothing else of
    /// ours is the server's to cancel.
    fn unsubscribed(&self, params: Option<&RawValue>) {
        let Some(params) = params.and_then(|params| RawObject::parse(params).ok()) else { return };
        let Some(tag) = params.get("requestId").and_then(tag_of) else { return };
        let is_subscription = |waiting: &HashMap<u64, Waiting>| {
            waiting.get(&tag).is_some_and(|waiting| waiting.is_subscription)
        };
        if self.waiting().as_ref().is_some_and(is_subscription)
            && let Some(ended) = self.strike(tag)
        {
            let why = "it ended the subscription";
            let failure = Failure::new(FailureKind::Gone, Ran::Perhaps, why);
            ended.events.say(CallEvent::Failed(failure));
        }
    }

    fn progress(&self, params: Option<&RawValue>) {
        let bytes = params.map_or(0, |params| params.get().len());
        let Some(params) = params.and_then(|params| RawObject::parse(params).ok()) else { return };
        let Some(tag) = params.get("progressToken").and_then(tag_of) else { return };
        if let Some(waiting) = self.waiting().as_ref().and_then(|waiting| waiting.get(&tag)) {
            waiting.events.mention(CallEvent::Progress(params), bytes);
        }
    }

    /// A log message goes to the request on whose stream it came; where the wire doesn't say, to
    /// the only app with a request under way; otherwise to the upstream's log only.
    fn log_message(&self, params: Option<&RawValue>, origin: Option<u64>) {
        let Some(params) = params else { return };
        if let Some(text) = log_text(params) {
            self.log.push("server", &text);
        }
        let waiting = self.waiting();
        let Some(tag) = waiting.as_ref().and_then(|waiting| attribute(waiting, origin)) else {
            return;
        };
        if let Some(waiting) = waiting.as_ref().and_then(|waiting| waiting.get(&tag)) {
            waiting.events.mention(CallEvent::Log(params.to_owned()), params.get().len());
        }
    }

    /// A request of the upstream's own.
    fn question(
        self: &Arc<Self>,
        method: &str,
        id: Box<RawValue>,
        params: Option<&RawValue>,
        origin: Option<u64>,
    ) {
        let link = Arc::clone(self);
        if method == "ping" {
            tokio::spawn(async move { link.reply(id, Ok(RawObject::default().to_raw())).await });
            return;
        }
        let asked = self.ask_caller(method, params, origin);
        let method = method.to_owned();
        // Ends with the answer, with the call (its channel closes), or with the link.
        tokio::spawn(async move {
            let answer = match asked {
                Ok(answer) => tokio::select! {
                    answer = answer => answer.unwrap_or_else(|_| {
                        Err(error(METHOD_NOT_FOUND, &format!("the app can't answer {method}")))
                    }),
                    () = link.closed() => return,
                },
                Err(why) => Err(error(METHOD_NOT_FOUND, &why)),
            };
            link.reply(id, answer).await;
        });
    }

    /// Hands the question to the call that caused it, if one can be told (design section 6).
    fn ask_caller(
        &self,
        method: &str,
        params: Option<&RawValue>,
        origin: Option<u64>,
    ) -> Result<oneshot::Receiver<Reply>, String> {
        let waiting = self.waiting();
        let waiting = waiting.as_ref().ok_or("the connection is closed")?;
        let tag = attribute(waiting, origin).ok_or_else(|| {
            format!("several apps use this server at once, and Traygate can't tell which of their requests {method} belongs to")
        })?;
        let (reply, answer) = oneshot::channel();
        let params = params.map(ToOwned::to_owned);
        let question = Question { method: method.to_owned(), params, reply };
        let caller = &waiting.get(&tag).ok_or("its request is over")?.events;
        if !caller.say(CallEvent::Question(question)) {
            return Err("its request is over".to_owned());
        }
        Ok(answer)
    }

    async fn reply(&self, id: Box<RawValue>, answer: Reply) {
        let mut message = RawObject::default().with("jsonrpc", "2.0");
        message.set("id", id);
        match answer {
            Ok(result) => message.set("result", result),
            Err(error) => message.set("error", error),
        }
        let message = Outgoing { bytes: line(&message), kind: Kind::Response };
        // A link that can't carry it says so itself, by closing.
        let _ = tokio::time::timeout(COURTESY, self.wire.send(message)).await;
    }
}

/// An id or progress token of ours; some servers give numbers back as strings.
fn tag_of(raw: &RawValue) -> Option<u64> {
    raw.get().trim_matches('"').parse().ok()
}

/// Which request something that came unasked belongs to.
fn attribute(waiting: &HashMap<u64, Waiting>, origin: Option<u64>) -> Option<u64> {
    if let Some(origin) = origin.filter(|origin| waiting.contains_key(origin)) {
        return Some(origin);
    }
    let mut callers =
        waiting.iter().filter_map(|(tag, waiting)| waiting.caller.map(|caller| (caller, *tag)));
    let (caller, tag) = callers.next()?;
    // The newest request of the only app: servers that ask do it for the call they just began.
    callers.try_fold(tag, |newest, (other, tag)| (other == caller).then_some(newest.max(tag)))
}

fn log_text(params: &RawValue) -> Option<String> {
    let params = RawObject::parse(params).ok()?;
    let data = params.get("data")?;
    let text = crate::json::as_str(data).unwrap_or_else(|| data.get().to_owned());
    Some(match params.str("level") {
        Some(level) => format!("{level}: {text}"),
        None => text,
    })
}
