//! A running Traygate: the gateway behind its port, one per data directory.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use axum::{Router, middleware::from_fn_with_state, serve::ListenerExt as _};
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::{debug, info, warn};

use crate::{
    api::{AppView, NewToken, RunFile, Snapshot},
    control::{self, Control},
    endpoint::{
        self,
        guard::{self, Guard},
    },
    events::By,
    gateway::{Gateway, NotOpened, Place, manage::Refused, new_token},
    paths::Paths,
    port,
    settings::Settings,
    store::{OpenError, Store, StoreError},
};

/// How long open connections may take to end.
const DRAIN: Duration = Duration::from_secs(2);
/// How long the whole end may take.
const FAREWELL: Duration = Duration::from_secs(12);

/// How to host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    pub paths: Paths,
    /// Instead of the setting `port`; 0 takes any free one.
    pub port: Option<u16>,
    /// `headless` or `desktop`.
    pub kind: &'static str,
}

/// Why there is no host. Each is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{}", already_running(*.pid, *.port))]
    AlreadyRunning { pid: Option<u32>, port: Option<u16> },
    #[error("{}", port_taken(*.port, .holder.as_deref()))]
    PortTaken { port: u16, holder: Option<String> },
    #[error("port {port} can't be opened: {source}; use another one: traygate serve --port N")]
    Port { port: u16, source: io::Error },
    #[error("Traygate's files can't be used: {0}")]
    Files(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] StoreError),
    #[error(transparent)]
    Gateway(#[from] NotOpened),
    #[error(transparent)]
    Refused(#[from] Refused),
}

fn already_running(pid: Option<u32>, port: Option<u16>) -> String {
    let who = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    let place = port.map(|port| format!(" on http://127.0.0.1:{port}/mcp")).unwrap_or_default();
    format!(
        "Traygate is already running{place}{who}; stop that one first, or set TRAYGATE_HOME to another directory"
    )
}

fn port_taken(port: u16, holder: Option<&str>) -> String {
    let holder = holder.map_or("another program".to_owned(), ToOwned::to_owned);
    format!(
        "port {port} is in use by {holder}; stop it, or use another port: traygate serve --port N"
    )
}

/// The running host. It ends with [`Host::stop`].
pub struct Host {
    gateway: Arc<Gateway>,
    place: Arc<Place>,
    port: u16,
    paths: Paths,
    shutdown: Arc<Notify>,
    server: JoinHandle<io::Result<()>>,
    /// Held for as long as this host runs; the system lets go of it even after a crash.
    _lock: File,
}

impl Host {
    pub async fn start(options: HostOptions) -> Result<Self, HostError> {
        let HostOptions { paths, port, kind } = options;
        paths.create()?;
        let lock = lock(&paths)?;
        let store = Store::open(&paths.database()).await?;
        let (settings, _) = Settings::from_stored(&store.settings().await?);
        // Before any upstream is started: a host without its port starts nothing.
        let listener = bind(port.unwrap_or(settings.port)).await?;
        let port = listener.local_addr()?.port();
        let gateway = Gateway::open(store, port, &paths.cache).await?;

        let token = new_token("");
        let place = Arc::new(Place {
            endpoint: format!("http://127.0.0.1:{port}/mcp"),
            data_dir: paths.data.display().to_string(),
        });
        let shutdown = Arc::new(Notify::new());
        let app = routes(&gateway, &place, &shutdown, &token);
        let ended = gateway.ended().clone();
        // Answers go out in small pieces: left to Nagle's algorithm each would wait for the 40 ms of
        // a delayed acknowledgement.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                debug!(%error, "a connection's answers may be late");
            }
        });
        let server = axum::serve(listener, app)
            .with_graceful_shutdown(async move { ended.cancelled().await });
        let server = tokio::spawn(async move { server.await });
        let run_file = RunFile {
            pid: std::process::id(),
            port,
            token,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: kind.to_owned(),
        };
        write_private(
            &paths.run_file(),
            &serde_json::to_vec_pretty(&run_file).unwrap_or_default(),
        )?;
        info!(endpoint = %place.endpoint, "ready");
        Ok(Self { gateway, place, port, paths, shutdown, server, _lock: lock })
    }

    pub fn endpoint(&self) -> &str {
        &self.place.endpoint
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    pub fn snapshot(&self) -> Snapshot {
        self.gateway.snapshot(&self.place)
    }

    /// Grows with each change of what a snapshot shows.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.gateway.changes()
    }

    pub fn apps(&self) -> Vec<AppView> {
        self.gateway.apps().views()
    }

    /// A new app's token, told here and never again.
    pub async fn new_app(&self, by: By, name: &str) -> Result<NewToken, HostError> {
        let token = self.gateway.new_app(by, name).await?;
        Ok(NewToken { name: name.to_owned(), token, endpoint: self.place.endpoint.clone() })
    }

    /// Resolves when somebody asked it to end, over the control API.
    pub async fn ended(&self) {
        self.shutdown.notified().await;
    }

    /// The orderly end: no connection, no process and no run file is left.
    pub async fn stop(self) {
        self.gateway.ended().cancel();
        if timeout(FAREWELL, self.gateway.close()).await.is_err() {
            warn!("some upstreams did not end in time");
        }
        let server = self.server;
        let abort = server.abort_handle();
        if timeout(DRAIN, server).await.is_err() {
            abort.abort();
        }
        let _ = std::fs::remove_file(self.paths.run_file());
    }
}

fn routes(
    gateway: &Arc<Gateway>,
    place: &Arc<Place>,
    shutdown: &Arc<Notify>,
    token: &str,
) -> Router {
    let guard = Guard { gateway: Arc::clone(gateway), run_token: token.into() };
    let control = Control {
        gateway: Arc::clone(gateway),
        place: Arc::clone(place),
        shutdown: Arc::clone(shutdown),
    };
    endpoint::routes(&guard)
        .merge(control::routes(control, &guard))
        .fallback(|| async {
            guard::refuse(
                http::StatusCode::NOT_FOUND,
                "there is nothing here; the endpoint is /mcp",
            )
        })
        .layer(from_fn_with_state(guard, guard::same_machine))
}

fn lock(paths: &Paths) -> Result<File, HostError> {
    let lock = private().truncate(false).open(paths.lock())?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let other = read_run_file(paths);
            Err(HostError::AlreadyRunning {
                pid: other.as_ref().map(|other| other.pid),
                port: other.as_ref().map(|other| other.port),
            })
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Who hosts, as the host itself wrote it down.
pub fn read_run_file(paths: &Paths) -> Option<RunFile> {
    serde_json::from_slice(&std::fs::read(paths.run_file()).ok()?).ok()
}

async fn bind(port: u16) -> Result<TcpListener, HostError> {
    TcpListener::bind(("127.0.0.1", port)).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => HostError::PortTaken { port, holder: port::holder(port) },
        _ => HostError::Port { port, source },
    })
}

/// For files that only this user may read, from the first byte.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Written beside and moved into place, so that nobody reads half of it.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = private().truncate(true).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
