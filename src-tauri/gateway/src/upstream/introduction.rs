//! What a server says of itself, kept for as long as its own hints allow (design section 4.7): what
//! it offers at all, and its instructions for models.

use std::sync::{Arc, Mutex};

use super::{
    Upstream, UpstreamEvent,
    ask::{self, Asked, Nature},
    catalogue::Fresh,
    hello::{self, Discovery},
    link::Hello,
};
use crate::{clock::Moment, definition::Era, fault::Fault, json::RawObject, lock::lock};

/// How old the last introduction is. Its words stand in the upstream's standing.
#[derive(Default)]
pub struct Introduction {
    came: Mutex<Option<Came>>,
    /// Many who need a new one share it.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
struct Came {
    at: Moment,
    fresh: Fresh,
}

impl Upstream {
    /// A server has introduced itself: by its handshake, or when it was asked again.
    pub(super) fn introduced(&self, hello: Hello) {
        let at = self.now();
        let fresh = match hello.era {
            // Its session is what keeps it true.
            Era::Legacy => Fresh::UntilTold,
            Era::Modern => Fresh::of(hello.hints, at),
        };
        *lock(&self.introduction.came) = Some(Came { at, fresh });
        self.standing.send_modify(|standing| standing.hello = Some(hello));
    }

    /// The last introduction, fresh or not, and until when it may be taken for true.
    pub fn introduction(&self) -> Option<(Hello, Fresh)> {
        let came = (*lock(&self.introduction.came))?;
        let hello = self.standing().hello?;
        // One whose link has gone may introduce itself differently on the next.
        Some((hello, if self.is_up() { came.fresh } else { Fresh::Never }))
    }

    /// The same, asked for again if its time is over. Needs a link that is up.
    pub async fn introduction_now(self: &Arc<Self>) -> Result<(Hello, Fresh), Fault> {
        let needed = self.now();
        let known = || {
            let came = (*lock(&self.introduction.came))?;
            let usable = came.fresh.at(needed) || came.at > needed;
            self.standing().hello.filter(|_| usable).map(|hello| (hello, came.fresh))
        };
        if let Some(known) = known() {
            return Ok(known);
        }
        let _one_at_a_time = self.introduction.asking.lock().await;
        // Whoever had the turn before may have brought it.
        if let Some(known) = known() {
            return Ok(known);
        }
        let asked = Asked {
            method: "server/discover",
            params: RawObject::default(),
            caller: None,
            headers: Vec::new(),
            nature: Nature::Harmless,
        };
        let unavailable = |why: &str| Fault::unavailable(&self.name, why);
        let answer = ask::ask(self, asked).await?.answered().await?.1;
        let result =
            answer.map_err(|_| unavailable("it answered server/discover with an error"))?;
        let Discovery::Modern(hello) = hello::discovered(&result) else {
            return Err(unavailable("its answer to server/discover is not one"));
        };
        let before = self.standing().hello;
        self.introduced(hello.clone());
        if before.is_none_or(|before| before.differs(&hello)) {
            self.tell(UpstreamEvent::State);
        }
        let fresh = lock(&self.introduction.came).map_or(Fresh::Never, |came| came.fresh);
        Ok((hello, fresh))
    }
}

impl Hello {
    /// Whether people or apps would notice.
    fn differs(&self, other: &Self) -> bool {
        let words = |hello: &Self| {
            let offered = hello.capabilities.to_raw().get().to_owned();
            (offered, hello.server.clone(), hello.instructions.clone())
        };
        words(self) != words(other)
    }
}
