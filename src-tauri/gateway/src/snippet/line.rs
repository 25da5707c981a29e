//! Command lines: what a server is started with, and how other apps are told of one.

use std::collections::BTreeMap;

use super::{Draft, Found, json, placeholder};
use crate::definition::{HttpFlavour, Transport};

/// Options of the `add` commands that take a value and say nothing about how to reach the server.
const IGNORED: [&str; 7] =
    ["-s", "--scope", "--timeout", "--description", "--callback-port", "--client-id", "--add-mcp"];

/// One server a line; a line that ends in `\` goes on in the next.
pub fn read(text: &str) -> Vec<Found> {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.trim().trim_start_matches(['$', '>']).trim_start());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).flat_map(read_line).collect()
}

fn read_line(line: &str) -> Vec<Found> {
    let words = match words(line) {
        Ok(words) => words,
        Err(why) => return vec![Found { label: None, outcome: Err(why) }],
    };
    let takes_json = ["add-json", "--add-mcp", "--json"];
    if words.iter().any(|word| takes_json.contains(&word.as_str()))
        && let Some(json) = words.iter().position(|word| word.starts_with('{'))
    {
        return of_json(&words, json);
    }
    vec![if is_add(&words) { of_add(&words) } else { of_command(words) }]
}

/// As a shell splits them. A path of Windows keeps its backslashes.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let has_drive =
        line.as_bytes().windows(3).any(|w| w[0].is_ascii_alphabetic() && &w[1..] == b":\\");
    let line = if has_drive { line.replace('\\', "\\\\") } else { line.to_owned() };
    let words = shell_words::split(&line).map_err(|_| "a quote is not closed".to_owned())?;
    if words.is_empty() { Err("there is no command".to_owned()) } else { Ok(words) }
}

/// Or what is wrong with it.
pub fn checked_url(text: &str) -> Result<String, String> {
    // With a place to be filled in it can't be checked yet.
    let has_place = text.starts_with(['$', '{']) || is_url(text) && text.contains("${");
    if has_place || is_url(text) && url::Url::parse(text).is_ok_and(|url| url.has_host()) {
        Ok(text.to_owned())
    } else {
        Err("its URL is not one that begins with http:// or https://".to_owned())
    }
}

fn is_url(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower.starts_with("http://") || lower.starts_with("https://")
}

/// `claude mcp add …`, `codex mcp add …`, `gemini mcp add …`, `traygate add …`.
fn is_add(words: &[String]) -> bool {
    let words: Vec<_> = words.iter().take(3).map(String::as_str).collect();
    matches!(words.as_slice(), [_, "mcp", "add" | "add-json"] | ["traygate", "add", ..])
}

/// `traygate add` has two words, the others have three.
fn first_after_add(words: &[String]) -> usize {
    if words[0] == "traygate" { 2 } else { 3 }
}

/// `claude mcp add-json name '{…}'`, `code --add-mcp '{"name": …}'`
fn of_json(words: &[String], json: usize) -> Vec<Found> {
    let before = words.get(first_after_add(words)..json).unwrap_or_default();
    let label = before.iter().rfind(|word| !word.starts_with('-')).filter(|_| is_add(words));
    match json::read(&words[json]) {
        Ok(found) => {
            let named = |found: Found| Found { label: found.label.or(label.cloned()), ..found };
            found.into_iter().map(named).collect()
        }
        Err(error) => vec![Found { label: label.cloned(), outcome: Err(error.to_string()) }],
    }
}

/// `KEY=value program arguments…`, or a URL alone.
fn of_command(words: Vec<String>) -> Found {
    let mut env = BTreeMap::new();
    let mut words = words.into_iter().peekable();
    while let Some((key, value)) = words.peek().and_then(|word| assignment(word)) {
        env.insert(key, value);
        words.next();
    }
    let outcome = target(words.collect(), env, BTreeMap::new(), HttpFlavour::Auto, None);
    Found { label: None, outcome }
}

/// A URL, or a program with its arguments.
fn target(
    mut words: Vec<String>,
    env: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    flavour: HttpFlavour,
    cwd: Option<String>,
) -> Result<Draft, String> {
    if words.is_empty() {
        return Err("there is no command and no URL".to_owned());
    }
    let transport = if is_url(&words[0]) {
        if words.len() > 1 {
            return Err("something follows the URL".to_owned());
        }
        Transport::Http { url: checked_url(&words[0])?, headers, flavour }
    } else {
        Transport::Stdio { command: words.remove(0), args: words, env, cwd }
    };
    let mut draft = Draft::new(transport);
    placeholder::mark(&mut draft);
    Ok(draft)
}

fn assignment(word: &str) -> Option<(String, String)> {
    let (key, value) = word.split_once('=')?;
    let is_key = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_key.then(|| (key.to_owned(), value.to_owned()))
}

fn header(word: &str) -> Option<(String, String)> {
    let (key, value) = word.split_once(':')?;
    let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    (is_key && !value.starts_with("//")).then(|| (key.to_owned(), value.trim().to_owned()))
}

fn of_add(words: &[String]) -> Found {
    let mut add = Add::default();
    let read = add.read(words[first_after_add(words)..].to_vec());
    let Add { label, env, headers, flavour, cwd, target: words } = add;
    let outcome = read.and_then(|()| target(words, env, headers, flavour, cwd));
    Found { label, outcome }
}

/// The parts of an `add` command.
#[derive(Default)]
struct Add {
    label: Option<String>,
    env: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    flavour: HttpFlavour,
    cwd: Option<String>,
    target: Vec<String>,
}

impl Add {
    fn read(&mut self, words: Vec<String>) -> Result<(), String> {
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let (option, mut inline) = match word.split_once('=') {
                Some((option, value)) if option.starts_with("--") => {
                    (option.to_owned(), Some(value.to_owned()))
                }
                _ => (word.clone(), None),
            };
            let mut value = |what: &str| {
                inline.take().or_else(|| words.next()).ok_or_else(|| format!("{what} has no value"))
            };
            match option.as_str() {
                "--" => self.target.extend(words.by_ref()),
                "-e" | "--env" => {
                    let pair = assignment(&value("--env")?);
                    self.env.extend([pair.ok_or("--env is not followed by NAME=value")?]);
                }
                "-H" | "--header" => {
                    let pair = header(&value("--header")?);
                    self.headers.extend([pair.ok_or("--header is not followed by 'Name: value'")?]);
                }
                "-t" | "--transport" => self.flavour = flavour(&value("--transport")?)?,
                "--url" => self.target.insert(0, value("--url")?),
                "--cwd" => self.cwd = Some(value("--cwd")?),
                option if IGNORED.contains(&option) => drop(value(option)?),
                "--trust" => {}
                option if option.starts_with('-') => {
                    return Err(format!("its option {option} is not known"));
                }
                _ => self.plain(word, &mut words),
            }
        }
        Ok(())
    }

    /// The first is the name, the second the URL or the program, which takes all that follows.
    fn plain(&mut self, word: String, rest: &mut impl Iterator<Item = String>) {
        // More values for the option before, as `-e A=1 B=2` has it.
        if let Some(pair) =
            assignment(&word).filter(|_| !self.env.is_empty() && self.target.is_empty())
        {
            self.env.extend([pair]);
        } else if self.label.is_none() {
            self.label = Some(word);
        } else if is_url(&word) {
            self.target.push(word);
        } else {
            self.target.push(word);
            self.target.extend(rest);
        }
    }
}

fn flavour(word: &str) -> Result<HttpFlavour, String> {
    match word.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "stdio" | "auto" => Ok(HttpFlavour::Auto),
        "http" | "streamablehttp" => Ok(HttpFlavour::StreamableHttp),
        "sse" => Ok(HttpFlavour::Sse),
        _ => Err(format!("its transport {word:?} is not known; use stdio, http or sse")),
    }
}
