//! Around rmcp's HTTP service: raw bytes in, tickets out, and a JSON-RPC error for whatever isn't
//! a message.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::{guard::App, outline::outline, tickets::Tickets};
use crate::{
    gateway::Gateway,
    json::{Envelope, RawObject, raw},
};

const SESSION: &str = "mcp-session-id";
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
/// An error text of rmcp's is short; a body over this is no such text.
const ERROR_TEXT: usize = 64 * 1024;
/// How much of a body over the limit is read past, and how long any body may take.
const MOST_PAST: usize = 64 << 20;
const READ_PAST: Duration = Duration::from_mins(1);

/// What the layer keeps.
#[derive(Clone)]
pub struct Layer {
    pub gateway: Arc<Gateway>,
    pub tickets: Tickets,
    pub sessions: super::AppSessions,
}

/// The request's body as it came, for the handler: rmcp hands it the HTTP parts.
#[derive(Clone)]
pub struct RawBody(pub Bytes);

pub async fn raw_json(State(layer): State<Layer>, request: Request, next: Next) -> Response {
    let app = request.extensions().get::<App>().map(|App(name)| Arc::clone(name));
    let session = session_of(request.headers());
    if let (Some(session), Some(app)) = (&session, &app)
        && !layer.sessions.belongs_to(session, app)
    {
        return (StatusCode::NOT_FOUND, "Session not found").into_response();
    }
    let method = request.method().clone();
    let (request, id) = if method == Method::POST {
        match read(&layer, request, session.as_deref()).await {
            Ok(read) => read,
            Err(response) => return *response,
        }
    } else {
        (request, None)
    };
    if method == Method::DELETE
        && let Some(session) = &session
    {
        layer.sessions.closed(session);
    }
    // Until the last of the answer is out.
    let in_use = match &session {
        Some(session) => {
            let (in_use, over) = layer.sessions.begin_use(session);
            super::end(over).await;
            in_use
        }
        None => None,
    };
    let response = next.run(request).await;
    let response = if method == Method::POST { as_json_rpc(response, id).await } else { response };
    redeemed(response, layer.tickets, in_use).await
}

/// Held for as long as a session is in use.
type InUse = Option<super::sessions::Use<Arc<LocalSessionManager>>>;

/// The response with the payloads in place of their tickets. A JSON body leaves as one piece that
/// says its length, a stream event by event; what is neither carries no ticket.
async fn redeemed(response: Response, tickets: Tickets, in_use: InUse) -> Response {
    if is(response.headers(), "text/event-stream") {
        return response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = &in_use;
                frame.map_data(|data| tickets.redeem(data))
            }))
        });
    }
    if !is(response.headers(), "application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    match to_bytes(body, usize::MAX).await {
        Ok(whole) => {
            // The length of what stood there before.
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(tickets.redeem(whole)))
        }
        Err(problem) => {
            let why = format!("the answer broke off: {problem}");
            super::guard::refuse(StatusCode::INTERNAL_SERVER_ERROR, &why)
        }
    }
}

type Read = (Request, Option<Box<RawValue>>);

/// The whole body, checked to be one JSON-RPC message; with its id.
async fn read(
    layer: &Layer,
    request: Request,
    session: Option<&str>,
) -> Result<Read, Box<Response>> {
    let limit = layer.gateway.settings().request_limit;
    let (mut parts, body) = request.into_parts();
    let Some(bytes) = whole(body, limit).await else {
        let why = format!(
            "the request is larger than {limit} bytes; the limit is the setting request_limit"
        );
        return Err(Box::new(error(StatusCode::PAYLOAD_TOO_LARGE, None, INVALID_REQUEST, &why)));
    };
    let refused = |why: &str, code| Box::new(error(StatusCode::BAD_REQUEST, None, code, why));
    if bytes.trim_ascii_start().starts_with(b"[")
        && serde_json::from_slice::<&RawValue>(&bytes).is_ok()
    {
        return Err(refused(
            "batches are not part of the protocol; send one message at a time",
            INVALID_REQUEST,
        ));
    }
    let message: Envelope = match serde_json::from_slice(&bytes) {
        Ok(message) => message,
        Err(problem) if problem.is_data() => {
            return Err(refused("the body is not a JSON-RPC message", INVALID_REQUEST));
        }
        Err(problem) => {
            return Err(refused(&format!("the body is not valid JSON: {problem}"), PARSE_ERROR));
        }
    };
    check(&message).map_err(|why| refused(why, INVALID_REQUEST))?;
    let id = message.id.map(ToOwned::to_owned);
    // A handshake begins a session, also for an app that still names one of an earlier host.
    if message.method.as_deref() == Some("initialize") {
        if layer.sessions.is_full() {
            let why = "too many sessions are open, and all of them are in use; close an app";
            return Err(Box::new(error(StatusCode::SERVICE_UNAVAILABLE, id, INVALID_REQUEST, why)));
        }
        parts.headers.remove(SESSION);
    }
    if message.method.is_none() {
        layer.tickets.keep_answer(session.unwrap_or_default(), &message);
    }
    let shown = outline(&message);
    parts.extensions.insert(RawBody(bytes));
    Ok((Request::from_parts(parts, Body::from(shown)), id))
}

/// A body within the limit. The rest of a longer one is read past, and kept nowhere: an app that is
/// still sending would see a broken connection instead of the answer.
async fn whole(mut body: Body, limit: usize) -> Option<Bytes> {
    let mut kept = BytesMut::new();
    let mut read = 0;
    let patience = Instant::now() + READ_PAST;
    while let Ok(Some(frame)) = timeout_at(patience, body.frame()).await {
        let data = frame.ok()?.into_data().unwrap_or_default();
        read += data.len();
        if read > limit.saturating_add(MOST_PAST) {
            return None;
        }
        if read > limit {
            kept.clear();
        } else {
            kept.extend_from_slice(&data);
        }
    }
    (read <= limit).then(|| kept.freeze())
}

/// What rmcp would take for something else, or drop without an answer.
fn check(message: &Envelope) -> Result<(), &'static str> {
    if message.method.is_none() && message.result.is_none() && message.error.is_none() {
        return Err("the message has no method, no result and no error");
    }
    if let Some(id) = message.id {
        let digits = id.get().strip_prefix('-').unwrap_or(id.get());
        let integer = digits.bytes().all(|byte| byte.is_ascii_digit());
        if !integer && !id.get().starts_with('"') {
            return Err("an id must be a string or an integer");
        }
    }
    let params = message.params.map(|params| params.get().trim_start());
    if params.is_some_and(|params| !params.starts_with('{')) && message.method.is_some() {
        return Err("params must be an object");
    }
    Ok(())
}

/// rmcp says some refusals in plain text; apps get every one as a JSON-RPC error, with its status.
async fn as_json_rpc(response: Response, id: Option<Box<RawValue>>) -> Response {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error())
        || is(response.headers(), "application/json")
    {
        return response;
    }
    let text = to_bytes(response.into_body(), ERROR_TEXT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // rmcp says the same of JSON that it can't take as of what isn't JSON.
    let status =
        if text.starts_with("fail to deserialize") { StatusCode::BAD_REQUEST } else { status };
    error(status, id, INVALID_REQUEST, &crate::text::one_line(&text, 500))
}

fn error(status: StatusCode, id: Option<Box<RawValue>>, code: i32, message: &str) -> Response {
    let mut body = RawObject::default().with("jsonrpc", "2.0");
    body.set("id", id.unwrap_or_else(|| raw(&())));
    body.set("error", crate::upstream::link::error(code, message));
    let mut response = (status, body.to_raw().get().to_owned()).into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn is(headers: &HeaderMap, media_type: &str) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(media_type.as_bytes()))
}

/// The session that a request or an answer belongs to; legacy only.
pub fn session_of(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION)?.to_str().ok().map(ToOwned::to_owned)
}
