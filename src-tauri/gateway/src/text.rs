//! Words from outside, made fit for a line of ours.

/// One line of at most `most` characters, without control characters.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    if let Some((cut, _)) = line.char_indices().nth(most) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

/// `1 tool`, `2 tools`.
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A time in milliseconds as people say it: `320 ms`, `1.2 s`, `12 s`, `3 min 4 s`, `2 h 5 min`.
pub fn lasted(milliseconds: u64) -> String {
    let seconds = milliseconds / 1_000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..10 => format!("{seconds}.{} s", milliseconds % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Two digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a text can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_two_units_at_most() {
        let told = [0, 999, 1_000, 9_999, 59_999, 60_000, 3_661_000, 90_000_000].map(lasted);
        let words =
            ["0 ms", "999 ms", "1.0 s", "9.9 s", "59 s", "1 min 0 s", "1 h 1 min", "1 d 1 h"];
        assert_eq!(told, words);
    }
}
