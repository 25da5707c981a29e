//! The gateway's front door: stands here by its signatures until the real one is merged.

use tokio::sync::watch;

use crate::{api, paths::Paths};

pub struct HostOptions {
    pub paths: Paths,
    pub port: Option<u16>,
    pub kind: &'static str,
}

pub struct Host(watch::Sender<u64>);

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("Traygate already runs as process {pid} on port {port}")]
    AlreadyRunning { pid: u32, port: u16 },
    #[error("port {port} is taken")]
    PortTaken { port: u16, holder: Option<String> },
}

impl Host {
    #[allow(clippy::unused_async)]
    pub async fn start(options: HostOptions) -> Result<Self, HostError> {
        Err(HostError::PortTaken { port: options.port.unwrap_or(8717), holder: None })
    }

    pub fn endpoint(&self) -> &'static str {
        "http://127.0.0.1:8717/mcp"
    }

    #[allow(clippy::unused_async)]
    pub async fn snapshot(&self) -> api::Snapshot {
        unreachable!("no host starts")
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    pub async fn ended(&self) {
        std::future::pending().await
    }

    #[allow(clippy::unused_async)]
    pub async fn stop(self) {}
}
