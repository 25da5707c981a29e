//! Whether anything on this desktop shows tray icons: plain GNOME and some others have nothing.

use std::time::Duration;

use tokio::sync::watch;

/// How long a session that has just begun may take to bring up its panel.
const GRACE: Duration = Duration::from_secs(5);

/// Whether there is a host now; `None` before that is known.
#[derive(Clone)]
pub struct Host(watch::Receiver<Option<bool>>);

impl Host {
    pub fn is_there(&self) -> bool {
        *self.0.borrow() == Some(true)
    }

    /// Waits for it, for as long as a panel may take.
    pub async fn comes(&mut self) -> bool {
        let there = self.0.wait_for(|there| *there == Some(true));
        matches!(tokio::time::timeout(GRACE, there).await, Ok(Ok(_)))
    }
}

/// On the main thread, whose loop hears the session bus.
pub fn watch() -> Host {
    let (tell, told) = watch::channel(None);
    listen(tell);
    Host(told)
}

/// Everywhere else the system itself has a tray.
#[cfg(not(target_os = "linux"))]
fn listen(tell: watch::Sender<Option<bool>>) {
    tell.send_replace(Some(true));
    // Nothing more is told, but who waits must not take that for an end.
    std::mem::forget(tell);
}

#[cfg(target_os = "linux")]
fn listen(tell: watch::Sender<Option<bool>>) {
    use std::sync::Arc;

    use gtk::gio;

    const WATCHER: &str = "org.kde.StatusNotifierWatcher";
    let tell = Arc::new(tell);
    gio::bus_get(gio::BusType::Session, None::<&gio::Cancellable>, move |bus| {
        let Ok(bus) = bus else {
            tell.send_replace(Some(false));
            return;
        };
        // The watcher may be there before a panel is.
        let registered = Arc::clone(&tell);
        let _for_good = bus.signal_subscribe(
            None,
            Some(WATCHER),
            Some("StatusNotifierHostRegistered"),
            Some("/StatusNotifierWatcher"),
            None,
            gio::DBusSignalFlags::NONE,
            move |_, _, _, _, _, _| {
                registered.send_replace(Some(true));
            },
        );
        let gone = Arc::clone(&tell);
        let _for_good = gio::bus_watch_name_on_connection(
            &bus,
            WATCHER,
            gio::BusNameWatcherFlags::NONE,
            move |bus, _, _| linux::ask(&bus, WATCHER, Arc::clone(&tell)),
            move |_, _| {
                gone.send_replace(Some(false));
            },
        );
    });
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::Arc;

    use gtk::{gio, glib::ToVariant as _};
    use tokio::sync::watch;

    /// Asks the watcher whether a panel has registered with it.
    pub fn ask(bus: &gio::DBusConnection, watcher: &str, tell: Arc<watch::Sender<Option<bool>>>) {
        bus.call(
            Some(watcher),
            "/StatusNotifierWatcher",
            "org.freedesktop.DBus.Properties",
            "Get",
            Some(&(watcher, "IsStatusNotifierHostRegistered").to_variant()),
            None,
            gio::DBusCallFlags::NONE,
            -1,
            None::<&gio::Cancellable>,
            move |answer| {
                let value = answer.ok().and_then(|answer| answer.child_value(0).as_variant());
                let there = value.and_then(|value| value.get::<bool>()).unwrap_or_default();
                tell.send_replace(Some(there));
            },
        );
    }
}
