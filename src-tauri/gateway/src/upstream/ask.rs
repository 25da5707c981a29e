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
    link::{Call, CallEvent, Caller, Link, Question, Reply, Request, error},
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
/// A link on which so many requests in a row time out is dead.
const MOST_MISSED: u32 = 3;
/// The bounds of a walk over pages.
const MOST_PAGES: usize = 100;
const LONGEST_WALK: Duration = Duration::from_mins(1);
pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// Whether a request may be made again when nobody knows if it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Reads, gets, completions.
    Harmless,
    /// The reading of a catalogue.
    List(CapabilityType),
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
    repeated: Option<Repeated>,
    last_heard: Instant,
    begun: Instant,
}

/// A request is being made for the second time. While this lives, what nobody waits for stands back
/// on the fresh link.
struct Repeated(Arc<Upstream>);

impl Repeated {
    fn new(upstream: &Arc<Upstream>) -> Self {
        upstream.repeated.send_modify(|requests| *requests += 1);
        Self(Arc::clone(upstream))
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.0.repeated.send_modify(|requests| *requests -= 1);
    }
}

/// Makes a request.
pub async fn ask(upstream: &Arc<Upstream>, asked: Asked) -> Result<Asking, Fault> {
    let mut repeated = None;
    if asked.caller.is_some() {
        upstream.used();
    }
    let (link, call) = begin(upstream, &asked, &mut repeated).await?;
    let now = Instant::now();
    Ok(Asking {
        upstream: Arc::clone(upstream),
        asked,
        link,
        call,
        repeated,
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
                () = sleep_until(deadline) => match self.timed_out(limit) {
                    Ok(fault) => return Told::Fault(fault),
                    Err(dead) => {
                        self.begun = Instant::now();
                        CallEvent::Failed(dead)
                    }
                },
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
                CallEvent::Failed(failure) => match as_refusal(self.asked.nature, &failure) {
                    Some(refusal) => return Told::Error(refusal),
                    None => failure,
                },
            };
            let again = async {
                recover(
                    &self.upstream,
                    &self.link,
                    &failure,
                    self.asked.nature,
                    &mut self.repeated,
                )
                .await?;
                begin(&self.upstream, &self.asked, &mut self.repeated).await
            };
            match again.await {
                Ok((link, call)) => (self.link, self.call) = (link, call),
                Err(fault) => return Told::Fault(fault),
            }
        }
    }

    /// Whether it was asked once more, after what it was first asked on died or was busy.
    pub fn was_repeated(&self) -> bool {
        self.repeated.is_some()
    }

    /// The answer alone, and the link it came on.
    pub async fn answered(mut self) -> Result<(Arc<Link>, Reply), Fault> {
        loop {
            match self.next().await {
                Told::Result(result) => return Ok((self.link, Ok(result))),
                Told::Error(error) => return Ok((self.link, Err(error))),
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
        if matches!(self.asked.nature, Nature::Harmless | Nature::List(_)) {
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

    /// The link stays: one slow answer is no outage. Dropping the call tells the upstream. `Err`:
    /// so many in a row, with nothing received between them, that the link counts as dead.
    fn timed_out(&self, limit: u32) -> Result<Fault, Failure> {
        let name = &self.upstream.name;
        let missed = self.link.missed();
        if missed >= MOST_MISSED {
            let words = format!("it left {missed} requests in a row unanswered");
            return Err(Failure::in_own_words(FailureKind::Silent, Ran::Perhaps, words));
        }
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
        Ok(Fault::new(Code::UpstreamTimeout, Some(name), words))
    }
}

/// Begins it on the link, or on a fresh one if that turns out to be dead.
async fn begin(
    upstream: &Arc<Upstream>,
    asked: &Asked,
    repeated: &mut Option<Repeated>,
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
            // It was replaced between being handed out and being used.
            Err(_) if link.is_retired() => {}
            Err(failure) => recover(upstream, &link, &failure, asked.nature, repeated).await?,
        }
    }
}

/// `Ok`: ask once more. The fault otherwise.
async fn recover(
    upstream: &Arc<Upstream>,
    link: &Arc<Link>,
    failure: &Failure,
    nature: Nature,
    repeated: &mut Option<Repeated>,
) -> Result<(), Fault> {
    match failure.kind {
        FailureKind::NeedsSignIn => {
            upstream.needs_sign_in(failure);
            return Err(upstream.faulted(failure));
        }
        FailureKind::Busy { retry_after } if retry_after <= SHORT_WAIT && repeated.is_none() => {
            *repeated = Some(Repeated::new(upstream));
            sleep(Duration::from_secs(retry_after)).await;
            return Ok(());
        }
        FailureKind::Bound | FailureKind::Busy { .. } => return Err(upstream.faulted(failure)),
        _ => {}
    }
    link.condemn(failure);
    match failure.kind {
        FailureKind::SessionLost => upstream.renew(link, failure),
        _ => upstream.died(link, failure),
    }
    if nature == Nature::Call && failure.ran == Ran::Perhaps {
        return Err(outcome_unknown(upstream, failure));
    }
    if repeated.is_some() {
        return Err(upstream.faulted(failure));
    }
    // Lists are read on every fresh link: one that dies of it must not bring on the next at once.
    if let Nature::List(kind) = nature
        && !upstream.is_wanted(kind)
    {
        return Err(upstream.faulted(failure));
    }
    *repeated = Some(Repeated::new(upstream));
    debug!(upstream = %upstream.name, reason = %failure.reason, "asking once more on a fresh connection");
    Ok(())
}

/// An HTTP error in answer to a list is as good as one in JSON-RPC: the server is there, and its
/// other lists and its tools may well work.
fn as_refusal(nature: Nature, failure: &Failure) -> Option<Box<RawValue>> {
    match (nature, failure.kind) {
        (Nature::List(_), FailureKind::Status(status)) => {
            let words = failure.reason.strip_prefix("answered ").unwrap_or(&failure.reason);
            Some(error(status.into(), words))
        }
        _ => None,
    }
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

/// Why a list could not be read.
enum Unread {
    Fault(Fault),
    /// The server answered, but not with the list: on this link, for this reason.
    Refused {
        link: Arc<Link>,
        code: Option<i64>,
        reason: String,
    },
}

/// All pages of a list (design section 4.4). `None`: the server has no such list.
///
/// A link on which a list is refused is replaced, once: servers whose own back end has gone answer
/// like that until they are started anew. If the fresh one refuses it too, only that list is
/// unavailable, and the same refusal replaces no link again.
pub async fn walk(upstream: &Arc<Upstream>, reader: &Reader) -> Result<Option<Pages>, Fault> {
    let (link, code, reason) = match pages(upstream, reader).await {
        Ok(pages) => return Ok(pages),
        Err(Unread::Fault(fault)) => return Err(fault),
        Err(Unread::Refused { link, code, reason }) => (link, code, reason),
    };
    if upstream.is_known_refusal(reader.kind, code) {
        return Err(Fault::unavailable(&upstream.name, reason));
    }
    let method = reader.kind.list_method();
    let plainly = format!("it answered {method} with an error");
    let failure = Failure::new(FailureKind::Garbage, Ran::Perhaps, reason).told_as(plainly);
    // Before it is asked again: another read of this list must not replace the fresh link.
    upstream.remember_refusal(reader.kind, code);
    upstream.replace(&link, &failure);
    debug!(upstream = %upstream.name, method, "refused; asking once more on a fresh connection");
    match pages(upstream, reader).await {
        Ok(pages) => {
            upstream.forget_refusal(reader.kind);
            Ok(pages)
        }
        Err(Unread::Fault(fault)) => Err(fault),
        Err(Unread::Refused { code, reason, .. }) => {
            upstream.remember_refusal(reader.kind, code);
            Err(Fault::unavailable(&upstream.name, reason))
        }
    }
}

async fn pages(upstream: &Arc<Upstream>, reader: &Reader) -> Result<Option<Pages>, Unread> {
    let began = Instant::now();
    let mut pages = Pages::new(reader.clone());
    let mut seen = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut restarted = false;
    let mut page = 0;
    loop {
        page += 1;
        let asking = list(upstream, reader.kind, cursor.as_deref()).await.map_err(Unread::Fault)?;
        let (link, answer) = asking.answered().await.map_err(Unread::Fault)?;
        let result = match answer {
            Ok(result) => result,
            Err(error) if cursor.is_none() => {
                let code = code_of(&error);
                if code == Some(METHOD_NOT_FOUND) {
                    return Ok(None);
                }
                let reason = refusal(reader.kind, &error);
                return Err(Unread::Refused { link, code, reason });
            }
            // A refused cursor: what it pointed into may have changed. Once more from the start.
            Err(_) if !restarted => {
                restarted = true;
                page = 0;
                (pages, cursor) = (Pages::new(reader.clone()), None);
                seen.clear();
                continue;
            }
            Err(error) => {
                pages.cut_short(format!(
                    "{} ({})",
                    incomplete(reader.kind, page),
                    message_of(&error)
                ));
                break;
            }
        };
        let next = match pages.take(&result, upstream.now()) {
            Ok(next) => next,
            Err(no_list) => {
                return Err(Unread::Refused { link, code: None, reason: no_list.to_string() });
            }
        };
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
) -> Result<Asking, Fault> {
    let mut params = RawObject::default();
    if let Some(cursor) = cursor {
        params.set("cursor", raw(cursor));
    }
    let asked = Asked {
        method: kind.list_method(),
        params,
        caller: None,
        headers: Vec::new(),
        nature: Nature::List(kind),
    };
    ask(upstream, asked).await
}

fn incomplete(kind: CapabilityType, page: usize) -> String {
    format!("{}: page {page} was refused; what came before is shown", kind.list_method())
}

fn refusal(kind: CapabilityType, error: &RawValue) -> String {
    format!("it answered {} with an error: {}", kind.list_method(), message_of(error))
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
