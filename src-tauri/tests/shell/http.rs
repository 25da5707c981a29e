//! One question over HTTP, as small as a test needs it.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::Value;

use crate::stage::PATIENCE;

pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// Asks a server on this machine; a connection for each question.
pub fn ask(
    port: u16,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> Answer {
    let body = body.map_or_else(String::new, ToString::to_string);
    let authorization =
        token.map_or_else(String::new, |t| format!("Authorization: Bearer {t}\r\n"));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a deadline above zero");
    let question = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{authorization}Connection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(question.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers in time");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let text = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Answer {
        status: status.expect("an HTTP answer has a status"),
        body: serde_json::from_str(text).unwrap_or(Value::Null),
    }
}
