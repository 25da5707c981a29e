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
