//! An app that only speaks stdio: it starts a command and talks over its pipes.

use std::{
    collections::HashMap,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    sync::{mpsc, oneshot},
};

use super::{Answer, Ears, MODERN};
use crate::DEADLINE;

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>;

pub struct StdioApp {
    child: Child,
    stdin: ChildStdin,
    waiting: Waiting,
    ids: u64,
    /// Notifications and requests of the server.
    pub ears: Ears,
}

impl StdioApp {
    pub fn start(command: std::process::Command) -> Result<Self> {
        let mut command = Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().context("a server on stdio")?;
        let stdin = child.stdin.take().context("its stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("its stdout")?).lines();
        let waiting = Waiting::default();
        let answers = Arc::clone(&waiting);
        let (say, heard) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { return };
                let answered = message.get("method").is_none().then(|| message["id"].as_u64());
                let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                match answered.flatten().and_then(|id| answers.remove(&id)) {
                    // Who asked may have given up.
                    Some(answer) => drop(answer.send(line)),
                    None => drop(say.send(message)),
                }
            }
            // Nobody is answered any more.
            answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        Ok(Self { child, stdin, waiting, ids: 0, ears: Ears { heard, task } })
    }

    /// `initialize` and what follows it.
    pub async fn initialize(&mut self) -> Result<Value> {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw-stdio-app", "version": "1.0.0"},
        });
        let opened = self.request("initialize", params).await?.result()?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(super::tree(&opened))
    }

    pub async fn send(&mut self, message: &Value) -> Result<()> {
        let line = format!("{message}\n");
        let sent = self.stdin.write_all(line.as_bytes());
        tokio::time::timeout(DEADLINE, sent).await.context("the pipe is full")??;
        Ok(())
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Result<Answer> {
        self.ids += 1;
        let (say, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(self.ids, say);
        let message = json!({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params});
        self.send(&message).await?;
        let line = tokio::time::timeout(3 * DEADLINE, answer)
            .await
            .with_context(|| format!("no answer to {method}"))?
            .with_context(|| format!("the server ended before it answered {method}"))?;
        Answer::read(0, &line, Vec::new())
    }

    /// A request with the `_meta` of the modern era.
    pub async fn modern(&mut self, method: &str, mut params: Value) -> Result<Answer> {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        self.request(method, params).await
    }

    /// Closes its stdin, as an app that quits does, and waits for its end.
    pub async fn quit(mut self) -> Result<Option<i32>> {
        drop(self.stdin);
        let ended = tokio::time::timeout(DEADLINE, self.child.wait());
        Ok(ended.await.context("it stays after its stdin was closed")??.code())
    }
}
