//! Server-sent events as the WHATWG defines them, out of chunks that end anywhere, with the data
//! byte for byte and in bounded memory.

use std::{collections::VecDeque, time::Duration};

use bytes::{Bytes, BytesMut};
use reqwest::Response;

use super::{Failure, body};

/// One dispatched event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerSent {
    /// Empty means `message`.
    pub name: String,
    /// The `data` lines, joined by line feeds. Empty for an event that only carries an id.
    pub data: Bytes,
    /// The id it came with, if it came with one.
    pub id: Option<String>,
}

/// An answer's stream of events.
pub(super) struct EventStream {
    answer: Response,
    lines: Parser,
    ready: VecDeque<ServerSent>,
}

impl EventStream {
    pub fn new(answer: Response, bound: usize) -> Self {
        Self { answer, lines: Parser::new(bound), ready: VecDeque::new() }
    }

    /// The next event; `None` at the stream's end.
    pub async fn next(&mut self) -> Result<Option<ServerSent>, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match self.answer.chunk().await {
                Ok(Some(chunk)) => self.lines.feed(&chunk, &mut self.ready)?,
                // What was not ended by an empty line is incomplete, and is dropped.
                Ok(None) => return Ok(None),
                Err(error) => return Err(body::broken_off(&error)),
            }
        }
    }

    /// How long to wait before coming back, if the server has said it.
    pub fn retry(&self) -> Option<Duration> {
        self.lines.retry
    }
}

/// Bytes in, events out.
struct Parser {
    bound: usize,
    /// A line that has not ended yet.
    line: BytesMut,
    /// A carriage return ended the last line, so a line feed right behind it belongs to that end.
    after_return: bool,
    first_line: bool,
    name: String,
    /// Each line of data with a line feed behind it, so that empty ones count.
    data: BytesMut,
    id: Option<String>,
    retry: Option<Duration>,
}

impl Parser {
    fn new(bound: usize) -> Self {
        Self {
            bound,
            line: BytesMut::new(),
            after_return: false,
            first_line: true,
            name: String::new(),
            data: BytesMut::new(),
            id: None,
            retry: None,
        }
    }

    fn feed(&mut self, mut chunk: &[u8], out: &mut VecDeque<ServerSent>) -> Result<(), Failure> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_return) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let end = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if self.line.len() + self.data.len() + part.len() > self.bound.saturating_add(SLACK) {
                return Err(body::too_large(self.bound));
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { return Ok(()) };
            self.after_return = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            out.extend(self.end_line());
        }
        Ok(())
    }

    fn end_line(&mut self) -> Option<ServerSent> {
        let line = self.line.split();
        let mut line = &line[..];
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let (field, value) = colon.map_or((line, &b""[..]), |at| (&line[..at], &line[at + 1..]));
        self.field(field, value.strip_prefix(b" ").unwrap_or(value));
        None
    }

    /// A comment is a field without a name, and like all unknown ones ignored.
    fn field(&mut self, field: &[u8], value: &[u8]) {
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.extend_from_slice(b"\n");
            }
            b"event" => self.name = text(),
            b"id" if !value.contains(&0) => self.id = Some(text()),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                self.retry = text().parse().ok().map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<ServerSent> {
        let mut data = self.data.split();
        data.truncate(data.len().saturating_sub(1));
        let name = std::mem::take(&mut self.name);
        let id = self.id.take();
        let says_something = !data.is_empty() || id.is_some();
        says_something.then(|| ServerSent { name, data: data.freeze(), id })
    }
}

/// The name of a field beside a message of exactly the bound.
const SLACK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<ServerSent> {
        let mut parser = Parser::new(1_000);
        let mut out = VecDeque::new();
        for chunk in chunks {
            parser.feed(chunk.as_ref(), &mut out).expect("within the bound");
        }
        out.into()
    }

    fn event(name: &str, data: &str, id: Option<&str>) -> ServerSent {
        ServerSent {
            name: name.into(),
            data: Bytes::copy_from_slice(data.as_bytes()),
            id: id.map(str::to_owned),
        }
    }

    const STREAM: &str = "\u{feff}: hello\nevent: endpoint\r\ndata:/messages?x=1\r\n\r\n\
        id: 7\rdata: {\"世\":\rdata:  1}\rignored: x\r\rretry: 40\nid: 8\ndata\n\n: ping\n\n\
        data: a: \u{2028}b\n\ndata: never ended";

    #[test]
    fn every_line_end_and_every_cut_give_the_same_events() {
        let whole = parse([STREAM]);
        assert_eq!(
            whole,
            [
                event("endpoint", "/messages?x=1", None),
                event("", "{\"世\":\n 1}", Some("7")),
                event("", "", Some("8")),
                event("", "a: \u{2028}b", None),
            ]
        );
        assert_eq!(parse(STREAM.as_bytes().chunks(1)), whole, "cut inside characters and CR LF");
        for size in 2..40 {
            assert_eq!(parse(STREAM.as_bytes().chunks(size)), whole, "chunks of {size}");
        }
    }

    #[test]
    fn a_line_without_an_end_does_not_fill_the_memory() {
        let mut parser = Parser::new(100);
        let mut out = VecDeque::new();
        let failure = (0..100)
            .find_map(|_| parser.feed(b"data: 0123456789", &mut out).err())
            .expect("the bound is hit");
        assert_eq!(failure.kind, super::super::FailureKind::Bound);
        let failure = Parser::new(100)
            .feed("data: 0123456789\n".repeat(20).as_bytes(), &mut out)
            .expect_err("many lines of one event");
        assert_eq!(failure.kind, super::super::FailureKind::Bound);
    }
}
