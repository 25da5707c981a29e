//! An upstream's link from dial to death, and the next one: retried for ever, never in a frenzy, and
//! never revived once the upstream was stopped (design section 5.2).

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Upstream, UpstreamEvent,
    advice::advised,
    link::{Link, News},
    listen,
    lists::Ended,
    wire::{Failure, FailureKind, Ran},
};
use crate::{
    api::State,
    capability::CapabilityType,
    clock::wall,
    definition::{Era, Transport},
    lock::lock,
};

/// Retries go on for ever, from this pause …
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// … up to this one.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// A link that lived this long was a success: the pauses begin anew.
const STEADY: Duration = Duration::from_mins(1);
/// A program that starts and exits at once is started at most this often in a minute …
const STARTS_A_MINUTE: usize = 6;
/// … and in two.
const STARTS_IN_TWO: usize = 10;
/// How long requests may still run on a link that another replaces.
const DRAIN: Duration = Duration::from_secs(30);
/// How long a new session waits for the end of the old one.
const COURTESY: Duration = Duration::from_secs(2);
/// How often people see how far a start is.
const PROGRESS: Duration = Duration::from_secs(1);

impl Upstream {
    /// The link, dialled if there is none. Many askers share one attempt and its failure.
    pub async fn link(self: &Arc<Self>) -> Result<Arc<Link>, Failure> {
        loop {
            if self.ended.is_cancelled() || !self.is_enabled() {
                return Err(disabled());
            }
            if matches!(self.standing.borrow().state, State::NeedsSignIn { .. }) {
                return Err(Failure::new(
                    FailureKind::NeedsSignIn,
                    Ran::CertainlyNot,
                    self.standing.borrow().state.reason().unwrap_or_default(),
                ));
            }
            let upstream = Arc::clone(self);
            let dial = move |given_up| upstream.dial(given_up);
            if let Some(outcome) = self.link.get(&self.tasks, dial).await {
                return outcome;
            }
        }
    }

    /// This very link is dead: it is dropped and its end told, unless that was done already.
    pub fn died(&self, link: &Arc<Link>, failure: &Failure) {
        if self.evict(link) {
            self.lost(failure, Some(link));
        }
    }

    fn evict(&self, dead: &Arc<Link>) -> bool {
        let is_current = self.link.forget(dead);
        if is_current {
            // Another link may answer where this one refused.
            lock(&self.refused).clear();
            let (dead, farewell) = (Arc::clone(dead), CancellationToken::new());
            *lock(&self.farewell) = farewell.clone();
            self.tasks.spawn(async move {
                dead.close().await;
                farewell.cancel();
            });
        }
        is_current
    }

    /// Drops a link whose server forgot the session. The answers to what runs in it may still come.
    pub fn renew(&self, link: &Arc<Link>, failure: &Failure) {
        if self.replace(link, failure) {
            lock(&self.refused).clear();
        }
    }

    /// Drops a link for another, unless that was done already; what runs on it may end first.
    pub fn replace(&self, link: &Arc<Link>, failure: &Failure) -> bool {
        let is_current = self.link.forget(link);
        if is_current {
            self.note_failure(failure);
            link.retire();
            let (link, ended) = (Arc::clone(link), self.ended.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = link.drain(DRAIN) => {}
                    () = ended.cancelled() => {}
                }
                link.close().await;
            });
        }
        is_current
    }

    /// A server that takes one session at a time must have seen the end of the old one.
    async fn after_the_farewell(&self) {
        if matches!(self.definition().transport, Transport::Http { .. }) {
            let farewell = lock(&self.farewell).clone();
            let _ = tokio::time::timeout(COURTESY, farewell.cancelled()).await;
        }
    }

    async fn dial(self: Arc<Self>, given_up: CancellationToken) -> Result<Arc<Link>, Failure> {
        if let Some(failure) = self.too_many_starts() {
            return Err(failure);
        }
        // Tried again and again, it stays what it is until that succeeds: people and lists want to
        // know that it is down, and since when.
        if !self.failed.load(Ordering::Relaxed) {
            self.set_state(State::Connecting);
        }
        self.after_the_farewell().await;
        let definition = self.definition();
        let remembered = *lock(&self.era);
        let outcome = tokio::select! {
            outcome = self.dialler.connect(&definition.transport, remembered) => outcome,
            () = self.ended.cancelled() => return Err(disabled()),
            // Nobody hears of it: who asked asks for the attempt that took its place.
            () = given_up.cancelled() => return Err(disabled()),
            never = self.tell_progress() => match never {},
        };
        match outcome {
            // Stopped at the very moment it came up: nothing may revive it.
            Ok((link, _)) if self.ended.is_cancelled() || given_up.is_cancelled() => {
                link.close().await;
                Err(disabled())
            }
            Ok((link, news)) => {
                self.failed.store(false, Ordering::Relaxed);
                self.welcome(&link, news);
                Ok(link)
            }
            Err(failure) => {
                self.failed.store(true, Ordering::Relaxed);
                let failure = advised(failure, &definition.transport, &self.name);
                self.lost(&failure, None);
                Err(failure)
            }
        }
    }

    /// Has what people see drawn anew when the start gets on.
    async fn tell_progress(&self) -> Infallible {
        let mut told = None;
        loop {
            let progress = self.progress();
            if progress != told {
                told = progress;
                self.tell(UpstreamEvent::State);
            }
            tokio::time::sleep(PROGRESS).await;
        }
    }

    /// A process that dies at birth must not be started in a frenzy by eager apps.
    fn too_many_starts(&self) -> Option<Failure> {
        if !matches!(self.definition().transport, Transport::Stdio { .. }) {
            return None;
        }
        let mut starts = lock(&self.starts);
        let now = Instant::now();
        let within = |start: &Instant, minutes| now - *start <= Duration::from_mins(minutes);
        while starts.front().is_some_and(|start| !within(start, 2)) {
            starts.pop_front();
        }
        let lately = starts.iter().filter(|start| within(start, 1)).count();
        if lately >= STARTS_A_MINUTE || starts.len() >= STARTS_IN_TWO {
            let reason = self.standing.borrow().state.reason().map(ToOwned::to_owned);
            let reason = reason.unwrap_or_else(|| "it exits as soon as it is started".to_owned());
            return Some(Failure::new(FailureKind::Gone, Ran::CertainlyNot, reason));
        }
        starts.push_back(now);
        None
    }

    fn welcome(self: &Arc<Self>, link: &Arc<Link>, news: mpsc::UnboundedReceiver<News>) {
        let hello = link.hello().clone();
        info!(upstream = %self.name, era = ?hello.era, version = %hello.version, "connected");
        if lock(&self.era).replace(hello.era) != Some(hello.era) {
            self.tell(UpstreamEvent::Era(Some(hello.era)));
        }
        self.invalidate(&CapabilityType::ALL, Ended::NewLink);
        self.introduced(hello.clone());
        self.set_state(State::Ready);
        self.tell(UpstreamEvent::LinkUp);
        if let Some(level) = *lock(&self.log_level) {
            self.tell_log_level(link, level);
        }
        let (upstream, watched) = (Arc::clone(self), Arc::clone(link));
        // Ends with the link, which `stop` closes.
        self.tasks.spawn(async move { upstream.hear(&watched, news).await });
        if hello.era == Era::Modern {
            let (upstream, link) = (Arc::clone(self), Arc::clone(link));
            self.tasks.spawn(async move {
                tokio::select! {
                    () = listen::listen(&upstream, &link) => {}
                    () = link.gone() => {}
                    () = upstream.ended.cancelled() => {}
                }
            });
        }
    }

    async fn hear(self: &Arc<Self>, link: &Arc<Link>, mut news: mpsc::UnboundedReceiver<News>) {
        while let Some(news) = news.recv().await {
            match news {
                News::ListChanged(kinds) => {
                    debug!(upstream = %self.name, ?kinds, "its list changed");
                    lock(&self.refused).retain(|kind, _| !kinds.contains(kind));
                    self.invalidate(&kinds, Ended::Told);
                    self.tell(UpstreamEvent::Invalidated(kinds, Ended::Told));
                }
                News::ResourceUpdated(uri) => {
                    self.reads.updated(&uri);
                    self.tell(UpstreamEvent::ResourceUpdated(uri));
                }
                News::Closed(failure) => {
                    let failure = advised(failure, &self.definition().transport, &self.name);
                    self.died(link, &failure);
                    return;
                }
            }
        }
    }

    /// One place for what a lost link means for the state.
    fn lost(&self, failure: &Failure, link: Option<&Arc<Link>>) {
        if self.ended.is_cancelled() {
            return;
        }
        // A newer link is already there: nobody needs to hear of the old one's end.
        if link.is_some() && self.link.is_up() {
            return;
        }
        self.note_failure(failure);
        self.log().push("traygate", &failure.reason);
        warn!(upstream = %self.name, reason = %failure.reason, "not connected");
        let reason = failure.reason.clone();
        self.set_state(match failure.kind {
            FailureKind::Misconfigured => State::Misconfigured { reason },
            FailureKind::NeedsSignIn => State::NeedsSignIn { reason },
            _ => State::Unavailable { reason, next_try: None },
        });
    }

    /// Dial, wait for the link to die, dial again, slower each time.
    pub(super) async fn keep_up(self: &Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Ok(link) = self.link().await {
                let born = Instant::now();
                tokio::select! {
                    () = link.gone() => {}
                    () = self.idled(&link) => {
                        self.rest(&link).await;
                        self.until_wanted().await;
                    }
                }
                if link.is_retired() {
                    continue;
                }
                // A server that dies at birth, over and over, must not look healthy in between.
                if born.elapsed() > STEADY {
                    pause = FIRST_PAUSE;
                }
            }
            if waits_for_someone(&self.standing.borrow().state) {
                // Whatever brought it up, from then on it is kept up.
                let mut standing = self.standing.subscribe();
                let _ = standing.wait_for(|standing| !waits_for_someone(&standing.state)).await;
                continue;
            }
            let pause_now = jittered(pause);
            self.say_next_try(pause_now);
            tokio::select! {
                () = tokio::time::sleep(pause_now) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = self.nudge.notified() => {}
            }
        }
    }

    /// The user signed in, or wants it tried all the same.
    pub fn forgive(&self) {
        let is_up = self.link.is_up();
        if waits_for_someone(&self.standing.borrow().state) {
            self.failed.store(false, Ordering::Relaxed);
            // A sign-in that one request was refused for has cost no link.
            self.set_state(if is_up { State::Ready } else { State::Connecting });
        }
        if !is_up {
            self.nudge.notify_one();
        }
    }

    fn say_next_try(&self, pause: Duration) {
        let at = wall() + pause.as_millis() as i64;
        self.standing.send_if_modified(|standing| match &mut standing.state {
            State::Unavailable { next_try, .. } => {
                *next_try = Some(at);
                true
            }
            _ => false,
        });
    }
}

const fn waits_for_someone(state: &State) -> bool {
    matches!(state, State::Misconfigured { .. } | State::NeedsSignIn { .. })
}

fn disabled() -> Failure {
    Failure::new(FailureKind::Gone, Ran::CertainlyNot, "it is disabled; enable it in Traygate")
}

/// Between three quarters of the pause and all of it, so that many don't dial in step.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0u8; 1];
    // Without randomness they dial in step, which is no harm.
    let _ = getrandom::fill(&mut byte);
    pause.mul_f64(0.75 + f64::from(byte[0]) / 1024.0)
}
