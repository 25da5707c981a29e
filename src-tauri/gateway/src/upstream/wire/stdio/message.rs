//! Lines into events: what is a message, what is noise, and what a spoilt answer was meant for.

use bytes::Bytes;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{
    super::{Bounds, Event, Failure, FailureKind, Ran},
    lines::Line,
};

/// How much of a line that is no message is shown.
const SHOWN: usize = 500;

/// Gives `event` what stands in a line, in order.
pub fn read_line(line: Line, bounds: Bounds, mut event: impl FnMut(Event)) {
    match line {
        Line::Whole(bytes) => whole(bytes, &mut event),
        Line::TooLong { length, head, tail } => {
            let reason = format!(
                "a message of {length} bytes is over the bound of {} bytes and was skipped",
                bounds.message
            );
            event(Event::Noise(format!("{reason}: {}", shown(&head))));
            if let Some(tag) = answered(&head, &tail) {
                let failure = Failure::new(FailureKind::Bound, Ran::Perhaps, reason);
                event(Event::Failed { tag, failure });
            }
        }
    }
}

fn whole(bytes: Bytes, event: &mut impl FnMut(Event)) {
    if is_message(&bytes) {
        return event(Event::Message { bytes, origin: None });
    }
    if bytes.trim_ascii_start().first() == Some(&b'[')
        && let Ok(batch) = serde_json::from_slice::<Vec<&RawValue>>(&bytes)
        && batch.iter().any(|element| is_message(element.get().as_bytes()))
    {
        for element in batch {
            whole(bytes.slice_ref(element.get().as_bytes()), event);
        }
        return;
    }
    event(Event::Noise(shown(&bytes)));
    if let Some(tag) = answered(&bytes, &bytes) {
        let reason = "the answer is not valid JSON; its beginning is in the log";
        event(Event::Failed {
            tag,
            failure: Failure::new(FailureKind::Garbage, Ran::Perhaps, reason),
        });
    }
}

/// What makes an object a JSON-RPC message rather than a structured log record. Only looked at:
/// the link reads messages.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Marks {
    jsonrpc: Present,
    id: Present,
    method: Present,
    result: Present,
    error: Present,
}

/// Whether a member is there, even as `null`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Present {
    #[default]
    No,
    Yes,
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self::Yes)
    }
}

impl Marks {
    fn of_a_message(&self) -> bool {
        let any = |members: &[Present]| members.contains(&Present::Yes);
        let answers = any(&[self.result, self.error]);
        // Some servers forget the version; of a record with a number alone that says nothing.
        (any(&[self.jsonrpc]) && (answers || any(&[self.id, self.method])))
            || (any(&[self.id]) && answers)
    }
}

fn is_message(bytes: &[u8]) -> bool {
    // An array would be read as a struct, too.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return false;
    }
    // Checked first, because strings that are skipped are not.
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    serde_json::from_str::<Marks>(text).is_ok_and(|marks| marks.of_a_message())
}

fn shown(bytes: &[u8]) -> String {
    let cut = bytes.len() > SHOWN;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    if cut { format!("{}… (cut)", text.trim_end_matches('\u{fffd}')) } else { text.into_owned() }
}

/// What a program seems to speak instead, where it is a known misunderstanding.
pub fn foreign_framing(noise: &str) -> Option<&'static str> {
    let line = noise.trim();
    let header = "content-length:";
    if line.get(..header.len()).is_some_and(|start| start.eq_ignore_ascii_case(header)) {
        return Some(
            "the server speaks Content-Length framing; MCP over stdio needs one JSON message a line",
        );
    }
    (line == "{").then_some(
        "the server spreads its JSON over several lines; MCP over stdio needs one JSON message a line",
    )
}

/// The number of the request that a spoilt line answers, from its beginning and its end. A request
/// of the server's own has a number too, but also a method.
fn answered(head: &[u8], tail: &[u8]) -> Option<u64> {
    let members = members(head);
    let has = |key: &[u8]| members.iter().any(|(k, _)| *k == key);
    if has(b"method") || !(has(b"result") || has(b"error")) {
        return None;
    }
    match members.iter().find(|(key, _)| *key == b"id") {
        Some((_, value)) => number(value).map(|(id, _)| id),
        None => id_at_end(tail),
    }
}

/// The outermost object's members that begin in `text`, each with all that follows its colon.
fn members(text: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut members = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let Some(end) = string_end(text, at) else { break };
                let after = text[end..].trim_ascii_start();
                if let (1, Some(value)) = (depth, after.strip_prefix(b":")) {
                    members.push((&text[at + 1..end - 1], value));
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    members
}

/// Where the string that begins at `at` is over.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut escaped = false;
    for (offset, byte) in text[at + 1..].iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + offset + 2),
            _ => {}
        }
    }
    None
}

/// `"id": 7}` or `"id": 7, "jsonrpc": "2.0"}` at the very end of a message.
fn id_at_end(tail: &[u8]) -> Option<u64> {
    let key = b"\"id\"";
    let at = tail.windows(key.len()).rposition(|part| part == key)?;
    let value = tail[at + key.len()..].trim_ascii_start().strip_prefix(b":")?;
    let (id, rest) = number(value)?;
    let end: Vec<u8> = rest.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    matches!(&end[..], b"}" | br#","jsonrpc":"2.0"}"#).then_some(id)
}

/// A whole number at the beginning of `text`, and what follows it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    if rest.first().is_some_and(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events in short: `m` a message, `n` noise, `f` a failed request.
    fn events(line: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        let line = Line::Whole(Bytes::copy_from_slice(line));
        read_line(line, Bounds::default(), |event| {
            events.push(match event {
                Event::Message { bytes, origin: None } => {
                    format!("m {}", String::from_utf8_lossy(&bytes))
                }
                Event::Noise(text) => format!("n {text}"),
                Event::Failed { tag, failure } => format!("f {tag} {:?}", failure.kind),
                other => panic!("{other:?}"),
            });
        });
        events
    }

    #[test]
    fn a_message_is_handed_on_to_the_byte() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"n":18446744073709551616,"s":"\u00e9\ud800"}}"#,
            r#" { "jsonrpc" : "2.0", "method" : "ping", "id":"x" } "#,
            r#"{"id":1,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":null}"#,
            "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"\u{2028}\"}",
        ] {
            assert_eq!(events(text.as_bytes()), [format!("m {text}")]);
        }
    }

    #[test]
    fn what_is_no_message_is_noise() {
        for text in [
            "Server v1.2 listening",
            "null",
            "42",
            "\"{}\"",
            "[1,2]",
            "[]",
            "{}",
            "{",
            r#"{"jsonrpc":"2.0"}"#,
            r#"{"level":30,"msg":"started","id":"abc"}"#,
            r#"{"level":"info","method":"GET","path":"/"}"#,
        ] {
            assert_eq!(events(text.as_bytes()), [format!("n {text}")]);
        }
    }

    #[test]
    fn a_batch_is_taken_apart() {
        let batch =
            br#" [{"jsonrpc":"2.0","id":1,"result":{ }}, 7,{"jsonrpc":"2.0","method":"x"}]"#;
        assert_eq!(
            events(batch),
            [
                r#"m {"jsonrpc":"2.0","id":1,"result":{ }}"#,
                "n 7",
                r#"m {"jsonrpc":"2.0","method":"x"}"#
            ]
        );
    }

    #[test]
    fn deep_nesting_is_no_noise() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{}{}}}"#,
            "[".repeat(5_000),
            "]".repeat(5_000)
        );
        assert_eq!(events(deep.as_bytes()), [format!("m {deep}")]);
    }

    #[test]
    fn a_spoilt_answer_fails_its_request_at_once() {
        for (text, fails) in [
            (&br#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#[..], true),
            (b"{\"jsonrpc\":\"2.0\",\"id\": 7 ,\"result\":\"\xff\"}", true),
            (br#"{"jsonrpc":"2.0","result":{"x":NaN,"id":9},"id":7}"#, true),
            (br#"{"jsonrpc":"2.0","id":7,"result":{"cut":"#, true),
            (br#"{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}"#, false),
            (br#"{"jsonrpc":"2.0","params":{"id":7,"result":1},"x":NaN}"#, false),
            (br#"{"jsonrpc":"2.0","id":7.5,"result":NaN}"#, false),
            (br#"{"jsonrpc":"2.0","id":"7","result":NaN}"#, false),
        ] {
            let events = events(text);
            assert!(events[0].starts_with("n "), "{events:?}");
            let expected: &[&str] = if fails { &["f 7 Garbage"] } else { &[] };
            assert_eq!(&events[1..], expected, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_line_over_the_bound_fails_the_request_that_it_answers() {
        let tag = |head: &str, tail: &str| answered(head.as_bytes(), tail.as_bytes());
        let text = r#"{"jsonrpc":"2.0","id":7,"result":{"id":8,"text":"xxx"#;
        assert_eq!(tag(text, r#"xxx"}}"#), Some(7));
        let last = r#"{"jsonrpc":"2.0","result":{"text":"a \" {{ xxx"#;
        assert_eq!(tag(last, r#"xxx"}, "id" : 7 } "#), Some(7));
        assert_eq!(tag(last, r#"xxx"},"id":7,"jsonrpc":"2.0"}"#), Some(7));
        assert_eq!(tag(last, r#"xxx","id":7}}"#), None, "an id inside the result");
        assert_eq!(tag(r#"{"method":"x","id":7,"params":"#, r#","result":1}"#), None);
    }

    #[test]
    fn noise_is_cut_between_characters() {
        let text = format!("x{}", "ä".repeat(1_000));
        let expected = format!("n x{}… (cut)", "ä".repeat(249));
        assert_eq!(events(text.as_bytes()), [expected]);
    }

    #[test]
    fn foreign_framing_is_recognised() {
        for (noise, known) in [
            ("Content-Length: 12\r", true),
            ("content-length:5", true),
            ("{", true),
            ("hello", false),
        ] {
            assert_eq!(foreign_framing(noise).is_some(), known, "{noise}");
        }
    }
}
