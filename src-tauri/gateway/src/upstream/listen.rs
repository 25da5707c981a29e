//! Hears of changes from a modern upstream for as long as the link lives: one subscription, opened
//! again with growing pauses when it ends (protocol 2026-07-28, "Subscriptions").

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::{
    Upstream, UpstreamEvent,
    ask::{METHOD_NOT_FOUND, code_of},
    link::{Call, CallEvent, Link, Request, SUBSCRIBE},
    lists::Ended,
    wire::{Failure, FailureKind, Ran},
};
use crate::{capability::CapabilityType, json::RawObject};

/// A subscription that isn't acknowledged within this is none.
const ACKNOWLEDGED: Duration = Duration::from_secs(10);
/// The first pause before it is opened again; each further one is twice as long …
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// … up to this where it was heard before it ended, so that a change is never missed for long …
const LONGEST_GAP: Duration = Duration::from_secs(10);
/// … and up to this where nobody answers to it at all.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// One that lasted this long was a success: the pauses begin anew.
const STEADY: Duration = Duration::from_mins(1);

/// How a subscription ended.
#[derive(PartialEq, Eq)]
enum End {
    /// It was heard, and is over: by an answer, or by a broken connection.
    Over,
    /// Nobody acknowledged it.
    Unheard,
    /// Nobody listens at its address any more, so the link is dead.
    Gone(Failure),
    /// The server has none to offer; its lists live by their `ttlMs` alone.
    Refused,
}

pub async fn listen(upstream: &Arc<Upstream>, link: &Arc<Link>) {
    let (mut pause, mut missed) = (FIRST_PAUSE, false);
    loop {
        let began = Instant::now();
        let end = subscribe(upstream, link, missed).await;
        let over = end == End::Over;
        let longest = match end {
            End::Refused => return,
            End::Gone(failure) => return upstream.died(link, &failure),
            End::Over => LONGEST_GAP,
            End::Unheard => LONGEST_PAUSE,
        };
        missed |= over;
        if over && began.elapsed() > STEADY {
            pause = FIRST_PAUSE;
        }
        debug!(upstream = %upstream.name, heard = missed, ?pause, "its notices of changes ended");
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// One subscription to its end. `missed`: an earlier one has ended, so changes may have passed
/// unheard; once this one is heard, all is read again.
async fn subscribe(upstream: &Arc<Upstream>, link: &Arc<Link>, missed: bool) -> End {
    let Ok(mut call) = link.begin(Request::own(SUBSCRIBE, every_list())).await else {
        return End::Unheard;
    };
    match timeout(ACKNOWLEDGED, until_heard(&mut call)).await {
        Ok(Ok(granted)) => {
            debug!(upstream = %upstream.name, granted = granted.to_raw().get(), "it tells of changes");
        }
        Ok(Err(end)) => return end,
        // Dropping the call tells the server that nobody listens any more.
        Err(_silence) => return End::Unheard,
    }
    if missed {
        upstream.invalidate(&CapabilityType::ALL, Ended::Interrupted);
        upstream.tell(UpstreamEvent::Invalidated(CapabilityType::ALL.into(), Ended::Interrupted));
    }
    // Whatever it ends with, it is over.
    while !matches!(
        call.next().await,
        CallEvent::Result(_) | CallEvent::Error(_) | CallEvent::Failed(_)
    ) {}
    End::Over
}

/// What was granted, or how it ended before that.
async fn until_heard(call: &mut Call) -> Result<RawObject, End> {
    loop {
        match call.next().await {
            CallEvent::Acknowledged(granted) => return Ok(granted),
            CallEvent::Error(error) if code_of(&error) == Some(METHOD_NOT_FOUND) => {
                return Err(End::Refused);
            }
            CallEvent::Failed(failure)
                if matches!(failure.kind, FailureKind::Status(404 | 405 | 501)) =>
            {
                return Err(End::Refused);
            }
            CallEvent::Failed(failure)
                if failure.kind == FailureKind::Gone && failure.ran == Ran::CertainlyNot =>
            {
                return Err(End::Gone(failure));
            }
            CallEvent::Result(_) | CallEvent::Error(_) | CallEvent::Failed(_) => {
                return Err(End::Unheard);
            }
            CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Question(_) => {}
        }
    }
}

/// Everything that ends a catalogue's freshness.
fn every_list() -> RawObject {
    RawObject::default().with(
        "notifications",
        &serde_json::json!({
            "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        }),
    )
}
