//! Who may speak to this host at all: loopback names only, no foreign page, a token on every
//! request (design section 7).

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use subtle::ConstantTimeEq as _;

use crate::{api::Problem, gateway::Gateway, text::one_line};

/// The header by which the bridge says for which app it speaks.
pub const APP_HEADER: HeaderName = HeaderName::from_static("traygate-app");

/// What the guards know.
#[derive(Clone)]
pub struct Guard {
    pub gateway: Arc<Gateway>,
    /// The token of the run file: this user's own programs.
    pub run_token: Arc<str>,
}

/// The app that a request comes from.
#[derive(Clone, Debug)]
pub struct App(pub Arc<str>);

/// Refuses what a foreign page can send, before anything else is looked at.
pub async fn same_machine(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    if !host.is_some_and(is_loopback) {
        return refuse(
            StatusCode::FORBIDDEN,
            "the Host header must name this machine: 127.0.0.1, localhost or [::1]",
        );
    }
    let Some(origin) = headers.get(header::ORIGIN).cloned() else { return next.run(request).await };
    let settings = guard.gateway.settings();
    let allowed = origin
        .to_str()
        .is_ok_and(|origin| settings.allowed_origins.iter().any(|one| one == origin));
    if !allowed {
        return refuse(
            StatusCode::FORBIDDEN,
            "web pages may not use Traygate; to let one, add its origin: traygate config allowed_origins <origin>",
        );
    }
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else {
        next.run(request).await
    };
    share_with(origin, response.headers_mut());
    response
}

/// A page that the user allowed reads the answers, and the session id in them.
fn share_with(origin: HeaderValue, headers: &mut HeaderMap) {
    let fixed = HeaderValue::from_static;
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, fixed("Origin"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, fixed("GET, POST, DELETE"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        fixed("authorization, content-type, accept, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, last-event-id"),
    );
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, fixed("mcp-session-id"));
}

/// A name of this machine, with any port: only the name matters against DNS rebinding.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "::1"
}

/// Lets an app's own token pass, or the run file's with the name of the app it speaks for.
pub async fn apps_only(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let app = bearer(request.headers()).and_then(|token| {
        if is(token, &guard.run_token) {
            let named = request.headers().get(APP_HEADER).and_then(|name| name.to_str().ok());
            let name = one_line(named.unwrap_or("stdio"), 60);
            return Some(App(if name.is_empty() { "stdio".into() } else { name.as_str().into() }));
        }
        guard.gateway.apps().authenticate(token).map(App)
    });
    let Some(app) = app else {
        return unauthorized(
            "this endpoint needs an app's token; make one with: traygate token new <app>",
        );
    };
    if guard.gateway.apps().seen(&app.0).await {
        guard.gateway.changed();
    }
    request.extensions_mut().insert(app);
    next.run(request).await
}

/// Lets only the run file's token pass.
pub async fn user_only(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if bearer(request.headers()).is_some_and(|token| is(token, &guard.run_token)) {
        next.run(request).await
    } else {
        unauthorized("the control API needs the token of the run file")
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// In constant time, so that a token can't be guessed byte by byte.
fn is(token: &str, wanted: &str) -> bool {
    token.as_bytes().ct_eq(wanted.as_bytes()).into()
}

fn unauthorized(why: &str) -> Response {
    let mut response = refuse(StatusCode::UNAUTHORIZED, why);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

pub fn refuse(status: StatusCode, why: &str) -> Response {
    let problem = Problem { message: why.to_owned(), code: None, upstream: None };
    (status, axum::Json(problem)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for good in
            ["127.0.0.1", "127.0.0.1:8717", "localhost:1", "LOCALHOST", "[::1]:8717", "[::1]"]
        {
            assert!(is_loopback(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8717",
            "0.0.0.0",
            "[::2]",
            "10.0.0.1",
        ] {
            assert!(!is_loopback(bad), "{bad}");
        }
    }
}
