//! One line of the app's, as far as the bridge must understand it.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use traygate_gateway::{
    json::{Envelope, RawObject},
    upstream::wire::{Kind, Outgoing},
};

/// What the app sent.
pub enum Line {
    Request(Request),
    /// Nobody waits for the request with this id any more.
    Cancelled {
        bytes: Bytes,
        id: Box<RawValue>,
    },
    Notification {
        bytes: Bytes,
        method: String,
    },
    /// An answer to a request of the host's.
    Response(Bytes),
    /// No message at all: the JSON-RPC error that says so.
    Broken {
        code: i32,
        message: String,
    },
}

#[derive(Clone)]
pub struct Request {
    pub id: Box<RawValue>,
    pub method: String,
    /// `params.name`, `params.uri` or `params.taskId`.
    pub name: Option<String>,
    /// The protocol version in its own `_meta`: it is a modern request.
    pub version: Option<String>,
    pub bytes: Bytes,
}

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

impl Line {
    pub fn read(bytes: Bytes) -> Self {
        let envelope: Envelope = match serde_json::from_slice(&bytes) {
            Ok(envelope) if bytes.starts_with(b"{") => envelope,
            Err(error) if !error.is_data() => {
                let message = format!("a line is no JSON: {error}");
                return Self::Broken { code: -32_700, message };
            }
            _ => {
                let message = "a line is no single JSON-RPC message".to_owned();
                return Self::Broken { code: -32_600, message };
            }
        };
        let params = envelope.params.and_then(|params| RawObject::parse(params).ok());
        match (envelope.method, envelope.id) {
            (Some(method), Some(id)) => {
                let params = params.unwrap_or_default();
                let version = params.object("_meta").and_then(|meta| meta.str(VERSION));
                let name = ["name", "uri", "taskId"].iter().find_map(|key| params.str(key));
                let (id, method) = (id.to_owned(), method.into_owned());
                Self::Request(Request { id, method, name, version, bytes })
            }
            (Some(method), None) => {
                let method = method.into_owned();
                let cancelled = params.as_ref().and_then(|params| params.get("requestId"));
                match cancelled {
                    Some(id) if method == "notifications/cancelled" => {
                        Self::Cancelled { id: id.to_owned(), bytes }
                    }
                    _ => Self::Notification { method, bytes },
                }
            }
            (None, _) => Self::Response(bytes),
        }
    }
}

impl Request {
    pub fn outgoing(&self, tag: u64) -> Outgoing {
        let kind = Kind::Request {
            tag,
            method: self.method.clone(),
            name: self.name.clone(),
            headers: Vec::new(),
            version: self.version.clone(),
        };
        Outgoing { bytes: self.bytes.clone(), kind }
    }

    /// Whether asking twice is the same as asking once.
    pub fn is_repeatable(&self) -> bool {
        self.method != "tools/call"
    }
}

/// The version that a legacy server chose in its answer to `initialize`; `None` if it refused.
pub fn negotiated(answer: &Envelope) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialized {
        protocol_version: String,
    }
    let result: Initialized = serde_json::from_str(answer.result?.get()).ok()?;
    Some(result.protocol_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Line {
        Line::read(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_modern_request_tells_its_version_and_name() {
        let line = read(
            r#"{"id":"a","method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        let Line::Request(request) = line else { panic!("a request") };
        assert_eq!(request.id.get(), "\"a\"");
        assert_eq!(request.name.as_deref(), Some("x"));
        assert_eq!(request.version.as_deref(), Some("2026-07-28"));
    }

    #[test]
    fn what_is_no_message_is_told_by_the_right_code() {
        for (text, expected) in [
            ("{\"id\":1,", -32_700),
            ("nonsense", -32_700),
            ("[{\"id\":1,\"method\":\"ping\"}]", -32_600),
            ("7", -32_600),
            ("{\"method\":7}", -32_600),
        ] {
            let Line::Broken { code, .. } = read(text) else { panic!("{text} is broken") };
            assert_eq!(code, expected, "{text}");
        }
    }
}
