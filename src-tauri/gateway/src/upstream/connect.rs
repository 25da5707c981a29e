//! From a definition to a live link: finds the era, shakes hands, and gives a slow server its time.
//!
//! rmcp's `Auto` mode gives up on servers that exit at an unknown first message, that are slow to
//! start, or that answer oddly, so the choice of the era is made here (design section 6).
//!
//! * stdio: `server/discover` first; after 8 s of silence `initialize` goes to the *same* process
//!   and the first valid answer decides; a process that exits is started anew with `initialize`.
//! * HTTP: a fresh connection per attempt: a modern request, then `initialize`, then HTTP+SSE.
//!
//! Only an error that the modern era defines means modern; every other error means legacy.

use std::{
    collections::BTreeMap,
    env,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::future::{self, Either};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use url::Url;

use super::{
    hello::{self, Discovery, LEGACY, MODERN, speaks_only},
    link::{Link, News, Request, own_info},
    log::UpstreamLog,
    process::{
        Children, Program,
        expand::{Field, Scope, Unexpandable},
    },
    starts::{Start, fetches},
    wire::{self, Bounds, Events, Failure, FailureKind, Ran, Wire},
};
use crate::{
    definition::{Era, HttpFlavour, Transport},
    json::RawObject,
};

/// After this long without an answer to `server/discover`, `initialize` is tried too.
const PROBE: Duration = Duration::from_secs(8);
/// How long a start may take.
#[derive(Clone, Copy)]
struct Patience {
    /// Without any sign of life.
    silent: Duration,
    /// While its stderr shows that it is busy: a build, a migration.
    busy: Duration,
}

const USUAL: Patience = Patience { silent: Duration::from_mins(1), busy: Duration::from_mins(2) };
/// Never yet seen running, and a runner that downloads packages, of which it often says nothing.
const FIRST_DOWNLOAD: Patience =
    Patience { silent: Duration::from_mins(5), busy: Duration::from_mins(10) };
/// How long a server is waited for that says what is no MCP: it may yet be a log, and an answer
/// follow it.
const FOREIGN: Duration = Duration::from_secs(8);
/// How long the end of a connection that was only tried may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// A live link, greeted, and what it tells unasked.
pub type Connected = (Arc<Link>, mpsc::UnboundedReceiver<News>);

/// What every connection of one upstream shares.
#[derive(Clone)]
pub struct Dialler {
    pub sockets: Arc<wire::http::Sockets>,
    pub bounds: Bounds,
    pub log: Arc<UpstreamLog>,
    pub children: Arc<Children>,
    pub start: Arc<Start>,
    /// How often in a row its program ended before it answered anything.
    pub births: Arc<Births>,
}

/// Counts the starts that came to nothing.
pub type Births = AtomicU32;

impl Dialler {
    /// Connects. `remembered` is the era that was found last time; if it no longer holds, both
    /// are tried again.
    pub async fn connect(
        &self,
        transport: &Transport,
        remembered: Option<Era>,
    ) -> Result<Connected, Failure> {
        match transport {
            Transport::Stdio { command, args, env, cwd } => {
                let program = Program {
                    command: command.clone(),
                    args: args.clone(),
                    env: env.clone(),
                    cwd: cwd.clone(),
                };
                let work = self.stdio(&program, remembered);
                self.start.when_its_turn(&program, &self.log, work).await
            }
            Transport::Http { url, headers, flavour } => {
                let target = Target::filled_in(url, headers)?;
                self.http(&target, *flavour, remembered).await
            }
        }
    }

    async fn stdio(
        &self,
        program: &Program,
        remembered: Option<Era>,
    ) -> Result<Connected, Failure> {
        let outcome = self.stdio_in_turns(program, remembered).await;
        match &outcome {
            Err(failure) if failure.kind == FailureKind::Gone => {
                self.births.fetch_add(1, Ordering::Relaxed);
            }
            _ => self.births.store(0, Ordering::Relaxed),
        }
        outcome
    }

    /// Servers that can't take an unknown first message exit at it, and one that was legacy last
    /// time may have been upgraded: a fresh process is asked the other way, at once the first time.
    /// One that exits whatever it is asked is then started once a try, asked in turns.
    async fn stdio_in_turns(
        &self,
        program: &Program,
        remembered: Option<Era>,
    ) -> Result<Connected, Failure> {
        let patience = match remembered {
            None if fetches(program) => FIRST_DOWNLOAD,
            _ => USUAL,
        };
        let in_vain = self.births.load(Ordering::Relaxed);
        let probe_first = (remembered != Some(Era::Legacy)) == in_vain.is_multiple_of(2);
        let first = match self.started(program, probe_first, patience).await {
            Err(failure) if failure.kind == FailureKind::Gone && in_vain == 0 => failure,
            outcome => return outcome,
        };
        match self.started(program, !probe_first, patience).await {
            // Both say the same, so the first suffices.
            Err(second) if second.kind == FailureKind::Gone => Err(first),
            outcome => outcome,
        }
    }

    /// A new process, greeted; or nothing of it is left.
    async fn started(
        &self,
        program: &Program,
        probe_first: bool,
        patience: Patience,
    ) -> Result<Connected, Failure> {
        let attempt = self.spawn(program).await?;
        let outcome = if probe_first {
            self.discover_or_initialize(&attempt.0, patience).await
        } else {
            self.initialize(&attempt.0, LEGACY[0], patience).await
        };
        match outcome {
            Ok(()) => Ok(attempt),
            Err(failure) => {
                let failure = understood(&attempt.0, failure);
                hang_up(attempt.0).await;
                Err(failure)
            }
        }
    }

    async fn spawn(&self, program: &Program) -> Result<Connected, Failure> {
        let (wire, events) =
            wire::stdio::spawn(program, &self.children, &self.log, self.bounds).await?;
        Ok(Link::open(wire, events, false, Arc::clone(&self.log)))
    }

    /// The first valid answer decides, also one that comes late.
    async fn discover_or_initialize(
        &self,
        link: &Arc<Link>,
        patience: Patience,
    ) -> Result<(), Failure> {
        let discover = Box::pin(discover(link));
        let probe = Box::pin(tokio::time::sleep(PROBE));
        let discover = match future::select(discover, probe).await {
            Either::Left((outcome, _)) => return self.settle(link, outcome, patience).await,
            Either::Right(((), discover)) => discover,
        };
        let initialize = Box::pin(self.initialize(link, LEGACY[0], patience));
        match future::select(discover, initialize).await {
            Either::Left((Ok(Discovery::Modern(hello)), _)) => {
                link.greet(hello);
                Ok(())
            }
            Either::Left((Err(failure), _)) => Err(failure),
            Either::Left((_, initialize)) => initialize.await,
            Either::Right((outcome, _)) => outcome,
        }
    }

    async fn settle(
        &self,
        link: &Arc<Link>,
        outcome: Result<Discovery, Failure>,
        patience: Patience,
    ) -> Result<(), Failure> {
        match outcome? {
            Discovery::Modern(hello) => {
                link.greet(hello);
                Ok(())
            }
            Discovery::Foreign(versions) => Err(speaks_only(&versions)),
            Discovery::Legacy => self.initialize(link, LEGACY[0], patience).await,
        }
    }

    async fn http(
        &self,
        target: &Target,
        flavour: HttpFlavour,
        remembered: Option<Era>,
    ) -> Result<Connected, Failure> {
        if flavour == HttpFlavour::Sse {
            return self.sse(target).await;
        }
        if remembered != Some(Era::Legacy) {
            match self.http_modern(target).await? {
                Some(connected) => return Ok(connected),
                None => self.log.push("traygate", "not a 2026-07-28 server; trying initialize"),
            }
        }
        let failure = match self.http_legacy(target).await {
            Ok(connected) => return Ok(connected),
            Err(failure) => failure,
        };
        if remembered == Some(Era::Legacy)
            && may_be_modern(&failure)
            && let Some(connected) = self.http_modern(target).await?
        {
            return Ok(connected);
        }
        let perhaps_sse = flavour == HttpFlavour::Auto
            && matches!(failure.kind, FailureKind::Status(400 | 404 | 405 | 406 | 415));
        if !perhaps_sse {
            return Err(failure);
        }
        match self.sse(target).await {
            Ok(connected) => Ok(connected),
            // It knows nothing of either transport: one of the two is enough to say.
            Err(other) if matches!(other.kind, FailureKind::Status(_)) => Err(failure),
            Err(other) => {
                let mut both = failure;
                both.reason = format!("{}, and {}", both.reason, other.reason);
                Err(both)
            }
        }
    }

    /// `None`: it isn't a modern server. A server that can't be reached at all, or that wants a
    /// sign-in, says nothing about its era, so that is the end.
    async fn http_modern(&self, target: &Target) -> Result<Option<Connected>, Failure> {
        let attempt = self.streamable(target);
        let outcome = match timeout(PROBE, discover(&attempt.0)).await {
            Ok(outcome) => outcome,
            Err(_silence) => Ok(Discovery::Legacy),
        };
        let failure = match outcome {
            Ok(Discovery::Modern(hello)) => {
                attempt.0.greet(hello);
                return Ok(Some(attempt));
            }
            Ok(Discovery::Foreign(versions)) => speaks_only(&versions),
            Ok(Discovery::Legacy) => {
                hang_up(attempt.0).await;
                return Ok(None);
            }
            Err(failure) => failure,
        };
        hang_up(attempt.0).await;
        match failure.kind {
            FailureKind::NeedsSignIn | FailureKind::Busy { .. } | FailureKind::Misconfigured => {
                Err(failure)
            }
            FailureKind::Gone if failure.ran == Ran::CertainlyNot => Err(failure),
            _ => Ok(None),
        }
    }

    /// A server that turns the newest legacy revision down is asked for an older one.
    async fn http_legacy(&self, target: &Target) -> Result<Connected, Failure> {
        let mut first_failure = None;
        for version in LEGACY {
            let attempt = self.streamable(target);
            match self.initialize(&attempt.0, version, USUAL).await {
                Ok(()) => return Ok(attempt),
                Err(failure) => {
                    hang_up(attempt.0).await;
                    let try_older =
                        matches!(failure.kind, FailureKind::Status(400) | FailureKind::Refused(_));
                    let failure = first_failure.get_or_insert(failure);
                    if !try_older {
                        return Err(failure.clone());
                    }
                }
            }
        }
        Err(first_failure.expect("there is at least one legacy version"))
    }

    async fn sse(&self, target: &Target) -> Result<Connected, Failure> {
        let (wire, events) = wire::sse::connect(
            target.url.clone(),
            target.headers.clone(),
            Arc::clone(&self.sockets),
            &self.log,
            self.bounds,
        )
        .await?;
        let attempt = Link::open(wire, events, false, Arc::clone(&self.log));
        match self.initialize(&attempt.0, LEGACY[0], USUAL).await {
            Ok(()) => Ok(attempt),
            Err(failure) => {
                hang_up(attempt.0).await;
                Err(failure)
            }
        }
    }

    fn streamable(&self, target: &Target) -> Connected {
        let (wire, events): (Arc<dyn Wire>, Events) = wire::http::connect(
            target.url.clone(),
            target.headers.clone(),
            Arc::clone(&self.sockets),
            &self.log,
            self.bounds,
        );
        Link::open(wire, events, true, Arc::clone(&self.log))
    }

    async fn initialize(
        &self,
        link: &Arc<Link>,
        version: &str,
        patience: Patience,
    ) -> Result<(), Failure> {
        let params = RawObject::default()
            .with("protocolVersion", version)
            // One link serves all apps, so it offers all that an app may be able to do; a
            // question for an app that can't is answered for it.
            .with(
                "capabilities",
                &serde_json::json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": {} }),
            )
            .with("clientInfo", &own_info());
        let asked = link.begin_in(Request::own("initialize", params), None);
        let answer = self.patiently(link, asked, patience).await?;
        let answer = self.patiently(link, answer.answer(), patience).await?;
        let result = answer.map_err(|error| hello::refusal("initialize", &error))?;
        let hello = hello::legacy(&result)?;
        link.greet(hello);
        timeout(USUAL.silent, link.notify("notifications/initialized", RawObject::default()))
            .await
            .unwrap_or_else(|_| Err(silence(link, USUAL.silent)))
    }

    /// Waits as long as a start may take, and no longer than it takes to be sure of a server that
    /// can't be understood.
    async fn patiently<T>(
        &self,
        link: &Link,
        work: impl Future<Output = Result<T, Failure>>,
        patience: Patience,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        let mut work = std::pin::pin!(work);
        let mut foreign = false;
        loop {
            let heard = self.log.activity().map_or(begun, |heard| begun.max(heard.into()));
            let deadline = (heard + patience.silent).min(begun + patience.busy);
            tokio::select! {
                outcome = &mut work => return outcome,
                () = link.speaks_foreign(), if !foreign => foreign = true,
                () = sleep_until(begun + FOREIGN), if foreign => {
                    return Err(silence(link, begun.elapsed()));
                }
                () = sleep_until(deadline) => {
                    let heard_since = self.log.activity().map(Instant::from).is_some_and(|at| at > heard);
                    if !heard_since || Instant::now() >= begun + patience.busy {
                        return Err(silence(link, begun.elapsed()));
                    }
                }
            }
        }
    }
}

/// Whether a URL and headers can be used at all, for those who are about to store them.
pub fn check_target(url: &str, headers: &BTreeMap<String, String>) -> Result<(), Failure> {
    match filled_in(url, headers) {
        Ok((url, headers)) => Target::parse(&url, &headers).map(drop),
        // What isn't set now may be when it is needed; the upstream's state says so until then.
        Err(_) => Ok(()),
    }
}

/// Both with the variables of Traygate's environment in their places.
fn filled_in(
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<(String, BTreeMap<String, String>), Unexpandable> {
    let variable = |name: &str| env::var(name).ok();
    let scope = Scope { variable: &variable, home: None };
    let url = scope.expand(url, Field::Url)?;
    let headers = headers.iter().map(|(name, value)| {
        scope.expand(value, Field::Header(name)).map(|value| (name.clone(), value))
    });
    Ok((url, headers.collect::<Result<_, _>>()?))
}

/// A URL with the user's headers, both checked.
struct Target {
    url: Url,
    headers: HeaderMap,
}

impl Target {
    fn filled_in(url: &str, headers: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let (url, headers) = filled_in(url, headers).map_err(|why| {
            Failure::new(FailureKind::Misconfigured, Ran::CertainlyNot, why.to_string())
        })?;
        Self::parse(&url, &headers)
    }

    fn parse(url: &str, headers: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let misconfigured =
            |why: String| Failure::new(FailureKind::Misconfigured, Ran::CertainlyNot, why);
        let url = Url::parse(url).map_err(|error| {
            misconfigured(format!(
                "its URL can't be read ({error}); set it again with traygate add"
            ))
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(misconfigured(format!(
                "its URL begins with {}:, not http: or https:",
                url.scheme()
            )));
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let header: HeaderName = name
                .parse()
                .map_err(|_| misconfigured(format!("{name:?} is not a valid header name")))?;
            let mut value: HeaderValue = value.parse().map_err(|_| {
                misconfigured(format!(
                    "the value of the header {name} has characters that a header can't carry"
                ))
            })?;
            value.set_sensitive(true);
            map.append(header, value);
        }
        Ok(Self { url, headers: map })
    }
}

async fn discover(link: &Arc<Link>) -> Result<Discovery, Failure> {
    let request = Request::own("server/discover", RawObject::default());
    let call = link.begin_in(request, Some(MODERN)).await?;
    Ok(match call.answer().await? {
        Ok(result) => hello::discovered(&result),
        Err(error) => hello::refused(&error),
    })
}

/// A garbled answer of a server that frames its messages another way is best told as that.
fn understood(link: &Link, mut failure: Failure) -> Failure {
    if failure.kind == FailureKind::Garbage
        && link.is_foreign()
        && let Some(reason) = link.misunderstanding()
    {
        failure.reason = reason;
    }
    failure
}

fn silence(link: &Link, lasted: Duration) -> Failure {
    let of_its_start = if link.is_http() { "" } else { " of being started" };
    let silent =
        format!("it did not answer initialize within {} s{of_its_start}", lasted.as_secs());
    let reason = match link.misunderstanding() {
        Some(why) => format!("{silent} in a way that can be understood: {why}"),
        None => silent,
    };
    Failure::new(FailureKind::Silent, Ran::Perhaps, reason)
}

fn may_be_modern(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Status(_) | FailureKind::Refused(_) | FailureKind::Garbage)
}

/// Ends a connection that was only tried, so that no process or session is left behind.
async fn hang_up(link: Arc<Link>) {
    let _ = timeout(FAREWELL, link.close()).await;
}
