//! What a server says that is no part of the protocol; it explains what goes wrong later.

use std::sync::{Mutex, OnceLock};

use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{CallEvent, Link};
use crate::{json::RawObject, lock::lock, upstream::wire::stdio::foreign_framing};

#[derive(Default)]
pub(super) struct Oddities {
    /// The first text that was no message.
    noise: OnceLock<String>,
    /// What it seems to speak instead of one message a line.
    foreign: OnceLock<&'static str>,
    foreign_seen: CancellationToken,
    last_noise: Mutex<Option<Instant>>,
    /// The last error that says of no request that it is its answer.
    stray_error: Mutex<Option<(Instant, String)>>,
}

impl Link {
    /// Text that is no message is skipped, kept for the log, and warned of once.
    pub(super) fn noise(&self, text: &str) {
        self.log.push("stdout", text);
        *lock(&self.oddities.last_noise) = Some(Instant::now());
        if self.oddities.noise.set(text.to_owned()).is_ok() {
            self.log.push("traygate", "what it wrote there is no MCP message and is skipped, as is everything of that kind from now on; logs belong on its standard error");
        }
        if let Some(framing) = foreign_framing(text)
            && self.oddities.foreign.set(framing).is_ok()
        {
            self.log.push("traygate", framing);
            self.oddities.foreign_seen.cancel();
        }
    }

    /// Resolves when the server turned out to speak something else than one message a line.
    pub async fn speaks_foreign(&self) {
        self.oddities.foreign_seen.cancelled().await;
    }

    pub fn is_foreign(&self) -> bool {
        self.oddities.foreign.get().is_some()
    }

    /// Why nothing that a server says can be understood, if it says anything.
    pub fn misunderstanding(&self) -> Option<String> {
        let noise = self.oddities.noise.get()?;
        let why = self.oddities.foreign.get().copied().unwrap_or(
            "what it writes to its standard output is no MCP message, which is one line of JSON-RPC",
        );
        Some(format!("{why}; its output begins with {:?}", crate::text::one_line(noise, 60)))
    }

    /// Whether it wrote what is no message since then.
    pub fn is_garbling(&self, since: Instant) -> bool {
        lock(&self.oddities.last_noise).is_some_and(|at| at >= since)
    }

    /// What the server complained of since then without saying of which request.
    pub fn stray_error(&self, since: Instant) -> Option<String> {
        let stray = lock(&self.oddities.stray_error);
        stray.as_ref().filter(|(at, _)| *at >= since).map(|(_, words)| words.clone())
    }

    /// An answer to nothing. An error without an id may be meant for any of several requests: they
    /// go on waiting, and its words are told with their time-out.
    pub(super) fn stray(&self, id: Option<&RawValue>, event: CallEvent) {
        let CallEvent::Error(error) = event else { return };
        if id.is_some_and(|id| id.get() != "null") {
            return;
        }
        let message = RawObject::parse(&error).ok().and_then(|error| error.str("message"));
        let words = crate::text::one_line(&message.unwrap_or_default(), 200);
        self.log.push("traygate", &format!("an error without an id came: {words}"));
        *lock(&self.oddities.stray_error) = Some((Instant::now(), words));
    }
}
