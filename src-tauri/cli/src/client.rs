//! The control API's client: finds the running host by its run file and asks it over loopback.

use std::{borrow::Cow, io, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, time::timeout};
use traygate_gateway::{
    api::{Problem, RunFile},
    control::caller::CALLER_HEADER,
    paths::Paths,
};

use crate::{failure::Failure, progress};

/// For what the host answers by itself.
const QUICK: Duration = Duration::from_secs(30);
/// For what waits for an upstream's start, which may take two minutes of visible work.
pub const START: Duration = Duration::from_secs(200);
/// For a tool's call, a little longer than the longest that the host itself allows by default.
pub const CALL: Duration = Duration::from_mins(61);
/// The largest answer that is read: a tool's result of 64 MiB and what is around it.
const ANSWER: usize = 80 << 20;

const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// One part of a path or a query, whatever is in it.
pub fn encoded(part: &str) -> String {
    utf8_percent_encode(part, KEPT).to_string()
}

/// A host that has left its run file.
pub struct Client {
    run: RunFile,
    data: PathBuf,
}

impl Client {
    /// Reads the run file. Whether the host still lives is known when it is asked.
    pub fn find(paths: &Paths) -> Result<Self> {
        match std::fs::read(paths.run_file()) {
            Ok(text) => {
                let run = serde_json::from_slice(&text)
                    .with_context(|| format!("{} is unreadable", paths.run_file().display()))?;
                Ok(Self { run, data: paths.data.clone() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(nobody(&paths.data)),
            Err(error) => Err(anyhow!(error))
                .with_context(|| format!("cannot read {}", paths.run_file().display())),
        }
    }

    pub fn get(&self, path: impl Into<String>) -> Request<'_> {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: impl Into<String>) -> Request<'_> {
        self.request(Method::POST, path)
    }

    pub fn put(&self, path: impl Into<String>) -> Request<'_> {
        self.request(Method::PUT, path)
    }

    pub fn patch(&self, path: impl Into<String>) -> Request<'_> {
        self.request(Method::PATCH, path)
    }

    pub fn delete(&self, path: impl Into<String>) -> Request<'_> {
        self.request(Method::DELETE, path)
    }

    fn request(&self, method: Method, path: impl Into<String>) -> Request<'_> {
        Request {
            client: self,
            method,
            path: path.into(),
            body: Bytes::new(),
            patience: QUICK,
            doing: "waiting for Traygate".into(),
        }
    }
}

/// The path of an upstream's route.
pub fn upstream(name: &str) -> String {
    format!("/upstreams/{}", encoded(name))
}

fn nobody(data: &std::path::Path) -> anyhow::Error {
    Failure::Unreachable(format!(
        "no Traygate is running for {}; start it with `traygate serve`",
        data.display()
    ))
    .into()
}

/// One request to the control API.
pub struct Request<'a> {
    client: &'a Client,
    method: Method,
    path: String,
    body: Bytes,
    patience: Duration,
    doing: Cow<'static, str>,
}

impl Request<'_> {
    pub fn body(mut self, body: &impl Serialize) -> Result<Self> {
        self.body = serde_json::to_vec(body)?.into();
        Ok(self)
    }

    /// How long it may take, and what to call it meanwhile: `connecting to files`.
    pub fn patience(mut self, patience: Duration, doing: impl Into<Cow<'static, str>>) -> Self {
        self.patience = patience;
        self.doing = doing.into();
        self
    }

    /// The answer as one of the API's types.
    pub async fn receive<T: DeserializeOwned>(self) -> Result<T> {
        let text = self.receive_bytes().await?;
        serde_json::from_slice(&text)
            .context("the running Traygate answered in a form that this version doesn't know")
    }

    /// Only that it was done.
    pub async fn done(self) -> Result<()> {
        self.receive_bytes().await.map(drop)
    }

    /// The answer's bytes as they came.
    pub async fn receive_bytes(self) -> Result<Bytes> {
        let Self { patience, ref doing, .. } = self;
        let doing = doing.clone();
        let answer = async {
            let body = self.open().await?;
            Ok(Limited::new(body, ANSWER)
                .collect()
                .await
                .map_err(|error| anyhow!(error))?
                .to_bytes())
        };
        let answer = progress::during(doing, timeout(patience, answer)).await;
        answer.map_err(|_| anyhow!("Traygate gave no answer within {} s", patience.as_secs()))?
    }

    /// Sends it, and gives the answer's body once the status is a good one.
    pub async fn open(self) -> Result<Incoming> {
        let Client { run, data } = self.client;
        let gone = |_| nobody(data);
        let stream = TcpStream::connect(("127.0.0.1", run.port)).await.map_err(gone)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .context("cannot speak HTTP with the running Traygate")?;
        // Ends with the exchange: the answer's body and the sender are its only users.
        tokio::spawn(connection);
        let request = http::Request::builder()
            .method(self.method)
            .uri(format!("/control/v1{}", self.path))
            .header(header::HOST, format!("127.0.0.1:{}", run.port))
            .header(header::AUTHORIZATION, format!("Bearer {}", run.token))
            .header(CALLER_HEADER, "cli")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(self.body))?;
        let response = sender
            .send_request(request)
            .await
            .context("the running Traygate ended before it answered")?;
        match response.status() {
            status if status.is_success() => Ok(response.into_body()),
            // Another program has the port by now, or another host that made a new token.
            StatusCode::UNAUTHORIZED => Err(nobody(data)),
            status => Err(refusal(status, response.into_body()).await),
        }
    }
}

async fn refusal(status: StatusCode, body: Incoming) -> anyhow::Error {
    let text = Limited::new(body, 1 << 20).collect().await.map(http_body_util::Collected::to_bytes);
    let problem = text.ok().and_then(|text| serde_json::from_slice::<Problem>(&text).ok());
    match problem {
        Some(problem) => Failure::Refused(problem).into(),
        None => anyhow!("what answers on Traygate's port is no Traygate (HTTP status {status})"),
    }
}

/// Reads an answer that comes line by line, without end.
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    pub fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new() }
    }

    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            match self.body.frame().await {
                Some(frame) => {
                    let frame = frame.context("the running Traygate ended")?;
                    self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
                }
                None => return Ok(None),
            }
        }
    }
}
