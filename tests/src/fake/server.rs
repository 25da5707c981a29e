//! What one fake process knows, and how a message goes through it, whatever the transport.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, value::RawValue};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    checks,
    control_dir::{Arm, ControlDir, Failure, LogEntry},
    message::{Message, Refusal, answer},
    options::Options,
};

pub struct Fake {
    pub options: Options,
    pub dir: ControlDir,
    /// How often the `counter` tool ran in this process.
    pub counter: AtomicU64,
    pub requests_sent: AtomicU64,
    sessions: Mutex<HashMap<String, Session>>,
    listens: Mutex<Vec<Listen>>,
    /// Ends all that listen.
    pub ends: broadcast::Sender<ListenEnd>,
    asked: Mutex<HashMap<String, oneshot::Sender<Message>>>,
    running: Mutex<HashMap<(String, String), CancellationToken>>,
}

/// A legacy client after `initialize`; on stdio the only one.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub revision: String,
    pub initialized: bool,
    pub capabilities: Value,
    /// Where messages go that belong to no request.
    pub push: Option<mpsc::UnboundedSender<Out>>,
    pub subscribed: BTreeSet<String>,
    pub log_level: Option<String>,
}

/// A modern client's `subscriptions/listen`.
#[derive(Clone, Debug)]
pub struct Listen {
    pub id: Box<RawValue>,
    pub filter: Value,
    pub out: mpsc::UnboundedSender<Out>,
}

/// How a server ends a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenEnd {
    /// By answering it.
    Answer,
    /// By cancelling it.
    Cancel,
    /// Without a word: over HTTP the stream breaks.
    Drop,
}

/// What goes out on the stream of a request, or of a session.
#[derive(Clone, Debug)]
pub enum Out {
    /// Something before the end: a notification or a request to the client.
    Message(String),
    /// The end.
    Answer { text: String, status: u16, then: After },
    /// Bytes in the place of an answer.
    Garbage(&'static str),
    /// A bare HTTP status in the place of an answer.
    Status(u16),
    /// The same with what else a refusal may have.
    Refused(Arm),
    /// The connection is cut in the place of an answer.
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Live,
    Die,
}

/// Who sent a message, and where its answer goes.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `stdio`, or the id of an HTTP or SSE session.
    pub session: Option<String>,
    /// Absent where there are none: on stdio.
    pub headers: Option<BTreeMap<String, String>>,
    pub out: mpsc::UnboundedSender<Out>,
    /// Whether a closed stream means that the request is cancelled.
    pub stream_is_request: bool,
}

/// The generation that one request is served in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    Legacy,
    Modern,
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fake {
    pub fn new(options: Options) -> io::Result<Self> {
        Ok(Self {
            dir: ControlDir::at(&options.control_dir)?,
            options,
            counter: AtomicU64::new(0),
            requests_sent: AtomicU64::new(0),
            sessions: Mutex::default(),
            listens: Mutex::default(),
            ends: broadcast::Sender::new(8),
            asked: Mutex::default(),
            running: Mutex::default(),
        })
    }

    /// A fake that can't keep its log is of no use to a test, so it ends.
    pub fn log(&self, entry: &LogEntry) {
        if let Err(error) = self.dir.write(entry) {
            eprintln!("fake upstream: can't write its log: {error}");
            self.die(2);
        }
    }

    pub fn violation(&self, rule: &str, method: Option<&str>) {
        let mut entry = LogEntry::new("violation").what(rule);
        entry.method = method.map(str::to_owned);
        self.log(&entry);
    }

    pub fn die(&self, code: i32) -> ! {
        self.dir.withdraw_control();
        std::process::exit(code)
    }

    pub fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        locked(&self.sessions)
    }

    pub fn listens(&self) -> MutexGuard<'_, Vec<Listen>> {
        locked(&self.listens)
    }

    /// The failure that waits for this method.
    pub fn armed(&self, method: &str, has_cursor: bool) -> Option<Arm> {
        self.dir.take(method, has_cursor).unwrap_or_else(|error| {
            eprintln!("fake upstream: can't read its failures: {error}");
            self.die(2)
        })
    }

    /// One text from a client: a line, or a body. Refused texts are answered here; a request runs
    /// on in a task of its own.
    pub fn receive(self: &Arc<Self>, text: &str, caller: Caller) {
        let message = match checks::parse(self, text) {
            Ok(message) => message,
            Err(refusal) => {
                let text = refusal.text(None);
                self.end(&caller, Out::Answer { text, status: refusal.status, then: After::Live });
                return;
            }
        };
        self.log(&LogEntry {
            method: message.method.clone(),
            session: caller.session.clone(),
            headers: caller.headers.clone().unwrap_or_default(),
            message: RawValue::from_string(text.trim().to_owned()).ok(),
            ..LogEntry::new("message")
        });
        match (&message.method, &message.id) {
            (Some(method), Some(id)) => {
                // Before anything else is read: a cancellation may come right behind.
                let running = self.begin(method, id, &caller);
                tokio::spawn(Arc::clone(self).serve(message, caller, running));
            }
            (Some(method), None) => {
                self.take_notification(method, &message, &caller);
                self.end(&caller, Out::Status(202));
            }
            (None, _) => {
                self.take_answer(message, &caller);
                self.end(&caller, Out::Status(202));
            }
        }
    }

    fn begin(&self, method: &str, id: &RawValue, caller: &Caller) -> CancellationToken {
        let cancelled = CancellationToken::new();
        let Some(session) = &caller.session else { return cancelled };
        let place = (session.clone(), id.get().to_owned());
        if locked(&self.running).insert(place, cancelled.clone()).is_some() {
            self.violation("an id of a running request is used again", Some(method));
        }
        cancelled
    }

    async fn serve(
        self: Arc<Self>,
        message: Message,
        caller: Caller,
        cancelled: CancellationToken,
    ) {
        let (Some(id), Some(method)) = (message.id.clone(), message.method.clone()) else { return };
        let out = tokio::select! {
            out = self.answer(&message, &method, &id, &caller) => Some(out),
            () = cancelled.cancelled() => None,
            () = caller.out.closed(), if caller.stream_is_request => None,
        };
        if let Some(session) = &caller.session {
            locked(&self.running).remove(&(session.clone(), id.get().to_owned()));
        }
        match out {
            Some(out) => self.end(&caller, out),
            None => self.log(&LogEntry {
                method: Some(method),
                message: message.params,
                ..LogEntry::new("cancelled")
            }),
        }
    }

    async fn answer(&self, message: &Message, method: &str, id: &RawValue, caller: &Caller) -> Out {
        let arm = self.armed(method, !message.params()["cursor"].is_null());
        if let Some(out) = self.fail_before(arm.as_ref(), id, caller).await {
            return out;
        }
        let result = match checks::served(self, message, method, caller) {
            Ok(served) => self.result_of(message, method, served, caller).await,
            Err(refusal) => Err(refusal),
        };
        let ms = arm.as_ref().map_or(0, |arm| arm.ms);
        let then = match arm.map(|arm| arm.what) {
            Some(Failure::DieBeforeAnswer) => self.die(9),
            Some(Failure::Cut) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                return Out::Cut;
            }
            Some(Failure::DieAfterAnswer) => After::Die,
            _ => After::Live,
        };
        match result {
            Ok(result) => Out::Answer { text: answer(id, &result), status: 200, then },
            Err(refusal) if refusal.status == 0 => Out::Status(0),
            Err(refusal) => {
                Out::Answer { text: refusal.text(Some(id)), status: refusal.status, then }
            }
        }
    }

    /// The failures that come in the place of running the request.
    async fn fail_before(&self, arm: Option<&Arm>, id: &RawValue, caller: &Caller) -> Option<Out> {
        let arm = arm?;
        match arm.what {
            Failure::DieAtOnce => self.die(9),
            Failure::Hang => std::future::pending().await,
            Failure::Error => {
                let code = if arm.code == 0 { -32603 } else { arm.code };
                let words = if arm.text.is_empty() { "an armed error" } else { &arm.text };
                let text = Refusal::new(code, words).text(Some(id));
                Some(Out::Answer { text, status: 200, then: After::Live })
            }
            Failure::Garbage => Some(Out::Garbage("this is {no message")),
            Failure::DropSession => {
                if let Some(session) = &caller.session {
                    self.sessions().remove(session);
                }
                Some(Out::Status(404))
            }
            Failure::Slow => {
                tokio::time::sleep(Duration::from_millis(arm.ms)).await;
                None
            }
            Failure::CutAtOnce => {
                tokio::time::sleep(Duration::from_millis(arm.ms)).await;
                Some(Out::Cut)
            }
            Failure::HttpStatus => Some(Out::Refused(arm.clone())),
            Failure::DieBeforeAnswer | Failure::DieAfterAnswer | Failure::Cut => None,
        }
    }

    fn take_notification(&self, method: &str, message: &Message, caller: &Caller) {
        let Some(session) = caller.session.clone() else {
            return self.violation("a notification where there are none", Some(method));
        };
        match method {
            "notifications/initialized" => match self.sessions().get_mut(&session) {
                Some(session) => session.initialized = true,
                None => self.violation("initialized without initialize", Some(method)),
            },
            "notifications/cancelled" => {
                let Some(id) = message.raw_param("requestId") else {
                    return self.violation("cancelled without requestId", Some(method));
                };
                // An unknown id is no violation: the answer may have crossed it on its way.
                if let Some(request) = locked(&self.running).get(&(session, id.get().to_owned())) {
                    request.cancel();
                }
            }
            "notifications/roots/list_changed" | "notifications/progress" => {}
            _ => self.violation("an unknown notification", Some(method)),
        }
    }

    fn take_answer(&self, message: Message, caller: &Caller) {
        let id = message.id.as_deref().and_then(|id| serde_json::from_str(id.get()).ok());
        let asked = id.and_then(|id: String| locked(&self.asked).remove(&id));
        match asked {
            // The tool that asked may have been cancelled meanwhile; then nobody wants it.
            Some(asked) => drop(asked.send(message)),
            None if caller.session.is_none() => self.violation("an answer without a session", None),
            None => self.violation("an answer to nothing that was asked", None),
        }
    }

    /// Asks the client, and waits for its answer.
    pub async fn ask(
        &self,
        caller: &Caller,
        method: &str,
        params: &Value,
    ) -> Result<Message, Refusal> {
        let id = format!("fake-{}", self.requests_sent.fetch_add(1, Ordering::Relaxed));
        let (asked, answer) = oneshot::channel();
        locked(&self.asked).insert(id.clone(), asked);
        self.send(caller, super::message::request(&id, method, params));
        match tokio::time::timeout(Duration::from_secs(30), answer).await {
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(Refusal::new(-32603, format!("the client did not answer {method}"))),
        }
    }

    /// Something before the end, on the request's own stream.
    pub fn send(&self, caller: &Caller, text: String) {
        self.end(caller, Out::Message(text));
    }

    fn end(&self, caller: &Caller, out: Out) {
        if caller.out.send(out).is_err() {
            self.log(&LogEntry::new("unheard").what("the client closed the stream"));
        }
    }
}
