//! Payloads as raw JSON through rmcp: its answer carries a one-time ticket in `_meta`, and on the
//! way out the ticket is changed for the payload itself, byte for byte.
//!
//! So nothing that rmcp does around a handler is written again: session ids, both eras' headers,
//! SSE, the stream of each request, cancellation. It rests on rmcp writing one message per frame,
//! on one line; the version is pinned and the end-to-end tests would notice.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use rmcp::model::{JsonObject, MetaObject};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::outline;
use crate::json::{Envelope, RawObject, one_line};

use crate::lock::lock;

const TICKET: &str = "traygate/ticket";
/// How many payloads may wait at once. One whose app has left waits for nobody; the oldest go.
const MOST_WAITING: usize = 4096;

/// What a ticket is changed for: one member of the JSON-RPC message.
#[derive(Debug)]
pub enum Payload {
    Params(Box<RawValue>),
    Result(Box<RawValue>),
    Error(Box<RawValue>),
}

#[derive(Default)]
struct Waiting {
    payloads: HashMap<String, Payload>,
    order: VecDeque<String>,
    /// Answers of apps to questions, by session and id.
    answers: HashMap<(String, String), Answer>,
}

/// An app's answer to a question, raw.
pub type Answer = Result<Box<RawValue>, Box<RawValue>>;

/// Payloads that wait for their place in a response.
#[derive(Clone, Default)]
pub struct Tickets(Arc<Mutex<Waiting>>);

impl Tickets {
    /// The `_meta` of the placeholder. The number can't be guessed: text from an upstream also
    /// passes the layer, and a forged ticket would fetch another app's payload.
    pub fn deposit(&self, payload: Payload) -> MetaObject {
        let ticket = Uuid::new_v4().simple().to_string();
        let mut waiting = self.waiting();
        waiting.payloads.insert(ticket.clone(), payload);
        waiting.order.push_back(ticket.clone());
        while waiting.order.len() > MOST_WAITING {
            if let Some(oldest) = waiting.order.pop_front() {
                waiting.payloads.remove(&oldest);
            }
        }
        MetaObject(JsonObject::from_iter([(TICKET.to_owned(), ticket.into())]))
    }

    /// Keeps an app's answer as the bytes it was, until the question's asker fetches it.
    pub fn keep_answer(&self, session: &str, message: &Envelope) {
        let Some(id) = message.id else { return };
        let answer = match (message.result, message.error) {
            (Some(result), _) => Ok(result.to_owned()),
            (_, Some(error)) => Err(error.to_owned()),
            _ => return,
        };
        let mut waiting = self.waiting();
        // Nobody asks so many questions at once: these are answers to none.
        if waiting.answers.len() >= MOST_WAITING {
            waiting.answers.clear();
        }
        waiting.answers.insert((session.to_owned(), id.get().to_owned()), answer);
    }

    pub fn fetch_answer(&self, session: &str, id: &str) -> Option<Answer> {
        self.waiting().answers.remove(&(session.to_owned(), id.to_owned()))
    }

    /// A piece of a body with its tickets redeemed: a message, or one SSE event.
    pub fn redeem(&self, frame: Bytes) -> Bytes {
        let Ok(text) = std::str::from_utf8(&frame) else { return frame };
        if !text.contains(TICKET) && !text.contains(outline::MARK) {
            return frame;
        }
        let mut out = Vec::new();
        for line in text.split_inclusive('\n') {
            let (field, message) = match line.strip_prefix("data:") {
                Some(message) => ("data: ", message),
                None => ("", line),
            };
            let redeemed = self.redeemed(message);
            match redeemed.or_else(|| outline::with_own_ids(message).map(String::into_bytes)) {
                Some(redeemed) => {
                    out.extend_from_slice(field.as_bytes());
                    out.extend(redeemed);
                    if line.ends_with('\n') {
                        out.push(b'\n');
                    }
                }
                None => out.extend_from_slice(line.as_bytes()),
            }
        }
        out.into()
    }

    fn redeemed(&self, message: &str) -> Option<Vec<u8>> {
        let envelope: Envelope = serde_json::from_str(message).ok()?;
        let placeholder = RawObject::parse(envelope.params.or(envelope.result)?).ok()?;
        let ticket = placeholder.object("_meta")?.str(TICKET)?;
        let payload = self.claim(&ticket)?;
        let mut out = RawObject::default().with("jsonrpc", "2.0");
        if let Some(id) = envelope.id {
            out.set("id", outline::unmarked(id).unwrap_or_else(|| id.to_owned()));
        }
        if let Some(method) = &envelope.method {
            out.set("method", crate::json::raw(method.as_ref()));
        }
        match payload {
            Payload::Params(raw) => out.set("params", raw),
            Payload::Result(raw) => out.set("result", raw),
            Payload::Error(raw) => out.set("error", raw),
        }
        let mut message = out.to_text().into_bytes();
        one_line(&mut message);
        Some(message)
    }

    fn claim(&self, ticket: &str) -> Option<Payload> {
        let mut waiting = self.waiting();
        let payload = waiting.payloads.remove(ticket)?;
        // The newest are claimed first, so this ends soon.
        if let Some(at) = waiting.order.iter().rposition(|other| other == ticket) {
            waiting.order.remove(at);
        }
        Some(payload)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::raw;

    #[test]
    fn a_ticket_is_changed_once_for_the_bytes_it_stands_for() {
        let tickets = Tickets::default();
        let payload = r#"{"zeta":18446744073709551616,"alpha":"é\/"}"#;
        let payload: Box<RawValue> = serde_json::from_str(payload).expect("json");
        let meta = tickets.deposit(Payload::Result(payload.clone()));
        let placeholder = serde_json::json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [], "_meta": meta } });
        let frame = Bytes::from(format!("id: 0/0\ndata: {placeholder}\n\n"));
        let redeemed = tickets.redeem(frame.clone());
        let want =
            format!("id: 0/0\ndata: {{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{payload}}}\n\n");
        assert_eq!(redeemed, want);
        assert_eq!(tickets.redeem(frame.clone()), frame, "a second time there is nothing to fetch");
    }

    #[test]
    fn an_answer_is_kept_for_its_session_only() {
        let tickets = Tickets::default();
        let message = r#"{"jsonrpc":"2.0","id":3,"result":{"action":"accept"}}"#;
        tickets.keep_answer("one", &serde_json::from_str(message).expect("json"));
        assert!(tickets.fetch_answer("two", "3").is_none());
        let kept = tickets.fetch_answer("one", "3").expect("an answer").expect("a result");
        assert_eq!(kept.get(), raw(&serde_json::json!({ "action": "accept" })).get());
    }
}
