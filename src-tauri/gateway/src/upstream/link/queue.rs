//! What one request hears, between the link that reads it and an app that may be slow to.
//!
//! The link must never wait for one app: others hear over it too. So what is said to a request
//! waits for it here; and what an app can do without is left out when too much waits.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use super::CallEvent;

/// Bytes of progress and log messages that wait for one app.
const MOST_WAITING: usize = 4 << 20;

pub(super) fn queue() -> (Speaker, Ear) {
    let (events, heard) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Speaker { events, waiting: Arc::clone(&waiting) }, Ear { heard, waiting })
}

pub(super) struct Speaker {
    events: mpsc::UnboundedSender<(CallEvent, usize)>,
    waiting: Arc<AtomicUsize>,
}

impl Speaker {
    /// An answer, a question or a failure. `false`: nobody listens any more.
    pub fn say(&self, event: CallEvent) -> bool {
        self.events.send((event, 0)).is_ok()
    }

    /// Progress or a log message, of so many bytes.
    pub fn mention(&self, event: CallEvent, bytes: usize) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > 0 && waiting + bytes > MOST_WAITING {
            return;
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        // Who doesn't listen any more misses nothing.
        let _ = self.events.send((event, bytes));
    }
}

pub(super) struct Ear {
    heard: mpsc::UnboundedReceiver<(CallEvent, usize)>,
    waiting: Arc<AtomicUsize>,
}

impl Ear {
    pub async fn next(&mut self) -> Option<CallEvent> {
        let (event, bytes) = self.heard.recv().await?;
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{RawObject, raw};

    #[tokio::test]
    async fn what_a_slow_app_can_do_without_is_left_out_and_its_answer_never() {
        let (speaker, mut ear) = queue();
        let bytes = MOST_WAITING / 10;
        for _ in 0..1_000 {
            speaker.mention(CallEvent::Progress(RawObject::default()), bytes);
        }
        assert!(speaker.say(CallEvent::Result(raw(&7))));
        for _ in 0..10 {
            assert!(matches!(ear.next().await, Some(CallEvent::Progress(_))));
        }
        assert!(matches!(ear.next().await, Some(CallEvent::Result(_))), "and in order");
        speaker.mention(CallEvent::Progress(RawObject::default()), 2 * MOST_WAITING);
        assert!(ear.next().await.is_some(), "one alone passes, whatever its size");
        drop(ear);
        assert!(!speaker.say(CallEvent::Result(raw(&7))));
    }
}
