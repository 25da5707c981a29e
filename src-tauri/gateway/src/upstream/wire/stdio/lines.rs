//! Bytes into lines: only a line feed ends one, and no line takes more memory than its bound.

use bytes::Bytes;

/// How much of a line that is too long is kept from either end, to find out what it answered.
const ENDS: usize = 1024;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// What stood between two line feeds.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Without its end; never blank.
    Whole(Bytes),
    /// Longer than the bound.
    TooLong { length: usize, head: Vec<u8>, tail: Vec<u8> },
}

/// Gathers lines from reads of any size.
#[derive(Debug)]
pub struct Lines {
    bound: usize,
    begun: Vec<u8>,
    skipping: Option<Skipping>,
    at_start: bool,
}

#[derive(Debug)]
struct Skipping {
    length: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Lines {
    pub fn new(bound: usize) -> Self {
        Self { bound, begun: Vec::new(), skipping: None, at_start: true }
    }

    /// Takes the next line out of `read`, which is left with what follows. `None`: `read` is used
    /// up, and the line goes on in the next one.
    pub fn next(&mut self, read: &mut &[u8]) -> Option<Line> {
        while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            let (part, rest) = read.split_at(end);
            *read = &rest[1..];
            if let Some(line) = self.end(part) {
                return Some(line);
            }
        }
        self.add(read);
        *read = &[];
        None
    }

    /// What stands behind the last line feed when there is no more to read.
    pub fn last(&mut self) -> Option<Line> {
        self.end(&[])
    }

    fn end(&mut self, part: &[u8]) -> Option<Line> {
        if self.begun.is_empty() && self.skipping.is_none() && part.len() <= self.bound {
            // Copied, so that a short message doesn't keep a whole read in memory.
            let line = self.trim(part);
            return (!line.is_empty()).then(|| Line::Whole(Bytes::copy_from_slice(line)));
        }
        self.add(part);
        if let Some(Skipping { length, head, tail }) = self.skipping.take() {
            return Some(Line::TooLong { length, head, tail });
        }
        // Handed over: what the longest message needed isn't kept for the next.
        let line = Bytes::from(std::mem::take(&mut self.begun));
        let trimmed = self.trim(&line);
        (!trimmed.is_empty()).then(|| Line::Whole(line.slice_ref(trimmed)))
    }

    fn add(&mut self, part: &[u8]) {
        if self.skipping.is_none() {
            if self.begun.len() + part.len() <= self.bound {
                self.begun.extend_from_slice(part);
                return;
            }
            let begun = std::mem::take(&mut self.begun);
            self.skipping = Some(Skipping { length: 0, head: Vec::new(), tail: Vec::new() });
            self.skip(&begun);
        }
        self.skip(part);
    }

    fn skip(&mut self, part: &[u8]) {
        let Some(skipping) = &mut self.skipping else { return };
        let missing = ENDS - skipping.head.len();
        skipping.head.extend_from_slice(&part[..missing.min(part.len())]);
        skipping.length += part.len();
        skipping.tail.extend_from_slice(&part[part.len().saturating_sub(ENDS)..]);
        let excess = skipping.tail.len().saturating_sub(ENDS);
        skipping.tail.drain(..excess);
    }

    /// The message itself: without a byte order mark at the start and the carriage return of
    /// Windows; empty if it is blank.
    fn trim<'a>(&mut self, line: &'a [u8]) -> &'a [u8] {
        let mut line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.at_start {
            line = line.strip_prefix(BOM).unwrap_or(line);
            self.at_start = false;
        }
        if line.trim_ascii().is_empty() { &[] } else { line }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The whole lines of `text`, read in pieces of this size.
    fn lines(text: &[u8], piece: usize) -> Vec<String> {
        let mut lines = Lines::new(1_000);
        let mut found = Vec::new();
        for mut read in text.chunks(piece) {
            while let Some(line) = lines.next(&mut read) {
                found.push(line);
            }
        }
        found.extend(lines.last());
        let text = |line| match line {
            Line::Whole(bytes) => String::from_utf8(bytes.to_vec()).expect("utf-8"),
            Line::TooLong { length, .. } => format!("too long: {length}"),
        };
        found.into_iter().map(text).collect()
    }

    #[test]
    fn only_a_line_feed_ends_a_line() {
        let text = "a\u{2028}b\u{2029}c\u{85}d\re\r\n\n \t\r\nsecond\nlast";
        for piece in [1, 2, 3, 7, 1_000] {
            let found = lines(text.as_bytes(), piece);
            assert_eq!(found, ["a\u{2028}b\u{2029}c\u{85}d\re", "second", "last"], "{piece}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped_at_the_start_only() {
        let text = "\u{feff}one\n\u{feff}two\n";
        for piece in [1, 2, 1_000] {
            assert_eq!(lines(text.as_bytes(), piece), ["one", "\u{feff}two"], "{piece}");
        }
    }

    #[test]
    fn a_line_of_exactly_the_bound_passes_and_one_more_does_not() {
        let text = format!("{}\n{}\nnext\n", "x".repeat(1_000), "y".repeat(1_001));
        for piece in [1, 64, 999, 1_000, 1_001, 5_000] {
            let found = lines(text.as_bytes(), piece);
            assert_eq!(found, [&"x".repeat(1_000), "too long: 1001", "next"], "{piece}");
        }
    }

    #[test]
    fn an_endless_line_takes_no_memory() {
        let mut lines = Lines::new(10_000);
        for _ in 0..1_000 {
            assert_eq!(lines.next(&mut &[b'x'; 4_096][..]), None);
        }
        let skipping = lines.skipping.as_ref().expect("far over the bound");
        assert!(
            lines.begun.capacity() + skipping.head.capacity() + skipping.tail.capacity() < 20_000
        );
        let end = lines.next(&mut &b"yz\n"[..]);
        let Some(Line::TooLong { length, head, tail }) = end else { panic!("{end:?}") };
        assert_eq!((length, head.len(), tail.len()), (4_096_002, ENDS, ENDS));
        assert!(tail.ends_with(b"xyz") && head.ends_with(b"x"));
        assert_eq!(lines.begun.capacity(), 0, "nothing is kept for the next line");
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_were_read(
            text in "[ab\u{e9}\u{2028}\r\n]{0,80}", piece in 1usize..40,
        ) {
            prop_assert_eq!(lines(text.as_bytes(), piece), lines(text.as_bytes(), 10_000));
        }
    }
}
