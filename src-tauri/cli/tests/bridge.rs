//! The stdio bridge in front of a small real MCP endpoint: both eras, lost sessions, a host that
//! comes back elsewhere, and input that is no message.

mod support;

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde_json::{Value, json};
use support::{Home, TOKEN};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout},
    sync::Notify,
    task::AbortHandle,
    time::timeout,
};

/// What the endpoint was asked.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    session: Option<String>,
    version: Option<String>,
    app: Option<String>,
    body: String,
}

#[derive(Default)]
struct Endpoint {
    seen: Mutex<Vec<Seen>>,
    /// The only session that is known.
    session: Mutex<Option<String>>,
    sessions: Mutex<u32>,
    /// Something was asked.
    asked: Notify,
    /// Ends the GET streams.
    cut: Notify,
}

type Shared = Arc<Endpoint>;

impl Endpoint {
    fn note(&self, method: &str, headers: &HeaderMap, body: String) {
        self.seen.lock().expect("no panic").push(Seen {
            method: method.to_owned(),
            session: header_text(headers, "mcp-session-id"),
            version: header_text(headers, "mcp-protocol-version"),
            app: header_text(headers, "traygate-app"),
            body,
        });
        self.asked.notify_waiters();
    }
}

struct Host {
    endpoint: Shared,
    port: u16,
    server: AbortHandle,
}

impl Host {
    async fn start() -> Self {
        Self::at(0).await
    }

    async fn at(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let endpoint = Shared::default();
        let router = Router::new()
            .route("/mcp", post(answer).get(listen).delete(end))
            .route("/mcp/files", post(answer))
            .with_state(endpoint.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { endpoint, port, server: server.abort_handle() }
    }

    /// What was posted.
    fn methods(&self) -> Vec<String> {
        let posts = self.seen().into_iter().filter(|seen| seen.method != "GET");
        posts.map(|seen| seen.method).collect()
    }

    /// Waits until this was asked in this session.
    async fn asked(&self, method: &str, session: &str) {
        let session = Some(session.to_owned());
        self.until(|seen| seen.iter().any(|it| it.method == method && it.session == session)).await;
    }

    async fn asked_twice(&self, method: &str) {
        self.until(|seen| seen.iter().filter(|it| it.method == method).count() == 2).await;
    }

    async fn until(&self, enough: impl Fn(&[Seen]) -> bool) {
        let wait = async {
            loop {
                let mut asked = std::pin::pin!(self.endpoint.asked.notified());
                asked.as_mut().enable();
                if enough(&self.seen()) {
                    return;
                }
                asked.await;
            }
        };
        timeout(Duration::from_secs(20), wait).await.expect("it is asked in time");
    }

    fn seen(&self) -> Vec<Seen> {
        self.endpoint.seen.lock().expect("no panic").clone()
    }

    /// As a restart does: the session isn't known any more.
    fn forget_session(&self) {
        *self.endpoint.session.lock().expect("no panic") = None;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn listen(State(endpoint): State<Shared>, headers: HeaderMap) -> Response {
    endpoint.note("GET", &headers, String::new());
    if header_text(&headers, "mcp-session-id") != *endpoint.session.lock().expect("no panic") {
        return (StatusCode::NOT_FOUND, "Session not found").into_response();
    }
    let until_cut = futures::stream::once(async move {
        endpoint.cut.notified().await;
        Ok::<_, std::io::Error>(Bytes::new())
    });
    let hello = futures::stream::iter([Ok(Bytes::from_static(b": hello\n\n"))]);
    let body = axum::body::Body::from_stream(futures::StreamExt::chain(hello, until_cut));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|it| it.to_str().expect("text").to_owned())
}

async fn end(State(endpoint): State<Shared>) -> StatusCode {
    *endpoint.session.lock().expect("no panic") = None;
    StatusCode::OK
}

async fn answer(State(endpoint): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    if header_text(&headers, "authorization").as_deref() != Some(&format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let message: Value = serde_json::from_slice(&body).expect("the bridge sends JSON");
    let method = message["method"].as_str().unwrap_or("response").to_owned();
    endpoint.note(&method, &headers, String::from_utf8(body.to_vec()).expect("text"));
    let modern = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string();
    let known = endpoint.session.lock().expect("no panic").clone();
    if method != "initialize" && !modern && header_text(&headers, "mcp-session-id") != known {
        return (StatusCode::NOT_FOUND, "Session not found").into_response();
    }
    if message["id"].is_null() || method == "response" {
        return StatusCode::ACCEPTED.into_response();
    }
    reply(&endpoint, &method, &message)
}

fn reply(endpoint: &Endpoint, method: &str, message: &Value) -> Response {
    let id = &message["id"];
    let json = |result: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        ([(header::CONTENT_TYPE, "application/json")], text).into_response()
    };
    match method {
        "initialize" => {
            let mut number = endpoint.sessions.lock().expect("no panic");
            *number += 1;
            let session = format!("session-{number}");
            *endpoint.session.lock().expect("no panic") = Some(session.clone());
            let mut answer = json(
                r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"t","version":"1"}}"#,
            );
            answer.headers_mut().insert("mcp-session-id", session.parse().expect("a header"));
            answer
        }
        // Progress on the request's own stream, then the answer over two lines.
        "tools/call" if message["params"]["name"] == "slow" => {
            let text = format!(
                "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progress\":1}}}}\n\n\
                 data: {{\"jsonrpc\":\"2.0\",\ndata: \"id\":{id},\"result\":{{\"n\":18446744073709551616}}}}\n\n"
            );
            ([(header::CONTENT_TYPE, "text/event-stream")], text).into_response()
        }
        "tools/call" if message["params"]["name"] == "never" => {
            let body = axum::body::Body::from_stream(futures::stream::pending::<
                Result<Bytes, std::io::Error>,
            >());
            ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
        }
        // Ends before the answer.
        _ if message["params"]["name"] == "broken" => {
            ([(header::CONTENT_TYPE, "text/event-stream")], ": hello\n\n").into_response()
        }
        _ => json(r#"{"zeta":1,"alpha":1e3}"#),
    }
}

/// The bridge as an app sees it.
struct App {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl App {
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut all = vec!["stdio"];
        all.extend(arguments);
        let mut child = home.command(&all).stdin(Stdio::piped()).spawn().expect("the bridge runs");
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, stdin, lines }
    }

    async fn say(&mut self, text: &str) {
        let line = format!("{text}\n");
        let stdin = self.stdin.as_mut().expect("open input");
        stdin.write_all(line.as_bytes()).await.expect("the bridge reads");
    }

    async fn hear(&mut self) -> String {
        let line = timeout(Duration::from_secs(20), self.lines.next_line()).await;
        line.expect("a line in time").expect("text").expect("the bridge still runs")
    }

    async fn ask(&mut self, text: &str) -> String {
        self.say(text).await;
        self.hear().await
    }

    async fn ask_json(&mut self, text: &str) -> Value {
        serde_json::from_str(&self.ask(text).await).expect("JSON")
    }

    async fn shake_hands(&mut self) {
        let answer = self.ask_json(INITIALIZE).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    }

    /// Closes the input; what was still said, and that it ended well.
    async fn leave(mut self) -> Vec<String> {
        self.stdin = None;
        let mut rest = Vec::new();
        while let Some(line) = self.lines.next_line().await.expect("text") {
            rest.push(line);
        }
        let status = timeout(Duration::from_secs(5), self.child.wait()).await;
        assert!(status.expect("the bridge ends in time").expect("its status").success());
        rest
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"app","version":"1"}}}"#;

fn modern(id: &str, method: &str, name: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"{name}","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    )
}

#[tokio::test]
async fn a_legacy_app_has_one_session_and_its_bytes_are_not_touched() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let mut app = App::start(&home, &["--app", "Some App"]);
    app.shake_hands().await;
    let request = r#"{"jsonrpc":"2.0","id":"x-1","method":"tools/list","params":{"big":18446744073709551616,"a":  1}}"#;
    let answer = app.ask(request).await;
    assert_eq!(answer, r#"{"jsonrpc":"2.0","id":"x-1","result":{"zeta":1,"alpha":1e3}}"#);
    assert!(app.leave().await.is_empty(), "nothing but answers");

    let seen: Vec<_> = host.seen().into_iter().filter(|seen| seen.method != "GET").collect();
    assert_eq!(host.methods(), ["initialize", "notifications/initialized", "tools/list"]);
    assert_eq!(seen[2].body, request);
    assert_eq!(seen[2].session.as_deref(), Some("session-1"));
    assert_eq!(seen[2].version.as_deref(), Some("2025-11-25"));
    assert_eq!(seen[2].app.as_deref(), Some("Some App"));
}

#[tokio::test]
async fn a_lost_session_is_renewed_without_the_app_noticing() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let mut app = App::start(&home, &[]);
    app.shake_hands().await;
    app.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    host.forget_session();
    let answer = app
        .ask_json(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}"#)
        .await;
    assert_eq!((&answer["id"], &answer["result"]["zeta"]), (&json!(2), &json!(1)));
    assert!(app.leave().await.is_empty(), "the repeated handshake's answer isn't the app's");
    host.asked("tools/call", "session-2").await;
    assert_eq!(
        host.methods()[3..],
        ["tools/call", "initialize", "notifications/initialized", "tools/call"]
    );
}

#[tokio::test]
async fn a_silent_app_is_connected_again_as_soon_as_its_stream_is_refused() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let mut app = App::start(&home, &[]);
    app.shake_hands().await;
    host.asked("GET", "session-1").await;
    host.forget_session();
    host.endpoint.cut.notify_waiters();
    host.asked("GET", "session-2").await;
    assert!(app.leave().await.is_empty(), "the app hears nothing of it");
}

#[tokio::test]
async fn a_host_that_comes_back_on_another_port_is_found_by_its_run_file() {
    let first = Host::start().await;
    let home = Home::of_host(first.port);
    let mut app = App::start(&home, &[]);
    app.shake_hands().await;
    app.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;

    // For a moment nobody hosts, as when the desktop takes over.
    std::fs::remove_file(home.path().join("run/host.json")).expect("the run file");
    first.forget_session();
    app.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    first.asked_twice("tools/list").await;
    let second = Host::start().await;
    home.write_run_file(second.port);
    let answer: Value = serde_json::from_str(&app.hear().await).expect("JSON");
    assert_eq!(answer["result"]["zeta"], 1);
    assert_eq!(second.methods(), ["initialize", "notifications/initialized", "tools/list"]);
    app.leave().await;
}

#[tokio::test]
async fn a_modern_app_is_served_without_a_session() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let mut app = App::start(&home, &["--upstream", "files"]);
    app.say(&modern("7", "tools/call", "slow")).await;
    let progress: Value = serde_json::from_str(&app.hear().await).expect("JSON");
    assert_eq!(progress["method"], "notifications/progress");
    let answer = app.hear().await;
    assert!(answer.contains(r#""id":7,"result":{"n":18446744073709551616}"#), "{answer}");
    app.leave().await;
    let seen = host.seen();
    assert_eq!(seen[0].version.as_deref(), Some("2026-07-28"));
    assert_eq!(seen[0].session, None);
}

#[tokio::test]
async fn a_cancelled_modern_request_is_answered_no_more_and_others_go_on() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let mut app = App::start(&home, &[]);
    app.say(&modern("1", "tools/call", "never")).await;
    app.ask(&modern("2", "tools/list", "x")).await;
    app.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    let answer = app.ask_json(&modern("3", "tools/list", "x")).await;
    assert_eq!(answer["id"], 3);
    let began = Instant::now();
    assert!(app.leave().await.is_empty());
    assert!(began.elapsed() < Duration::from_secs(1), "nobody waits for what was cancelled");
    assert!(
        !host.methods().contains(&"notifications/cancelled".to_owned()),
        "closing is cancelling"
    );
}

#[tokio::test]
async fn messages_sent_in_one_go_wait_for_the_handshake_and_are_answered_before_the_end() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let input = format!(
        "{INITIALIZE}\n{}\n{}\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#
    );
    let ended = home.run_with(&["stdio"], &input).await;
    assert_eq!((ended.code, ended.out.lines().count()), (0, 2), "{ended:?}");
    assert_eq!(host.methods(), ["initialize", "notifications/initialized", "tools/list"]);
}

#[tokio::test]
async fn an_end_of_input_ends_the_bridge_though_a_call_never_ends() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let mut app = App::start(&home, &[]);
    app.ask(&modern("1", "tools/list", "x")).await;
    app.say(&modern("2", "tools/call", "never")).await;
    let began = Instant::now();
    assert!(app.leave().await.is_empty());
    assert!(began.elapsed() < Duration::from_secs(4), "answers are waited for 2 s");
}

#[tokio::test]
async fn what_is_no_message_gets_an_error_and_nothing_before_a_handshake_reaches_the_host() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let mut app = App::start(&home, &[]);
    app.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#)
        .await;
    let error = app.ask_json("{\"id\":").await;
    assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(-32_700)));
    let error = app.ask_json("[]").await;
    assert_eq!(error["error"]["code"], -32_600);
    app.shake_hands().await;
    app.leave().await;
    assert_eq!(host.methods()[0], "initialize");
}

#[tokio::test]
async fn only_what_is_safe_is_sent_again_when_a_stream_breaks() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let mut app = App::start(&home, &[]);
    let error = app.ask_json(&modern("1", "tools/call", "broken")).await;
    assert_eq!(error["id"], 1);
    assert_eq!(error["error"]["code"], -31_003);
    assert_eq!(error["error"]["data"]["code"], "OUTCOME_UNKNOWN");
    let error = app.ask_json(&modern("2", "prompts/get", "broken")).await;
    assert_eq!(error["error"]["code"], -31_001);
    app.leave().await;
    assert_eq!(host.methods(), ["tools/call", "prompts/get", "prompts/get"]);
}

#[tokio::test]
async fn a_token_that_is_refused_twice_is_an_error_in_words() {
    let host = Host::start().await;
    let home = Home::of_host(host.port);
    let run = home.path().join("run/host.json");
    let text = std::fs::read_to_string(&run).expect("the run file").replace(TOKEN, "another");
    std::fs::write(&run, text).expect("the run file");
    let mut app = App::start(&home, &[]);
    let error = app.ask_json(INITIALIZE).await;
    assert_eq!(error["error"]["code"], -31_001);
    let message = error["error"]["message"].as_str().expect("words");
    assert!(message.contains("traygate status") && !message.contains("another"), "{message}");
    app.leave().await;
}
