//! Event streams and plain bodies, read as they come.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};

use crate::DEADLINE;

/// A response's body: one JSON text, or a stream of events with one JSON text each.
pub enum Body {
    Json(Option<String>),
    Events(Events),
}

pub struct Events {
    bytes: BoxStream<'static, reqwest::Result<Bytes>>,
    buffer: Vec<u8>,
}

pub async fn body(response: reqwest::Response) -> Result<Body> {
    let content = response.headers().get("content-type").cloned();
    let content = content.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content.starts_with("text/event-stream") {
        let bytes = response.bytes_stream().boxed();
        return Ok(Body::Events(Events { bytes, buffer: Vec::new() }));
    }
    let text = tokio::time::timeout(DEADLINE, response.text()).await.context("no body")??;
    Ok(Body::Json(Some(text).filter(|text| !text.is_empty())))
}

impl Body {
    /// The next message's text; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<String>> {
        match self {
            Self::Json(text) => Ok(text.take()),
            Self::Events(events) => events.next().await,
        }
    }

    /// `next`, which has to come in time.
    pub async fn soon(&mut self) -> Result<Option<String>> {
        tokio::time::timeout(DEADLINE, self.next()).await.context("nothing came on the stream")?
    }
}

impl Events {
    async fn next(&mut self) -> Result<Option<String>> {
        loop {
            while let Some(block) = self.block() {
                let data: Vec<_> = block
                    .lines()
                    .filter_map(|line| line.strip_prefix("data:"))
                    .map(|data| data.strip_prefix(' ').unwrap_or(data))
                    .collect();
                // Comments keep the connection alive, and an empty event only carries an id.
                if data.iter().any(|line| !line.is_empty()) {
                    return Ok(Some(data.join("\n")));
                }
            }
            match self.bytes.next().await {
                Some(bytes) => self.buffer.extend(bytes.context("the stream broke")?),
                None if self.buffer.iter().all(u8::is_ascii_whitespace) => return Ok(None),
                None => bail!("the stream ended inside an event"),
            }
        }
    }

    /// The next event's lines, if they are all here.
    fn block(&mut self) -> Option<String> {
        let ends: [&[u8]; 2] = [b"\n\n", b"\r\n\r\n"];
        let (at, length) = ends
            .iter()
            .filter_map(|end| {
                let at = self.buffer.windows(end.len()).position(|window| window == *end)?;
                Some((at, end.len()))
            })
            .min()?;
        let block: Vec<u8> = self.buffer.drain(..at + length).collect();
        Some(String::from_utf8_lossy(&block).into_owned())
    }
}
