//! What an HTTP status that isn't success means, and whether the request can have run.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use reqwest::Response;
use serde::Deserialize;

use super::{Failure, FailureKind, Ran, body, headers};
use crate::json::Envelope;

/// A refusal is small; a page of a proxy may be cut.
const BODY: usize = 256 << 10;

/// What a server knew of us before it answered: it decides if it can have forgotten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acquaintance {
    /// A modern request, or the first of a legacy connection.
    None,
    /// A legacy connection whose server gave no session id.
    Initialized,
    /// The request carried a session id.
    Session,
}

/// What came instead of success.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A JSON-RPC error: an answer, whatever its status.
    Answer(Bytes),
    Failure(Failure),
}

/// Reads a refusal and says what it is.
pub(super) async fn read(mut answer: Response, known: Acquaintance) -> Refusal {
    let body = body::read_start(&mut answer, BODY).await;
    judge(answer.status(), answer.headers(), body, known)
}

fn judge(status: StatusCode, headers: &HeaderMap, body: Bytes, known: Acquaintance) -> Refusal {
    let failure = |kind, ran, reason: String| Refusal::Failure(Failure::new(kind, ran, reason));
    let wait = headers::retry_after(headers, Timestamp::now());
    let error = Error::parse(&body);
    match status.as_u16() {
        401 => failure(
            FailureKind::NeedsSignIn,
            Ran::CertainlyNot,
            "wants a sign-in, a token or a header (401)".into(),
        ),
        403 if headers::wants_scope(headers) => failure(
            FailureKind::NeedsSignIn,
            Ran::CertainlyNot,
            "wants a sign-in with more rights (403, insufficient scope)".into(),
        ),
        429 => busy(status, wait.unwrap_or(1)),
        _ if is_lost_session(status, error.as_ref(), &body, known) => {
            Refusal::Failure(session_lost())
        }
        503 if wait.is_some() => busy(status, wait.unwrap_or_default()),
        _ if error.is_some() => Refusal::Answer(body),
        code => failure(FailureKind::Status(code), Ran::Perhaps, in_words(status, &body)),
    }
}

fn busy(status: StatusCode, retry_after: u64) -> Refusal {
    let reason = format!("is busy ({status}) and asks to wait {retry_after} s");
    let kind = FailureKind::Busy { retry_after };
    Refusal::Failure(Failure::new(kind, Ran::CertainlyNot, reason))
}

pub(super) fn session_lost() -> Failure {
    let reason = "does not know the session any more";
    Failure::new(FailureKind::SessionLost, Ran::CertainlyNot, reason)
}

/// The status and what the body says about it.
fn in_words(status: StatusCode, body: &[u8]) -> String {
    match body::extract(&String::from_utf8_lossy(body)) {
        words if words.is_empty() || words == status.to_string() => format!("answered {status}"),
        words => format!("answered {status}: {words}"),
    }
}

/// A 404 for a known session is the protocol's own way to say it. Others say 400 or 503 with words.
fn is_lost_session(
    status: StatusCode,
    error: Option<&Error>,
    body: &[u8],
    known: Acquaintance,
) -> bool {
    let says_so = || match error {
        Some(error) => says_session_lost(&error.message),
        None => says_session_lost(&String::from_utf8_lossy(body)),
    };
    match (known, status.as_u16()) {
        (Acquaintance::None, _) => false,
        (Acquaintance::Session, 404) => {
            !error.is_some_and(Error::is_about_the_request) || says_so()
        }
        (_, 400 | 404 | 410 | 503) => says_so(),
        _ => false,
    }
}

/// Whether a JSON-RPC error that came with a success status says that the session is unknown. Only
/// codes that servers use for it count, since here it may as well be an answer of the server's
/// own that mentions sessions.
pub(super) fn is_session_error(message: &[u8]) -> bool {
    Error::parse(message).is_some_and(|error| {
        matches!(error.code, -32_000 | -32_001 | -32_015 | -32_600)
            && says_session_lost(&error.message)
    })
}

/// The words by which the servers of many makers say it.
fn says_session_lost(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let unknown = [
        "not found",
        "could not find",
        "no valid",
        "invalid",
        "unknown",
        "expired",
        "not exist",
        "no longer",
        "terminated",
        "missing",
        "not recognized",
        "required",
    ];
    let of_a_session = text.contains("session") && unknown.iter().any(|words| text.contains(words));
    of_a_session || text.contains("server not initialized")
}

/// The part of a JSON-RPC error that tells what it is about.
#[derive(Deserialize)]
struct Error {
    code: i64,
    #[serde(default)]
    message: String,
}

impl Error {
    fn parse(body: &[u8]) -> Option<Self> {
        let envelope: Envelope = serde_json::from_slice(body).ok()?;
        serde_json::from_str(envelope.error?.get()).ok()
    }

    /// Method not found, or invalid parameters: the session was good enough to look at it.
    fn is_about_the_request(&self) -> bool {
        matches!(self.code, -32_601 | -32_602)
    }
}

#[cfg(test)]
mod tests {
    use http::{
        HeaderValue,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
    };

    use super::*;

    fn kind(
        status: u16,
        headers: &HeaderMap,
        body: &str,
        known: Acquaintance,
    ) -> Option<FailureKind> {
        let status = StatusCode::from_u16(status).expect("a status");
        match judge(status, headers, Bytes::copy_from_slice(body.as_bytes()), known) {
            Refusal::Answer(_) => None,
            Refusal::Failure(failure) => Some(failure.kind),
        }
    }

    fn error(code: i64, message: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"{message}"}}}}"#)
    }

    #[test]
    fn a_lost_session_is_known_by_the_status_or_by_the_words() {
        use Acquaintance::{Initialized, None as Stranger, Session};
        let lost = Some(FailureKind::SessionLost);
        let none = HeaderMap::new();
        let found = |status, body: &str, known| kind(status, &none, body, known);

        assert_eq!(found(404, "", Session), lost);
        assert_eq!(found(404, "<html>nope</html>", Session), lost);
        assert_eq!(found(404, &error(-32_001, "Session not found"), Session), lost);
        assert_eq!(found(404, &error(-32_601, "Method not found"), Session), None, "an answer");
        assert_eq!(found(404, "", Stranger), Some(FailureKind::Status(404)));
        assert_eq!(found(404, "Could not find session", Initialized), lost);
        for code in [-32_600, -32_000, -32_001, -32_015] {
            let body = error(code, "Bad Request: No valid session ID provided");
            assert_eq!(found(400, &body, Session), lost, "{code}");
            assert_eq!(found(400, &body, Stranger), None, "no session was named");
        }
        assert_eq!(
            found(400, &error(-32_000, "Bad Request: Server not initialized"), Session),
            lost
        );
        assert_eq!(found(400, "Invalid session ID", Session), lost);
        assert_eq!(found(503, "session expired", Session), lost);
        assert_eq!(found(400, &error(-32_602, "Unknown tool"), Session), None);
        assert_eq!(found(500, "session not found", Session), Some(FailureKind::Status(500)));
    }

    #[test]
    fn modern_rejections_are_answers() {
        for (status, code) in
            [(400, -32_020), (400, -32_021), (400, -32_022), (404, -32_601), (500, -32_603)]
        {
            let body = error(code, "no session header may be unknown");
            assert_eq!(kind(status, &HeaderMap::new(), &body, Acquaintance::None), None, "{code}");
        }
    }

    #[test]
    fn sign_in_and_waiting_go_before_what_the_body_says() {
        let with = |name, value| HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        let body = error(-32_000, "whatever");
        let stranger = Acquaintance::None;
        let none = HeaderMap::new();
        let scope = with(WWW_AUTHENTICATE, "Bearer error=\"insufficient_scope\", scope=\"x\"");
        assert_eq!(kind(401, &none, &body, stranger), Some(FailureKind::NeedsSignIn));
        assert_eq!(kind(403, &scope, &body, stranger), Some(FailureKind::NeedsSignIn));
        assert_eq!(kind(403, &none, "no", stranger), Some(FailureKind::Status(403)));
        let wait = with(RETRY_AFTER, "3");
        let busy = Some(FailureKind::Busy { retry_after: 3 });
        assert_eq!(kind(429, &wait, &body, stranger), busy);
        assert_eq!(kind(503, &wait, "", stranger), busy);
        assert_eq!(kind(503, &none, "", stranger), Some(FailureKind::Status(503)));
    }
}
