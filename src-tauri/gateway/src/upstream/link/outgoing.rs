//! What a link writes: requests with what their era asks for, and the parts of other messages.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{PROTOCOL_META, Request};
use crate::{
    json::{RawObject, one_line, raw},
    upstream::wire::{Kind, Outgoing},
};

pub(super) fn outgoing(tag: u64, request: &Request, modern: Option<&str>) -> Outgoing {
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

pub(super) fn line(message: &RawObject) -> Bytes {
    let mut bytes = message.to_text().into_bytes();
    one_line(&mut bytes);
    bytes.into()
}
