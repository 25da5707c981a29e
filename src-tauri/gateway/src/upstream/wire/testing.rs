//! Real servers on real sockets, whose every answer is given by a test.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response as Answer},
};
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, StatusCode};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Event, Events, Failure, Kind, Outgoing, Wire};

pub const BODY: &str = r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#;
pub const RESULT: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"n":18446744073709551616}}"#;

/// Nothing here takes so long; a test that waits for what never comes fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One request as the server saw it, and the way to answer it.
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    answer: oneshot::Sender<Answer>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    pub fn reply(self, answer: impl IntoResponse) {
        assert!(self.answer.send(answer.into_response()).is_ok(), "the request still waits");
    }
}

/// A server whose every answer is given by the test.
pub struct Server {
    pub address: SocketAddr,
    pub asked: mpsc::UnboundedReceiver<Asked>,
    _end: DropGuard,
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (sender, asked) = mpsc::unbounded_channel();
        let app = Router::new().fallback(ask).with_state(sender);
        let end = CancellationToken::new();
        let stop = end.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                served = axum::serve(listener, app) => served.expect("serves"),
            }
        });
        Self { address, asked, _end: end.drop_guard() }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub async fn next(&mut self) -> Asked {
        within(self.asked.recv()).await.expect("the server runs")
    }
}

async fn ask(State(sender): State<mpsc::UnboundedSender<Asked>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    let (answer, answered) = oneshot::channel();
    let path = parts.uri.to_string();
    let asked = Asked { method: parts.method, path, headers: parts.headers, body, answer };
    let _ = sender.send(asked);
    answered.await.unwrap_or_else(|_| StatusCode::IM_A_TEAPOT.into_response())
}

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("in time")
}

pub fn json(text: &'static str) -> impl IntoResponse {
    ([("content-type", "application/json; charset=utf-8")], text)
}

pub fn events(text: &str) -> Answer {
    ([("content-type", "text/event-stream")], text.to_owned()).into_response()
}

/// A stream that the test writes; dropping the sender ends it.
pub fn open_stream() -> (mpsc::UnboundedSender<&'static str>, Answer) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let chunks = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|text: &str| (Ok::<_, std::io::Error>(text), receiver))
    });
    let answer = ([("content-type", "text/event-stream")], Body::from_stream(chunks));
    (sender, answer.into_response())
}

pub struct Client {
    pub wire: Arc<dyn Wire>,
    pub events: Events,
}

impl Client {
    pub async fn request(&self, tag: u64, method: &str) {
        let kind = Kind::Request {
            tag,
            method: method.into(),
            name: None,
            headers: vec![],
            version: None,
        };
        self.send(kind).await.expect("requests fail by events");
    }

    pub async fn send(&self, kind: Kind) -> Result<(), Failure> {
        within(self.wire.send(Outgoing { bytes: Bytes::from_static(BODY.as_bytes()), kind })).await
    }

    pub async fn event(&mut self) -> Event {
        within(self.events.recv()).await.expect("the wire lives")
    }

    pub async fn message(&mut self) -> (String, Option<u64>) {
        match self.event().await {
            Event::Message { bytes, origin } => {
                (String::from_utf8(bytes.to_vec()).expect("text"), origin)
            }
            other => panic!("not a message: {other:?}"),
        }
    }

    pub async fn failure(&mut self, tag: u64) -> Failure {
        match self.event().await {
            Event::Failed { tag: failed, failure } if failed == tag => failure,
            other => panic!("not the failure of {tag}: {other:?}"),
        }
    }
}
