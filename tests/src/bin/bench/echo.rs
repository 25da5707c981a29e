//! An upstream of the legacy era that answers at once, so that what is measured is the hop.

use std::{
    io::{BufRead as _, Write as _},
    sync::Arc,
};

use anyhow::Result;
use axum::{Router, extract::State, http::StatusCode, response::IntoResponse as _, routing::post};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// What it knows: its answer to `tools/list`, made once.
pub struct Echo {
    list: String,
}

impl Echo {
    pub fn new(tools: usize) -> Self {
        let tool = |at: usize| {
            let name = if at == 0 { "echo".to_owned() } else { format!("tool_{at:04}") };
            json!({
                "name": name,
                "description": "Gives back what it gets. ".repeat(8),
                "inputSchema": { "type": "object", "properties": { "message": {
                    "type": "string", "description": "what to give back" } } },
            })
        };
        let tools: Vec<_> = (0..tools).map(tool).collect();
        Self { list: json!({ "tools": tools }).to_string() }
    }

    /// The answer to one message, or nothing for a notification.
    pub fn answer(&self, message: &[u8]) -> Option<String> {
        let message: Message = serde_json::from_slice(message).ok()?;
        let id = message.id?;
        let result = match message.method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "echo", "version": "1" },
            })
            .to_string(),
            "tools/list" => self.list.clone(),
            "tools/call" => {
                let call: Call = serde_json::from_str(message.params?.get()).ok()?;
                let text = serde_json::to_string(call.arguments.get()).ok()?;
                format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#)
            }
            "ping" => "{}".to_owned(),
            _ => {
                return Some(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no such method"}}}}"#
                ));
            }
        };
        Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
    }
}

pub fn over_stdio(tools: usize) -> Result<()> {
    let echo = Echo::new(tools);
    let mut stdout = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        if let Some(mut answer) = echo.answer(line?.as_bytes()) {
            answer.push('\n');
            stdout.write_all(answer.as_bytes())?;
            stdout.flush()?;
        }
    }
    Ok(())
}

pub async fn over_http(tools: usize, port: u16) -> Result<()> {
    let answer = async |State(echo): State<Arc<Echo>>, body: Bytes| match echo.answer(&body) {
        Some(answer) => ([("content-type", "application/json")], answer).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    };
    let app = Router::new().route("/mcp", post(answer)).with_state(Arc::new(Echo::new(tools)));
    serve(port, app).await
}

/// Every answer leaves at once, as Traygate's do.
pub async fn serve(port: u16, app: Router) -> Result<()> {
    use axum::serve::ListenerExt as _;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, app).await?)
}
