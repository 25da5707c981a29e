//! An app of the modern era: every request stands alone, with its `_meta` and its headers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Answer, Body, Ears, MODERN, body};
use crate::DEADLINE;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

#[derive(Clone)]
pub struct ModernApp {
    pub url: String,
    pub token: String,
    pub capabilities: Value,
    http: reqwest::Client,
    ids: Arc<AtomicU64>,
}

/// An open `subscriptions/listen`.
pub struct Listening {
    /// The subset of the filter that the server honours.
    pub acknowledged: Value,
    pub ears: Ears,
}

impl ModernApp {
    pub fn new(url: &str, token: &str) -> Result<Self> {
        Ok(Self {
            url: url.to_owned(),
            token: token.to_owned(),
            capabilities: json!({}),
            http: reqwest::Client::builder().no_proxy().build()?,
            ids: Arc::default(),
        })
    }

    #[must_use]
    pub fn able(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// A request's text; what the params already have in `_meta` stays.
    pub fn message(&self, method: &str, mut params: Value) -> (u64, String) {
        let id = self.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let own = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "raw-modern-app", "version": "1.0.0"},
        });
        for (key, value) in own.as_object().into_iter().flatten() {
            if params["_meta"].get(key).is_none() {
                params["_meta"][key] = value.clone();
            }
        }
        let text = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        (id, text.to_string())
    }

    /// The headers that belong to a request.
    pub fn headers(method: &str, params: &Value) -> Vec<(&'static str, String)> {
        let mut headers =
            vec![("mcp-protocol-version", MODERN.to_owned()), ("mcp-method", method.to_owned())];
        let name = match method {
            "tools/call" | "prompts/get" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
        headers
    }

    /// Sends any text with any headers.
    pub async fn post(&self, text: &str, headers: &[(&str, String)]) -> Result<reqwest::Response> {
        let mut request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(text.to_owned());
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        tokio::time::timeout(6 * DEADLINE, request.send())
            .await
            .context("no answer at all")?
            .context("POST")
    }

    pub async fn request(&self, method: &str, params: Value) -> Result<Answer> {
        let headers = Self::headers(method, &params);
        let response = self.post(&self.message(method, params).1, &headers).await?;
        let status = response.status().as_u16();
        let mut body = body(response).await?;
        let mut before = Vec::new();
        while let Some(text) = body.soon().await? {
            let message: Value = serde_json::from_str(&text)
                .with_context(|| format!("HTTP {status} with no JSON: {text}"))?;
            if message.get("method").is_none() {
                return Answer::read(status, &text, before);
            }
            ensure!(message.get("id").is_none(), "a modern server sends no requests: {text}");
            before.push(message);
        }
        bail!("HTTP {status} ended without an answer; before it came {before:?}")
    }

    /// Sends a request without waiting for its answer. Aborting the task closes the stream, which
    /// is how a modern app cancels.
    pub fn begin(&self, method: &str, params: Value) -> tokio::task::JoinHandle<Result<Answer>> {
        let (app, method) = (self.clone(), method.to_owned());
        tokio::spawn(async move { app.request(&method, params).await })
    }

    /// Opens a subscription; the server has acknowledged it when this returns.
    pub async fn listen(&self, filter: Value) -> Result<Listening> {
        let params = json!({"notifications": filter});
        let headers = Self::headers("subscriptions/listen", &params);
        let (id, text) = self.message("subscriptions/listen", params);
        let response = self.post(&text, &headers).await?;
        ensure!(response.status() == 200, "listen: {}", response.status());
        let mut body = body(response).await?;
        ensure!(matches!(body, Body::Events(_)), "listen isn't an event stream");
        let first = body.soon().await?.context("the stream ended at once")?;
        let first: Value = serde_json::from_str(&first)?;
        let acknowledged = first["method"] == "notifications/subscriptions/acknowledged";
        ensure!(acknowledged, "the first message is no acknowledgement: {first}");
        ensure!(first["params"]["_meta"][SUBSCRIPTION] == id, "it is tagged with the id: {first}");
        let (say, heard) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Ok(Some(text)) = body.next().await {
                let Ok(message) = serde_json::from_str::<Value>(&text) else { return };
                let tagged = message["params"]["_meta"][SUBSCRIPTION] == id;
                // An untagged one belongs nowhere, and who waits for it finds it missing.
                if tagged && say.send(message).is_err() {
                    return;
                }
            }
        });
        let acknowledged = first["params"]["notifications"].clone();
        Ok(Listening { acknowledged, ears: Ears { heard, task } })
    }
}
