//! Times, sizes and foreign text in words for people.

use jiff::{Timestamp, tz::TimeZone};

/// Now, in milliseconds of Unix time.
pub fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// `850 ms`, `12 s`, `5 min`, `3 h`, `2 days`: one unit, as people say it.
pub fn span(milliseconds: i64) -> String {
    const UNITS: [(i64, &str); 3] = [(86_400, "day"), (3_600, "h"), (60, "min")];
    let milliseconds = milliseconds.max(0);
    if milliseconds < 1_000 {
        return format!("{milliseconds} ms");
    }
    let seconds = milliseconds / 1_000;
    match UNITS.into_iter().find(|(size, _)| seconds >= *size) {
        Some((size, "day")) => count((seconds / size) as usize, "day"),
        Some((size, unit)) => format!("{} {unit}", seconds / size),
        None => format!("{seconds} s"),
    }
}

/// `just now`, `2 min ago`.
pub fn ago(then: i64, now: i64) -> String {
    if now - then < 1_000 { "just now".to_owned() } else { format!("{} ago", span(now - then)) }
}

/// `1 tool`, `2 tools`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The time of day here, with the date if it isn't today's.
pub fn clock(at: i64, now: i64) -> String {
    let here =
        |at| Timestamp::from_millisecond(at).ok().map(|t| t.to_zoned_datetime(TimeZone::system()));
    match (here(at), here(now)) {
        (Some(at), Some(now)) if at.date() == now.date() => at.strftime("%H:%M").to_string(),
        (Some(at), _) => at.strftime("%Y-%m-%d %H:%M").to_string(),
        (None, _) => "an unknown time".to_owned(),
    }
}

/// The time to the second here, with the date if it isn't today's.
pub fn moment(at: i64, now: i64) -> String {
    let here =
        |at| Timestamp::from_millisecond(at).ok().map(|t| t.to_zoned_datetime(TimeZone::system()));
    match (here(at), here(now)) {
        (Some(at), Some(now)) if at.date() == now.date() => at.strftime("%H:%M:%S").to_string(),
        (Some(at), _) => at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        (None, _) => "an unknown time".to_owned(),
    }
}

/// The time of day to the second, for logs.
pub fn second(at: i64) -> String {
    Timestamp::from_millisecond(at).map_or_else(
        |_| "??:??:??".to_owned(),
        |at| at.to_zoned_datetime(TimeZone::system()).strftime("%H:%M:%S").to_string(),
    )
}

/// Text of an upstream's without what could move the cursor, change colours or forge lines of ours:
/// escape sequences go, other control characters but line ends and tabs too.
pub fn harmless(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' if rest.peek() == Some(&'[') => {
                // A control sequence ends with its first letter or one of @[\]^_`{|}~.
                rest.next();
                for c in rest.by_ref() {
                    if matches!(c, '@'..='~') {
                        break;
                    }
                }
            }
            '\n' | '\t' => clean.push(c),
            c if c.is_control() => {}
            c => clean.push(c),
        }
    }
    clean
}

/// The same on one line.
pub fn one_line(text: &str) -> String {
    harmless(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most so many characters, the last one an ellipsis if something was cut.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Breaks text between words into lines of at most `width` characters, each after `indent`.
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut wrapped = String::new();
    for paragraph in harmless(text).lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                wrapped.push_str(&format!("{indent}{line}\n"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        wrapped.push_str(format!("{indent}{line}").trim_end());
        wrapped.push('\n');
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_one_unit() {
        let told = [0, 999, 1_000, 59_999, 60_000, 3_599_999, 3_600_000, 86_400_000, 200_000_000];
        let words = ["0 ms", "999 ms", "1 s", "59 s", "1 min", "59 min", "1 h", "1 day", "2 days"];
        assert_eq!(told.map(span), words);
        assert_eq!(ago(1_000, 1_500), "just now");
        assert_eq!(ago(0, 120_000), "2 min ago");
    }

    #[test]
    fn foreign_text_can_not_steer_the_terminal() {
        assert_eq!(harmless("a\u{1b}[31mred\u{1b}[0m\r\nb\u{7}\tc"), "ared\nb\tc");
        assert_eq!(one_line("a\n  b\u{1b}[2J"), "a b");
    }

    #[test]
    fn long_text_is_cut_or_wrapped_between_words() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abc", 4), "abc");
        assert_eq!(wrap("one two three\n\nfour", 7, "  "), "  one two\n  three\n\n  four\n");
    }
}
