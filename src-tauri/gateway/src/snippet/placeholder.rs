//! Places that a snippet leaves for the user to fill in.

use super::Draft;
use crate::definition::Transport;

/// An entry with such a place is added disabled, and a remark names each: a server that gets the
/// words `${input:key}` for its key fails in ways that are hard to read.
pub fn mark(draft: &mut Draft) {
    let places = places(&draft.transport);
    if !places.is_empty() {
        draft.enabled = false;
        let places = places.join(", ");
        draft.remarks.push(format!("fill in {places}, then enable it; it is added disabled"));
    }
}

fn places(transport: &Transport) -> Vec<String> {
    let variable = |(key, value): (&String, &String)| {
        place(format!("the variable {key}"), value, is_example(value))
    };
    let header = |(key, value): (&String, &String)| {
        place(format!("the header {key}"), value, is_example(value))
    };
    let plain = |what: &str, text: &str| place(what.to_owned(), text, false);
    match transport {
        Transport::Stdio { command, args, env, cwd } => plain("the command", command)
            .into_iter()
            .chain(args.iter().filter_map(|arg| plain("the arguments", arg)))
            .chain(env.iter().filter_map(variable))
            .chain(cwd.iter().filter_map(|cwd| plain("the working directory", cwd)))
            .collect(),
        Transport::Http { url, headers, .. } => {
            plain("the URL", url).into_iter().chain(headers.iter().filter_map(header)).collect()
        }
    }
}

/// What is to be filled in there, if anything; never a value.
fn place(what: String, text: &str, is_example: bool) -> Option<String> {
    match reference(text) {
        Some(reference) => Some(format!("{reference} in {what}")),
        None => is_example.then_some(what),
    }
}

/// `${input:key}`, `${env:KEY}`, `${KEY}`, `{env:KEY}` and, alone, `$KEY`.
fn reference(text: &str) -> Option<String> {
    for (open, prefix) in [("${", ""), ("{env:", "env:"), ("{file:", "file:")] {
        if let Some((_, rest)) = text.split_once(open) {
            let (inside, _) = rest.split_once('}')?;
            // What follows is a default value, which may be a secret.
            let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
            let dollar = if open == "${" { "$" } else { "" };
            return Some(format!("{dollar}{{{prefix}{name}}}"));
        }
    }
    let name = text.strip_prefix('$')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then(|| text.to_owned())
}

/// `<your key>`, `YOUR_API_KEY`, `your-token-here`.
fn is_example(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    let value = value.strip_prefix("bearer ").unwrap_or(&value);
    let in_brackets = value.starts_with('<') && value.ends_with('>');
    in_brackets || ["your_", "your-", "your "].iter().any(|start| value.starts_with(start))
}
