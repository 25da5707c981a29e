//! The system's own word that the machine woke (requirement R11). The gateway notices a sleep by its
//! clock too, a little later.

use std::sync::Arc;

use traygate_gateway::gateway::Gateway;

/// On the main thread, whose loop hears the system bus.
#[cfg(target_os = "linux")]
pub fn listen(gateway: Arc<Gateway>) {
    use gtk::gio;

    gio::bus_get(gio::BusType::System, None::<&gio::Cancellable>, move |bus| {
        // Without a system bus there is nobody to say it.
        let Ok(bus) = bus else { return };
        let _for_good = bus.signal_subscribe(
            Some("org.freedesktop.login1"),
            Some("org.freedesktop.login1.Manager"),
            Some("PrepareForSleep"),
            Some("/org/freedesktop/login1"),
            None,
            gio::DBusSignalFlags::NONE,
            move |_, _, _, _, _, told| {
                let falls_asleep = told.child_value(0).get::<bool>();
                if falls_asleep == Some(false) {
                    let gateway = Arc::clone(&gateway);
                    tauri::async_runtime::spawn(async move { gateway.woke() });
                }
            },
        );
        // The bus, and with it the subscription, lives as long as Traygate.
        std::mem::forget(bus);
    });
}

#[cfg(not(target_os = "linux"))]
pub fn listen(_gateway: Arc<Gateway>) {}
