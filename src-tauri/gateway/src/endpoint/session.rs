//! A legacy session, or a modern subscription, as long as it lives: who it is, and what it is told
//! without having asked.

use std::sync::{Arc, OnceLock};

use rmcp::{Peer, RoleServer, service::SubscriptionContext};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    capability::CapabilityType,
    gateway::{Activity, Gateway, View, announce::Announced},
};

/// Ends when rmcp drops the handler it belongs to.
pub struct Session {
    pub id: u64,
    closed: CancellationToken,
    _closes: DropGuard,
    /// The number of its place among the listeners, once it listens.
    listener: Arc<OnceLock<u64>>,
}

impl Session {
    pub fn new(id: u64) -> Arc<Self> {
        let closed = CancellationToken::new();
        Arc::new(Self {
            id,
            _closes: closed.clone().drop_guard(),
            closed,
            listener: Arc::default(),
        })
    }

    /// Counts the session among its app's connections until it ends.
    pub fn opened(&self, gateway: &Arc<Gateway>, app: &Arc<str>) {
        gateway.apps().note(app, Activity::opened);
        let (gateway, app, closed) = (Arc::clone(gateway), Arc::clone(app), self.closed.clone());
        let id = self.id;
        // Ends with the session, which ends with the host.
        tokio::spawn(async move {
            closed.cancelled().await;
            gateway.apps().note(&app, Activity::closed);
            gateway.set_log_level(id, None);
            gateway.changed();
        });
    }

    /// It saw a list: what changed up to then need not be told.
    pub fn saw(&self, gateway: &Gateway, kind: CapabilityType, digest: u64) {
        if let Some(listener) = self.listener.get() {
            gateway.listeners().saw(*listener, kind, digest);
        }
    }

    /// Tells a legacy session of every change of what it sees.
    pub fn announce(&self, gateway: &Arc<Gateway>, view: &View, peer: Peer<RoleServer>) {
        let mut listening = gateway.listen(view.clone());
        let _ = self.listener.set(listening.id);
        let closed = self.closed.clone();
        tokio::spawn(async move {
            loop {
                let announced = tokio::select! {
                    announced = listening.next() => announced,
                    () = closed.cancelled() => return,
                };
                let told = match announced {
                    Some(Announced::Tools) => peer.notify_tool_list_changed().await,
                    Some(Announced::Prompts) => peer.notify_prompt_list_changed().await,
                    Some(Announced::Resources) => peer.notify_resource_list_changed().await,
                    None => return,
                };
                if told.is_err() && peer.is_transport_closed() {
                    return;
                }
            }
        });
    }

    /// The same for a modern subscription, on its own stream.
    pub async fn listen(
        &self,
        gateway: &Arc<Gateway>,
        view: &View,
        app: &Arc<str>,
        context: &SubscriptionContext,
    ) {
        self.opened(gateway, app);
        let mut listening = gateway.listen(view.clone());
        let accepted = context.accepted();
        loop {
            let announced = tokio::select! {
                announced = listening.next() => announced,
                () = context.cancelled() => return,
                () = gateway.ended().cancelled() => return,
            };
            let sink = context.sink();
            let told = match announced {
                Some(Announced::Tools) if accepted.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Some(Announced::Prompts) if accepted.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                Some(Announced::Resources) if accepted.resources_list_changed == Some(true) => {
                    sink.notify_resource_list_changed().await
                }
                Some(_) => Ok(()),
                None => return,
            };
            if told.is_err() {
                return;
            }
        }
    }
}
