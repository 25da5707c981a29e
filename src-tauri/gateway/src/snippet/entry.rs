//! One server of a JSON snippet.

use std::collections::BTreeMap;

use jsonc_parser::ast::{Object, Value};

use super::{Draft, Found, line, naming, placeholder};
use crate::definition::{HttpFlavour, Transport};

const COMMAND: [&str; 2] = ["command", "cmd"];
const URL: [&str; 4] = ["url", "serverUrl", "httpUrl", "uri"];
const ENV: [&str; 3] = ["env", "environment", "envs"];
const HEADERS: [&str; 2] = ["headers", "http_headers"];
const CWD: [&str; 2] = ["cwd", "workingDirectory"];
const KIND: [&str; 2] = ["type", "transport"];
/// Says nothing about how the server is reached.
const DECORATION: [&str; 6] = ["name", "description", "source", "$schema", "note", "gallery"];

pub fn is_server(object: &Object) -> bool {
    let text = |name| matches!(object.get(name).map(|m| &m.value), Some(Value::StringLit(_)));
    let command = |name| matches!(object.get(name).map(|m| &m.value), Some(v) if is_command(v));
    COMMAND.into_iter().any(command) || URL.into_iter().any(text)
}

fn is_command(value: &Value) -> bool {
    match value {
        Value::StringLit(_) | Value::Array(_) => true,
        Value::Object(object) => object.get("path").is_some(),
        _ => false,
    }
}

/// A server object that nothing around it names.
pub fn bare(object: &Object) -> Found {
    let label = object.get_string("name").map(|name| name.value.to_string());
    Found { label, outcome: read_object(object) }
}

/// Or why it can't be understood, without telling a value.
pub fn read(value: &Value) -> Result<Draft, String> {
    match value {
        Value::Object(object) => read_object(object),
        _ => Err("it is not an object".to_owned()),
    }
}

fn read_object(object: &Object) -> Result<Draft, String> {
    let mut members = Members { object, used: Vec::new() };
    let kind = members.text(&KIND)?;
    let flavour = kind.as_deref().map(Kind::of).transpose()?;
    let command = members.command()?;
    let url = members.url()?;
    let mut draft = match (flavour, command, url) {
        (Some(Kind::Stdio) | None, Some(command), None)
        | (Some(Kind::Stdio), Some(command), Some(_)) => members.stdio(command)?,
        (Some(Kind::Http(flavour)), _, Some((_, url))) => members.http(url, flavour)?,
        (None, None, Some((member, url))) => members.http(url, flavour_of_member(member))?,
        (None, Some(_), Some(_)) => {
            return Err("it has both a command and a URL, and no type to choose by".to_owned());
        }
        (Some(Kind::Stdio), None, _) => return Err("it has no command".to_owned()),
        (Some(Kind::Http(_)), _, None) => return Err("it has no URL".to_owned()),
        (None, None, None) => return Err("it has neither a command nor a URL".to_owned()),
    };
    draft.enabled = members.enabled()?;
    draft.remarks.extend(members.left_over());
    placeholder::mark(&mut draft);
    Ok(draft)
}

fn flavour_of_member(member: &str) -> HttpFlavour {
    // Gemini CLI's `httpUrl` says which transport it means, the others don't.
    if member == "httpUrl" { HttpFlavour::StreamableHttp } else { HttpFlavour::Auto }
}

#[derive(Clone, Copy)]
enum Kind {
    Stdio,
    Http(HttpFlavour),
}

impl Kind {
    fn of(word: &str) -> Result<Self, String> {
        match word.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
            "stdio" | "local" => Ok(Self::Stdio),
            "sse" => Ok(Self::Http(HttpFlavour::Sse)),
            "http" | "streamablehttp" => Ok(Self::Http(HttpFlavour::StreamableHttp)),
            "remote" => Ok(Self::Http(HttpFlavour::Auto)),
            _ => Err(format!("its type {word:?} is not known; use stdio, http or sse")),
        }
    }
}

/// The members of one server, and which of them were understood.
struct Members<'a> {
    object: &'a Object<'a>,
    used: Vec<&'static str>,
}

impl<'a> Members<'a> {
    /// The first of these that is there and not null.
    fn get(&mut self, names: &[&'static str]) -> Option<(&'static str, &'a Value<'a>)> {
        self.used.extend(names);
        names.iter().find_map(|name| match &self.object.get(name)?.value {
            Value::NullKeyword(_) => None,
            value => Some((*name, value)),
        })
    }

    fn text(&mut self, names: &[&'static str]) -> Result<Option<String>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::StringLit(text))) => Ok(Some(text.value.to_string())),
            Some((name, _)) => Err(format!("its {name} is not a text")),
        }
    }

    fn url(&mut self) -> Result<Option<(&'static str, String)>, String> {
        let Some((member, value)) = self.get(&URL) else { return Ok(None) };
        let Value::StringLit(text) = value else {
            return Err(format!("its {member} is not a text"));
        };
        line::checked_url(text.value.trim()).map(|url| Some((member, url)))
    }

    fn command(&mut self) -> Result<Option<Command>, String> {
        let Some((name, value)) = self.get(&COMMAND) else { return Ok(None) };
        let command = match value {
            Value::StringLit(text) => Command::of(vec![text.value.to_string()])?,
            Value::Array(_) => Command::of(texts(name, value)?)?,
            Value::Object(nested) => {
                let mut nested = Members { object: nested, used: Vec::new() };
                let path = nested.text(&["path"])?.ok_or("its command has no path")?;
                Command { args: nested.args()?, env: nested.map(&ENV)?, ..Command::of(vec![path])? }
            }
            _ => return Err(format!("its {name} is not a text")),
        };
        Ok(Some(command))
    }

    fn args(&mut self) -> Result<Vec<String>, String> {
        self.get(&["args"]).map_or(Ok(Vec::new()), |(name, value)| texts(name, value))
    }

    fn stdio(&mut self, mut command: Command) -> Result<Draft, String> {
        let args = self.args()?;
        let mut remarks = Vec::new();
        if args.is_empty() && command.args.is_empty() && naming::is_runner_line(&command.program) {
            let mut words = line::words(&command.program)?;
            command.program = words.remove(0);
            command.args = words;
            remarks.push("its command was split at the spaces".to_owned());
        }
        command.args.extend(args);
        command.env.extend(self.map(&ENV)?);
        let cwd = self.text(&CWD)?;
        let transport = Transport::Stdio {
            command: command.program,
            args: command.args,
            env: command.env,
            cwd,
        };
        Ok(Draft { remarks, ..Draft::new(transport) })
    }

    fn http(&mut self, url: String, flavour: HttpFlavour) -> Result<Draft, String> {
        let headers = self.map(&HEADERS)?;
        Ok(Draft::new(Transport::Http { url, headers, flavour }))
    }

    fn map(&mut self, names: &[&'static str]) -> Result<BTreeMap<String, String>, String> {
        let Some((name, value)) = self.get(names) else { return Ok(BTreeMap::new()) };
        let object = value.as_object().ok_or_else(|| format!("its {name} is not an object"))?;
        let given = object.properties.iter().filter(|m| m.value.as_null_keyword().is_none());
        given
            .map(|member| {
                let key = member.name.as_str();
                let value = plain(&member.value)
                    .ok_or_else(|| format!("the value of {key} in its {name} is not a text"))?;
                Ok((key.to_owned(), value))
            })
            .collect()
    }

    fn enabled(&mut self) -> Result<bool, String> {
        let off = self.switch("disabled")?.unwrap_or(false);
        let on = self.switch("enabled")?.unwrap_or(true);
        let active = self.switch("isActive")?.unwrap_or(true);
        Ok(!off && on && active)
    }

    fn switch(&mut self, name: &'static str) -> Result<Option<bool>, String> {
        match self.get(&[name]) {
            None => Ok(None),
            Some((_, Value::BooleanLit(switch))) => Ok(Some(switch.value)),
            Some(_) => Err(format!("its {name} is neither true nor false")),
        }
    }

    /// What is there and was not understood.
    fn left_over(&self) -> Option<String> {
        let says_nothing = |value: &Value| match value {
            Value::NullKeyword(_) => true,
            Value::Object(object) => object.properties.is_empty(),
            Value::Array(list) => list.elements.is_empty(),
            _ => false,
        };
        let members = self.object.properties.iter().filter(|member| !says_nothing(&member.value));
        let names = members.map(|member| member.name.as_str());
        let left: Vec<_> =
            names.filter(|name| !self.used.contains(name) && !DECORATION.contains(name)).collect();
        (!left.is_empty()).then(|| format!("left out: {}", left.join(", ")))
    }
}

struct Command {
    program: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Command {
    fn of(mut words: Vec<String>) -> Result<Self, String> {
        if words.first().is_none_or(|program| program.trim().is_empty()) {
            return Err("its command is empty".to_owned());
        }
        let program = words.remove(0).trim().to_owned();
        Ok(Self { program, args: words, env: BTreeMap::new() })
    }
}

fn texts(name: &str, value: &Value) -> Result<Vec<String>, String> {
    let list = value.as_array().ok_or_else(|| format!("its {name} is not a list"))?;
    let texts = list.elements.iter().map(plain);
    texts.collect::<Option<_>>().ok_or_else(|| format!("its {name} has something else than texts"))
}

/// Numbers and switches are often written without quotes where a text is meant.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::StringLit(text) => Some(text.value.to_string()),
        Value::NumberLit(number) => Some(number.value.to_owned()),
        Value::BooleanLit(switch) => Some(switch.value.to_string()),
        _ => None,
    }
}
