//! What the bridge itself says to the app.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde_json::{json, value::RawValue};
use traygate_gateway::{
    fault::{Code, Fault},
    json,
};

use super::line::Request;

/// There is no answer, and why.
pub fn unreachable(request: &Request, why: &str) -> Result<()> {
    let message = format!("Traygate can't be reached: {why}; see `traygate status`");
    answer_fault(request, &Fault::new(Code::UpstreamUnavailable, None, message))
}

/// There is no answer, and nobody knows if the call has run.
pub fn outcome_unknown(request: &Request, why: &str) -> Result<()> {
    let name = request.name.as_deref().unwrap_or(&request.method);
    let message = format!(
        "the connection to Traygate broke while {name} was under way: {why}; it may have run, so look before you call it again"
    );
    answer_fault(request, &Fault::new(Code::OutcomeUnknown, None, message))
}

/// The host is there, but would not take this request or its answer can't be passed on.
pub fn refused(request: &Request, why: &str) -> Result<()> {
    answer_error(
        Some(&request.id),
        -32_603,
        &format!("Traygate did not answer {}: {why}", request.method),
        None,
    )
}

fn answer_fault(request: &Request, fault: &Fault) -> Result<()> {
    answer_error(Some(&request.id), fault.code.number(), &fault.message, Some(fault.data()))
}

/// A JSON-RPC error; without an id, to what was no request.
pub fn answer_error(
    id: Option<&RawValue>,
    code: i32,
    message: &str,
    data: Option<serde_json::Value>,
) -> Result<()> {
    let mut error = json!({"code": code, "message": message});
    if let Some(data) = data {
        error["data"] = data;
    }
    // By hand around the id, whose digits stay what they were.
    let id = id.map_or("null", RawValue::get);
    write_line(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into())
}

/// One message to the app. An app that doesn't read stops the bridge, and so the host's streams:
/// nothing piles up here.
pub fn write_line(bytes: Bytes) -> Result<()> {
    let mut line = Vec::from(bytes);
    json::one_line(&mut line);
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line).and_then(|()| stdout.flush()).context("cannot write to the app")
}
