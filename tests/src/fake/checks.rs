//! The rules that a client must keep. What breaks one is refused as the protocol says, and stands
//! in the log as a `violation`.

use std::collections::BTreeMap;

use serde_json::{Value, json, value::RawValue};

use super::{
    message::{Message, Refusal, tree},
    options::FakeTransport,
    server::{Caller, Fake, Served},
};

pub const MODERN: &str = "2026-07-28";
pub const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// One message from a text. Batches belong to no revision that is spoken here.
pub fn parse(fake: &Fake, text: &str) -> Result<Message, Refusal> {
    let broken = |rule: &str, code| {
        fake.violation(rule, None);
        Refusal::new(code, rule).status(400)
    };
    let Ok(raw) = serde_json::from_str::<Box<RawValue>>(text) else {
        return Err(broken("not JSON", -32700));
    };
    if raw.get().starts_with('[') {
        return Err(broken("a batch", -32600));
    }
    let value = tree(text);
    if value["jsonrpc"] != "2.0" {
        return Err(broken("jsonrpc isn't 2.0", -32600));
    }
    let message: Message =
        serde_json::from_str(text).map_err(|_| broken("not a JSON-RPC message", -32600))?;
    let id = value.get("id");
    if message.method.is_some() && id.is_some_and(|id| !id.is_string() && !id.is_i64()) {
        return Err(broken("an id is neither a string nor an integer", -32600));
    }
    if message.method.is_none() && (message.result.is_some() == message.error.is_some()) {
        return Err(broken("neither a request nor an answer", -32600));
    }
    Ok(message)
}

/// The generation that a request is to be served in, if it keeps that one's rules.
pub fn served(
    fake: &Fake,
    message: &Message,
    method: &str,
    caller: &Caller,
) -> Result<Served, Refusal> {
    let params = message.params();
    let era = fake.options.era;
    let header = caller.headers.as_ref().and_then(|headers| headers.get("mcp-protocol-version"));
    let claims_modern = params["_meta"].get(META_VERSION).is_some()
        || header.is_some_and(|version| version.as_str() >= MODERN)
        || method == "server/discover";
    if era.speaks_modern() && (claims_modern || !era.speaks_legacy()) {
        return modern(fake, &params, method, caller);
    }
    if claims_modern {
        return Err(legacy_refusal_of_modern(method, caller));
    }
    legacy(fake, &params, method, caller)
}

/// What a server that never heard of the modern era says: not a violation, it is how it is found.
fn legacy_refusal_of_modern(method: &str, caller: &Caller) -> Refusal {
    match &caller.headers {
        Some(_) => Refusal::new(-32000, "Bad Request: no valid session ID provided").status(400),
        None => Refusal::new(-32601, format!("Method not found: {method}")),
    }
}

fn legacy(fake: &Fake, params: &Value, method: &str, caller: &Caller) -> Result<Served, Refusal> {
    let broken = |rule: &str| {
        fake.violation(rule, Some(method));
        Err(Refusal::new(-32600, rule).status(400))
    };
    if method == "initialize" {
        let version = params["protocolVersion"].as_str().unwrap_or_default();
        if version.is_empty() || version >= MODERN {
            fake.violation("initialize doesn't name a revision that has it", Some(method));
        }
        if !params["capabilities"].is_object() || !params["clientInfo"]["name"].is_string() {
            return broken("initialize lacks capabilities or clientInfo");
        }
        return Ok(Served::Legacy);
    }
    let session = caller.session.as_ref().and_then(|id| fake.sessions().get(id).cloned());
    let Some(session) = session else { return broken("a request before initialize") };
    if !session.initialized && method != "ping" {
        fake.violation("a request before notifications/initialized", Some(method));
    }
    // HTTP+SSE has no such header.
    if let Some(headers) = &caller.headers
        && fake.options.transport != FakeTransport::Sse
        && session.revision.as_str() >= "2025-06-18"
        && headers.get("mcp-protocol-version") != Some(&session.revision)
    {
        fake.violation("MCP-Protocol-Version isn't the negotiated one", Some(method));
    }
    Ok(Served::Legacy)
}

fn modern(fake: &Fake, params: &Value, method: &str, caller: &Caller) -> Result<Served, Refusal> {
    let meta = &params["_meta"];
    let broken = |rule: &str, code| {
        // A modern server can't know what a client tries at first, so `initialize` is none.
        if method != "initialize" {
            fake.violation(rule, Some(method));
        }
        Err(Refusal::new(code, rule).status(400))
    };
    let version = meta[META_VERSION].as_str();
    if method == "initialize" || version.is_some_and(|version| version != MODERN) {
        let requested = version.or(params["protocolVersion"].as_str()).unwrap_or_default();
        let data = json!({"supported": [MODERN], "requested": requested}).to_string();
        return Err(Refusal::new(-32022, "Unsupported protocol version").data(data).status(400));
    }
    if let Some(headers) = &caller.headers
        && let Err(rule) = modern_headers(headers, params, method)
    {
        return broken(&rule, -32020);
    }
    if version.is_none() {
        return broken("_meta lacks the protocol version", -32602);
    }
    if !meta[META_CAPABILITIES].is_object() {
        return broken("_meta lacks the client's capabilities", -32602);
    }
    if let Some(level) = meta.get(META_LOG_LEVEL)
        && !level.as_str().is_some_and(|level| LEVELS.contains(&level))
    {
        return broken("no such log level", -32602);
    }
    Ok(Served::Modern)
}

fn modern_headers(
    headers: &BTreeMap<String, String>,
    params: &Value,
    method: &str,
) -> Result<(), String> {
    let name = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        _ => None,
    };
    let version = params["_meta"][META_VERSION].as_str();
    let wanted =
        [("mcp-protocol-version", version), ("mcp-method", Some(method)), ("mcp-name", name)];
    for (header, wanted) in wanted {
        let Some(wanted) = wanted else { continue };
        let sent = headers.get(header).map(|sent| plain(sent));
        if sent.as_deref() != Some(wanted) {
            return Err(format!("{header} is missing or isn't what the body says"));
        }
    }
    Ok(())
}

/// A header's value, out of the form that values have which no header can hold.
fn plain(value: &str) -> String {
    value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
        .and_then(decode_base64)
        .unwrap_or_else(|| value.to_owned())
}

fn decode_base64(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0u32, 0u32);
    for c in text.trim_end_matches('=').bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    String::from_utf8(bytes).ok()
}

/// The rules of one HTTP request as such, in either era.
pub fn http(fake: &Fake, headers: &BTreeMap<String, String>) -> Result<(), u16> {
    let accept = headers.get("accept").map(String::as_str).unwrap_or_default();
    if !(accept.contains("application/json") && accept.contains("text/event-stream")) {
        fake.violation("Accept doesn't name both JSON and event streams", None);
        return Err(406);
    }
    let content = headers.get("content-type").map(String::as_str).unwrap_or_default();
    if !content.starts_with("application/json") {
        fake.violation("Content-Type isn't JSON", None);
        return Err(415);
    }
    Ok(())
}
