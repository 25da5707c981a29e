//! What people paste, turned into definitions: JSON as READMEs and other apps' configuration files
//! have it, a command line, or a URL.

mod entry;
mod json;
mod line;
mod naming;
mod placeholder;
#[cfg(test)]
mod tests;

use crate::{
    definition::{Definition, Transport, UpstreamSettings, is_on_this_machine},
    names::UpstreamName,
};

/// What could be taken over, and what the user should know about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    pub definitions: Vec<Definition>,
    /// Never tell a value of `env` or `headers`.
    pub notes: Vec<String>,
}

/// Why nothing could be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnippetError {
    #[error("there is nothing to add; give a JSON snippet, a command line or a URL")]
    Empty,
    #[error("the JSON can't be read at line {line}, column {column}: {why}")]
    Json { line: usize, column: usize, why: String },
    #[error(
        "this looks like {0}, which can't be read here; give the same as JSON, as a command line or as a URL"
    )]
    Format(&'static str),
    #[error("the text is UTF-16 or binary; save it as UTF-8 and try again")]
    Encoding,
    #[error(
        "no MCP server was found in this JSON; it should look like {{\"mcpServers\": {{\"name\": {{\"command\": \"…\"}}}}}}"
    )]
    NoServer,
    #[error("no server could be taken over: {0}")]
    Nothing(String),
}

/// One server of the snippet.
struct Found {
    /// What the snippet calls it, if it does.
    label: Option<String>,
    /// Or why it can't be understood.
    outcome: Result<Draft, String>,
}

/// A definition that has no valid name yet.
struct Draft {
    transport: Transport,
    enabled: bool,
    /// What was left out or has to be filled in.
    remarks: Vec<String>,
}

impl Draft {
    fn new(transport: Transport) -> Self {
        Self { transport, enabled: true, remarks: Vec::new() }
    }
}

/// Reads all servers of a snippet. `name` is for a snippet with a single one. An entry that can't
/// be understood, or that leads to Traygate itself (listening on `own_port`), costs that entry.
pub fn parse(
    text: &str,
    name: Option<&UpstreamName>,
    own_port: u16,
) -> Result<Parsed, SnippetError> {
    let found = read(text)?;
    let mut taking = Taking { name, own_port, parsed: Parsed::default(), alone: found.len() == 1 };
    for entry in found {
        taking.take(entry);
    }
    let mut parsed = taking.parsed;
    if parsed.definitions.is_empty() {
        return Err(SnippetError::Nothing(parsed.notes.join("; ")));
    }
    if let Some(name) = name.filter(|_| !taking.alone) {
        parsed.notes.push(format!("the name {name} was not used, since there are several servers"));
    }
    Ok(parsed)
}

fn read(text: &str) -> Result<Vec<Found>, SnippetError> {
    let text = without_fence(text.trim_start_matches('\u{feff}').trim());
    if text.contains('\0') {
        return Err(SnippetError::Encoding);
    }
    let first = text.lines().next().ok_or(SnippetError::Empty)?.trim();
    if is_toml_table(first) || text.contains("\n[mcp_servers") {
        return Err(SnippetError::Format("TOML"));
    }
    if text.starts_with(['{', '[']) || text.starts_with("//") || text.starts_with("/*") {
        return json::read(text);
    }
    if text.starts_with('"') && text.contains('{') {
        // The inner part of an object, as some READMEs print it.
        return json::read(&format!("{{{text}}}"));
    }
    if text.lines().any(|line| line.trim_end().ends_with(':')) {
        return Err(SnippetError::Format("YAML"));
    }
    Ok(line::read(text))
}

/// `[mcp_servers.docs]`, which is no list of JSON either.
fn is_toml_table(line: &str) -> bool {
    let inside = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
    inside.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// Without the lines that mark code in Markdown.
fn without_fence(text: &str) -> &str {
    let Some((_, inside)) = text.strip_prefix("```").and_then(|text| text.split_once('\n')) else {
        return text;
    };
    inside.trim_end().trim_end_matches('`').trim()
}

struct Taking<'a> {
    name: Option<&'a UpstreamName>,
    own_port: u16,
    parsed: Parsed,
    /// Whether the snippet holds this entry only.
    alone: bool,
}

impl Taking<'_> {
    fn take(&mut self, found: Found) {
        let label = found.label.as_deref().filter(|label| !label.trim().is_empty());
        let draft = match found.outcome {
            Ok(draft) => draft,
            Err(why) => {
                let label = found.label.as_deref().unwrap_or("the server");
                return self.parsed.notes.push(format!("{label:?} was left out: {why}"));
            }
        };
        let wanted = self.wanted_name(label, &draft.transport);
        if leads_here(&draft.transport, self.own_port) {
            let note =
                format!("{wanted:?} was left out: it is Traygate itself", wanted = wanted.as_str());
            return self.parsed.notes.push(note);
        }
        if self.is_there_already(&wanted, &draft.transport) {
            return self
                .parsed
                .notes
                .push(format!("{wanted} is in there twice; it was taken once"));
        }
        let name = self.free_name(&wanted);
        if let Some(label) = label.filter(|label| self.name.is_none() && *label != name.as_str()) {
            self.parsed.notes.push(format!("{label:?} is called {name} here"));
        } else if name != wanted {
            self.parsed.notes.push(format!("a second {wanted} is called {name} here"));
        }
        let remarks = draft.remarks.iter().map(|remark| format!("{name}: {remark}"));
        self.parsed.notes.extend(remarks);
        let Draft { transport, enabled, .. } = draft;
        let settings = UpstreamSettings::default();
        self.parsed.definitions.push(Definition { name, transport, enabled, settings });
    }

    fn wanted_name(&self, label: Option<&str>, transport: &Transport) -> UpstreamName {
        let given = self.name.filter(|_| self.alone).cloned();
        given.or_else(|| UpstreamName::suggest(label?)).unwrap_or_else(|| naming::derive(transport))
    }

    fn is_there_already(&self, name: &UpstreamName, transport: &Transport) -> bool {
        self.parsed.definitions.iter().any(|d| d.name == *name && d.transport == *transport)
    }

    fn free_name(&self, wanted: &UpstreamName) -> UpstreamName {
        let taken = |name: &UpstreamName| self.parsed.definitions.iter().any(|d| d.name == *name);
        let numbered = (2u32..).map(|number| naming::numbered(wanted, number));
        std::iter::once(wanted.clone())
            .chain(numbered)
            .find(|name| !taken(name))
            .expect("there are more numbers than servers")
    }
}

/// Whether an app's entry for Traygate was pasted back into Traygate, which would make a loop.
fn leads_here(transport: &Transport, own_port: u16) -> bool {
    match transport {
        Transport::Http { url, .. } => is_own_url(url, own_port),
        Transport::Stdio { command, args, .. } => {
            std::iter::once(command).chain(args).any(|word| is_own_url(word, own_port))
                || matches!(naming::program(command), "traygate" | "traygate-desktop")
        }
    }
}

fn is_own_url(text: &str, own_port: u16) -> bool {
    let Some(url) = url::Url::parse(text).ok().filter(|url| url.scheme() == "http") else {
        return false;
    };
    is_on_this_machine(&url) && url.port_or_known_default() == Some(own_port)
}
