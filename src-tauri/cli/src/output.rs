//! What commands print: text for people in aligned columns, or JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

/// Where and how a command prints.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub json: bool,
    /// Somebody looks at it directly.
    pub terminal: bool,
    colours: bool,
}

/// What a piece of text means; a colour where the terminal has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Strong,
    Faint,
    Good,
    Doubtful,
    Bad,
}

impl Output {
    pub fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { json, terminal, colours: terminal && !unwanted }
    }

    /// Text as it is.
    #[allow(clippy::unused_self)] // asked for like its kin
    pub fn text(self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// One line of text.
    pub fn line(self, text: &str) -> io::Result<()> {
        self.text(&format!("{text}\n"))
    }

    /// JSON over several lines.
    pub fn value(self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.line(&serde_json::to_string_pretty(value)?)?)
    }

    /// JSON for programs, else text for people: the shape of most commands.
    pub fn tell(self, value: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        if self.json { self.value(value) } else { Ok(self.text(&text())?) }
    }

    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Good => "32",
            Tone::Doubtful => "33",
            Tone::Bad => "31",
            Tone::Plain => return text.to_owned(),
        };
        if self.colours && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A remark for people that isn't the command's result, on standard error.
pub fn remark(text: &str) {
    eprintln!("{text}");
}

/// Rows in aligned columns, under a faint heading if there is one.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<(Tone, String)>>,
    indent: &'static str,
}

impl Table {
    pub fn new(headings: &[&str]) -> Self {
        let mut table = Self::default();
        table.row(headings.iter().map(|heading| (Tone::Faint, (*heading).to_owned())).collect());
        table
    }

    pub fn plain(indent: &'static str) -> Self {
        Self { rows: Vec::new(), indent }
    }

    pub fn row(&mut self, cells: Vec<(Tone, String)>) {
        self.rows.push(cells);
    }

    pub fn render(&self, output: Output) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|(_, text)| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let used =
                row.iter().rposition(|(_, cell)| !cell.is_empty()).map_or(0, |last| last + 1);
            text.push_str(self.indent);
            for (column, (tone, cell)) in row[..used].iter().enumerate() {
                text.push_str(&output.paint(*tone, cell));
                if column + 1 < used {
                    // Padded by hand: a colour's own characters take no room on the screen.
                    let padding = widths[column] - cell.chars().count() + 2;
                    text.push_str(&" ".repeat(padding));
                }
            }
            text.push('\n');
        }
        text
    }
}

/// A cell without a colour.
pub fn cell(text: impl Into<String>) -> (Tone, String) {
    (Tone::Plain, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let mut table = Table::new(&["NAME", "STATE", "MORE"]);
        table.row(vec![cell("a-long-name"), (Tone::Good, "ready".into()), cell("")]);
        table.row(vec![cell("b"), cell(""), cell("x")]);
        let output = Output { json: false, terminal: false, colours: false };
        assert_eq!(
            table.render(output),
            "NAME         STATE  MORE\na-long-name  ready\nb                   x\n"
        );
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let mut table = Table::plain("  ");
        table.row(vec![(Tone::Good, "on".into()), cell("x")]);
        let output = Output { json: false, terminal: true, colours: true };
        assert_eq!(table.render(output), "  \u{1b}[32mon\u{1b}[0m  x\n");
    }
}
