//! One HTTP server as its user defined it: where it is, the user's own headers, and the redirects
//! that may be followed.

use std::{
    error::Error as _,
    io,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header::LOCATION};
use reqwest::{Client, Response};
use url::Url;

use super::{
    Failure, FailureKind, Ran,
    client::{CONNECT, Sockets},
    headers,
};

use crate::lock::lock;

const REDIRECTS: usize = 10;

/// Values shorter than this are no secrets, and blotting them out would spoil the words.
const SECRET: usize = 6;

pub(super) struct Remote {
    sockets: Arc<Sockets>,
    /// Where the server is; a redirect that was followed is remembered here.
    url: Mutex<Url>,
    own: HeaderMap,
    /// What must not be seen in a reason although the server may repeat it.
    secrets: Vec<String>,
}

impl Remote {
    pub fn new(sockets: Arc<Sockets>, mut url: Url, headers: HeaderMap) -> Self {
        let own = headers::credentials(&mut url, headers);
        let secrets = secrets(&url, &own);
        Self { sockets, url: Mutex::new(url), own, secrets }
    }

    pub fn url(&self) -> Url {
        lock(&self.url).clone()
    }

    /// The user's own headers, to which a request adds its own.
    pub fn headers(&self) -> HeaderMap {
        self.own.clone()
    }

    /// Sends to the server's address.
    pub async fn ask(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, Failure> {
        let url = self.url();
        let answer = send(&self.sockets.client(), method, &url, headers, body).await?;
        if *answer.url() != url {
            *lock(&self.url) = answer.url().clone();
        }
        Ok(answer)
    }

    /// Sends to another address of the same server.
    pub async fn ask_at(
        &self,
        url: &Url,
        method: Method,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, Failure> {
        send(&self.sockets.client(), method, url, headers, body).await
    }

    /// A failure whose words repeat nothing of what the user keeps secret.
    pub fn discreet(&self, mut failure: Failure) -> Failure {
        for secret in &self.secrets {
            if failure.reason.contains(secret) {
                failure.reason = failure.reason.replace(secret, "…");
            }
        }
        failure
    }
}

/// The values of the user's headers (behind a scheme such as `Bearer`) and of the query.
fn secrets(url: &Url, own: &HeaderMap) -> Vec<String> {
    let headers = own.values().filter_map(|value: &HeaderValue| {
        let value = value.to_str().ok()?;
        Some(value.rsplit(' ').next().unwrap_or(value).to_owned())
    });
    let query = url.query_pairs().map(|(_, value)| value.into_owned());
    headers.chain(query).filter(|value| value.len() >= SECRET).collect()
}

/// Sends one request and follows redirects within the origin. The answer's own URL is where it
/// came from in the end.
///
/// A redirect that isn't followed is an error which says where it points: credentials never leave
/// the origin that the user named, and a POST never turns into a GET.
async fn send(
    client: &Client,
    method: Method,
    url: &Url,
    headers: HeaderMap,
    body: Option<Bytes>,
) -> Result<Response, Failure> {
    let mut url = url.clone();
    for _ in 0..=REDIRECTS {
        let mut request = client.request(method.clone(), url.clone()).headers(headers.clone());
        if let Some(body) = &body {
            request = request.body(body.clone());
        }
        let answer = request.send().await.map_err(|error| unanswered(&error, &url))?;
        match destination(&answer, &method)? {
            None => return Ok(answer),
            Some(next) => url = next,
        }
    }
    Err(Failure::new(
        FailureKind::Status(StatusCode::TEMPORARY_REDIRECT.as_u16()),
        Ran::Perhaps,
        format!("{} redirects in a circle", place(&url)),
    ))
}

/// Where to go on, if the answer is a redirect that may be followed.
fn destination(answer: &Response, method: &Method) -> Result<Option<Url>, Failure> {
    let status = answer.status();
    let target = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let (true, Some(target)) = (status.is_redirection(), target) else { return Ok(None) };
    let refuse = |words: String| {
        Err(Failure::new(FailureKind::Status(status.as_u16()), Ran::Perhaps, words))
    };
    let Ok(target) = answer.url().join(target) else {
        return refuse(format!("answered {status} with an address that is none"));
    };
    let shown = shown(&target);
    if !same_site(answer.url(), &target) {
        return refuse(format!(
            "answered {status}: it has moved to {shown}, which is another origin and was not followed; set that address if you trust it"
        ));
    }
    let keeps_method = matches!(status.as_u16(), 307 | 308) || method == Method::GET;
    if !keeps_method {
        return refuse(format!("answered {status}: it has moved to {shown}; set that address"));
    }
    Ok(Some(target))
}

/// The same origin, or the same host's standard TLS port instead of its standard plain one.
fn same_site(from: &Url, to: &Url) -> bool {
    let secured = from.scheme() == "http"
        && to.scheme() == "https"
        && from.host() == to.host()
        && from.port().is_none()
        && to.port().is_none();
    from.origin() == to.origin() || secured
}

/// Host and port, the only part of an address that belongs in every reason.
pub(super) fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or("?");
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// An address without what may be secret in it.
pub(super) fn shown(url: &Url) -> String {
    format!("{}://{}{}", url.scheme(), place(url), url.path())
}

/// Why no answer came at all.
///
/// A failure to connect was certainly not written. hyper's client itself sends a request again
/// when it is handed back unwritten by a pooled connection that closed; so any other error that
/// reaches this place may have come after bytes were written, and nobody can say what became of
/// them.
fn unanswered(error: &reqwest::Error, url: &Url) -> Failure {
    let place = place(url);
    if error.is_builder() {
        let reason = format!("cannot make a request of this address: {}", root(error));
        return Failure::new(FailureKind::Misconfigured, Ran::CertainlyNot, reason);
    }
    if !error.is_connect() {
        let reason = format!("{place} broke off before it answered: {}", root(error));
        return Failure::in_own_words(FailureKind::Gone, Ran::Perhaps, reason);
    }
    let reason = if error.is_dns() {
        format!("the name of {place} cannot be found; check the address and the network")
    } else if error.is_timeout() {
        format!("{place} did not accept a connection within {} s", CONNECT.as_secs())
    } else if io_kind(error) == Some(io::ErrorKind::ConnectionRefused) {
        format!("{place} refused the connection; is the server running?")
    } else {
        format!("cannot connect to {place}: {}", root(error))
    };
    Failure::in_own_words(FailureKind::Gone, Ran::CertainlyNot, reason)
}

fn io_kind(error: &reqwest::Error) -> Option<io::ErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        source = error.source();
    }
    None
}

/// The innermost cause: the outer ones repeat the URL, whose query may be secret.
pub(super) fn root(error: &reqwest::Error) -> String {
    let Some(mut cause) = error.source() else {
        return "no reason is known".to_owned();
    };
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
