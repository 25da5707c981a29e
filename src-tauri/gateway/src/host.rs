//! One gateway with its endpoint and its control API, for one data directory.

use crate::{api, paths::Paths};

/// What a host is started with.
pub struct HostOptions {
    pub paths: Paths,
    /// `None`: the configured port.
    pub port: Option<u16>,
    /// `headless` or `desktop`.
    pub kind: &'static str,
}

/// Why a host didn't start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("a Traygate with pid {pid} already hosts this data directory on port {port}")]
    AlreadyRunning { pid: u32, port: u16 },
    #[error("port {port} is taken{}; choose another with --port", holder.as_ref().map(|h| format!(" by {h}")).unwrap_or_default())]
    PortTaken { port: u16, holder: Option<String> },
    #[error("not wired yet")]
    NotWired,
}

/// A running host.
pub struct Host {
    endpoint: String,
    port: u16,
}

#[allow(clippy::unused_async)]
impl Host {
    pub async fn start(_options: HostOptions) -> Result<Self, HostError> {
        Err(HostError::NotWired)
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub async fn apps(&self) -> Vec<api::AppView> {
        Vec::new()
    }

    pub async fn new_app(&self, _name: &str) -> Result<api::NewToken, HostError> {
        Err(HostError::NotWired)
    }

    /// Resolves when someone asked it to end over the control API.
    pub async fn ended(&self) {
        std::future::pending().await
    }

    /// The orderly end, within 3 s.
    pub async fn stop(self) {}
}
