//! Requests over kept-open connections, each with an argument of its own that its answer must hold.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use traygate_tests::Traygate;

/// Requests before the clock runs.
const WARM_UP: usize = 20;

/// Where requests go.
pub struct Target {
    port: u16,
    token: String,
    tool: String,
    /// Whether connections begin with a handshake.
    sessions: bool,
}

/// How many requests of which kind.
pub struct Load {
    pub connections: usize,
    pub requests: usize,
    pub method: &'static str,
}

pub struct Measured {
    /// The median of one request.
    pub millis: f64,
    pub per_second: f64,
}

impl Target {
    pub fn bare(port: u16) -> Self {
        Self { port, token: String::new(), tool: "echo".to_owned(), sessions: false }
    }

    pub async fn of(host: &Traygate, tool: &str) -> Result<Self> {
        let token = host.token("bench").await?;
        Ok(Self { port: host.port, token, tool: tool.to_owned(), sessions: true })
    }
}

impl Load {
    pub async fn on(&self, target: &Target) -> Result<Measured> {
        let each = self.requests / self.connections;
        let open = (0..self.connections).map(|at| Connection::open(target, at));
        let mut connections = try_join_all(open).await?;
        try_join_all(connections.iter_mut().map(|one| one.repeat(self.method, WARM_UP))).await?;
        let begun = Instant::now();
        let took =
            try_join_all(connections.iter_mut().map(|one| one.repeat(self.method, each))).await?;
        let elapsed = begun.elapsed().as_secs_f64();
        let mut took = took.concat();
        took.sort_by(f64::total_cmp);
        Ok(Measured {
            millis: took[took.len() / 2] * 1000.0,
            per_second: took.len() as f64 / elapsed,
        })
    }
}

/// What an app says first.
pub fn handshake() -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "bench", "version": "1" } } })
}

struct Connection<'a> {
    target: &'a Target,
    stream: TcpStream,
    session: Option<String>,
    /// Told apart in every argument.
    number: usize,
    sent: usize,
    buffer: Vec<u8>,
}

impl<'a> Connection<'a> {
    async fn open(target: &'a Target, number: usize) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", target.port)).await?;
        stream.set_nodelay(true)?;
        let buffer = Vec::new();
        let mut connection = Self { target, stream, session: None, number, sent: 0, buffer };
        if target.sessions {
            let (head, _) = connection.post(&handshake().to_string()).await?;
            let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            connection.session = Some(session.context("no session")?.to_owned());
            connection.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await?;
        }
        Ok(connection)
    }

    /// Seconds of each.
    async fn repeat(&mut self, method: &str, times: usize) -> Result<Vec<f64>> {
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            self.sent += 1;
            let mark = format!("hello-{}-{}", self.number, self.sent);
            let params = match method {
                "tools/call" => {
                    json!({ "name": self.target.tool, "arguments": { "message": mark } })
                }
                _ => json!({}),
            };
            let message =
                json!({ "jsonrpc": "2.0", "id": self.sent, "method": method, "params": params })
                    .to_string();
            let begun = Instant::now();
            let (_, body) = self.post(&message).await?;
            took.push(begun.elapsed().as_secs_f64());
            let right = if method == "tools/call" {
                body.contains(&mark) && !body.contains("isError")
            } else {
                body.contains("echo")
            };
            ensure!(right, "not the answer to {message}: {body}");
        }
        Ok(took)
    }

    /// The head and the body of the answer.
    async fn post(&mut self, message: &str) -> Result<(String, String)> {
        let session = self.session.as_deref();
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{session}Content-Length: {}\r\n\r\n{message}",
            self.target.token,
            message.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the connection ended within an answer");
            }
            if let Some(answer) = whole(&self.buffer)? {
                return Ok(answer);
            }
        }
    }
}

/// An answer, if it is all there: one that says its length, or a stream that ends with it.
fn whole(read: &[u8]) -> Result<Option<(String, String)>> {
    let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&read[..end])?.to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 2"), "refused: {}", String::from_utf8_lossy(read));
    let body = &read[end + 4..];
    let complete = if head.contains("transfer-encoding: chunked") {
        body.ends_with(b"0\r\n\r\n")
    } else {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        body.len() >= length.context("an answer that doesn't say how long it is")?.parse()?
    };
    Ok(complete.then(|| (head, String::from_utf8_lossy(body).into_owned())))
}
