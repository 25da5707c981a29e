//! One request to an upstream: on its link, and once more on a fresh one if that died under it.
//!
//! What a failure means is decided here and nowhere else (design section 5.1). A call that may
//! have run is never run again by us.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use super::{
    Upstream,
    catalogue::{Pages, Reader},
    link::{Call, CallEvent, Caller, Link, Question, Request},
    wire::{Failure, FailureKind, Ran},
};
use crate::{
    capability::CapabilityType,
    fault::{Code, Fault},
    json::{RawObject, raw},
    text::one_line,
};

/// A busy server is waited for this long, once.
const SHORT_WAIT: u64 = 5;
/// The bounds of a walk over pages.
const MOST_PAGES: usize = 100;
const LONGEST_WALK: Duration = Duration::from_mins(1);
pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// Whether a request may be made again when nobody knows if it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Lists, reads, gets, completions.
    Harmless,
    /// A tool marked `readOnlyHint` or `idempotentHint`.
    RepeatableCall,
    Call,
}

/// One request, to be made on whatever link there is.
pub struct Asked {
    pub method: &'static str,
    pub params: RawObject,
    pub caller: Option<Caller>,
    pub headers: Vec<(String, String)>,
    pub nature: Nature,
}

impl Asked {
    fn request(&self) -> Request<'_> {
        Request {
            method: self.method,
            params: self.params.clone(),
            caller: self.caller.clone(),
            headers: self.headers.clone(),
        }
    }
}

/// What happens to it, in order. After a result, an error or a fault there is nothing more.
pub enum Told {
    Progress(RawObject),
    Log(Box<RawValue>),
    Question(Question),
    Result(Box<RawValue>),
    /// The upstream's own, passed on as it is.
    Error(Box<RawValue>),
    Fault(Fault),
}

/// A request under way. Dropped before its answer, it is cancelled upstream.
pub struct Asking {
    upstream: Arc<Upstream>,
    asked: Asked,
    link: Arc<Link>,
    call: Call,
    retried: bool,
    last_heard: Instant,
    begun: Instant,
}

/// Makes a request.
pub async fn ask(upstream: &Arc<Upstream>, asked: Asked) -> Result<Asking, Fault> {
    let mut retried = false;
    let (link, call) = begin(upstream, &asked, &mut retried).await?;
    let now = Instant::now();
    Ok(Asking {
        upstream: Arc::clone(upstream),
        asked,
        link,
        call,
        retried,
        last_heard: now,
        begun: now,
    })
}

impl Asking {
    pub async fn next(&mut self) -> Told {
        loop {
            let (deadline, limit) = self.deadline();
            let event = tokio::select! {
                event = self.call.next() => event,
                () = sleep_until(deadline) => return Told::Fault(self.timed_out(limit)),
            };
            self.last_heard = Instant::now();
            let failure = match event {
                CallEvent::Progress(params) => return Told::Progress(params),
                CallEvent::Log(params) => return Told::Log(params),
                CallEvent::Question(question) => return Told::Question(question),
                // Subscriptions are not asked for here.
                CallEvent::Acknowledged(_) => continue,
                CallEvent::Result(result) => return Told::Result(result),
                CallEvent::Error(error) => return Told::Error(error),
                CallEvent::Failed(failure) => failure,
            };
            let again = async {
                recover(&self.upstream, &self.link, &failure, self.asked.nature, &mut self.retried)
                    .await?;
                begin(&self.upstream, &self.asked, &mut self.retried).await
            };
            match again.await {
                Ok((link, call)) => (self.link, self.call) = (link, call),
                Err(fault) => return Told::Fault(fault),
            }
        }
    }

    /// Whether it was asked once more, after what it was first asked on died or was busy.
    pub fn was_repeated(&self) -> bool {
        self.retried
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

    /// When the upstream has been silent for too long, or at it for too long; and which limit
    /// that is, in seconds.
    fn deadline(&self) -> (Instant, u32) {
        let settings = &self.upstream.definition().settings;
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        if self.asked.nature == Nature::Harmless {
            return (self.begun + seconds(settings.request_timeout), settings.request_timeout);
        }
        let idle = self.last_heard + seconds(settings.call_idle_timeout);
        let total = self.begun + seconds(settings.call_total_timeout);
        if idle <= total {
            (idle, settings.call_idle_timeout)
        } else {
            (total, settings.call_total_timeout)
        }
    }

    /// The link stays: one slow answer is no outage. Dropping the call tells the upstream.
    fn timed_out(&self, limit: u32) -> Fault {
        let name = &self.upstream.name;
        let meanwhile = match self.link.stray_error(self.begun) {
            Some(stray) => {
                format!("; meanwhile it said, without saying to which request: {stray}")
            }
            None if self.link.is_garbling(self.begun) => {
                "; meanwhile it wrote what is no message, as if its answers got mixed up".to_owned()
            }
            None => String::new(),
        };
        let words = format!(
            "{name} did not answer {} within {limit} s; the request was cancelled{meanwhile}",
            self.asked.method
        );
        Fault::new(Code::UpstreamTimeout, Some(name), words)
    }
}

/// Begins it on the link, or on a fresh one if that turns out to be dead.
async fn begin(
    upstream: &Arc<Upstream>,
    asked: &Asked,
    retried: &mut bool,
) -> Result<(Arc<Link>, Call), Fault> {
    loop {
        let patience = Duration::from_secs(upstream.definition().settings.request_timeout.into());
        // A list of everything asks for everybody, which is no reason for anybody to go first.
        if asked.caller.is_some() {
            upstream.hurry();
        }
        let link = timeout(patience, upstream.link())
            .await
            .map_err(|_| upstream.fault())?
            .map_err(|failure| upstream.faulted(&failure))?;
        match link.begin(asked.request()).await {
            Ok(call) => return Ok((link, call)),
            Err(failure) => recover(upstream, &link, &failure, asked.nature, retried).await?,
        }
    }
}

/// `Ok`: ask once more. The fault otherwise.
async fn recover(
    upstream: &Arc<Upstream>,
    link: &Arc<Link>,
    failure: &Failure,
    nature: Nature,
    retried: &mut bool,
) -> Result<(), Fault> {
    match failure.kind {
        FailureKind::NeedsSignIn => {
            upstream.needs_sign_in(failure);
            return Err(upstream.faulted(failure));
        }
        FailureKind::Busy { retry_after } if retry_after <= SHORT_WAIT && !*retried => {
            *retried = true;
            sleep(Duration::from_secs(retry_after)).await;
            return Ok(());
        }
        FailureKind::Bound | FailureKind::Busy { .. } => return Err(upstream.faulted(failure)),
        _ => {}
    }
    link.condemn(failure);
    upstream.note_failure(failure);
    upstream.evict(link);
    if nature == Nature::Call && failure.ran == Ran::Perhaps {
        return Err(outcome_unknown(upstream, failure));
    }
    if *retried {
        return Err(upstream.faulted(failure));
    }
    *retried = true;
    debug!(upstream = %upstream.name, reason = %failure.reason, "asking once more on a fresh connection");
    Ok(())
}

fn outcome_unknown(upstream: &Upstream, failure: &Failure) -> Fault {
    let name = &upstream.name;
    Fault::new(
        Code::OutcomeUnknown,
        Some(name),
        format!(
            "{name} was lost while it worked on this call ({}), so it may have run; it was not run again: check whether its effect is there before you call it once more",
            failure.reason
        ),
    )
}

/// All pages of a list (design section 4.4). `None`: the server has no such list.
pub async fn walk(upstream: &Arc<Upstream>, reader: Reader) -> Result<Option<Pages>, Fault> {
    let began = Instant::now();
    let mut pages = Pages::new(reader.clone());
    let mut seen = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut restarted = false;
    let mut page = 0;
    loop {
        page += 1;
        let answer = list(upstream, reader.kind, cursor.as_deref()).await;
        let result = match answer {
            Ok(Ok(result)) => result,
            Ok(Err(error)) if cursor.is_none() => {
                if code_of(&error) == Some(METHOD_NOT_FOUND) {
                    return Ok(None);
                }
                return Err(list_failed(upstream, reader.kind, &error));
            }
            // A refused cursor: what it pointed into may have changed. Once more from the start.
            Ok(Err(_)) if !restarted => {
                restarted = true;
                page = 0;
                (pages, cursor) = (Pages::new(reader.clone()), None);
                seen.clear();
                continue;
            }
            Ok(Err(error)) => {
                pages.cut_short(format!(
                    "{} ({})",
                    incomplete(reader.kind, page),
                    message_of(&error)
                ));
                break;
            }
            Err(fault) => return Err(fault),
        };
        let next = pages
            .take(&result, upstream.now())
            .map_err(|no_list| Fault::unavailable(&upstream.name, no_list))?;
        let Some(next) = next else { break };
        if !seen.insert(next.clone()) {
            pages.cut_short(format!(
                "{} gave the same cursor twice; what came before is shown",
                reader.kind.list_method()
            ));
            break;
        }
        if page >= MOST_PAGES || began.elapsed() > LONGEST_WALK {
            pages.cut_short(format!(
                "{}: stopped after {page} pages; what came before is shown",
                reader.kind.list_method()
            ));
            break;
        }
        cursor = Some(next);
    }
    Ok(Some(pages))
}

async fn list(
    upstream: &Arc<Upstream>,
    kind: CapabilityType,
    cursor: Option<&str>,
) -> Result<Result<Box<RawValue>, Box<RawValue>>, Fault> {
    let mut params = RawObject::default();
    if let Some(cursor) = cursor {
        params.set("cursor", raw(cursor));
    }
    let asked = Asked {
        method: kind.list_method(),
        params,
        caller: None,
        headers: Vec::new(),
        nature: Nature::Harmless,
    };
    ask(upstream, asked).await?.answer().await
}

fn incomplete(kind: CapabilityType, page: usize) -> String {
    format!("{}: page {page} was refused; what came before is shown", kind.list_method())
}

fn list_failed(upstream: &Upstream, kind: CapabilityType, error: &RawValue) -> Fault {
    Fault::unavailable(
        &upstream.name,
        format!("it answered {} with an error: {}", kind.list_method(), message_of(error)),
    )
}

/// The number of a JSON-RPC error object.
pub fn code_of(error: &RawValue) -> Option<i64> {
    RawObject::parse(error).ok()?.get("code")?.get().parse().ok()
}

fn message_of(error: &RawValue) -> String {
    let message = RawObject::parse(error).ok().and_then(|error| error.str("message"));
    let code = code_of(error).map_or_else(|| "no code".to_owned(), |code| code.to_string());
    format!("{} ({code})", one_line(&message.unwrap_or_default(), 200))
}
