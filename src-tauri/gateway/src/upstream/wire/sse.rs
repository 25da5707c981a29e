//! The old HTTP+SSE transport of 2024-11-05: one stream brings everything, and its first event says
//! where to POST.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method};
use reqwest::Response;
use tokio::{
    sync::mpsc::{self, Sender},
    time::timeout,
};
use tokio_util::sync::DropGuard;
use url::Url;

use super::{
    Bounds, EVENTS, Event, Events, Failure, FailureKind, Kind, Outgoing, Ran, Wire, body,
    client::Sockets,
    eventstream::EventStream,
    exchanges::Exchanges,
    headers,
    refusal::{self, Acquaintance, Refusal},
    remote::{Remote, shown},
};
use crate::{definition::Era, lock::lock, upstream::log::UpstreamLog};

#[cfg(test)]
mod tests;

/// How long a server may take to say where to POST.
const ENDPOINT: Duration = Duration::from_secs(10);

/// The session is in the endpoint's address, so the server knew it from the start.
const KNOWN: Acquaintance = Acquaintance::Session;

/// Opens the stream and waits for its `endpoint` event; no message was sent by then.
pub async fn connect(
    url: Url,
    headers: HeaderMap,
    sockets: Arc<Sockets>,
    log: &Arc<UpstreamLog>,
    bounds: Bounds,
) -> Result<(Arc<dyn Wire>, Events), Failure> {
    let remote = Remote::new(sockets, url, headers);
    let opened = open_within(ENDPOINT, &remote, bounds).await;
    let (stream, endpoint) = opened.map_err(|failure| remote.discreet(failure))?;

    let (events, receiver) = mpsc::channel(EVENTS);
    let exchanges = Exchanges::new(events.clone());
    let end = exchanges.guard();
    let shared = Arc::new(Shared {
        remote,
        endpoint,
        bounds,
        log: log.clone(),
        version: Mutex::default(),
        exchanges: exchanges.clone(),
    });
    exchanges.run(listen(shared.clone(), stream, events));
    Ok((Arc::new(Sse { shared, _end: end }), receiver))
}

struct Sse {
    shared: Arc<Shared>,
    _end: DropGuard,
}

struct Shared {
    remote: Remote,
    /// Where to POST. Its query is the session.
    endpoint: Url,
    bounds: Bounds,
    log: Arc<UpstreamLog>,
    version: Mutex<Option<HeaderValue>>,
    exchanges: Arc<Exchanges>,
}

impl Wire for Sse {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let events = self.shared.exchanges.events()?;
            if let Kind::Request { tag, .. } = message.kind {
                let shared = self.shared.clone();
                self.shared.exchanges.begin(tag, async move {
                    shared.request(tag, message, &events).await;
                });
                return Ok(());
            }
            let told = body::accepted(self.shared.tell(message)).await;
            told.map_err(|failure| self.shared.remote.discreet(failure))
        })
    }

    /// Only a POST that still waits to be accepted ends: the answer's stream is everybody's.
    fn forget(&self, tag: u64) {
        self.shared.exchanges.forget(tag);
    }

    fn negotiated(&self, version: &str, _: Era) {
        *lock(&self.shared.version) = Some(headers::encoded(version));
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.exchanges.stop();
            self.shared.exchanges.stopped().await;
        })
    }
}

impl Shared {
    async fn post(&self, message: Outgoing) -> Result<Response, Failure> {
        let mut headers = self.remote.headers();
        headers::posting(&mut headers);
        if let Some(version) = &*lock(&self.version) {
            headers.insert(headers::VERSION, version.clone());
        }
        self.remote.ask_at(&self.endpoint, Method::POST, headers, Some(message.bytes)).await
    }

    /// POSTs a request. Its answer comes over the stream, so only a failure is news, except from
    /// servers that answer the POST itself.
    async fn request(&self, tag: u64, message: Outgoing, events: &Sender<Event>) {
        match self.answers(message).await {
            Ok(messages) => {
                for message in messages {
                    let event = Event::Message { bytes: message.bytes, origin: Some(tag) };
                    // Without a receiver nobody waits.
                    let _ = events.send(event).await;
                }
            }
            Err(failure) => {
                let failure = self.remote.discreet(failure);
                let _ = events.send(Event::Failed { tag, failure }).await;
            }
        }
    }

    async fn answers(&self, message: Outgoing) -> Result<Vec<body::Message>, Failure> {
        let mut answer = self.post(message).await?;
        let body = if answer.status().is_success() {
            if body::is_stream(&answer) {
                return Ok(vec![]);
            }
            body::read(&mut answer, self.bounds.message).await?
        } else {
            match refusal::read(answer, KNOWN).await {
                Refusal::Answer(body) => body,
                Refusal::Failure(failure) => return Err(failure),
            }
        };
        if refusal::is_session_error(&body) {
            return Err(refusal::session_lost());
        }
        // Most say `Accepted`, or nothing.
        Ok(body::messages(&body).unwrap_or_default())
    }

    async fn tell(&self, message: Outgoing) -> Result<(), Failure> {
        let mut answer = self.post(message).await?;
        if answer.status().is_success() {
            if !body::is_stream(&answer) {
                // Only so that the connection can be used again.
                body::read(&mut answer, self.bounds.message).await?;
            }
            return Ok(());
        }
        Err(match refusal::read(answer, KNOWN).await {
            Refusal::Failure(failure) => failure,
            Refusal::Answer(body) => body::refused(&body),
        })
    }
}

async fn open_within(
    patience: Duration,
    remote: &Remote,
    bounds: Bounds,
) -> Result<(EventStream, Url), Failure> {
    timeout(patience, open(remote, bounds)).await.unwrap_or_else(|_| {
        let words = format!("sent no endpoint event within {} s", patience.as_secs());
        Err(no_server(FailureKind::Gone, &words))
    })
}

/// Opens the stream, up to the event that names the endpoint.
async fn open(remote: &Remote, bounds: Bounds) -> Result<(EventStream, Url), Failure> {
    let mut headers = remote.headers();
    headers::listening(&mut headers, None);
    let answer = remote.ask(Method::GET, headers, None).await?;
    if !body::is_stream(&answer) {
        return Err(refused(answer).await);
    }
    let url = answer.url().clone();
    let mut stream = EventStream::new(answer, bounds.message);
    while let Some(event) = stream.next().await? {
        if event.name == "endpoint" {
            let endpoint = endpoint(&url, &String::from_utf8_lossy(&event.data))?;
            return Ok((stream, endpoint));
        }
    }
    Err(no_server(FailureKind::Gone, "ended the stream before its endpoint event"))
}

/// The address that an endpoint event names, by the usual rules for links in a page. It gets the
/// user's credentials, so it must be of the same origin.
fn endpoint(stream: &Url, named: &str) -> Result<Url, Failure> {
    let Ok(endpoint) = stream.join(named.trim()) else {
        return Err(no_server(FailureKind::Garbage, "named an endpoint that is no address"));
    };
    if endpoint.origin() != stream.origin() {
        let words =
            format!("named an endpoint of another origin, {}, which was refused", shown(&endpoint));
        return Err(no_server(FailureKind::Garbage, &words));
    }
    Ok(endpoint)
}

/// Why there is no stream. No message was sent, so none ran.
async fn refused(answer: Response) -> Failure {
    let status = answer.status();
    if status.is_success() {
        let kind = headers::content_type(answer.headers());
        let words = format!("answered a GET with {:?} instead of a stream", body::extract(kind));
        return no_server(FailureKind::Garbage, &words);
    }
    match refusal::read(answer, Acquaintance::None).await {
        Refusal::Failure(failure) if !matches!(failure.kind, FailureKind::Status(_)) => failure,
        Refusal::Failure(failure) => no_server(failure.kind, &failure.reason),
        Refusal::Answer(body) => {
            let words = body::extract(&String::from_utf8_lossy(&body));
            let kind = FailureKind::Status(status.as_u16());
            no_server(kind, &format!("answered {status}: {words}"))
        }
    }
}

fn no_server(kind: FailureKind, words: &str) -> Failure {
    Failure::new(kind, Ran::CertainlyNot, format!("is no HTTP+SSE server: it {words}"))
}

/// Passes on what the stream brings, until it ends: then the connection is gone.
async fn listen(shared: Arc<Shared>, mut stream: EventStream, events: Sender<Event>) {
    let failure = tokio::select! {
        () = shared.exchanges.ended() => return,
        failure = pass_on(&mut stream, &events) => shared.remote.discreet(failure),
    };
    shared.log.push("traygate", &failure.reason);
    shared.exchanges.fail(events, failure).await;
}

async fn pass_on(stream: &mut EventStream, events: &Sender<Event>) -> Failure {
    loop {
        let event = match stream.next().await {
            Ok(Some(event)) => event,
            Ok(None) => {
                let reason = "the server ended the stream";
                return Failure::new(FailureKind::Gone, Ran::Perhaps, reason);
            }
            Err(failure) => return failure,
        };
        if event.name == "endpoint" || event.data.is_empty() {
            continue;
        }
        for event in body::unasked(&event.data) {
            // Without a receiver nobody waits.
            let _ = events.send(event).await;
        }
    }
}
