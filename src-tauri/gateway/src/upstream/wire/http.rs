//! Streamable HTTP in both eras: every message is a POST, every request's answer comes as the
//! POST's own, and in the legacy era a GET stream brings what the server says unasked.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method};
use reqwest::Response;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::DropGuard;
use url::Url;

use super::{
    Bounds, EVENTS, Events, Failure, FailureKind, Kind, Outgoing, Wire, body,
    exchanges::Exchanges,
    headers,
    refusal::{self, Acquaintance, Refusal},
    remote::Remote,
};
use crate::{definition::Era, lock::lock, upstream::log::UpstreamLog};

pub use super::client::Sockets;

mod exchange;
mod unasked;

#[cfg(test)]
mod tests;

/// How long a server may take to end a session that nobody needs any more.
const FAREWELL: Duration = Duration::from_secs(2);

/// A wire to `url`. Nothing is sent yet.
///
/// `headers` are the user's own; what the protocol says in headers replaces them.
pub fn connect(
    url: Url,
    headers: HeaderMap,
    sockets: Arc<Sockets>,
    log: &Arc<UpstreamLog>,
    bounds: Bounds,
) -> (Arc<dyn Wire>, Events) {
    let (events, receiver) = mpsc::channel(EVENTS);
    let exchanges = Exchanges::new(events);
    let end = exchanges.guard();
    let shared = Arc::new(Shared {
        remote: Remote::new(sockets, url, headers),
        bounds,
        log: log.clone(),
        state: Mutex::default(),
        exchanges,
    });
    (Arc::new(Http { shared, _end: end }), receiver)
}

struct Http {
    shared: Arc<Shared>,
    _end: DropGuard,
}

/// What the wire and its tasks know.
struct Shared {
    remote: Remote,
    bounds: Bounds,
    log: Arc<UpstreamLog>,
    state: Mutex<State>,
    exchanges: Arc<Exchanges>,
}

#[derive(Default)]
struct State {
    /// From the answer to `initialize`.
    session: Option<HeaderValue>,
    /// The server has said that it doesn't know the session, so there is none to end.
    forgotten: bool,
    negotiated: Option<(HeaderValue, Era)>,
    /// The server has accepted `notifications/initialized`; only then does it owe us a stream.
    initialized: bool,
    listening: bool,
}

impl Wire for Http {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let events = self.shared.exchanges.events()?;
            match message.kind {
                Kind::Request { tag, .. } => {
                    let shared = self.shared.clone();
                    self.shared.exchanges.begin(tag, async move {
                        exchange::run(&shared, tag, message, &events).await;
                    });
                    Ok(())
                }
                Kind::Notification { .. } | Kind::Response => {
                    let told = body::accepted(self.shared.tell(message)).await;
                    told.map_err(|failure| self.shared.remote.discreet(failure))
                }
            }
        })
    }

    fn forget(&self, tag: u64) {
        self.shared.exchanges.forget(tag);
    }

    fn negotiated(&self, version: &str, era: Era) {
        lock(&self.shared.state).negotiated = Some((headers::encoded(version), era));
        self.shared.listen_if_due();
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.exchanges.stop();
            self.shared.end_session().await;
            self.shared.exchanges.stopped().await;
        })
    }
}

impl Shared {
    /// Sends what has no answer, and waits until the server took it.
    async fn tell(self: &Arc<Self>, message: Outgoing) -> Result<(), Failure> {
        let known = self.acquaintance(&message.kind);
        let headers = self.headers(&message.kind);
        let mut answer = self.remote.ask(Method::POST, headers, Some(message.bytes)).await?;
        if !answer.status().is_success() {
            return Err(match refusal::read(answer, known).await {
                Refusal::Failure(failure) => self.noted(failure),
                Refusal::Answer(body) => body::refused(&body),
            });
        }
        // A stream would be nothing for us; a body should be empty, and is read so that the
        // connection can be used again.
        if !headers::is_event_stream(answer.headers()) {
            let body = body::read(&mut answer, self.bounds.message).await?;
            if known != Acquaintance::None && refusal::is_session_error(&body) {
                return Err(self.noted(refusal::session_lost()));
            }
        }
        if matches!(&message.kind, Kind::Notification { method } if method == "notifications/initialized")
        {
            lock(&self.state).initialized = true;
            self.listen_if_due();
        }
        Ok(())
    }

    /// Opens the GET stream once both sides have said that the handshake is over.
    fn listen_if_due(self: &Arc<Self>) {
        let Ok(events) = self.exchanges.events() else { return };
        {
            let mut state = lock(&self.state);
            let legacy = matches!(state.negotiated, Some((_, Era::Legacy)));
            if !legacy || !state.initialized || state.listening {
                return;
            }
            state.listening = true;
        }
        let shared = self.clone();
        self.exchanges.run(async move { unasked::run(&shared, events).await });
    }

    /// All headers of a message's POST.
    fn headers(&self, kind: &Kind) -> HeaderMap {
        let mut headers = self.remote.headers();
        headers::posting(&mut headers);
        let state = lock(&self.state);
        let modern = match kind {
            Kind::Request { version, .. } => version.is_some(),
            Kind::Notification { .. } | Kind::Response => {
                matches!(state.negotiated, Some((_, Era::Modern)))
            }
        };
        if !is_initialize(kind) {
            state.known_to(&mut headers, modern);
        }
        if modern {
            headers::mirrored(&mut headers, kind);
        }
        headers
    }

    /// The headers of a GET or DELETE in the legacy era.
    fn legacy_headers(&self) -> HeaderMap {
        let mut headers = self.remote.headers();
        lock(&self.state).known_to(&mut headers, false);
        headers
    }

    fn acquaintance(&self, kind: &Kind) -> Acquaintance {
        let modern = matches!(kind, Kind::Request { version: Some(_), .. });
        let state = lock(&self.state);
        match &*state {
            _ if modern || is_initialize(kind) => Acquaintance::None,
            State { session: Some(_), .. } => Acquaintance::Session,
            State { negotiated: Some((_, Era::Legacy)), .. } => Acquaintance::Initialized,
            State { .. } => Acquaintance::None,
        }
    }

    /// The session that the answer to `initialize` opens.
    fn remember_session(&self, answer: &Response) {
        if let Some(session) = answer.headers().get(headers::SESSION) {
            let mut session = session.clone();
            session.set_sensitive(true);
            lock(&self.state).session = Some(session);
        }
    }

    /// The failure, after what it says of the session was remembered.
    fn noted(&self, failure: Failure) -> Failure {
        if failure.kind == FailureKind::SessionLost {
            lock(&self.state).forgotten = true;
        }
        failure
    }

    /// Tells the server that the session isn't needed any more; what it answers changes nothing.
    async fn end_session(&self) {
        let open = {
            let state = lock(&self.state);
            state.session.is_some() && !state.forgotten
        };
        if open {
            let farewell = self.remote.ask(Method::DELETE, self.legacy_headers(), None);
            let _ = timeout(FAREWELL, farewell).await;
        }
    }
}

impl State {
    /// What a server that we have met expects on every request.
    fn known_to(&self, headers: &mut HeaderMap, modern: bool) {
        if let Some((version, _)) = &self.negotiated {
            headers.insert(headers::VERSION, version.clone());
        }
        if let (false, Some(session)) = (modern, &self.session) {
            headers.insert(headers::SESSION, session.clone());
        }
    }
}

fn is_initialize(kind: &Kind) -> bool {
    matches!(kind, Kind::Request { method, .. } if method == "initialize")
}
