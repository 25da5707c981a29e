//! `$NAME`, `${NAME}`, `${NAME:-default}` and `${env:NAME}`, and `~` where there may be paths, in
//! what people write into definitions. No shell is involved: quotes, `$(…)`, `;` and `*` stay what they are.

/// Where a text stands in the definition, for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    Command,
    Args,
    Cwd,
    /// The value of this variable.
    Env(&'a str),
    Url,
    /// The value of this header.
    Header(&'a str),
}

/// What in a text can't be expanded. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unexpandable(String);

/// What names stand for.
pub struct Scope<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub home: Option<&'a str>,
}

impl std::fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Command => f.write_str("command"),
            Self::Args => f.write_str("args"),
            Self::Cwd => f.write_str("cwd"),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Url => f.write_str("url"),
            Self::Header(name) => write!(f, "header {name}"),
        }
    }
}

impl Scope<'_> {
    /// Expands one text. `$${` stands for a literal `${`. A `$NAME` that isn't set is an error only
    /// where it can't be anything else: as the whole text, the beginning of a path, or what follows
    /// the scheme in a header (`Bearer $NAME`).
    pub fn expand(&self, text: &str, field: Field) -> Result<String, Unexpandable> {
        let mut rest = text;
        let mut expanded = String::with_capacity(text.len());
        if !matches!(field, Field::Url | Field::Header(_))
            && let Some((home, after)) = self.tilde(text)
        {
            expanded.push_str(home);
            rest = after;
        }
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            let reference = &rest[at..];
            let before = &text[..text.len() - reference.len()];
            let first =
                before.is_empty() || (matches!(field, Field::Header(_)) && before.ends_with(' '));
            let (value, length) = self.reference(reference, first, field)?;
            expanded.push_str(&value);
            rest = &reference[length..];
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// `~` and `~/…`. Another user's `~name` isn't known here.
    fn tilde<'t>(&self, text: &'t str) -> Option<(&str, &'t str)> {
        let after = text.strip_prefix('~')?;
        let ends = after.is_empty() || after.starts_with(std::path::is_separator);
        if ends { Some((self.home?, after)) } else { None }
    }

    /// What stands for the `$…` at the beginning of `text`, and how much of `text` that is.
    fn reference(
        &self,
        text: &str,
        first: bool,
        field: Field,
    ) -> Result<(String, usize), Unexpandable> {
        if text.starts_with("$${") {
            return Ok(("${".to_owned(), 3));
        }
        if let Some(inner) = text.strip_prefix("${") {
            return match inner.find('}') {
                Some(end) => Ok((self.braced(&inner[..end], field)?, end + 3)),
                None => Ok(("$".to_owned(), 1)),
            };
        }
        let length = name_length(&text[1..]);
        let name = &text[1..=length];
        if length == 0 {
            return Ok(("$".to_owned(), 1));
        }
        match (self.variable)(name) {
            // `?$filter=…` is a URL's own.
            Some(value) if first || field != Field::Url => Ok((value, length + 1)),
            Some(_) => Ok(("$".to_owned(), 1)),
            // Elsewhere a lone dollar is no reference: a shell's script has variables of its own,
            // and a secret may well contain one, no part of which belongs in a message.
            None if !(first && stands_alone(&text[length + 1..], field)) => Ok(("$".to_owned(), 1)),
            None => Err(unset(name, field)),
        }
    }

    /// What stands between `${` and `}`.
    fn braced(&self, inner: &str, field: Field) -> Result<String, Unexpandable> {
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if name.is_empty() || name_length(name) != name.len() {
            return Err(Unexpandable(format!(
                "${{{name}}} can't be filled in ({field}); use ${{NAME}}, ${{NAME:-default}} or ${{env:NAME}}"
            )));
        }
        match ((self.variable)(name), default) {
            // As in shells, a default also stands in for an empty value.
            (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
            (Some(value), _) => Ok(value),
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err(unset(name, field)),
        }
    }
}

/// Whether a reference at the beginning of a text, with this behind it, can only be one.
fn stands_alone(behind: &str, field: Field) -> bool {
    behind.is_empty()
        || (!matches!(field, Field::Env(_) | Field::Header(_))
            && behind.starts_with(std::path::is_separator))
}

fn unset(name: &str, field: Field) -> Unexpandable {
    Unexpandable(format!(
        "{name} is not set ({field}); set it in Traygate's environment or give a default, ${{{name}:-default}}"
    ))
}

fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, field: Field) -> Result<String, String> {
        let variable = |name: &str| match name {
            "GW_T" => Some("v 1".to_owned()),
            "EMPTY" => Some(String::new()),
            "HOME" => Some("/home/ann".to_owned()),
            _ => None,
        };
        let scope = Scope { variable: &variable, home: Some("/home/ann") };
        scope.expand(text, field).map_err(|e| e.to_string())
    }

    #[test]
    fn references_are_filled_in_as_people_write_them() {
        for (text, expected) in [
            ("${GW_T}", "v 1"),
            ("$GW_T", "v 1"),
            ("${env:GW_T}", "v 1"),
            ("a${GW_T}b$GW_T-", "av 1bv 1-"),
            ("${NOPE:-d}", "d"),
            ("${NOPE:-}", ""),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY}", ""),
            ("${env:NOPE:-a b}", "a b"),
            ("~", "/home/ann"),
            ("~/x", "/home/ann/x"),
            ("$HOME/x", "/home/ann/x"),
        ] {
            assert_eq!(expand(text, Field::Args).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_literal() {
        for text in
            ["a b", "\"", "$(id)", ";", "*", "5$", "$5", "a~/b", "~ann/x", "${open", "^a$|b", ""]
        {
            assert_eq!(expand(text, Field::Args).as_deref(), Ok(text), "{text}");
        }
        assert_eq!(expand("$${GW_T}", Field::Args).as_deref(), Ok("${GW_T}"));
        let script = "read line; echo \"$line $$\"";
        assert_eq!(expand(script, Field::Args).as_deref(), Ok(script), "a shell's own variables");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named_with_its_field() {
        for (text, field, words) in [
            ("${GW_MISSING}", Field::Args, "GW_MISSING is not set (args)"),
            ("$GW_MISSING", Field::Args, "GW_MISSING is not set (args)"),
            ("$GW_MISSING/x", Field::Cwd, "GW_MISSING is not set (cwd)"),
            ("${env:GW_MISSING}", Field::Command, "GW_MISSING is not set (command)"),
            ("$GW_MISSING", Field::Env("KEY"), "GW_MISSING is not set (env KEY)"),
            ("${input:token}", Field::Env("KEY"), "${input:token} can't be filled in (env KEY)"),
        ] {
            let message = expand(text, field).expect_err("not set");
            assert!(message.starts_with(words), "{message}");
        }
    }

    #[test]
    fn a_url_and_a_header_are_filled_in_too() {
        for (text, field, expected) in [
            ("https://${GW_T:-x}.example/${env:HOME}", Field::Url, "https://v 1.example//home/ann"),
            ("$HOME/mcp", Field::Url, "/home/ann/mcp"),
            ("http://x/?$HOME=1", Field::Url, "http://x/?$HOME=1"),
            ("~/x", Field::Url, "~/x"),
            ("Bearer ${GW_T}", Field::Header("Authorization"), "Bearer v 1"),
            ("Bearer $GW_T", Field::Header("Authorization"), "Bearer v 1"),
            ("~/x", Field::Header("X"), "~/x"),
            ("pa$word $", Field::Header("X"), "pa$word $"),
        ] {
            assert_eq!(expand(text, field).as_deref(), Ok(expected), "{text}");
        }
        let missing = "GW_MISSING is not set (header Authorization)";
        for text in ["Bearer $GW_MISSING", "Bearer ${GW_MISSING}", "$GW_MISSING"] {
            let message = expand(text, Field::Header("Authorization")).expect_err("not set");
            assert!(message.starts_with(missing), "{message}");
        }
        let message = expand("https://${GW_MISSING}/", Field::Url).expect_err("not set");
        assert!(message.starts_with("GW_MISSING is not set (url)"), "{message}");
    }

    #[test]
    fn a_dollar_in_a_secret_is_no_reference() {
        for text in ["pa$$word", "pa$word", "$word!", "a$GW", "$$GW_T"] {
            let expected = text.replace("$GW_T", "v 1");
            assert_eq!(expand(text, Field::Env("KEY")).as_deref(), Ok(expected.as_str()), "{text}");
        }
    }
}
