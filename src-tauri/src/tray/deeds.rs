//! What a click does to the gateway. It is done by the same front door that the command line uses.

use std::sync::Arc;

use jiff::ZonedDateTime;
use tracing::warn;
use traygate_gateway::{
    api::{Change, PauseRequest, Toggle},
    clock::rest_of_today,
    events::By,
    gateway::{Gateway, manage::Refused},
};

use super::menu::{Deed, HowLong};

/// Begins what the gateway is asked to do. What came of it is in the next snapshot, or in the log.
pub fn begin(gateway: Arc<Gateway>, deed: Deed) {
    tauri::async_runtime::spawn(async move {
        if let Err(refused) = act(&gateway, deed.clone()).await {
            warn!(?deed, "not done: {refused}");
        }
    });
}

async fn act(gateway: &Arc<Gateway>, deed: Deed) -> Result<(), Refused> {
    match deed {
        Deed::Switch { upstream, enabled } => {
            let change = Change { enabled: Some(enabled), ..Change::default() };
            gateway.change(By::Tray, upstream.as_str(), change).await.map(drop)
        }
        Deed::Refresh(upstream) => gateway.refresh(upstream.as_str()).await.map(drop),
        Deed::Restart(upstream) => gateway.restart(By::Tray, upstream.as_str()).await.map(drop),
        Deed::Toggle { upstream, kind, key, enabled } => {
            let toggle = Toggle { kind, key, enabled: Some(enabled), pinned: None };
            gateway.toggle(By::Tray, upstream.as_str(), toggle).await.map(drop)
        }
        Deed::Pause(what, how_long) => {
            let request = PauseRequest { what, seconds: seconds(how_long, &ZonedDateTime::now()) };
            gateway.set_pause(By::Tray, Some(request)).await
        }
        Deed::Resume => gateway.set_pause(By::Tray, None).await,
        Deed::Notify(on) => {
            let value = if on { "on" } else { "off" };
            gateway.set(By::Tray, "notifications", Some(value)).await.map(drop)
        }
        // Done by the tray itself.
        Deed::Open
        | Deed::ShowLog(_)
        | Deed::ShowTools(_)
        | Deed::Quit
        | Deed::CopyEndpoint
        | Deed::StartAtLogin(_)
        | Deed::TryAgain
        | Deed::UseAnotherPort(_) => Ok(()),
    }
}

/// `None`: until the user resumes.
fn seconds(how_long: HowLong, now: &ZonedDateTime) -> Option<u64> {
    match how_long {
        HowLong::Minutes(minutes) => Some(60 * minutes),
        HowLong::Tomorrow => Some(rest_of_today(now).as_secs()),
        HowLong::Open => None,
    }
}
