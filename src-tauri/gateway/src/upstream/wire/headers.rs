//! The headers in which HTTP repeats what a message says (Streamable HTTP, revision 2026-07-28).

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER,
        TRANSFER_ENCODING, WWW_AUTHENTICATE,
    },
};
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use url::Url;

use super::Kind;

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The user's own headers, without those that belong to the connection, and with a user name and
/// password of the URL moved into them, where no reason and no log can show them.
pub(super) fn credentials(url: &mut Url, mut headers: HeaderMap) -> HeaderMap {
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION] {
        headers.remove(name);
    }
    if url.username().is_empty() && url.password().is_none() {
        return headers;
    }
    let user = format!("{}:{}", decoded(url.username()), decoded(url.password().unwrap_or("")));
    if let Ok(value) = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user))) {
        headers.entry(AUTHORIZATION).or_insert(value);
    }
    // Neither fails on an address that has a host, and one without has no user name.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    headers
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A POST asks for both shapes of an answer.
pub(super) fn posting(headers: &mut HeaderMap) {
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
}

/// A GET for a stream.
pub(super) fn listening(headers: &mut HeaderMap, last_event: Option<&str>) {
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers.remove(CONTENT_TYPE);
    if let Some(value) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(LAST_EVENT, value);
    }
}

/// What a modern message says of itself. A header whose name is none is left out; the schema that
/// asked for it was wrong, and the server will say so.
pub(super) fn mirrored(headers: &mut HeaderMap, kind: &Kind) {
    match kind {
        Kind::Request { method, name, headers: parameters, version, .. } => {
            if let Some(version) = version {
                headers.insert(VERSION, encoded(version));
            }
            headers.insert(METHOD, encoded(method));
            if let Some(name) = name {
                headers.insert(NAME, encoded(name));
            }
            for (name, value) in parameters {
                if let Ok(name) = HeaderName::try_from(name) {
                    headers.insert(name, encoded(value));
                }
            }
        }
        Kind::Notification { method } => {
            headers.insert(METHOD, encoded(method));
        }
        Kind::Response => {}
    }
}

/// A value as it is, or in the base64 form where it would not arrive as it is: outside printable
/// ASCII, padded, or looking like that form itself.
pub(super) fn encoded(value: &str) -> HeaderValue {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    let text =
        if plain { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) };
    HeaderValue::from_str(&text).expect("printable ASCII is a header value")
}

pub(super) fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let media_type = content_type(headers).split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("text/event-stream")
}

/// How many seconds the server asks to wait: it says a number or a date.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(seconds);
    }
    let until = DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(u64::try_from(until.as_second() - now.as_second()).unwrap_or(0))
}

/// Whether a 403 is about a missing scope, which a sign-in can cure.
pub(super) fn wants_scope(headers: &HeaderMap) -> bool {
    headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .any(|value| String::from_utf8_lossy(value.as_bytes()).contains("insufficient_scope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_that_would_not_arrive_as_it_is_is_encoded() {
        let cases = [
            ("get weather", "get weather"),
            ("file:///a/b?c=d", "file:///a/b?c=d"),
            ("", ""),
            ("世界", "=?base64?5LiW55WM?="),
            (" pad ", "=?base64?IHBhZCA=?="),
            ("a\r\nX: 1", "=?base64?YQ0KWDogMQ==?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ];
        for (value, header) in cases {
            assert_eq!(encoded(value), header, "{value:?} in a header");
        }
    }

    #[test]
    fn a_wait_is_a_number_or_a_date() {
        let now: Timestamp = "2015-10-21T07:27:50Z".parse().expect("a time");
        let wait = |value| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            retry_after(&headers, now)
        };
        assert_eq!(wait("7"), Some(7));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), Some(10));
        assert_eq!(wait("Wed, 21 Oct 2015 07:27:00 GMT"), Some(0), "a time that has passed");
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn a_password_moves_from_the_address_into_a_header() {
        let mut url: Url = "https://me:s%40fe@example.com/mcp?x=1".parse().expect("a url");
        let headers = credentials(&mut url, HeaderMap::new());
        assert_eq!(url.as_str(), "https://example.com/mcp?x=1");
        assert_eq!(headers[AUTHORIZATION], "Basic bWU6c0BmZQ==");
    }
}
