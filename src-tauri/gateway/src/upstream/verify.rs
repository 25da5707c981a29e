//! Whether a link still leads anywhere, and whether anybody still needs it (design section 5.2).

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use super::{
    Upstream,
    link::{Link, Request},
    wire::{Failure, FailureKind, Ran},
};
use crate::{
    api::State,
    capability::CapabilityType,
    definition::{Era, Transport},
    json::RawObject,
};

/// Links are verified within this time, each at a moment of its own.
const SPREAD: Duration = Duration::from_secs(3);
/// How long a link's answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a program may rest by now.
const RECHECK: Duration = Duration::from_mins(1);
/// How long requests may still run on a link that is to rest.
const LAST_REQUESTS: Duration = Duration::from_mins(1);

impl Upstream {
    /// Asks for a sign of life, and connects anew if there is none.
    pub async fn verify(self: &Arc<Self>) {
        if self.ended.is_cancelled() || !self.is_enabled() || self.is_resting() {
            return;
        }
        sleep(some_of(SPREAD)).await;
        let Some(link) = self.link.current() else {
            if !matches!(self.standing.borrow().state, State::NeedsSignIn { .. }) {
                self.forgive();
            }
            return;
        };
        // What stays on this machine doesn't break by sleep or a change of network, and a server
        // at work may not listen meanwhile.
        if link.has_callers() && self.definition().transport.stays_on_this_machine() {
            return;
        }
        let failure = match timeout(PATIENCE, self.sign_of_life(&link)).await {
            Ok(Ok(())) => return debug!(upstream = %self.name, "verified"),
            Ok(Err(failure)) => failure,
            Err(_) => {
                let words = format!("it gave no sign of life within {} s", PATIENCE.as_secs());
                Failure::in_own_words(FailureKind::Silent, Ran::Perhaps, words)
            }
        };
        info!(upstream = %self.name, reason = %failure.reason, "it didn't answer, connecting anew");
        // It may only have been slow: what runs on it may still end.
        if link.has_callers() {
            self.replace(&link, &failure);
        } else {
            self.died(&link, &failure);
        }
        // Its failure is the upstream's state, and what keeps it up goes on from there.
        let _ = self.link().await;
    }

    /// Any answer is one. A server that answers a ping with an error is not pinged again.
    async fn sign_of_life(&self, link: &Arc<Link>) -> Result<(), Failure> {
        let method = match link.hello().era {
            Era::Modern => "server/discover",
            Era::Legacy if !link.refuses_pings() => "ping",
            Era::Legacy => {
                let kinds = CapabilityType::ALL.into_iter();
                match kinds.map(|kind| (kind, link.hello().offers(kind))).find(|(_, has)| *has) {
                    Some((kind, _)) => kind.list_method(),
                    // It has nothing to be asked for; its end will be noticed.
                    None => return Ok(()),
                }
            }
        };
        let answer = link.begin(Request::own(method, RawObject::default())).await?.answer().await?;
        if answer.is_err() && method == "ping" {
            link.ping_no_more();
        }
        Ok(())
    }

    /// Whether it was stopped because nobody used it.
    pub fn is_resting(&self) -> bool {
        self.standing.borrow().state == State::Idle
    }

    /// Resolves when nobody has used a program for as long as its user lets it run unused.
    pub(super) async fn idled(&self, link: &Link) {
        loop {
            let definition = self.definition();
            let minutes = definition.settings.idle_stop;
            if minutes == 0 || !matches!(definition.transport, Transport::Stdio { .. }) {
                sleep(RECHECK).await;
                continue;
            }
            if link.has_callers() {
                self.used();
            }
            let limit = Duration::from_mins(1) * minutes;
            match limit.checked_sub(self.unused_for()) {
                None | Some(Duration::ZERO) => return,
                Some(left) => sleep(left.min(RECHECK)).await,
            }
        }
    }

    /// Stops the program. Its catalogues stay, and the next request starts it again.
    pub(super) async fn rest(&self, link: &Arc<Link>) {
        if !self.link.forget(link) {
            return;
        }
        info!(upstream = %self.name, "stopped, since nobody has used it for a while");
        link.retire();
        self.set_state(State::Idle);
        // Whoever began a request at this very moment gets its answer.
        link.drain(LAST_REQUESTS).await;
        link.close().await;
    }

    pub(super) async fn until_wanted(&self) {
        // The upstream holds the sender.
        let _ = self.standing.subscribe().wait_for(|now| now.state != State::Idle).await;
    }
}

/// A random part of a time. Without randomness, half of it.
pub(super) fn some_of(time: Duration) -> Duration {
    time.mul_f64(getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX)))
}
