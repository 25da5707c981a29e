//! The fake behind a URL: Streamable HTTP of both eras, and the old HTTP+SSE.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use futures::{StreamExt as _, stream};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::{
    checks,
    control_dir::{Arm, Failure, LogEntry},
    options::{Answers, FakeTransport},
    server::{After, Caller, Fake, Out, Session},
};

pub async fn run(fake: Arc<Fake>) -> anyhow::Result<()> {
    let address = ("127.0.0.1", fake.options.port);
    let listener = TcpListener::bind(address).await.context("its port")?;
    let port = listener.local_addr()?.port();
    let routes = match fake.options.transport {
        FakeTransport::Sse => {
            Router::new().route("/sse", get(sse_stream)).route("/messages", post(sse_post))
        }
        _ => Router::new().route("/mcp", post(mcp_post).get(mcp_get).delete(mcp_delete)),
    };
    let path = if fake.options.transport == FakeTransport::Sse { "sse" } else { "mcp" };
    if fake.options.while_stdin_is_open {
        tokio::spawn(end_with_stdin(Arc::clone(&fake)));
    }
    println!("READY http://127.0.0.1:{port}/{path}");
    axum::serve(listener, routes.with_state(fake)).await.context("its server")
}

async fn end_with_stdin(fake: Arc<Fake>) {
    let ended = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
    fake.log(&LogEntry::new("end").what(format!("stdin was closed: {ended:?}")));
    fake.die(0);
}

fn flat(headers: &HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect()
}

fn bare(status: u16) -> Response {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response()
}

async fn mcp_post(State(fake): State<Arc<Fake>>, headers: HeaderMap, body: String) -> Response {
    let headers = flat(&headers);
    if let Err(status) = checks::http(&fake, &headers) {
        return bare(status);
    }
    let opens = body.contains("\"initialize\"") && fake.options.era.speaks_legacy();
    let session = match headers.get("mcp-session-id") {
        Some(id) if !fake.sessions().contains_key(id) => {
            fake.log(&LogEntry::new("unknown-session"));
            return bare(404);
        }
        Some(id) => Some(id.clone()),
        None if opens => Some(open(&fake, None)),
        None => None,
    };
    let (out, outgoing) = mpsc::unbounded_channel();
    let modern = session.is_none();
    let caller =
        Caller { session: session.clone(), headers: Some(headers), out, stream_is_request: modern };
    fake.receive(&body, caller);
    let mut response = respond(fake, outgoing).await;
    if let (true, Some(id)) = (opens, session)
        && let Ok(id) = id.parse()
    {
        response.headers_mut().insert("mcp-session-id", id);
    }
    response
}

fn open(fake: &Fake, push: Option<mpsc::UnboundedSender<Out>>) -> String {
    let id = uuid::Uuid::new_v4().to_string();
    fake.sessions().insert(id.clone(), Session { push, ..Session::default() });
    id
}

/// JSON where the answer comes alone, an event stream where something precedes it.
async fn respond(fake: Arc<Fake>, mut outgoing: mpsc::UnboundedReceiver<Out>) -> Response {
    let Some(first) = outgoing.recv().await else { return bare(500) };
    match first {
        Out::Status(status) => bare(status),
        Out::Refused(arm) => refused(&arm),
        Out::Cut => stream_response(stream::iter([Err(cut())])),
        Out::Garbage(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Out::Answer { text, status, then }
            if status != 200 || fake.options.answers == Answers::Json =>
        {
            die_soon(&fake, then);
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        first => {
            let rest = UnboundedReceiverStream::new(outgoing);
            let events = stream::iter([first]).chain(rest);
            event_stream(fake, events)
        }
    }
}

/// A comment first, as keep-alives are, then each message as an event; it ends after the answer.
fn event_stream(
    fake: Arc<Fake>,
    outgoing: impl futures::Stream<Item = Out> + Send + 'static,
) -> Response {
    let events = outgoing
        .scan(false, |ended, out| {
            let go_on = !*ended;
            *ended = !matches!(out, Out::Message(_));
            std::future::ready(go_on.then_some(out))
        })
        .map(move |out| {
            if let Out::Answer { then, .. } = out {
                die_soon(&fake, then);
            }
            event(&out)
        });
    let opening = stream::iter([Ok(": open\n\n".to_owned())]);
    stream_response(opening.chain(events))
}

fn event(out: &Out) -> io::Result<String> {
    Ok(match out {
        Out::Message(text) | Out::Answer { text, .. } => {
            format!("event: message\ndata: {text}\n\n")
        }
        Out::Garbage(text) => format!("data: {text}\n\n"),
        Out::Status(_) | Out::Refused(_) => String::new(),
        Out::Cut => return Err(cut()),
    })
}

/// What ends a body so that the server cuts the connection.
fn cut() -> io::Error {
    io::Error::other("cut on purpose")
}

fn refused(arm: &Arm) -> Response {
    let mut response = bare(u16::try_from(arm.code).unwrap_or(500));
    if let Some(seconds) = arm.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    *response.body_mut() = Body::from(arm.text.clone());
    response
}

fn stream_response(
    events: impl futures::Stream<Item = io::Result<String>> + Send + 'static,
) -> Response {
    let body = Body::from_stream(events);
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, body).into_response()
}

/// The answer has to reach the socket first, and the server doesn't say when it did.
fn die_soon(fake: &Arc<Fake>, then: After) {
    if then == After::Die {
        let fake = Arc::clone(fake);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            fake.die(9);
        });
    }
}

async fn mcp_get(State(fake): State<Arc<Fake>>, headers: HeaderMap) -> Response {
    if !fake.options.era.speaks_legacy() {
        return bare(405);
    }
    let headers = flat(&headers);
    let (push, outgoing) = mpsc::unbounded_channel();
    let known = headers.get("mcp-session-id").is_some_and(|id| {
        fake.sessions().get_mut(id).map(|session| session.push = Some(push)).is_some()
    });
    if !known {
        return bare(if headers.contains_key("mcp-session-id") { 404 } else { 405 });
    }
    fake.log(&LogEntry { headers, ..LogEntry::new("stream") });
    event_stream(fake, UnboundedReceiverStream::new(outgoing))
}

async fn mcp_delete(State(fake): State<Arc<Fake>>, headers: HeaderMap) -> Response {
    let headers = flat(&headers);
    let id = headers.get("mcp-session-id").cloned().unwrap_or_default();
    let known = fake.sessions().remove(&id).is_some();
    fake.log(&LogEntry { session: Some(id), headers, ..LogEntry::new("delete") });
    bare(if known { 200 } else { 404 })
}

async fn sse_stream(State(fake): State<Arc<Fake>>, headers: HeaderMap) -> Response {
    if !flat(&headers).get("accept").is_some_and(|accept| accept.contains("text/event-stream")) {
        fake.violation("Accept doesn't name event streams", None);
    }
    let (push, outgoing) = mpsc::unbounded_channel();
    let id = open(&fake, Some(push));
    fake.log(&LogEntry { session: Some(id.clone()), ..LogEntry::new("stream") });
    let endpoint = format!("event: endpoint\ndata: /messages?session={id}\n\n");
    let gone = OnDrop { fake: Arc::clone(&fake), id };
    let events = UnboundedReceiverStream::new(outgoing).map(move |out| {
        let _whole = &gone;
        if let Out::Answer { then, .. } = out {
            die_soon(&fake, then);
        }
        event(&out)
    });
    stream_response(stream::iter([Ok(endpoint)]).chain(events))
}

/// A session of HTTP+SSE ends with its stream.
struct OnDrop {
    fake: Arc<Fake>,
    id: String,
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.fake.sessions().remove(&self.id);
        self.fake.log(&LogEntry { session: Some(self.id.clone()), ..LogEntry::new("stream-end") });
    }
}

async fn sse_post(
    State(fake): State<Arc<Fake>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: String,
) -> Response {
    let id = query.get("session").cloned().unwrap_or_default();
    let push = fake.sessions().get(&id).and_then(|session| session.push.clone());
    let Some(out) = push else { return bare(404) };
    // Here a status comes before anything is looked at; the answer has another stream.
    let method = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
    let method = method["method"].as_str().unwrap_or_default();
    if let Ok(Some(arm)) = fake.dir.take_if(method, |arm| arm.what == Failure::HttpStatus) {
        return refused(&arm);
    }
    let headers = Some(flat(&headers));
    let caller = Caller { session: Some(id), headers, out, stream_is_request: false };
    fake.receive(&body, caller);
    bare(202)
}
