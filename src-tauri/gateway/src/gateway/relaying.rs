//! A relayed request from its arrival to its end, of which the journal hears however it comes.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{
    Asker, Route,
    record::Recorder,
    relay::{NotRelayed, Relayed},
};
use crate::{
    capability::CapabilityType,
    clock::wall,
    events::{Event, Fact, Invocation, Outcome, Touched},
    fault::{Code, Fault},
    upstream::ask::{Asking, Told, code_of},
};

/// A result larger than this isn't looked into.
const LOOKED_AT: usize = 1 << 20;
/// A name longer than this isn't kept.
const LONGEST_NAME: usize = 128;
const INVALID_PARAMS: i64 = -32602;

/// The entry of a request that has not ended. Dropped before its end, it was cancelled.
pub(super) struct Opened {
    recorder: Arc<Recorder>,
    begun: Instant,
    call: Option<Invocation>,
}

impl Opened {
    pub fn new(recorder: &Arc<Recorder>, asker: &Asker, method: Relayed) -> Self {
        let kind = match method {
            Relayed::CallTool => CapabilityType::Tool,
            Relayed::ReadResource => CapabilityType::Resource,
            Relayed::GetPrompt | Relayed::Complete => CapabilityType::Prompt,
        };
        let call = Invocation {
            at: wall(),
            upstream_id: None,
            upstream: None,
            app: asker.app.to_string(),
            kind,
            key: None,
            duration_ms: 0,
            outcome: Outcome::Cancelled,
            code: None,
            touched: None,
        };
        Self { recorder: Arc::clone(recorder), begun: Instant::now(), call: Some(call) }
    }

    /// What the app asked for by name, in case it leads nowhere.
    pub fn asked_for(&mut self, name: &str) {
        if let Some(call) = &mut self.call {
            call.key = is_name(name).then(|| name.to_owned());
        }
    }

    pub fn routed(&mut self, route: &Route) {
        if let Some(call) = &mut self.call {
            call.upstream_id = Some(route.upstream.id);
            call.upstream = Some(route.upstream.name.clone());
            call.kind = route.kind;
            call.key.clone_from(&route.capability);
            call.touched = (!route.upstream.is_up()).then_some(Touched::Waited);
        }
    }

    /// It could not even be begun.
    pub fn refused(mut self, why: &NotRelayed) {
        match why {
            NotRelayed::BadParams(_) => self.end(Outcome::Error, Some(INVALID_PARAMS)),
            NotRelayed::Fault(fault) => self.failed(fault),
        }
    }

    fn failed(&mut self, fault: &Fault) {
        let Some(call) = &mut self.call else { return };
        if call.upstream.is_none() {
            call.upstream.clone_from(&fault.upstream);
            // The name that apps see, without what stands for the upstream in it.
            if let (Some(upstream), Some(key)) = (&fault.upstream, &mut call.key)
                && let Some(own) = key.strip_prefix(&format!("{upstream}__"))
            {
                *key = own.to_owned();
            }
        }
        if fault.code == Code::OutcomeUnknown
            && let (Some(id), Some(name)) = (call.upstream_id, &call.upstream)
        {
            let fact = Fact::OutcomeUnknown {
                app: call.app.clone(),
                kind: call.kind,
                key: call.key.clone().unwrap_or_default(),
            };
            self.recorder.event(Event::new(fact).of(id, name));
        }
        self.end(Outcome::Fault(fault.code), None);
    }

    fn end(&mut self, outcome: Outcome, code: Option<i64>) {
        let Some(mut call) = self.call.take() else { return };
        call.duration_ms = self.begun.elapsed().as_millis() as u64;
        (call.outcome, call.code) = (outcome, code);
        self.recorder.invocation(call);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.end(Outcome::Cancelled, None);
    }
}

/// Where an answer comes from.
pub(super) enum Source {
    /// A request that was begun upstream. Dropped before its answer, it is cancelled there.
    Asking(Box<Asking>),
    /// What was kept of an earlier one, until it is told.
    Kept(Option<Box<RawValue>>),
}

/// A request that was let through, until it is answered.
pub struct Relaying {
    source: Source,
    opened: Opened,
}

impl Relaying {
    pub(super) fn new(source: Source, opened: Opened) -> Self {
        Self { source, opened }
    }

    /// What happens to it next, in order.
    pub async fn next(&mut self) -> Told {
        let told = match &mut self.source {
            Source::Asking(asking) => {
                let told = asking.next().await;
                if let (true, Some(call)) = (asking.was_repeated(), &mut self.opened.call) {
                    call.touched = Some(Touched::Repeated);
                }
                told
            }
            Source::Kept(result) => match result.take() {
                Some(result) => Told::Result(result),
                None => std::future::pending().await,
            },
        };
        match &told {
            Told::Result(result) if is_error(result) => self.opened.end(Outcome::ToolError, None),
            Told::Result(_) => self.opened.end(Outcome::Ok, None),
            Told::Error(error) => self.opened.end(Outcome::Error, code_of(error)),
            Told::Fault(fault) => self.opened.failed(fault),
            Told::Progress(_) | Told::Log(_) | Told::Question(_) => {}
        }
        told
    }

    /// The answer alone.
    pub async fn answer(mut self) -> Result<Result<Box<RawValue>, Box<RawValue>>, Fault> {
        loop {
            match self.next().await {
                Told::Result(result) => return Ok(Ok(result)),
                Told::Error(error) => return Ok(Err(error)),
                Told::Fault(fault) => return Err(fault),
                Told::Progress(_) | Told::Log(_) | Told::Question(_) => {}
            }
        }
    }
}

/// Whether a tool's result says that it is an error. Words in it never count.
fn is_error(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Flag {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    let text = result.get();
    text.len() <= LOOKED_AT
        && text.contains("\"isError\"")
        && serde_json::from_str(text).is_ok_and(|Flag { is_error }| is_error)
}

/// Whether a text could be a tool's or prompt's name, and so tells nothing else.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_NAME
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./:".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::raw;

    #[test]
    fn only_the_results_own_flag_makes_it_an_error() {
        let error = |value: serde_json::Value| is_error(&raw(&value));
        assert!(error(serde_json::json!({"content": [], "isError": true})));
        assert!(!error(serde_json::json!({"content": [], "isError": false})));
        assert!(!error(serde_json::json!({"content": [{"isError": true}]})));
        assert!(!error(serde_json::json!({"content": [{"text": "\"isError\":true"}]})));
    }

    #[test]
    fn a_sentence_is_no_name() {
        assert!(is_name("files__read_text_file") && is_name("a.b/c:d-e"));
        assert!(!is_name("") && !is_name("delete my account") && !is_name(&"x".repeat(200)));
    }
}
