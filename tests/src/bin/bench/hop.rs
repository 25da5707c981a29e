//! The least that a gateway can do: one child for everybody, and an id of its own for each request.

use std::{
    collections::HashMap,
    process::Stdio,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot},
};

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    id: u64,
    #[serde(borrow)]
    result: &'a RawValue,
}

struct Hop {
    next: AtomicU64,
    lines: mpsc::Sender<String>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<String>>>,
}

pub async fn serve(port: u16) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdin, stdout) =
        (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
    let (lines, written) = mpsc::channel(256);
    let hop = Arc::new(Hop { next: AtomicU64::new(1), lines, waiting: Mutex::default() });
    tokio::spawn(write(written, stdin));
    tokio::spawn(read(Arc::clone(&hop), stdout));
    let app = Router::new().route("/mcp", post(relay)).with_state(hop);
    super::echo::serve(port, app).await
}

async fn relay(State(hop): State<Arc<Hop>>, body: Bytes) -> Response {
    match relayed(&hop, &body).await {
        Some(answer) => ([("content-type", "application/json")], answer).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

async fn relayed(hop: &Hop, body: &[u8]) -> Option<String> {
    let request: Request = serde_json::from_slice(body).ok()?;
    let id = request.id?;
    let (method, params) = (request.method, request.params.map_or("{}", RawValue::get));
    let own = hop.next.fetch_add(1, Ordering::Relaxed);
    let (sender, answer) = oneshot::channel();
    hop.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(own, sender);
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{own},\"method\":\"{method}\",\"params\":{params}}}\n"
    );
    hop.lines.send(line).await.ok()?;
    let line = answer.await.ok()?;
    let answer: Answer = serde_json::from_str(&line).ok()?;
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, answer.result))
}

async fn write(mut lines: mpsc::Receiver<String>, mut stdin: ChildStdin) -> Result<()> {
    while let Some(mut batch) = lines.recv().await {
        while let Ok(line) = lines.try_recv() {
            batch.push_str(&line);
        }
        stdin.write_all(batch.as_bytes()).await?;
    }
    Ok(())
}

async fn read(hop: Arc<Hop>, stdout: ChildStdout) -> Result<()> {
    let mut lines = BufReader::with_capacity(256 << 10, stdout).lines();
    while let Some(line) = lines.next_line().await? {
        let Ok(answer) = serde_json::from_str::<Answer>(&line) else { continue };
        let mut waiting = hop.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asker) = waiting.remove(&answer.id) {
            let _ = asker.send(line);
        }
    }
    Ok(())
}
