//! Tells the two meanings of `--json` on `traygate add` apart.

use std::ffi::OsString;

/// `add --json '<snippet>'` means `add --from-json '<snippet>'`, while `--json` elsewhere asks for
/// JSON output. The two can't be confused: no upstream's name begins with `{` or `"`, is `-`, or
/// ends in `.json`.
pub fn from_arguments(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let own = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    // Only `--json` can come before the command's name.
    let command = arguments.iter().skip(1).find(|argument| *argument != "--json");
    if command.is_none_or(|command| command != "add") {
        return arguments;
    }
    for at in 2..own {
        let next_is_snippet = at + 1 < own && is_snippet(&arguments[at + 1]);
        let text = arguments[at].to_string_lossy().into_owned();
        match text.strip_prefix("--json") {
            Some("") if next_is_snippet => arguments[at] = "--from-json".into(),
            Some(value) if value.starts_with('=') => {
                arguments[at] = format!("--from-json{value}").into();
            }
            _ => {}
        }
    }
    arguments
}

fn is_snippet(argument: &OsString) -> bool {
    let text = argument.to_string_lossy();
    let text = text.trim();
    text.starts_with(['{', '"'])
        || text == "-"
        || std::path::Path::new(text).extension().is_some_and(|it| it == "json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(words: &[&str]) -> Vec<String> {
        let all = std::iter::once("traygate").chain(words.iter().copied()).map(OsString::from);
        let all = from_arguments(all).into_iter().skip(1);
        all.map(|word| word.into_string().expect("only plain text is tested")).collect()
    }

    #[test]
    fn json_with_a_snippet_is_a_snippet_on_add() {
        assert_eq!(rewritten(&["add", "--json", "{}"]), ["add", "--from-json", "{}"]);
        assert_eq!(rewritten(&["add", "x", "--json", "-"]), ["add", "x", "--from-json", "-"]);
        assert_eq!(rewritten(&["add", "--json=a.json"]), ["add", "--from-json=a.json"]);
        assert_eq!(
            rewritten(&["--json", "add", "--json", " {\"a\": 1}"]),
            ["--json", "add", "--from-json", " {\"a\": 1}"]
        );
    }

    #[test]
    fn json_without_a_snippet_stays_the_flag() {
        for words in [
            &["add", "--json", "files", "--", "run"][..],
            &["add", "files", "--url", "http://x", "--json"],
            &["add", "files", "--", "run", "--json", "{}"],
            &["call", "files__x", "--json", "{}"],
            &["call", "add", "--json", "{}"],
        ] {
            assert_eq!(rewritten(words), words);
        }
    }
}
