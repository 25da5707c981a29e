//! An app of the legacy era: `initialize`, a session, one stream for what belongs to no request.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Answer, Body, Ears, body};
use crate::DEADLINE;

/// Answers what the server asks: method and params to a result, or to an error's code.
pub type Responder = Arc<dyn Fn(&str, &Value) -> Result<Value, i64> + Send + Sync>;

#[derive(Clone)]
pub struct LegacyOptions {
    pub version: String,
    pub capabilities: Value,
    pub answer: Responder,
}

impl Default for LegacyOptions {
    /// It can do nothing that a server may ask for.
    fn default() -> Self {
        Self {
            version: "2025-11-25".to_owned(),
            capabilities: json!({}),
            answer: Arc::new(|_, _| Err(-32601)),
        }
    }
}

#[derive(Clone)]
pub struct LegacyApp {
    pub url: String,
    pub token: String,
    pub session: Option<String>,
    /// What `initialize` answered.
    pub opened: Value,
    pub version: String,
    http: reqwest::Client,
    answer: Responder,
    ids: Arc<AtomicU64>,
}

impl LegacyApp {
    pub async fn connect(url: &str, token: &str) -> Result<Self> {
        Self::connect_with(url, token, LegacyOptions::default()).await
    }

    pub async fn connect_with(url: &str, token: &str, options: LegacyOptions) -> Result<Self> {
        let mut app = Self {
            url: url.to_owned(),
            token: token.to_owned(),
            session: None,
            opened: Value::Null,
            version: String::new(),
            http: reqwest::Client::builder().no_proxy().build()?,
            answer: options.answer,
            ids: Arc::default(),
        };
        let params = json!({
            "protocolVersion": options.version,
            "capabilities": options.capabilities,
            "clientInfo": {"name": "raw-legacy-app", "version": "1.0.0"},
        });
        let response = app.post(&app.message("initialize", &params).1).await?;
        ensure!(response.status() == 200, "initialize: {}", response.status());
        let session = response.headers().get("mcp-session-id");
        app.session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let answer = app.finish(response).await?;
        app.opened = super::tree(&answer.result()?);
        app.version = app.opened["protocolVersion"].as_str().unwrap_or_default().to_owned();
        app.notify("notifications/initialized", &json!({})).await?;
        Ok(app)
    }

    fn message(&self, method: &str, params: &Value) -> (u64, String) {
        let id = self.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let text = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        (id, text.to_string())
    }

    /// Sends any text as it is.
    pub async fn post(&self, text: &str) -> Result<reqwest::Response> {
        let request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(text.to_owned());
        let sent = self.with_headers(request).send();
        tokio::time::timeout(6 * DEADLINE, sent).await.context("no answer at all")?.context("POST")
    }

    fn with_headers(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        let mut request = request.bearer_auth(&self.token);
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if !self.version.is_empty() {
            request = request.header("mcp-protocol-version", &self.version);
        }
        request
    }

    pub async fn notify(&self, method: &str, params: &Value) -> Result<()> {
        let text = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        let status = self.post(&text).await?.status();
        ensure!(status == 202, "{method}: {status}");
        Ok(())
    }

    pub async fn request(&self, method: &str, params: Value) -> Result<Answer> {
        let response = self.post(&self.message(method, &params).1).await?;
        self.finish(response).await
    }

    /// Sends a request without waiting for its answer; the id is for cancelling it.
    pub fn begin(
        &self,
        method: &str,
        params: &Value,
    ) -> (u64, tokio::task::JoinHandle<Result<Answer>>) {
        let (id, text) = self.message(method, params);
        let app = self.clone();
        let answer = tokio::spawn(async move {
            let response = app.post(&text).await?;
            app.finish(response).await
        });
        (id, answer)
    }

    pub async fn cancel(&self, id: u64) -> Result<()> {
        let params = json!({"requestId": id, "reason": "the test changed its mind"});
        self.notify("notifications/cancelled", &params).await
    }

    /// Reads to the answer, and answers what the server asks meanwhile.
    async fn finish(&self, response: reqwest::Response) -> Result<Answer> {
        let status = response.status().as_u16();
        let mut body = body(response).await?;
        let mut before = Vec::new();
        while let Some(text) = body.soon().await? {
            let message: Value = serde_json::from_str(&text)
                .with_context(|| format!("HTTP {status} with no JSON: {text}"))?;
            match message.get("method") {
                None => return Answer::read(status, &text, before),
                Some(_) if message.get("id").is_some() => {
                    self.respond(&message).await?;
                    before.push(message);
                }
                Some(_) => before.push(message),
            }
        }
        bail!("HTTP {status} ended without an answer; before it came {before:?}")
    }

    async fn respond(&self, asked: &Value) -> Result<()> {
        let method = asked["method"].as_str().unwrap_or_default();
        let text = match (self.answer)(method, &asked["params"]) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}),
            Err(code) => {
                let error = json!({"code": code, "message": "this app can't"});
                json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})
            }
        };
        let status = self.post(&text.to_string()).await?.status();
        ensure!(status == 202, "the answer to {method}: {status}");
        Ok(())
    }

    /// Opens the session's own stream.
    pub async fn listen(&self) -> Result<Ears> {
        let request = self.http.get(&self.url).header("accept", "text/event-stream");
        let sent = self.with_headers(request).send();
        let response = tokio::time::timeout(DEADLINE, sent).await.context("no stream")??;
        ensure!(response.status() == 200, "GET: {}", response.status());
        let mut body = body(response).await?;
        ensure!(matches!(body, Body::Events(_)), "GET isn't an event stream");
        let (say, heard) = mpsc::unbounded_channel();
        let app = self.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(text)) = body.next().await {
                let Ok(message) = serde_json::from_str::<Value>(&text) else { return };
                if message.get("id").is_some() && message.get("method").is_some() {
                    // A failure shows at whoever waits for what this leads to.
                    let _ = app.respond(&message).await;
                }
                if say.send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Ears { heard, task })
    }

    /// Ends the session, with the status that this gave.
    pub async fn close(&self) -> Result<u16> {
        let sent = self.with_headers(self.http.delete(&self.url)).send();
        Ok(tokio::time::timeout(DEADLINE, sent).await.context("DELETE")??.status().as_u16())
    }
}
