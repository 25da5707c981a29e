//! The bridge's connection to the host's endpoint: where it is, and how it is made anew.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use tokio::time::timeout;
use traygate_gateway::{
    api::RunFile,
    definition::Era,
    json::Envelope,
    paths::Paths,
    upstream::{
        log::UpstreamLog,
        wire::{self, Bounds, Event, Events, Kind, Outgoing, Wire},
    },
};
use url::Url;

use super::{
    host,
    line::{self, Request},
};

/// How long the host may take for a handshake that the bridge repeats.
const HANDSHAKE: Duration = Duration::from_secs(10);

const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Whom the bridge speaks for, and to which of the host's endpoints.
pub struct Home {
    paths: Paths,
    app: HeaderValue,
    path: String,
    sockets: Arc<wire::http::Sockets>,
    log: Arc<UpstreamLog>,
}

/// A connection to the host, new or renewed.
pub struct Link {
    pub wire: Arc<dyn Wire>,
    pub events: Events,
    /// What came while the handshake was repeated, and is the app's.
    pub early: Vec<Bytes>,
}

impl Home {
    pub fn new(paths: Paths, app: &str, upstream: Option<&str>) -> Result<Self> {
        let app: String =
            app.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '_' }).collect();
        let path = upstream
            .map_or("/mcp".to_owned(), |name| format!("/mcp/{}", crate::client::encoded(name)));
        // Loopback needs no proxy and no certificates, and reading the system's takes longer than
        // all the rest of the start.
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(Duration::from_secs(4))
            .build()
            .context("cannot set up HTTP")?;
        let app = HeaderValue::from_str(app.trim()).context("the app's name can't be a header")?;
        let sockets = Arc::new(wire::http::Sockets::from(client));
        Ok(Self { paths, app, path, sockets, log: Arc::new(UpstreamLog::new()) })
    }

    /// Connects to the host, which is started if there is none within `grace`. `handshake` is the app's
    /// `initialize`, if the host must hear it again. Fails with words for a person.
    pub async fn connect(
        &self,
        handshake: Option<(u64, &Request)>,
        grace: Duration,
    ) -> Result<Link, String> {
        let run = host::reach(&self.paths, grace).await?;
        let (wire, events) = self.open(&run)?;
        let mut link = Link { wire, events, early: Vec::new() };
        if let Some((tag, initialize)) = handshake {
            let shaken = timeout(HANDSHAKE, link.shake_hands(tag, initialize));
            shaken.await.map_err(|_| "it did not answer a handshake in time".to_owned())??;
        }
        Ok(link)
    }

    fn open(&self, run: &RunFile) -> Result<(Arc<dyn Wire>, Events), String> {
        let url = Url::parse(&format!("http://127.0.0.1:{}{}", run.port, self.path))
            .map_err(|error| format!("the endpoint's address is none: {error}"))?;
        let mut token = HeaderValue::from_str(&format!("Bearer {}", run.token))
            .map_err(|_| "the run file's token can't be a header".to_owned())?;
        token.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, token);
        headers.insert("traygate-app", self.app.clone());
        let sockets = Arc::clone(&self.sockets);
        Ok(wire::http::connect(url, headers, sockets, &self.log, Bounds::default()))
    }
}

impl Link {
    /// Opens a new legacy session in the app's name; the app doesn't notice.
    async fn shake_hands(&mut self, tag: u64, initialize: &Request) -> Result<(), String> {
        let failed = |failure: wire::Failure| failure.reason;
        self.wire.send(initialize.outgoing(tag)).await.map_err(failed)?;
        while let Some(event) = self.events.recv().await {
            match event {
                Event::Message { bytes, .. } => {
                    let Ok(envelope) = serde_json::from_slice::<Envelope>(&bytes) else { continue };
                    if envelope.method.is_some() {
                        self.early.push(bytes);
                        continue;
                    }
                    let Some(version) = line::negotiated(&envelope) else {
                        return Err("it refused to begin a new session".to_owned());
                    };
                    self.wire.negotiated(&version, Era::Legacy);
                    let kind =
                        Kind::Notification { method: "notifications/initialized".to_owned() };
                    let initialized = Outgoing { bytes: Bytes::from_static(INITIALIZED), kind };
                    return self.wire.send(initialized).await.map_err(failed);
                }
                Event::Failed { failure, .. } | Event::Closed(failure) => {
                    return Err(failure.reason);
                }
                Event::Noise(_) => {}
            }
        }
        Err("the connection ended".to_owned())
    }
}
