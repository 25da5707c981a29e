//! Lines of a program's output: only LF ends one, whatever else is in it, and none grows beyond
//! the bound in memory.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// How much of either end of an oversized line is looked at for its id.
const ENDS: usize = 512;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Whole(Bytes),
    /// Longer than the bound: read past, and never kept.
    TooLong {
        length: usize,
        /// The id of the message, if it can be told from the line's ends.
        id: Option<u64>,
    },
}

pub struct Lines<R> {
    output: R,
    buffer: BytesMut,
    /// What of the buffer has been searched for an end already.
    searched: usize,
    bound: usize,
    first: bool,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(output: R, bound: usize) -> Self {
        Self { output, buffer: BytesMut::new(), searched: 0, bound, first: true, ended: false }
    }

    /// The next line that isn't blank. An unterminated last line counts. `None`: the output is
    /// closed.
    pub async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(self.searched + end + 1);
                self.searched = 0;
                line.truncate(line.len() - 1);
                if let Some(line) = self.trimmed(line) {
                    return Some(line);
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > self.bound {
                return Some(self.skip().await);
            }
            if self.ended || !self.fill().await {
                self.ended = true;
                let rest = std::mem::take(&mut self.buffer);
                self.searched = 0;
                return self.trimmed(rest);
            }
        }
    }

    async fn fill(&mut self) -> bool {
        // A buffer that held a huge line once is given back.
        if self.buffer.is_empty() && self.buffer.capacity() > 16 * CHUNK {
            self.buffer = BytesMut::new();
        }
        self.buffer.reserve(CHUNK);
        matches!(self.output.read_buf(&mut self.buffer).await, Ok(read) if read > 0)
    }

    fn trimmed(&mut self, mut line: BytesMut) -> Option<Line> {
        if std::mem::take(&mut self.first) && line.starts_with(b"\xef\xbb\xbf") {
            let _ = line.split_to(3);
        }
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        let blank = line.iter().all(u8::is_ascii_whitespace);
        (!blank).then(|| Line::Whole(line.freeze()))
    }

    /// Reads to the line's end and keeps only its two ends.
    async fn skip(&mut self) -> Line {
        let head = self.buffer[..self.buffer.len().min(ENDS)].to_vec();
        let mut tail: Vec<u8> = Vec::new();
        let mut length = 0;
        loop {
            let end = self.buffer.iter().position(|byte| *byte == b'\n');
            let piece = self.buffer.split_to(end.unwrap_or(self.buffer.len()));
            length += piece.len();
            tail.extend_from_slice(&piece[piece.len().saturating_sub(ENDS)..]);
            tail.drain(..tail.len().saturating_sub(ENDS));
            if end.is_some() {
                let _ = self.buffer.split_to(1);
                break;
            }
            if !self.fill().await {
                self.ended = true;
                break;
            }
        }
        self.searched = 0;
        self.first = false;
        Line::TooLong { length, id: id_in(&head).or_else(|| id_in(&tail)) }
    }
}

/// The number behind `"id":`. Of a line's beginning or end it is the message's own: what lies
/// deeper lies in between.
fn id_in(end: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(end);
    let rest = text.split_once("\"id\"")?.1.trim_start().strip_prefix(':')?.trim_start();
    let digits: String =
        rest.trim_start_matches('"').chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(output: &[u8], bound: usize) -> Vec<Line> {
        let mut lines = Lines::new(output, bound);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push(line);
        }
        all
    }

    fn whole(text: &str) -> Line {
        Line::Whole(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[tokio::test]
    async fn only_a_line_feed_ends_a_line() {
        let output = "\u{feff}{\"a\":\"\u{2028}\u{85}\"}\r\n\n  \n{\"b\":\"x\ry\"}\n{\"c\":1}".as_bytes();
        assert_eq!(
            lines(output, 1000).await,
            [whole("{\"a\":\"\u{2028}\u{85}\"}"), whole("{\"b\":\"x\ry\"}"), whole("{\"c\":1}")]
        );
    }

    #[tokio::test]
    async fn an_oversized_line_is_passed_over_and_the_next_one_read() {
        let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{}\"}}", "x".repeat(300_000));
        let output = format!("{long}\n{{\"next\":true}}\n");
        assert_eq!(
            lines(output.as_bytes(), 1000).await,
            [Line::TooLong { length: long.len(), id: Some(7) }, whole("{\"next\":true}")]
        );
        let late_id = format!("{{\"result\":\"{}\",\"id\":\"8\"}}\n", "x".repeat(300_000));
        assert!(matches!(lines(late_id.as_bytes(), 1000).await[..], [Line::TooLong { id: Some(8), .. }]));
    }
}
