//! What people paste after `traygate add`: a command line, a URL or a snippet, in one argument.

use std::collections::BTreeMap;

use anyhow::Result;
use traygate_gateway::{
    api,
    definition::{HttpFlavour, Transport},
    names::UpstreamName,
};

use super::add::definition;
use crate::failure::usage;

/// Whether it can only be meant as JSON.
pub fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '"'])
}

/// Makes an upstream of it, with a guessed name.
pub fn read(text: &str) -> Result<api::Add> {
    if is_json(text) {
        return Ok(api::Add::Snippet { snippet: text.to_owned(), name: None });
    }
    let text = text.trim();
    if text.starts_with("http://") || text.starts_with("https://") {
        let name = guessed(name_of_url(text), text)?;
        let headers = BTreeMap::new();
        let transport =
            Transport::Http { url: text.to_owned(), headers, flavour: HttpFlavour::default() };
        return Ok(definition(name, transport));
    }
    if text.contains(char::is_whitespace) {
        return command_line(text);
    }
    Err(usage(format!(
        "say how {text} is reached: `traygate add {text} -- <command…>` or `traygate add {text} <url>`"
    )))
}

fn command_line(text: &str) -> Result<api::Add> {
    let words = shell_words::split(text)
        .map_err(|_| usage("the pasted command has an open quote; write it after --"))?;
    let assigned = words.iter().take_while(|word| is_assignment(word)).count();
    let env = words[..assigned].iter().filter_map(|word| word.split_once('='));
    let env = env.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let Some((command, args)) = words[assigned..].split_first() else {
        return Err(usage("the pasted text only sets variables; write the command after --"));
    };
    let name = guessed(name_of_command(command, args), command)?;
    let transport =
        Transport::Stdio { command: command.clone(), args: args.to_vec(), env, cwd: None };
    Ok(definition(name, transport))
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(key, _)| {
        !key.is_empty()
            && !key.starts_with(|c: char| c.is_ascii_digit())
            && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn guessed(name: Option<UpstreamName>, what: &str) -> Result<UpstreamName> {
    name.ok_or_else(|| usage(format!("no name can be guessed from {what:?}; put one before it")))
}

/// `https://mcp.linear.app/sse` is `linear`.
fn name_of_url(text: &str) -> Option<UpstreamName> {
    let url = url::Url::parse(text).ok()?;
    let host = url.host_str()?;
    let mut labels: Vec<_> = host.split('.').collect();
    if labels.len() > 1 && labels.iter().any(|label| label.parse::<u8>().is_err()) {
        labels.pop();
        let telling: Vec<_> =
            labels.iter().copied().filter(|l| !matches!(*l, "mcp" | "www" | "api")).collect();
        return UpstreamName::suggest(telling.first().or(labels.first())?);
    }
    UpstreamName::suggest(host)
}

/// `npx -y @modelcontextprotocol/server-memory@1.0` is `memory`.
fn name_of_command(command: &str, args: &[String]) -> Option<UpstreamName> {
    let program = std::path::Path::new(command).file_stem()?.to_str()?;
    let runner = matches!(
        program,
        "npx"
            | "uvx"
            | "bunx"
            | "pipx"
            | "pnpm"
            | "node"
            | "python"
            | "python3"
            | "uv"
            | "deno"
            | "docker"
            | "podman"
            | "bun"
            | "sh"
            | "bash"
            | "env"
    );
    let package = args.iter().find(|arg| {
        !arg.starts_with('-') && !matches!(arg.as_str(), "run" | "dlx" | "exec" | "tool")
    });
    let whole = if runner { package.map_or(program, String::as_str) } else { program };
    // `@scope/name@version` and `/path/to/name.js`.
    let last = whole.rsplit('/').next().unwrap_or(whole);
    let mut name = last.split('@').next().filter(|name| !name.is_empty()).unwrap_or(last);
    name = name.strip_suffix(".js").or_else(|| name.strip_suffix(".py")).unwrap_or(name);
    for prefix in ["mcp-server-", "server-", "mcp-"] {
        name = name.strip_prefix(prefix).filter(|rest| !rest.is_empty()).unwrap_or(name);
    }
    for suffix in ["-mcp-server", "-mcp", "-server"] {
        name = name.strip_suffix(suffix).filter(|rest| !rest.is_empty()).unwrap_or(name);
    }
    UpstreamName::suggest(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        match read(text).expect("something to add") {
            api::Add::Definition(definition) => definition.name.to_string(),
            api::Add::Snippet { .. } => panic!("{text} is no snippet"),
        }
    }

    #[test]
    fn names_are_guessed_from_what_is_telling() {
        assert_eq!(name("npx -y @modelcontextprotocol/server-memory@1.0"), "memory");
        assert_eq!(name("uvx mcp-server-time --local-timezone=Europe/Berlin"), "time");
        assert_eq!(name("/opt/tools/weather --stdio"), "weather");
        assert_eq!(name("node /srv/My_Server.js --x"), "my-server");
        assert_eq!(name("https://mcp.linear.app/sse"), "linear");
        assert_eq!(name("http://127.0.0.1:3000/mcp"), "127-0-0-1");
        assert_eq!(name("http://localhost:3000/mcp"), "localhost");
    }

    #[test]
    fn variables_before_a_pasted_command_are_its_environment() {
        let added = read("TOKEN=x\\ y npx -y some-server 'a b'").expect("a command");
        let api::Add::Definition(definition) = added else { panic!("no definition") };
        let expected = Transport::Stdio {
            command: "npx".into(),
            args: ["-y", "some-server", "a b"].map(String::from).to_vec(),
            env: BTreeMap::from([("TOKEN".to_owned(), "x y".to_owned())]),
            cwd: None,
        };
        assert_eq!(definition.transport, expected);
    }

    #[test]
    fn a_name_alone_is_a_question_how_it_is_reached() {
        let error = read("files").expect_err("nothing to add").to_string();
        assert!(error.contains("traygate add files --"), "{error}");
    }
}
