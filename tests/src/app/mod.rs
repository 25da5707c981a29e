//! AI apps made of nothing but HTTP, pipes and text, so that a test sees the very bytes.

mod legacy;
mod modern;
mod sse;
mod stdio;

pub use legacy::{LegacyApp, LegacyOptions};
pub use modern::{Listening, ModernApp};
pub use sse::{Body, body};
pub use stdio::StdioApp;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json, value::RawValue};
use traygate_gateway::{capability::CapabilityType, json::RawObject};

use crate::json::{items, tree};

pub const MODERN: &str = "2026-07-28";

/// What a request came to.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP only; 0 on stdio.
    pub status: u16,
    pub outcome: Result<Box<RawValue>, RpcError>,
    /// What came before the end on the request's own stream, in order.
    pub before: Vec<Value>,
}

#[derive(Clone, Debug)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    /// As it came.
    pub data: Option<Box<RawValue>>,
}

impl Answer {
    pub fn result(self) -> Result<Box<RawValue>> {
        match self.outcome {
            Ok(result) => Ok(result),
            Err(error) => bail!("{} {}", error.code, error.message),
        }
    }

    pub fn error(self) -> Result<RpcError> {
        match self.outcome {
            Ok(result) => bail!("a result and no error: {result}"),
            Err(error) => Ok(error),
        }
    }

    /// Reads an answer's message.
    fn read(status: u16, message: &str, before: Vec<Value>) -> Result<Self> {
        let object: RawObject = serde_json::from_str(message).context(message.to_owned())?;
        ensure!(object.str("jsonrpc").as_deref() == Some("2.0"), "no JSON-RPC: {message}");
        let outcome = match (object.get("result"), object.object("error")) {
            (Some(result), None) => Ok(result.to_owned()),
            (None, Some(error)) => Err(RpcError {
                code: error.get("code").and_then(|code| code.get().parse().ok()).context("code")?,
                message: error.str("message").context("an error without a message")?,
                data: error.get("data").map(ToOwned::to_owned),
            }),
            _ => bail!("neither a result nor an error: {message}"),
        };
        Ok(Self { status, outcome, before })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppEra {
    Legacy,
    Modern,
}

impl AppEra {
    pub const ALL: [Self; 2] = [Self::Legacy, Self::Modern];
}

/// An app of either era, for assertions that hold in both.
pub enum App {
    Legacy(LegacyApp),
    Modern(ModernApp),
}

impl App {
    pub async fn connect(era: AppEra, url: &str, token: &str) -> Result<Self> {
        Ok(match era {
            AppEra::Legacy => Self::Legacy(LegacyApp::connect(url, token).await?),
            AppEra::Modern => Self::Modern(ModernApp::new(url, token)?),
        })
    }

    pub async fn request(&self, method: &str, params: Value) -> Result<Answer> {
        match self {
            Self::Legacy(app) => app.request(method, params).await,
            Self::Modern(app) => app.request(method, params).await,
        }
    }

    /// All pages of one list, each item as its text.
    pub async fn list(&self, kind: CapabilityType) -> Result<Vec<Box<RawValue>>> {
        let mut found = Vec::new();
        let mut cursor = None;
        for _ in 0..200 {
            let params =
                cursor.map_or_else(|| json!({}), |cursor: Value| json!({"cursor": cursor}));
            let page = self.request(kind.list_method(), params).await?.result()?;
            found.extend(items(&page, kind.list_member()));
            match tree(&page).get("nextCursor") {
                None => return Ok(found),
                next => cursor = next.cloned(),
            }
        }
        bail!("{kind}s have no last page")
    }

    /// The names or URIs of one list.
    pub async fn keys(&self, kind: CapabilityType) -> Result<Vec<String>> {
        let key = |item: Box<RawValue>| {
            tree(&item)[kind.key_member()].as_str().map(str::to_owned).unwrap_or_default()
        };
        Ok(self.list(kind).await?.into_iter().map(key).collect())
    }

    pub async fn tools(&self) -> Result<Vec<String>> {
        self.keys(CapabilityType::Tool).await
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Answer> {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// The text of a call that has to go well.
    pub async fn call_text(&self, tool: &str, arguments: Value) -> Result<String> {
        let result = self.call(tool, arguments).await?.result().context(tool.to_owned())?;
        let result = tree(&result);
        ensure!(result["isError"] != true, "{tool}: {result}");
        Ok(result["content"][0]["text"].as_str().unwrap_or_default().to_owned())
    }

    /// Begins to hear what belongs to no request.
    pub async fn listen(&mut self) -> Result<Ears> {
        match self {
            Self::Legacy(app) => app.listen().await,
            Self::Modern(app) => {
                let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
                Ok(app.listen(all).await?.ears)
            }
        }
    }
}

/// What an app hears that belongs to no request.
pub struct Ears {
    heard: tokio::sync::mpsc::UnboundedReceiver<Value>,
    task: tokio::task::JoinHandle<()>,
}

impl Ears {
    /// The next notification of this method; others are passed over.
    pub async fn hear(&mut self, method: &str, within: Duration) -> Result<Value> {
        let next = async {
            while let Some(message) = self.heard.recv().await {
                if message["method"] == method {
                    return Ok(message);
                }
            }
            bail!("the stream ended without {method}")
        };
        tokio::time::timeout(within, next)
            .await
            .with_context(|| format!("no {method} within {within:?}"))?
    }

    /// Everything that has come so far.
    pub fn heard(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Ok(message) = self.heard.try_recv() {
            all.push(message);
        }
        all
    }

    /// The stream is closed, which an app does when it goes.
    pub fn close(self) {}
}

impl Drop for Ears {
    fn drop(&mut self) {
        self.task.abort();
    }
}
