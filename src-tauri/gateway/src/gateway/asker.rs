//! Who asks, and through which door.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::{
    definition::Era,
    json::RawObject,
    names::UpstreamName,
    upstream::link::{Caller, CallerId},
};

/// What part of the gateway is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// `/mcp`: all upstreams, names prefixed.
    All,
    /// `/mcp/<upstream>`: one, with its own names.
    One(UpstreamName),
}

/// An app with one request.
#[derive(Clone, Debug)]
pub struct Asker {
    pub app: Arc<str>,
    pub view: View,
    pub era: Era,
    /// Equal for two requests of one legacy session, or of one modern app.
    pub id: CallerId,
    /// What the app can do, as it said itself.
    pub capabilities: RawObject,
    pub client_info: Option<Box<RawValue>>,
    pub wants_progress: bool,
}

impl Asker {
    /// The user, through the command line or the window.
    pub fn user() -> Self {
        Self {
            app: "traygate".into(),
            view: View::All,
            era: Era::Modern,
            id: CallerId::MAX,
            capabilities: RawObject::default(),
            client_info: None,
            wants_progress: false,
        }
    }

    pub fn caller(&self) -> Caller {
        Caller {
            id: self.id,
            capabilities: self.capabilities.clone(),
            client_info: self.client_info.clone(),
            wants_progress: self.wants_progress,
        }
    }
}
