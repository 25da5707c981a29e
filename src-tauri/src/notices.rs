//! Desktop notifications: what people are to be told, shown by whatever service the desktop has.
//!
//! The gateway says what, and when (design section 5.3). Nothing waits for a notification and nothing
//! depends on one: the same stands in the tray and in the journal.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use notify_rust::Notification;
use tauri::AppHandle;
use tokio::{sync::broadcast, task::JoinHandle, time::timeout};
use tracing::warn;
use traygate_gateway::{
    api::Change,
    events::By,
    gateway::{
        Gateway,
        manage::Refused,
        people::{News, Notice, What},
    },
    names::UpstreamName,
};

use crate::window;

/// A service that takes longer is taken for dead.
const PATIENCE: Duration = Duration::from_secs(5);

const OPEN: &str = "default";
const RETRY: &str = "retry";
const MUTE: &str = "mute";

/// Shows each notice until the gateway ends.
pub async fn show(app: AppHandle, gateway: Arc<Gateway>) {
    let mut notices = gateway.subscribe_people();
    let mut voice = Voice { app, gateway, shown: HashMap::new(), is_unheard: false };
    loop {
        match notices.recv().await {
            Ok(notice) => voice.say(&notice).await,
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                warn!(missed, "too much was to be notified of at once");
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// What a notification is about. A newer one about the same takes its place.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    /// `None`: several.
    upstream: Option<UpstreamName>,
    topic: Topic,
}

#[derive(PartialEq, Eq, Hash)]
enum Topic {
    State,
    Call,
    Change,
}

impl Place {
    fn of(notice: &Notice) -> Self {
        let [News { upstream, what }] = notice.news.as_slice() else {
            return Self { upstream: None, topic: Topic::State };
        };
        let topic = match what {
            What::OutcomeUnknown { .. } => Topic::Call,
            What::Changed { .. } => Topic::Change,
            _ => Topic::State,
        };
        Self { upstream: Some(upstream.clone()), topic }
    }
}

/// A notification that may still be seen.
struct Shown {
    id: u32,
    /// Waits for a click in it; ends when it is closed.
    attendant: JoinHandle<()>,
}

/// What the service can do.
#[derive(Clone, Copy, Default)]
struct Service {
    actions: bool,
    markup: bool,
}

struct Voice {
    app: AppHandle,
    gateway: Arc<Gateway>,
    shown: HashMap<Place, Shown>,
    /// The last one reached no service. That is said once.
    is_unheard: bool,
}

impl Voice {
    async fn say(&mut self, notice: &Notice) {
        self.shown.retain(|_, shown| !shown.attendant.is_finished());
        let place = Place::of(notice);
        let before = self.shown.remove(&place);
        if let Some(before) = &before {
            before.attendant.abort();
        }
        let service = if self.is_unheard { Service::default() } else { service().await };
        let delivered = deliver(notification(notice, service), before.map(|before| before.id));
        let failure = match timeout(PATIENCE, delivered).await {
            Ok(Ok((id, click))) => {
                self.is_unheard = false;
                let attendant = self.attend(click, &place);
                self.shown.insert(place, Shown { id, attendant });
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        if !std::mem::replace(&mut self.is_unheard, true) {
            warn!(
                failure,
                "this desktop shows no notifications; `traygate journal` tells the same"
            );
        }
    }

    /// Waits for a click, for as long as the notification is there.
    fn attend(&self, click: Click, place: &Place) -> JoinHandle<()> {
        let (app, gateway) = (self.app.clone(), Arc::clone(&self.gateway));
        let upstream = place.upstream.clone();
        // What it says of an outage is in the log, what changed among the tools.
        let about = match place.topic {
            Topic::Change => window::Place::Tools,
            Topic::State | Topic::Call => window::Place::Log,
        };
        tokio::spawn(async move {
            let done = match (click.await.as_deref(), upstream) {
                (Some(OPEN), upstream) => {
                    window::ask_for(&app, upstream.map_or(window::Place::Start, about));
                    Ok(())
                }
                (Some(action), Some(upstream)) => act(&gateway, action, upstream.as_str()).await,
                _ => Ok(()),
            };
            if let Err(refused) = done {
                warn!("not done: {refused}");
            }
        })
    }
}

/// A notification belongs to the tray: that is how the journal tells it.
async fn act(gateway: &Arc<Gateway>, action: &str, upstream: &str) -> Result<(), Refused> {
    match action {
        RETRY => gateway.restart(By::Tray, upstream).await.map(drop),
        MUTE => {
            let settings = [("notifications".to_owned(), "off".to_owned())].into();
            let change = Change { settings, ..Change::default() };
            gateway.change(By::Tray, upstream, change).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// Resolves with the action that was chosen, or when the notification is closed.
type Click = BoxFuture<'static, Option<String>>;

/// Shows it, in the place of another one if its number is given.
#[cfg(target_os = "linux")]
async fn deliver(
    mut notification: Notification,
    before: Option<u32>,
) -> Result<(u32, Click), String> {
    use notify_rust::NotificationResponse;

    if let Some(before) = before {
        notification.id(before);
    }
    let handle = notification.show_async().await.map_err(|error| error.to_string())?;
    let id = handle.id();
    let click = async move {
        let mut clicked = None;
        let heard = |response: &NotificationResponse| {
            clicked = match response {
                NotificationResponse::Default => Some(OPEN.to_owned()),
                NotificationResponse::Action(action) => Some(action.clone()),
                _ => None,
            };
        };
        handle.wait_for_action_async(heard).await;
        clicked
    };
    Ok((id, click.boxed()))
}

/// Elsewhere it can be shown, but neither replaced nor clicked in.
#[cfg(not(target_os = "linux"))]
async fn deliver(notification: Notification, _: Option<u32>) -> Result<(u32, Click), String> {
    let shown = tokio::task::spawn_blocking(move || notification.show().map(drop)).await;
    match shown {
        Ok(Ok(())) => Ok((0, futures::future::pending().boxed())),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// One that can't be asked can nothing.
#[cfg(target_os = "linux")]
async fn service() -> Service {
    let asked = tokio::task::spawn_blocking(notify_rust::get_capabilities);
    match timeout(PATIENCE, asked).await {
        Ok(Ok(Ok(can))) => Service {
            actions: can.iter().any(|one| one == "actions"),
            markup: can.iter().any(|one| one == "body-markup"),
        },
        _ => Service::default(),
    }
}

#[cfg(not(target_os = "linux"))]
async fn service() -> Service {
    Service::default()
}

fn notification(notice: &Notice, service: Service) -> Notification {
    let body = notice.body();
    let mut notification = Notification::new();
    notification
        .appname("Traygate")
        .icon("traygate-desktop")
        .summary(&notice.title())
        .body(&if service.markup { escaped(&body) } else { body });
    if service.actions {
        notification.action(OPEN, "Open");
        if let [News { upstream, what }] = notice.news.as_slice() {
            if matches!(what, What::Unavailable { .. } | What::Misconfigured { .. }) {
                notification.action(RETRY, "Retry now");
            }
            notification.action(MUTE, &format!("Mute {upstream}"));
        }
    }
    notification
}

/// Text from elsewhere must not be drawn as anything but text.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
