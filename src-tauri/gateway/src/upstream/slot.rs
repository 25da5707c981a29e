//! The place of an upstream's one link: dialled once for many askers, forgotten by identity.

use std::sync::{Arc, Mutex, MutexGuard};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio_util::task::TaskTracker;

use super::{
    link::Link,
    wire::{Failure, FailureKind, Ran},
};

use crate::lock::lock;

type Dial = Shared<BoxFuture<'static, Result<Arc<Link>, Failure>>>;

/// Whoever asks while a dial is under way shares it and its failure. A failure is not remembered.
/// The dial runs in a task of its own: an asker who gives up does not strand it.
#[derive(Default)]
pub struct LinkSlot {
    /// Never held across an await.
    dial: Mutex<Option<Dial>>,
}

impl LinkSlot {
    /// The live link, or the outcome of the dial under way, or that of `dial`.
    pub async fn get<F>(
        &self,
        tasks: &TaskTracker,
        dial: impl FnOnce() -> F,
    ) -> Result<Arc<Link>, Failure>
    where
        F: Future<Output = Result<Arc<Link>, Failure>> + Send + 'static,
    {
        let current = {
            let mut slot = self.slot();
            // A link that died a moment ago must not be handed out before its eviction.
            slot.take_if(|dial| matches!(dial.peek(), Some(Ok(link)) if link.is_closed()));
            slot.get_or_insert_with(|| {
                let task = tasks.spawn(dial());
                async move { task.await.unwrap_or_else(|_| Err(given_up())) }.boxed().shared()
            })
            .clone()
        };
        let outcome = current.clone().await;
        if outcome.is_err() {
            self.slot().take_if(|now| now.ptr_eq(&current));
        }
        outcome
    }

    /// Forgets this link, if it is the one in place.
    pub fn forget(&self, dead: &Arc<Link>) -> bool {
        let mut slot = self.slot();
        slot.take_if(|dial| matches!(dial.peek(), Some(Ok(link)) if Arc::ptr_eq(link, dead)))
            .is_some()
    }

    /// Forgets whatever is in place, and hands a live link over.
    pub fn take(&self) -> Option<Arc<Link>> {
        self.slot().take().and_then(|dial| dial.peek().and_then(|link| link.clone().ok()))
    }

    /// The live link, if there is one.
    pub fn current(&self) -> Option<Arc<Link>> {
        let slot = self.slot();
        let link = slot.as_ref()?.peek()?.as_ref().ok()?;
        (!link.is_closed()).then(|| Arc::clone(link))
    }

    pub fn is_up(&self) -> bool {
        self.current().is_some()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Dial>> {
        lock(&self.dial)
    }
}

fn given_up() -> Failure {
    Failure::new(FailureKind::Gone, Ran::CertainlyNot, "connecting to it was given up")
}
