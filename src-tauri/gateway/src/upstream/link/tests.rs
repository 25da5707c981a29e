use std::sync::Mutex;

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::*;
use crate::{
    json::raw,
    upstream::wire::{EVENTS, Outgoing},
};

/// A wire in memory: what was sent, and a way to say what came.
#[derive(Default)]
struct Memory {
    sent: Mutex<Vec<String>>,
    refuses: Mutex<Option<Failure>>,
}

impl Wire for Memory {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), Failure>> {
        async move {
            if let Some(failure) = self.refuses.lock().expect("no panic").clone() {
                return Err(failure);
            }
            let text = String::from_utf8(message.bytes.to_vec()).expect("text");
            self.sent.lock().expect("no panic").push(text);
            Ok(())
        }
        .boxed()
    }

    fn forget(&self, _tag: u64) {}

    fn negotiated(&self, _version: &str, _era: Era) {}

    fn close(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
}

struct Stage {
    wire: Arc<Memory>,
    link: Arc<Link>,
    says: mpsc::Sender<Event>,
    _news: mpsc::UnboundedReceiver<News>,
}

fn stage() -> Stage {
    let wire = Arc::new(Memory::default());
    let (says, events) = mpsc::channel(EVENTS);
    let shared: Arc<dyn Wire> = Arc::<Memory>::clone(&wire);
    let (link, news) = Link::open(shared, events, false, Arc::default());
    link.greet(Hello {
        era: Era::Legacy,
        version: "2025-11-25".to_owned(),
        capabilities: RawObject::default(),
        server: None,
        instructions: None,
        hints: crate::upstream::hints::Hints::NONE,
    });
    Stage { wire, link, says, _news: news }
}

impl Stage {
    async fn says(&self, text: &str) {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.says.send(Event::Message { bytes, origin: None }).await.expect("the link reads");
    }

    async fn call(&self, app: CallerId) -> Call {
        let caller = Caller {
            id: app,
            capabilities: RawObject::default(),
            client_info: None,
            wants_progress: true,
        };
        let request = Request {
            method: "tools/call",
            params: RawObject::default().with("name", "x"),
            caller: Some(caller),
            headers: Vec::new(),
        };
        self.link.begin(request).await.expect("it is sent")
    }

    fn sent(&self) -> Vec<String> {
        self.wire.sent.lock().expect("no panic").clone()
    }

    /// Waits until the link has sent so many messages, without a clock.
    async fn until_sent(&self, count: usize) -> Vec<String> {
        while self.sent().len() < count {
            tokio::task::yield_now().await;
        }
        self.sent()
    }
}

const ASKS: &str = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;

#[tokio::test]
async fn progress_comes_before_the_answer_in_the_order_it_was_sent() {
    let stage = stage();
    let mut call = stage.call(1).await;
    for n in 1..=3 {
        stage.says(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":{n}}}}}"#)).await;
    }
    stage.says(r#"{"jsonrpc":"2.0","id":1,"result":{"n":1e3}}"#).await;
    for n in ["1", "2", "3"] {
        let CallEvent::Progress(params) = call.next().await else { panic!("progress first") };
        assert_eq!(params.get("progress").map(RawValue::get), Some(n));
    }
    assert!(
        matches!(call.next().await, CallEvent::Result(result) if result.get() == r#"{"n":1e3}"#)
    );
}

#[tokio::test]
async fn answers_find_their_request_even_with_the_id_as_text_and_strangers_find_nobody() {
    let stage = stage();
    let (mut one, mut two) = (stage.call(1).await, stage.call(1).await);
    stage.says(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#).await;
    stage.says(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"whose?"}}"#).await;
    stage.says(r#"{"jsonrpc":"2.0","id":"2","result":{"two":true}}"#).await;
    stage.says(r#"{"jsonrpc":"2.0","id":2,"result":{"again":true}}"#).await;
    stage.says(r#"{"jsonrpc":"2.0","id":1,"result":{"one":true}}"#).await;
    assert!(matches!(two.next().await, CallEvent::Result(result) if result.get().contains("two")));
    assert!(matches!(one.next().await, CallEvent::Result(result) if result.get().contains("one")));
}

#[tokio::test]
async fn an_error_without_an_id_is_the_answer_if_only_one_request_waits() {
    let stage = stage();
    let mut only = stage.call(1).await;
    stage.says(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#).await;
    assert!(matches!(only.next().await, CallEvent::Error(_)));
}

#[tokio::test]
async fn a_question_goes_to_the_only_app_with_a_call_and_its_answer_back() {
    let stage = stage();
    let mut call = stage.call(7).await;
    stage.says(ASKS).await;
    let CallEvent::Question(question) = call.next().await else { panic!("a question") };
    assert_eq!(question.method, "roots/list");
    question.reply.send(Ok(raw(&serde_json::json!({ "roots": [] })))).expect("it waits");
    let sent = stage.until_sent(2).await;
    assert_eq!(sent[1], r#"{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}"#);
}

#[tokio::test]
async fn a_question_is_refused_where_it_may_belong_to_either_of_two_apps() {
    let stage = stage();
    let (_one, _two) = (stage.call(1).await, stage.call(2).await);
    stage.says(ASKS).await;
    let sent = stage.until_sent(3).await;
    assert!(sent[2].contains("-32601") && sent[2].contains("several apps"), "{}", sent[2]);
}

#[tokio::test]
async fn an_app_that_can_not_answer_is_answered_for() {
    let stage = stage();
    let mut call = stage.call(1).await;
    stage.says(ASKS).await;
    let CallEvent::Question(question) = call.next().await else { panic!("a question") };
    drop(question);
    let sent = stage.until_sent(2).await;
    assert!(sent[1].contains("-32601"), "{}", sent[1]);
}

#[tokio::test]
async fn a_ping_is_answered_whoever_is_there() {
    let stage = stage();
    stage.says(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#).await;
    assert_eq!(stage.until_sent(1).await[0], r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
}

#[tokio::test]
async fn a_dead_wire_fails_all_who_wait_and_all_who_come() {
    let stage = stage();
    let (mut one, mut two) = (stage.call(1).await, stage.call(2).await);
    let died = Failure::new(FailureKind::Gone, Ran::Perhaps, "it exited with code 1");
    stage.says.send(Event::Closed(died.clone())).await.expect("the link reads");
    for call in [&mut one, &mut two] {
        assert!(matches!(call.next().await, CallEvent::Failed(failure) if failure == died));
    }
    let late = stage.link.begin(Request::own("tools/list", RawObject::default())).await;
    let late = late.err().expect("nothing is sent");
    assert_eq!((late.ran, late.reason), (Ran::CertainlyNot, died.reason));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled_by_its_own_number() {
    let stage = stage();
    drop(stage.call(1).await);
    let sent = stage.until_sent(2).await;
    assert!(
        sent[1].contains("notifications/cancelled") && sent[1].contains(r#""requestId":1"#),
        "{}",
        sent[1]
    );
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_told_with_the_reason_of_the_death() {
    let stage = stage();
    let pipe = Failure::new(FailureKind::Gone, Ran::CertainlyNot, "broken pipe");
    *stage.wire.refuses.lock().expect("no panic") = Some(pipe);
    let died = Failure::new(FailureKind::Gone, Ran::Perhaps, "it exited: no API key");
    stage.says.send(Event::Closed(died)).await.expect("the link reads");
    let told =
        stage.link.begin(Request::own("x", RawObject::default())).await.err().expect("refused");
    assert_eq!((told.ran, told.reason.as_str()), (Ran::CertainlyNot, "it exited: no API key"));
}

#[test]
fn an_apps_own_protocol_members_stay_behind_and_the_rest_of_meta_passes() {
    let meta_of = |modern: Option<&str>| {
        let meta = serde_json::json!({
            "progressToken": "theirs", "traceparent": "00-1", "x.example/y": 1e3,
            "io.modelcontextprotocol/protocolVersion": "2099-01-01",
            "io.modelcontextprotocol/logLevel": "debug",
        });
        let request = Request::own("tools/call", RawObject::default().with("_meta", &meta));
        let keys = meta_keys(&outgoing(3, &request, modern));
        keys.join(" ")
    };
    assert_eq!(meta_of(None), "traceparent x.example/y");
    assert_eq!(
        meta_of(Some("2026-07-28")),
        "io.modelcontextprotocol/logLevel traceparent x.example/y io.modelcontextprotocol/protocolVersion io.modelcontextprotocol/clientCapabilities io.modelcontextprotocol/clientInfo"
    );
}

fn meta_keys(message: &Outgoing) -> Vec<String> {
    let message: RawObject = serde_json::from_slice(&message.bytes).expect("json");
    let meta = message.object("params").and_then(|params| params.object("_meta"));
    meta.unwrap_or_default().iter().map(|(key, _)| key.to_owned()).collect()
}

#[tokio::test]
async fn noise_is_kept_and_warned_of_once() {
    let stage = stage();
    for line in ["Server v1 listening", "[info] ready", "{"] {
        stage.says.send(Event::Noise(line.to_owned())).await.expect("the link reads");
    }
    stage.link.speaks_foreign().await;
    let lines = stage.link.log.last(20);
    let of = |from: &str| lines.iter().filter(|line| line.from == from).count();
    assert_eq!(of("stdout"), 3);
    assert_eq!(of("traygate"), 2, "one warning, and one hint at the framing: {lines:?}");
    let why = stage.link.misunderstanding().expect("noise came");
    assert!(why.contains("one JSON message a line") && why.contains("Server v1"), "{why}");
}

#[tokio::test]
async fn an_error_without_an_id_is_remembered_while_several_wait() {
    let stage = stage();
    let begun = Instant::now();
    let (mut one, mut two) = (stage.call(1).await, stage.call(1).await);
    stage.says(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#).await;
    for (tag, call) in [(1, &mut one), (2, &mut two)] {
        stage.says(&format!(r#"{{"jsonrpc":"2.0","id":{tag},"result":{{"n":{tag}}}}}"#)).await;
        let CallEvent::Result(result) = call.next().await else { panic!("no result") };
        assert_eq!(result.get(), format!(r#"{{"n":{tag}}}"#));
    }
    assert_eq!(stage.link.stray_error(begun).as_deref(), Some("what?"));
    assert_eq!(stage.link.stray_error(Instant::now()), None, "later requests have no part in it");
}

#[tokio::test]
async fn late_doubled_and_unknown_answers_reach_nobody() {
    let stage = stage();
    let (dropped, mut call) = (stage.call(1).await, stage.call(1).await);
    drop(dropped);
    for text in [
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"late":true}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"2","result":{"mine":true}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{"again":true}}"#,
    ] {
        stage.says(text).await;
    }
    let CallEvent::Result(result) = call.next().await else { panic!("no result") };
    assert_eq!(result.get(), r#"{"mine":true}"#);
    let mut next = stage.call(1).await;
    stage.says(r#"{"jsonrpc":"2.0","id":3,"result":{"next":true}}"#).await;
    let CallEvent::Result(result) = next.next().await else { panic!("no result") };
    assert_eq!(result.get(), r#"{"next":true}"#);
}

#[tokio::test]
async fn what_did_not_run_says_nothing_of_what_else_was_under_way() {
    let refused = || Failure::new(FailureKind::SessionLost, Ran::CertainlyNot, "no such session");
    let stage = stage();
    let mut call = stage.call(1).await;
    stage.link.condemn(&refused());
    stage.link.close().await;
    let CallEvent::Failed(failure) = call.next().await else { panic!("it failed") };
    assert_eq!((failure.ran, failure.reason.as_str()), (Ran::Perhaps, "no such session"));

    let stage = self::stage();
    let mut call = stage.call(1).await;
    stage.says.send(Event::Closed(refused())).await.expect("the link reads");
    let CallEvent::Failed(failure) = call.next().await else { panic!("it failed") };
    assert_eq!(failure.ran, Ran::Perhaps, "its stream could not be opened again");
}
