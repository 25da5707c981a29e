//! What an HTTP answer holds: read within a bound, and looked at just enough to be told apart.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use reqwest::Response;
use serde_json::value::RawValue;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::{Event, Failure, FailureKind, Ran, headers, remote};
use crate::json::Envelope;

/// The longest piece of a foreign text in a reason.
const EXTRACT: usize = 120;

/// How long a refusal's words are waited for.
const REFUSAL: Duration = Duration::from_secs(5);

/// A notification is only accepted, never worked on, so that takes no longer.
const ACCEPT: Duration = Duration::from_secs(30);

/// Waits for a message without an answer to be accepted.
pub(super) async fn accepted(
    sent: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    timeout(ACCEPT, sent).await.unwrap_or_else(|_| {
        let reason = format!("did not accept a message within {} s", ACCEPT.as_secs());
        Err(Failure::new(FailureKind::Gone, Ran::Perhaps, reason))
    })
}

/// A JSON-RPC error in answer to what has no answer.
pub(super) fn refused(body: &[u8]) -> Failure {
    let words = extract(&String::from_utf8_lossy(body));
    Failure::new(FailureKind::Garbage, Ran::Perhaps, format!("refused a message: {words}"))
}

pub(super) fn is_stream(answer: &Response) -> bool {
    answer.status().is_success() && headers::is_event_stream(answer.headers())
}

/// Reads a whole body, decompressed, of at most `bound` bytes.
pub(super) async fn read(answer: &mut Response, bound: usize) -> Result<Bytes, Failure> {
    let mut body = BytesMut::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > bound => return Err(too_large(bound)),
            // The usual small answer is one chunk, and is not copied.
            Ok(Some(chunk)) if body.is_empty() => body = BytesMut::from(chunk),
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body.freeze()),
            Err(error) => return Err(broken_off(&error)),
        }
    }
}

/// As much of a refusal's body as a reason can use; whatever goes wrong, that is all there is.
pub(super) async fn read_start(answer: &mut Response, bound: usize) -> Bytes {
    let mut body = BytesMut::new();
    let until = Instant::now() + REFUSAL;
    while body.len() < bound {
        let Ok(Ok(Some(chunk))) = timeout_at(until, answer.chunk()).await else { break };
        body.extend_from_slice(&chunk);
    }
    body.freeze()
}

pub(super) fn too_large(bound: usize) -> Failure {
    Failure::new(
        FailureKind::Bound,
        Ran::Perhaps,
        format!("answered with a message of more than {bound} bytes, which is the limit"),
    )
}

pub(super) fn broken_off(error: &reqwest::Error) -> Failure {
    let reason = format!("the answer broke off: {}", remote::root(error));
    Failure::in_own_words(FailureKind::Gone, Ran::Perhaps, reason)
}

/// One message of a body or of an event.
#[derive(Debug)]
pub(super) struct Message {
    pub bytes: Bytes,
    /// A result or an error: what the request waits for.
    pub answers: bool,
}

/// The messages in a JSON text: one, or the elements of a batch. `None` if it is no MCP.
pub(super) fn messages(text: &Bytes) -> Option<Vec<Message>> {
    let text = text.slice(start(text)..);
    if text.first() != Some(&b'[') {
        return message(text).map(|one| vec![one]);
    }
    let batch: Vec<&RawValue> = serde_json::from_slice(&text).ok()?;
    batch.into_iter().map(|one| message(text.slice_ref(one.get().as_bytes()))).collect()
}

/// What an event's data is to the link where its stream belongs to no request.
pub(super) fn unasked(data: &Bytes) -> Vec<Event> {
    match messages(data) {
        None => vec![noise(data)],
        Some(messages) => messages
            .into_iter()
            .map(|message| Event::Message { bytes: message.bytes, origin: None })
            .collect(),
    }
}

pub(super) fn noise(data: &[u8]) -> Event {
    Event::Noise(extract(&String::from_utf8_lossy(data)))
}

/// Behind a byte order mark and white space.
fn start(text: &[u8]) -> usize {
    let mark = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let blank = text[mark..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    mark + blank
}

fn message(bytes: Bytes) -> Option<Message> {
    let envelope: Envelope = serde_json::from_slice(&bytes).ok()?;
    let answers =
        envelope.method.is_none() && (envelope.result.is_some() || envelope.error.is_some());
    let is_message = answers || envelope.method.is_some();
    is_message.then_some(Message { bytes, answers })
}

/// What a body that should have been MCP is instead, in words.
pub(super) fn garbage(status: StatusCode, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let reason = if text.trim().is_empty() {
        format!("answered {status} with nothing in it")
    } else if is_html(&text) {
        format!("answered with an HTML page instead of MCP: {}", extract(&text))
    } else if text.trim_start().starts_with(['{', '[']) {
        format!("answered with JSON that is cut off or is no MCP ({} bytes)", body.len())
    } else {
        format!("answered with text instead of MCP: {}", extract(&text))
    };
    Failure::new(FailureKind::Garbage, Ran::Perhaps, reason)
}

pub(super) fn is_html(text: &str) -> bool {
    let start: String = text.trim_start().chars().take(15).collect::<String>().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// One clean line of a foreign text: an HTML page's title, a JSON object's message, or the text
/// without markup.
pub(super) fn extract(text: &str) -> String {
    let text = json_words(text).or_else(|| title(text)).unwrap_or_else(|| without_tags(text));
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|w| !w.is_empty())
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(EXTRACT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Where APIs usually say in words what is wrong.
fn json_words(text: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    ["/error/message", "/error_description", "/message", "/detail", "/title", "/error"]
        .iter()
        .find_map(|path| value.pointer(path)?.as_str().map(str::to_owned))
}

fn title(text: &str) -> Option<String> {
    // ASCII only changes case, so positions stay.
    let lower = text.to_ascii_lowercase();
    let start = lower.find("<title")?;
    let start = start + lower[start..].find('>')? + 1;
    let end = start + lower[start..].find("</title")?;
    Some(text[start..end].to_owned()).filter(|title| !title.trim().is_empty())
}

fn without_tags(text: &str) -> String {
    let mut inside = false;
    text.chars()
        .filter_map(|c| match c {
            '<' => {
                inside = true;
                Some(' ')
            }
            '>' if inside => {
                inside = false;
                None
            }
            _ => (!inside).then_some(c),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_quotes_one_line_without_markup() {
        let page = "<html><head><TITLE>502 Bad\n Gateway</TITLE></head><body>nginx</body></html>";
        assert_eq!(extract(page), "502 Bad Gateway");
        assert_eq!(extract("<b>down</b>\r\nfor <i>maintenance</i>"), "down for maintenance");
        assert_eq!(extract(r#"{"error":{"code":1,"message":"no\nway"}}"#), "no way");
        assert_eq!(extract(&"ü".repeat(300)).chars().count(), EXTRACT + 1);
    }

    #[test]
    fn a_batch_is_its_elements_and_a_number_is_no_message() {
        let body =
            Bytes::from("\u{feff} [{\"id\":1,\"result\":{ \"n\":1e3 }},{\"method\":\"x\"}]\n");
        let messages = messages(&body).expect("a batch");
        let seen: Vec<_> =
            messages.iter().map(|m| (String::from_utf8_lossy(&m.bytes), m.answers)).collect();
        assert_eq!(
            seen,
            [
                (r#"{"id":1,"result":{ "n":1e3 }}"#.into(), true),
                (r#"{"method":"x"}"#.into(), false)
            ]
        );
        for text in ["42", "{\"hello\":1}", "{\"id\":1,\"result\":{", "[1]"] {
            assert!(super::messages(&Bytes::from(text)).is_none(), "{text} is no MCP");
        }
    }
}
