//! Does a server work, and what does it offer? Asked on a fresh transient connection beside whatever
//! is there, or on the upstream's own.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use tokio_util::sync::CancellationToken;

use super::{
    Gateway, TRANSIENT,
    manage::{Refused, check_transport, read_now},
};
use crate::{
    api::TestReport, capability::CapabilityType, definition::Definition, fault::Fault,
    upstream::Upstream,
};

impl Gateway {
    /// The same of an upstream's own connection, made if there is none. So one that was just added
    /// is started once: two downloads of one package at a time can spoil each other. A disabled one
    /// has no connection of its own.
    pub async fn first_contact(&self, name: &str) -> Result<TestReport, Refused> {
        let upstream = self.named(name)?;
        if !upstream.is_enabled() {
            return self.test(Definition::clone(&upstream.definition())).await;
        }
        upstream.forgive();
        examine(&upstream, Instant::now()).await.map_err(Refused::Fault)
    }

    /// A fresh transient connection beside whatever is there: what was found, and how fast.
    pub async fn test(&self, definition: Definition) -> Result<TestReport, Refused> {
        check_transport(&definition.transport)?;
        let begun = Instant::now();
        let transient =
            self.make(TRANSIENT, Definition { enabled: true, ..definition }, None, Arc::default());
        // Whoever stops waiting leaves no process behind.
        let gone = CancellationToken::new();
        let _guard = gone.clone().drop_guard();
        let (upstream, tested) = (Arc::clone(&transient), tokio::sync::oneshot::channel());
        let (tell, told) = tested;
        self.tasks.spawn(async move {
            let outcome = tokio::select! {
                outcome = examine(&upstream, begun) => Some(outcome),
                () = gone.cancelled() => None,
            };
            upstream.stop().await;
            if let Some(outcome) = outcome {
                let _ = tell.send(outcome);
            }
        });
        told.await
            .map_err(|_| Refused::BadInput("the test was given up".to_owned()))?
            .map_err(Refused::Fault)
    }
}

async fn examine(upstream: &Arc<Upstream>, begun: Instant) -> Result<TestReport, Fault> {
    upstream.hurry();
    let link = upstream.link().await.map_err(|failure| upstream.faulted(&failure))?;
    let connected_ms = begun.elapsed().as_millis() as u64;
    let hello = link.hello().clone();
    let (mut found, mut warnings) = (BTreeMap::new(), Vec::new());
    for kind in CapabilityType::ALL.into_iter().filter(|kind| hello.offers(*kind)) {
        match read_now(upstream, kind).await {
            Ok(catalogue) => {
                found.insert(kind, catalogue.items.len());
                warnings.extend(catalogue.warnings.iter().cloned());
            }
            Err(fault) => warnings.push(fault.message),
        }
    }
    Ok(TestReport {
        era: hello.era,
        protocol_version: hello.version,
        server: hello.server,
        found,
        connected_ms,
        total_ms: begun.elapsed().as_millis() as u64,
        warnings,
    })
}
