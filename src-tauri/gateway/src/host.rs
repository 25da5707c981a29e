//! A running Traygate: the gateway behind its port, one per data directory.

use std::{
    fs::{File, TryLockError},
    io,
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
    port, private,
    settings::Settings,
    store::{OpenError, Store, StoreError},
    upstream::process::{Children, Watch},
};

/// How long open connections may take to end.
const DRAIN: Duration = Duration::from_millis(1_500);
/// How long the upstreams may take to end; whoever is left then is ended by the watcher.
const FAREWELL: Duration = Duration::from_secs(3);

/// The kinds of host, as the run file names them.
pub const HEADLESS: &str = "headless";
pub const DESKTOP: &str = "desktop";

/// How to host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    pub paths: Paths,
    /// Instead of the setting `port`; 0 takes any free one.
    pub port: Option<u16>,
    /// [`HEADLESS`] or [`DESKTOP`].
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
    window: Option<Arc<Notify>>,
    server: JoinHandle<io::Result<()>>,
    watch: Watch,
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
        end_left_behind(&paths).await;
        let children = Children::new();
        let watch = children.watch(&paths.data).await;
        let gateway = Gateway::open(store, port, children, &paths.cache).await?;

        let token = new_token("");
        let place = Arc::new(Place {
            endpoint: format!("http://127.0.0.1:{port}/mcp"),
            data_dir: paths.data.display().to_string(),
        });
        let shutdown = Arc::new(Notify::new());
        let window = (kind == DESKTOP).then(Arc::default);
        let control = Control {
            gateway: Arc::clone(&gateway),
            place: Arc::clone(&place),
            shutdown: Arc::clone(&shutdown),
            window: window.clone(),
        };
        let app = routes(control, &token);
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
        private::write(
            &paths.run_file(),
            &serde_json::to_vec_pretty(&run_file).unwrap_or_default(),
        )?;
        info!(endpoint = %place.endpoint, "ready");
        Ok(Self { gateway, place, port, paths, shutdown, window, server, watch, _lock: lock })
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

    /// Notified when somebody wants to see the window. Only a desktop's is.
    pub fn window_wanted(&self) -> Option<Arc<Notify>> {
        self.window.clone()
    }

    /// Resolves when somebody asked it to end, over the control API.
    pub async fn ended(&self) {
        self.shutdown.notified().await;
    }

    /// The orderly end: no connection, no process and no run file is left.
    pub async fn stop(self) {
        self.gateway.ended().cancel();
        let mut server = self.server;
        let drain = async {
            if timeout(DRAIN, &mut server).await.is_err() {
                server.abort();
            }
        };
        let (closed, ()) = tokio::join!(timeout(FAREWELL, self.gateway.close()), drain);
        if closed.is_err() {
            warn!("some upstreams did not end in time");
        }
        self.watch.end().await;
        let _ = std::fs::remove_file(self.paths.run_file());
    }
}

fn routes(control: Control, token: &str) -> Router {
    let guard = Guard { gateway: Arc::clone(&control.gateway), run_token: token.into() };
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

/// Before anything new is started: two of the same server fight for files and ports.
#[cfg(unix)]
async fn end_left_behind(paths: &Paths) {
    let data = paths.data.clone();
    let end = move || crate::upstream::process::end_left_behind(&data);
    if let Ok(count @ 1..) = tokio::task::spawn_blocking(end).await {
        warn!(count, "ended programs that an earlier Traygate had left behind");
    }
}

/// The system has ended them with their host.
#[cfg(not(unix))]
async fn end_left_behind(_paths: &Paths) {}

fn lock(paths: &Paths) -> Result<File, HostError> {
    let lock = private::options().truncate(false).open(paths.lock())?;
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

/// Whether a window could be shown.
pub fn has_display() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(any(target_os = "macos", windows)) || set("WAYLAND_DISPLAY") || set("DISPLAY")
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
