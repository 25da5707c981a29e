//! One live connection to an upstream: a JSON-RPC client that hands payloads on as they came.
//!
//! Everything that belongs to one request (progress, log messages, the upstream's questions, the
//! answer) goes to its caller through one channel, so nothing overtakes anything. Why this isn't
//! rmcp's client: `docs/decisions/0001-upstream-edge-speaks-raw-json.md`.

mod queue;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::queue::{Ear, Speaker, queue};
use super::{
    hints::Hints,
    log::UpstreamLog,
    wire::{
        Event, Events, Failure, FailureKind, Kind, Outgoing, Ran, Wire, stdio::foreign_framing,
    },
};
use crate::{
    capability::CapabilityType,
    definition::Era,
    json::{Envelope, RawObject, one_line, raw},
    lock::lock,
};

/// The prefix of `_meta` keys that belong to one hop of the protocol.
pub const PROTOCOL_META: &str = "io.modelcontextprotocol/";
/// How a modern upstream is asked to tell of changes.
pub const SUBSCRIBE: &str = "subscriptions/listen";
const METHOD_NOT_FOUND: i32 = -32601;
/// How long a cancellation or an answer of ours may take to be written.
const COURTESY: Duration = Duration::from_secs(5);

/// How long the reason of a lost connection is waited for.
const AUTOPSY: Duration = Duration::from_secs(1);

/// Which app a request is asked for. Two requests of one app have equal callers.
pub type CallerId = u64;

/// What the handshake told.
#[derive(Clone, Debug)]
pub struct Hello {
    pub era: Era,
    pub version: String,
    pub capabilities: RawObject,
    /// `serverInfo`: name and version, for people.
    pub server: Option<String>,
    pub instructions: Option<String>,
    /// How long this may be taken for true; modern only.
    pub hints: Hints,
}

impl Hello {
    /// Whether the server declared that it has any of these.
    pub fn offers(&self, kind: CapabilityType) -> bool {
        self.declares(kind.server_capability())
    }

    pub fn declares(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|value| value.get() != "null")
    }
}

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

/// What an upstream says that belongs to no request.
#[derive(Debug)]
pub enum News {
    ListChanged(Vec<CapabilityType>),
    ResourceUpdated(String),
    /// The link is dead; this is the last of its news.
    Closed(Failure),
}

struct Waiting {
    events: Speaker,
    caller: Option<CallerId>,
    /// The one request that a server may end without an answer.
    is_subscription: bool,
}

/// A live connection. Dropping the last reference does not close it: [`Link::close`] does.
pub struct Link {
    wire: Arc<dyn Wire>,
    log: Arc<UpstreamLog>,
    hello: OnceLock<Hello>,
    /// Over stdio and in the legacy era a cancellation is a message; over modern HTTP it is the
    /// closed stream.
    is_http: bool,
    /// `None` once the wire is gone: a request that comes later must fail, not wait.
    waiting: Mutex<Option<HashMap<u64, Waiting>>>,
    next_tag: AtomicU64,
    news: mpsc::UnboundedSender<News>,
    closed: CancellationToken,
    /// Another takes its place; what runs on it may still end.
    retired: CancellationToken,
    /// Told whenever nothing is under way any more.
    idle: Notify,
    /// Requests that timed out since anything was received.
    unanswered: AtomicU32,
    refuses_pings: AtomicBool,
    death: OnceLock<Failure>,
    oddities: Oddities,
}

/// What a server said that is no part of the protocol; it explains what goes wrong later.
#[derive(Default)]
struct Oddities {
    /// The first text that was no message.
    noise: OnceLock<String>,
    /// What it seems to speak instead of one message a line.
    foreign: OnceLock<&'static str>,
    foreign_seen: CancellationToken,
    last_noise: Mutex<Option<Instant>>,
    /// The last error that says of no request that it is its answer.
    stray_error: Mutex<Option<(Instant, String)>>,
}

impl Link {
    /// Takes over a wire and reads it until it ends.
    pub fn open(
        wire: Arc<dyn Wire>,
        events: Events,
        is_http: bool,
        log: Arc<UpstreamLog>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<News>) {
        let (news, told) = mpsc::unbounded_channel();
        let link = Arc::new(Self {
            wire,
            log,
            hello: OnceLock::new(),
            is_http,
            waiting: Mutex::new(Some(HashMap::new())),
            next_tag: AtomicU64::new(1),
            news,
            closed: CancellationToken::new(),
            retired: CancellationToken::new(),
            idle: Notify::new(),
            unanswered: AtomicU32::new(0),
            refuses_pings: AtomicBool::new(false),
            death: OnceLock::new(),
            oddities: Oddities::default(),
        });
        // Weak: the reader must not keep a link alive that nobody holds. It ends with the wire.
        tokio::spawn(read(Arc::downgrade(&link), events));
        (link, told)
    }

    /// The handshake is done: from here on requests carry what its era asks for.
    pub fn greet(&self, hello: Hello) {
        self.wire.negotiated(&hello.version, hello.era);
        let _ = self.hello.set(hello);
    }

    /// What the handshake told. Only links that were greeted leave the connector.
    pub fn hello(&self) -> &Hello {
        self.hello.get().expect("the connector greets a link before it hands it out")
    }

    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Resolves when the link is dead.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Resolves when it is dead, or when another takes its place.
    pub async fn gone(&self) {
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = self.retired.cancelled() => {}
        }
    }

    /// Another takes its place: nothing new begins on it.
    pub fn retire(&self) {
        self.retired.cancel();
    }

    pub fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Waits until nothing runs on it any more, at most so long.
    pub async fn drain(&self, patience: Duration) {
        let drained = async {
            loop {
                let mut idle = std::pin::pin!(self.idle.notified());
                idle.as_mut().enable();
                if !self.is_busy() {
                    return;
                }
                idle.await;
            }
        };
        // Whatever still runs then ends with the link.
        let _ = tokio::time::timeout(patience, drained).await;
    }

    /// Whether any request is under way.
    pub fn is_busy(&self) -> bool {
        self.waiting().as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    /// Whether any request of an app is under way.
    pub fn has_callers(&self) -> bool {
        let has_caller = |waiting: &Waiting| waiting.caller.is_some();
        self.waiting().as_ref().is_some_and(|waiting| waiting.values().any(has_caller))
    }

    pub fn refuses_pings(&self) -> bool {
        self.refuses_pings.load(Ordering::Relaxed)
    }

    pub fn ping_no_more(&self) {
        self.refuses_pings.store(true, Ordering::Relaxed);
    }

    /// A request timed out. How many did in a row, with nothing received between them.
    pub fn missed(&self) -> u32 {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Why it died.
    pub fn death(&self) -> Option<&Failure> {
        self.death.get()
    }

    /// Ends the link in good order, the upstream's process included.
    pub async fn close(&self) {
        self.wire.close().await;
        self.bury(Failure::new(FailureKind::Gone, Ran::Perhaps, "the connection was closed"));
    }

    /// It fails requests in a way that no healthy link does; whatever ends it, this is the cause.
    /// It says nothing of what else runs on the link.
    pub fn condemn(&self, cause: &Failure) {
        let _ = self.death.set(cause.clone());
    }

    /// Begins a request. What becomes of it is told by the [`Call`].
    pub async fn begin(self: &Arc<Self>, request: Request<'_>) -> Result<Call, Failure> {
        let modern = self.hello.get().filter(|hello| hello.era == Era::Modern);
        self.begin_in(request, modern.map(|hello| hello.version.as_str())).await
    }

    /// The same with the era said, for the handshake itself.
    pub async fn begin_in(
        self: &Arc<Self>,
        request: Request<'_>,
        modern: Option<&str>,
    ) -> Result<Call, Failure> {
        let tag = self.next_tag.fetch_add(1, Ordering::Relaxed);
        let (speaker, events) = queue();
        let caller = request.caller.as_ref().map(|caller| caller.id);
        let is_subscription = request.method == SUBSCRIBE;
        match self.waiting().as_mut() {
            Some(waiting) => {
                waiting.insert(tag, Waiting { events: speaker, caller, is_subscription })
            }
            None => return Err(self.obituary(Ran::CertainlyNot)),
        };
        // Only now: whoever waits for the end of all requests has seen this one or retired before.
        if self.is_retired() {
            self.strike(tag);
            let reason = "another connection has taken its place";
            return Err(Failure::in_own_words(FailureKind::Gone, Ran::CertainlyNot, reason));
        }
        // From here on dropping `call` tidies up.
        let mut call = Call { link: Arc::clone(self), tag, events, over: false };
        let message = outgoing(tag, &request, modern);
        if let Err(failure) = self.wire.send(message).await {
            call.over = true;
            self.strike(tag);
            return Err(self.explained(failure).await);
        }
        Ok(call)
    }

    pub async fn notify(&self, method: &str, params: RawObject) -> Result<(), Failure> {
        let mut message = RawObject::default().with("jsonrpc", "2.0").with("method", method);
        if !params.is_empty() {
            message.set("params", params.to_raw());
        }
        let kind = Kind::Notification { method: method.to_owned() };
        self.wire.send(Outgoing { bytes: line(&message), kind }).await
    }

    /// A broken pipe is noticed a moment before its reason is known.
    async fn explained(&self, failure: Failure) -> Failure {
        if failure.kind == FailureKind::Gone
            && tokio::time::timeout(AUTOPSY, self.closed()).await.is_ok()
        {
            return self.obituary(failure.ran);
        }
        failure
    }

    fn strike(&self, tag: u64) -> Option<Waiting> {
        let mut waiting = self.waiting();
        let struck = waiting.as_mut()?.remove(&tag);
        if waiting.as_ref().is_some_and(HashMap::is_empty) {
            self.idle.notify_waiters();
        }
        struck
    }

    fn obituary(&self, ran: Ran) -> Failure {
        let mut failure =
            self.death.get().cloned().unwrap_or_else(|| {
                Failure::new(FailureKind::Gone, ran, "the connection is closed")
            });
        failure.ran = ran;
        failure
    }

    pub fn is_http(&self) -> bool {
        self.is_http
    }

    /// Ends every waiting request. Only the first cause counts.
    fn bury(&self, failure: Failure) {
        let mut failure = self.death.get_or_init(|| failure).clone();
        // Whatever is known of the request that brought it down, the others were written.
        failure.ran = Ran::Perhaps;
        let orphans = self.waiting().take().unwrap_or_default();
        self.idle.notify_waiters();
        for (_, orphan) in orphans {
            orphan.events.say(CallEvent::Failed(failure.clone()));
        }
        if !self.closed.is_cancelled() {
            self.closed.cancel();
            let _ = self.news.send(News::Closed(failure));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, Waiting>>> {
        lock(&self.waiting)
    }

    fn receive(self: &Arc<Self>, event: Event) {
        match event {
            Event::Message { bytes, origin } => {
                self.unanswered.store(0, Ordering::Relaxed);
                self.message(&bytes, origin);
            }
            Event::Failed { tag, failure } => {
                if let Some(waiting) = self.strike(tag) {
                    waiting.events.say(CallEvent::Failed(failure));
                }
            }
            Event::Noise(text) => self.noise(&text),
            Event::Closed(failure) => self.bury(failure),
        }
    }

    fn message(self: &Arc<Self>, bytes: &Bytes, origin: Option<u64>) {
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

    /// Text that is no message is skipped, kept for the log, and warned of once.
    fn noise(&self, text: &str) {
        self.log.push("stdout", text);
        *lock(&self.oddities.last_noise) = Some(Instant::now());
        if self.oddities.noise.set(text.to_owned()).is_ok() {
            self.log.push("traygate", "what it wrote there is no MCP message and is skipped, as is everything of that kind from now on; logs belong on its standard error");
        }
        if let Some(framing) = foreign_framing(text)
            && self.oddities.foreign.set(framing).is_ok()
        {
            self.log.push("traygate", framing);
            self.oddities.foreign_seen.cancel();
        }
    }

    /// Resolves when the server turned out to speak something else than one message a line.
    pub async fn speaks_foreign(&self) {
        self.oddities.foreign_seen.cancelled().await;
    }

    pub fn is_foreign(&self) -> bool {
        self.oddities.foreign.get().is_some()
    }

    /// Why nothing that a server says can be understood, if it says anything.
    pub fn misunderstanding(&self) -> Option<String> {
        let noise = self.oddities.noise.get()?;
        let why = self.oddities.foreign.get().copied().unwrap_or(
            "what it writes to its standard output is no MCP message, which is one line of JSON-RPC",
        );
        Some(format!("{why}; its output begins with {:?}", crate::text::one_line(noise, 60)))
    }

    /// Whether it wrote what is no message since then.
    pub fn is_garbling(&self, since: Instant) -> bool {
        lock(&self.oddities.last_noise).is_some_and(|at| at >= since)
    }

    /// What the server complained of since then without saying of which request.
    pub fn stray_error(&self, since: Instant) -> Option<String> {
        let stray = lock(&self.oddities.stray_error);
        stray.as_ref().filter(|(at, _)| *at >= since).map(|(_, words)| words.clone())
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

    /// An answer to nothing. An error without an id may be meant for any of several requests: they
    /// go on waiting, and its words are told with their time-out.
    fn stray(&self, id: Option<&RawValue>, event: CallEvent) {
        let CallEvent::Error(error) = event else { return };
        if id.is_some_and(|id| id.get() != "null") {
            return;
        }
        let message = RawObject::parse(&error).ok().and_then(|error| error.str("message"));
        let words = crate::text::one_line(&message.unwrap_or_default(), 200);
        self.log.push("traygate", &format!("an error without an id came: {words}"));
        *lock(&self.oddities.stray_error) = Some((Instant::now(), words));
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

    /// The era as far as the link knows it; before the handshake nothing is modern.
    fn cancels_by_closing(&self) -> bool {
        self.is_http && self.hello.get().is_some_and(|hello| hello.era == Era::Modern)
    }
}

async fn read(link: Weak<Link>, mut events: Events) {
    while let Some(event) = events.recv().await {
        match link.upgrade() {
            Some(link) => link.receive(event),
            None => return,
        }
    }
    if let Some(link) = link.upgrade() {
        link.bury(Failure::new(FailureKind::Gone, Ran::Perhaps, "the connection ended"));
    }
}

/// A request under way. Dropped before its answer, it is cancelled upstream.
pub struct Call {
    link: Arc<Link>,
    tag: u64,
    events: Ear,
    over: bool,
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

fn outgoing(tag: u64, request: &Request, modern: Option<&str>) -> Outgoing {
    let mut params = request.params.clone();
    let meta = meta(tag, request, modern);
    if meta.is_empty() {
        params.retain(|key| key != "_meta");
    } else {
        params.set("_meta", meta.to_raw());
    }
    let name = ["name", "uri", "taskId"].into_iter().find_map(|key| params.str(key));
    let mut message =
        RawObject::default().with("jsonrpc", "2.0").with("id", &tag).with("method", request.method);
    if !params.is_empty() {
        message.set("params", params.to_raw());
    }
    let kind = Kind::Request {
        tag,
        method: request.method.to_owned(),
        name: name.filter(|_| names_something(request.method)),
        headers: request.headers.clone(),
        version: modern.map(ToOwned::to_owned),
    };
    Outgoing { bytes: line(&message), kind }
}

/// The methods that carry `Mcp-Name` (protocol 2026-07-28, Streamable HTTP, "Request Metadata").
fn names_something(method: &str) -> bool {
    matches!(
        method,
        "tools/call"
            | "prompts/get"
            | "resources/read"
            | "tasks/get"
            | "tasks/update"
            | "tasks/cancel"
    )
}

/// The app's `_meta` less what belongs to its own hop, plus what this hop's era asks for.
fn meta(tag: u64, request: &Request, modern: Option<&str>) -> RawObject {
    let mut meta = request.params.object("_meta").unwrap_or_default();
    let log_level = format!("{PROTOCOL_META}logLevel");
    meta.retain(|key| {
        key != "progressToken"
            && (!key.starts_with(PROTOCOL_META) || (modern.is_some() && key == log_level))
    });
    if request.caller.as_ref().is_some_and(|caller| caller.wants_progress) {
        meta.set("progressToken", raw(&tag));
    }
    if let Some(version) = modern {
        let caller = request.caller.as_ref();
        let capabilities = caller.map(|caller| caller.capabilities.clone()).unwrap_or_default();
        let info = caller.and_then(|caller| caller.client_info.clone());
        meta.set(&format!("{PROTOCOL_META}protocolVersion"), raw(version));
        meta.set(&format!("{PROTOCOL_META}clientCapabilities"), capabilities.to_raw());
        meta.set(&format!("{PROTOCOL_META}clientInfo"), info.unwrap_or_else(own_info));
    }
    meta
}

/// How Traygate introduces itself.
pub fn own_info() -> Box<RawValue> {
    raw(&serde_json::json!({ "name": "traygate", "version": env!("CARGO_PKG_VERSION") }))
}

/// A JSON-RPC error object.
pub fn error(code: i32, message: &str) -> Box<RawValue> {
    raw(&serde_json::json!({ "code": code, "message": message }))
}

fn line(message: &RawObject) -> Bytes {
    let mut bytes = message.to_text().into_bytes();
    one_line(&mut bytes);
    bytes.into()
}

#[cfg(test)]
mod tests;
