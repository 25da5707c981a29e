//! The place of an upstream's one link: dialled once for many askers, forgotten by identity.

use std::sync::{Arc, Mutex, MutexGuard};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    link::Link,
    wire::{Failure, FailureKind, Ran},
};

use crate::lock::lock;

type Outcome = Shared<BoxFuture<'static, Result<Arc<Link>, Failure>>>;

/// An attempt, under way or over.
#[derive(Clone)]
struct Dial {
    outcome: Outcome,
    /// Its link is wanted no more: it ends, and makes none.
    given_up: CancellationToken,
}

impl Dial {
    fn link(&self) -> Option<&Arc<Link>> {
        self.outcome.peek()?.as_ref().ok()
    }
}

/// Whoever asks while a dial is under way shares it and its failure. A failure is not remembered.
/// The dial runs in a task of its own: an asker who gives up does not strand it.
#[derive(Default)]
pub struct LinkSlot {
    /// Never held across an await.
    dial: Mutex<Option<Dial>>,
}

impl LinkSlot {
    /// The live link, or the outcome of the dial under way, or that of `dial`. `None`: the dial was
    /// taken away; what there is now is another.
    pub async fn get<F>(
        &self,
        tasks: &TaskTracker,
        dial: impl FnOnce(CancellationToken) -> F,
    ) -> Option<Result<Arc<Link>, Failure>>
    where
        F: Future<Output = Result<Arc<Link>, Failure>> + Send + 'static,
    {
        let current = {
            let mut slot = self.slot();
            // A link that died a moment ago must not be handed out before its eviction.
            slot.take_if(|dial| dial.link().is_some_and(|link| link.is_closed()));
            slot.get_or_insert_with(|| {
                let given_up = CancellationToken::new();
                let task = tasks.spawn(dial(given_up.clone()));
                let outcome = async move { task.await.unwrap_or_else(|_| Err(stranded())) };
                Dial { outcome: outcome.boxed().shared(), given_up }
            })
            .clone()
        };
        let outcome = current.outcome.clone().await;
        if outcome.is_err() {
            self.slot().take_if(|now| now.outcome.ptr_eq(&current.outcome));
            if current.given_up.is_cancelled() {
                return None;
            }
        }
        Some(outcome)
    }

    /// Forgets this link, if it is the one in place.
    pub fn forget(&self, dead: &Arc<Link>) -> bool {
        let mut slot = self.slot();
        slot.take_if(|dial| dial.link().is_some_and(|link| Arc::ptr_eq(link, dead))).is_some()
    }

    /// Forgets whatever is in place, a dial under way included, and hands its link over. Whoever
    /// closes that link has left nothing behind.
    pub async fn take(&self) -> Option<Arc<Link>> {
        let dial = self.slot().take()?;
        dial.given_up.cancel();
        dial.outcome.await.ok()
    }

    /// The live link, if there is one.
    pub fn current(&self) -> Option<Arc<Link>> {
        let slot = self.slot();
        let link = slot.as_ref()?.link()?;
        (!link.is_closed()).then(|| Arc::clone(link))
    }

    pub fn is_up(&self) -> bool {
        self.current().is_some()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Dial>> {
        lock(&self.dial)
    }
}

fn stranded() -> Failure {
    Failure::new(FailureKind::Gone, Ran::CertainlyNot, "connecting to it was given up")
}
