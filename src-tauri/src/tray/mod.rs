//! The tray: an icon and a menu, drawn from the newest snapshot. A click changes the gateway and
//! never the menu; what came of it is in the next snapshot.

mod clipboard;
mod deeds;
mod drawn;
mod host;
mod icon;
mod menu;
pub mod powers;
mod words;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::ZonedDateTime;
use tauri::{AppHandle, Manager as _, tray::TrayIconBuilder};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep, sleep_until},
};
use tracing::{error, warn};

pub use self::powers::{Powers, Switch};
use self::{
    drawn::{Drawn, May, Outcome},
    host::Host,
    menu::{Around, Deed, Menu, Mood},
};
use crate::{
    again,
    gateway::{Hands, View},
    window::{self, Place},
};

const ID: &str = "traygate";
/// Rows are made anew at most this often: a menu that is open must not jump.
const REBUILD: Duration = Duration::from_secs(1);
/// What changes within this time is drawn together.
const TOGETHER: Duration = Duration::from_millis(50);

/// The icon in the tray. There may be no panel that shows it.
pub struct Tray {
    drawn: Mutex<Drawn>,
    /// What the icon shows, and what it says when it is pointed at.
    icon: Mutex<(Mood, String)>,
    host: Host,
    powers: Powers,
    redraw: Notify,
    /// What clicks act on; nothing where the gateway could not start.
    hands: Option<Hands>,
}

/// Puts Traygate into the tray; says why where that can't be.
pub fn put_up(
    app: &AppHandle,
    cache: &Path,
    view: &View,
    hands: Option<Hands>,
    powers: Powers,
) -> Result<(), String> {
    // The library that draws the icon on Linux is loaded when it is needed; without it, the call
    // below panics instead of returning an error.
    match catch_unwind(AssertUnwindSafe(|| build(app, cache, view, hands, powers))) {
        Ok(Ok(tray)) => {
            app.manage(tray);
            Ok(())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the library libayatana-appindicator3 is missing; install it".to_owned()),
    }
}

fn build(
    app: &AppHandle,
    cache: &Path,
    view: &View,
    hands: Option<Hands>,
    powers: Powers,
) -> tauri::Result<Tray> {
    let menu = current(app, view, powers);
    let mut drawn = Drawn::new(app)?;
    drawn.draw(&menu.rows, May::Rebuild)?;
    let tooltip = menu::first_line(&menu).to_owned();
    TrayIconBuilder::with_id(ID)
        // On Linux the icon is handed over as a file; by default in a directory that all share.
        .temp_dir_path(cache.join("tray"))
        .icon(icon::of(menu.mood))
        .icon_as_template(true)
        .tooltip(&tooltip)
        .menu(&drawn.menu)
        .on_menu_event(|app, event| clicked(app, event.id().as_ref()))
        .build(app)?;
    Ok(Tray {
        drawn: Mutex::new(drawn),
        icon: Mutex::new((menu.mood, tooltip)),
        host: host::watch(),
        powers,
        redraw: Notify::new(),
        hands,
    })
}

fn current(app: &AppHandle, view: &View, powers: Powers) -> Menu {
    let around = Around {
        start_at_login: powers.start_at_login.map(|switch| (switch.is_on)(app)),
        shows_notifications: powers.notifications,
    };
    match view {
        Ok(newest) => menu::menu(&newest.borrow(), around, &ZonedDateTime::now()),
        Err(failure) => menu::without_a_gateway(failure),
    }
}

/// Draws what no snapshot tells of.
pub fn redraw(app: &AppHandle) {
    if let Some(tray) = app.try_state::<Tray>() {
        tray.redraw.notify_one();
    }
}

/// Whether the user can get at Traygate without a window.
pub fn is_reachable(app: &AppHandle) -> bool {
    app.try_state::<Tray>().is_some_and(|tray| tray.host.is_there())
}

/// Opens the window where no panel shows the icon, and says so once.
pub async fn or_the_window(app: AppHandle) {
    let Some(mut host) = app.try_state::<Tray>().map(|tray| tray.host.clone()) else { return };
    if host.comes().await {
        return;
    }
    warn!(
        "nothing on this desktop shows tray icons, so the window opens instead; on GNOME the \
         extension \"AppIndicator and KStatusNotifierItem Support\" shows them"
    );
    let opening = app.clone();
    let asked = app.run_on_main_thread(move || {
        // One that is open already need not come to the front now.
        if !window::is_open(&opening) {
            open(&opening, &Place::Start);
        }
    });
    if let Err(error) = asked {
        error!(%error, "the window can't be opened");
    }
}

fn open(app: &AppHandle, place: &Place) {
    if let Err(error) = window::open(app, place) {
        error!(%error, "the window can't be opened");
    }
}

/// On the main thread.
fn clicked(app: &AppHandle, id: &str) {
    let Some(tray) = app.try_state::<Tray>() else { return };
    let deed = tray.drawn.lock().unwrap_or_else(PoisonError::into_inner).clicked(id);
    match (deed, &tray.hands) {
        (Some(Deed::Open), _) => open(app, &Place::Start),
        (Some(Deed::ShowLog(upstream)), _) => open(app, &Place::Log(upstream)),
        (Some(Deed::ShowTools(upstream)), _) => open(app, &Place::Tools(upstream)),
        (Some(Deed::Quit), _) => app.exit(0),
        (Some(Deed::CopyEndpoint), Some(hands)) => clipboard::put(&hands.endpoint),
        (Some(Deed::TryAgain), _) => again::try_again(app.clone()),
        (Some(Deed::UseAnotherPort(taken)), _) => {
            let app = app.clone();
            tauri::async_runtime::spawn(async move {
                if let Err(why) = again::another_port(&app, Some(taken)).await {
                    warn!(why, "no other port is used");
                }
            });
        }
        (Some(Deed::StartAtLogin(on)), _) => tray.start_at_login(app, on),
        (Some(deed), Some(hands)) => deeds::begin(Arc::clone(&hands.gateway), deed),
        (None, _) | (Some(_), None) => {}
    }
}

/// Keeps the icon and its menu in line with the newest snapshot, until the gateway ends.
pub async fn keep_drawn(app: AppHandle, view: View) {
    let Ok(mut newest) = view.clone() else { return };
    let Some(tray) = app.try_state::<Tray>() else { return };
    let mut rebuilt: Option<Instant> = None;
    loop {
        newest.mark_unchanged();
        let next = rebuilt.map_or_else(Instant::now, |at| at + REBUILD);
        let may = if Instant::now() < next { May::SetOnly } else { May::Rebuild };
        let outcome = draw(&app, current(&app, &view, tray.powers), may).await;
        if outcome == Some(Outcome::Rebuilt) {
            rebuilt = Some(Instant::now());
        }
        sleep(TOGETHER).await;
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            () = tray.redraw.notified() => {}
            () = sleep_until(next), if outcome == Some(Outcome::Incomplete) => {}
        }
    }
}

async fn draw(app: &AppHandle, menu: Menu, may: May) -> Option<Outcome> {
    let (tell, told) = oneshot::channel();
    let on_main = app.clone();
    let asked = app.run_on_main_thread(move || {
        let drawn = on_main.try_state::<Tray>().map(|tray| tray.draw(&on_main, &menu, may));
        // Nobody listens when Traygate ends.
        let _ = tell.send(drawn);
    });
    match asked.map(|()| told) {
        Ok(told) => match told.await {
            Ok(Some(Ok(outcome))) => Some(outcome),
            Ok(Some(Err(error))) => {
                warn!(%error, "the tray's menu can't be drawn");
                None
            }
            Ok(None) | Err(_) => None,
        },
        Err(_) => None,
    }
}

impl Tray {
    fn start_at_login(&self, app: &AppHandle, on: bool) {
        let Some(switch) = self.powers.start_at_login else { return };
        if let Err(why) = (switch.set)(app, on) {
            warn!(why, "starting at login can't be changed");
        }
        redraw(app);
    }

    fn draw(&self, app: &AppHandle, menu: &Menu, may: May) -> tauri::Result<Outcome> {
        let outcome = {
            let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
            drawn.draw(&menu.rows, may)?
        };
        let Some(tray) = app.tray_by_id(ID) else { return Ok(outcome) };
        let mut icon = self.icon.lock().unwrap_or_else(PoisonError::into_inner);
        if icon.0 != menu.mood {
            tray.set_icon_with_as_template(Some(icon::of(menu.mood)), true)?;
            icon.0 = menu.mood;
        }
        let line = menu::first_line(menu);
        if icon.1 != line {
            tray.set_tooltip(Some(line))?;
            line.clone_into(&mut icon.1);
        }
        Ok(outcome)
    }
}
