//! The desktop's notification service, as `org.freedesktop.Notifications` says: it collects what it
//! is given, and clicks in it. A desktop where none is started shows no notifications.

// The interface names what nobody here reads.
#![allow(clippy::used_underscore_binding)]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use zbus::{Connection, OwnedVariant, interface, object_server::SignalEmitter};

use crate::stage::{Desktop, PATIENCE};

const SERVICE: &str = "org.freedesktop.Notifications";
const OBJECT: &str = "/org/freedesktop/Notifications";

pub struct Notifier {
    bus: Connection,
    shown: mpsc::UnboundedReceiver<Shown>,
    hangs: Arc<AtomicBool>,
}

/// A notification as the service was given it.
#[derive(Debug)]
pub struct Shown {
    pub id: u32,
    /// 0: none.
    pub replaces: u32,
    pub title: String,
    pub body: String,
    /// Labels by their keys.
    pub actions: HashMap<String, String>,
}

impl Notifier {
    pub async fn start(desktop: &Desktop) -> Self {
        let (show, shown) = mpsc::unbounded_channel();
        let hangs = Arc::new(AtomicBool::new(false));
        let service = Service { show, hangs: Arc::clone(&hangs), last: 0 };
        let serving = desktop.bus().serve_at(OBJECT, service).name(SERVICE).build();
        let bus = serving.await.expect("a bus without another service");
        Self { bus, shown, hangs }
    }

    /// From now on it answers nobody.
    pub fn hang(&self) {
        self.hangs.store(true, Ordering::Relaxed);
    }

    pub async fn next(&mut self) -> Shown {
        let shown = timeout(PATIENCE, self.shown.recv()).await;
        shown.expect("a notification in time").expect("the service lives as long as its bus")
    }

    pub fn nothing_more(&mut self) {
        if let Ok(more) = self.shown.try_recv() {
            panic!("one too many: {more:?}");
        }
    }

    /// Clicks until it had its effect: whoever showed a notification listens only a moment later.
    pub async fn click(&self, shown: &Shown, action: &str, effect: impl AsyncFn() -> bool) {
        assert!(shown.actions.contains_key(action), "no {action} in {shown:?}");
        let emitter = SignalEmitter::new(&self.bus, OBJECT).expect("a path");
        let deadline = Instant::now() + PATIENCE;
        while !effect().await {
            assert!(Instant::now() < deadline, "{action} had no effect");
            Service::action_invoked(&emitter, shown.id, action).await.expect("a signal");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

struct Service {
    show: mpsc::UnboundedSender<Shown>,
    hangs: Arc<AtomicBool>,
    last: u32,
}

#[allow(clippy::unused_self, clippy::too_many_arguments, reason = "the interface's signatures")]
#[interface(name = "org.freedesktop.Notifications")]
impl Service {
    async fn notify(
        &mut self,
        _app: &str,
        replaces: u32,
        _icon: &str,
        summary: &str,
        body: &str,
        actions: Vec<String>,
        _hints: HashMap<String, OwnedVariant>,
        _timeout: i32,
    ) -> u32 {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.last += 1;
        let id = if replaces == 0 { self.last } else { replaces };
        let actions =
            actions.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let (title, body) = (summary.to_owned(), body.to_owned());
        // A test that is over listens no more.
        let _ = self.show.send(Shown { id, replaces, title, body, actions });
        id
    }

    fn get_capabilities(&self) -> Vec<&str> {
        vec!["actions", "body", "body-markup"]
    }

    fn close_notification(&self, _id: u32) {}

    fn get_server_information(&self) -> (&str, &str, &str, &str) {
        ("test", "test", "1", "1.2")
    }

    #[zbus(signal)]
    async fn action_invoked(emitter: &SignalEmitter<'_>, id: u32, key: &str) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn notification_closed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        reason: u32,
    ) -> zbus::Result<()>;
}
