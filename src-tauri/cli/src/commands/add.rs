//! `traygate add`: a new upstream from a command, a URL, a snippet, or whatever was pasted.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use traygate_gateway::{
    api::{self, Added},
    definition::{Definition, HttpFlavour, Transport, UpstreamSettings},
    names::UpstreamName,
};

use super::{Context, pasted, text_or_stdin, upstreams};
use crate::{
    failure::{Failure, usage},
    output::{Tone, remark},
    words,
};

#[derive(Args)]
pub struct Add {
    /// What to call it: 1 to 31 of a-z, 0-9 and -. Or alone, in quotes: a pasted command, URL or
    /// JSON snippet, whose name is then guessed
    pub name: Option<String>,
    /// The URL of a server that is reached over HTTP
    #[arg(value_name = "URL", group = "address", conflicts_with_all = ["command", "from_json"])]
    pub at: Option<String>,
    /// An environment variable for the command; without =VALUE, its value here and now
    #[arg(long, value_name = "KEY[=VALUE]", requires = "command")]
    pub env: Vec<String>,
    /// The command's working directory
    #[arg(long, value_name = "DIR", requires = "command")]
    pub cwd: Option<std::path::PathBuf>,
    /// The same
    #[arg(long, group = "address", conflicts_with = "command")]
    pub url: Option<String>,
    /// A header for each request to the URL
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "address")]
    pub headers: Vec<String>,
    /// Which of MCP's HTTP transports the URL speaks
    #[arg(long, value_enum, default_value_t = Flavour::Auto, requires = "address")]
    pub transport: Flavour,
    /// A snippet as READMEs print it: as text, in a file, or - from standard input. `--json
    /// '<snippet>'` means the same
    #[arg(long, value_name = "TEXT|FILE|-", conflicts_with_all = ["command", "url"])]
    pub from_json: Option<String>,
    /// Don't try to connect
    #[arg(long)]
    pub no_test: bool,
    /// The command that starts the server, after --
    #[arg(last = true)]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Flavour {
    /// Streamable HTTP, and HTTP+SSE if the server turns that down
    Auto,
    /// Streamable HTTP
    Http,
    /// HTTP+SSE, the transport of 2024
    Sse,
}

pub async fn add(context: &Context, arguments: Add) -> Result<()> {
    let no_test = arguments.no_test;
    let wanted = wanted(arguments).await?;
    let secret = holds_secrets(&wanted);
    let mut added: Added = context.client.post("/upstreams").body(&wanted)?.receive().await?;
    if secret && !added.notes.iter().any(|note| note.contains("0600")) {
        added.notes.push(
            "values of environment variables and headers are kept in Traygate's database, \
             which only you can read (mode 0600)"
                .to_owned(),
        );
    }
    if !context.output.json {
        told(context, &added)?;
    }
    let mut tests = Vec::new();
    for name in added.upstreams.iter().filter(|_| !no_test) {
        tests.push(first_test(context, name).await?);
    }
    if context.output.json {
        let Added { upstreams, notes } = &added;
        return context
            .output
            .value(&json!({"upstreams": upstreams, "notes": notes, "tests": tests}));
    }
    match &added.upstreams[..] {
        [] => Ok(()),
        [one] => Ok(context.output.line(&format!("next: traygate show {one}"))?),
        _ => Ok(context.output.line("next: traygate list")?),
    }
}

fn told(context: &Context, added: &Added) -> Result<()> {
    for name in &added.upstreams {
        context.output.line(&format!("added {name}"))?;
    }
    for note in &added.notes {
        context.output.line(&format!("note: {}", words::one_line(note)))?;
    }
    Ok(())
}

/// The first connection. That it fails undoes nothing: the upstream stays, and is tried again.
async fn first_test(context: &Context, name: &UpstreamName) -> Result<Value> {
    match upstreams::first_contact(context, name.as_str()).await {
        Ok(report) => {
            if !context.output.json {
                let works = context.output.paint(Tone::Good, "works");
                context
                    .output
                    .line(&format!("{name} {works}: {}", upstreams::report_words(&report)))?;
            }
            Ok(json!({"upstream": name, "report": report}))
        }
        Err(error) => match error.downcast::<Failure>() {
            Ok(Failure::Refused(problem)) => {
                remark(&format!(
                    "warning: the first connection to {name} failed: {}\n\
                     {name} is kept and will be tried again; see `traygate logs {name}`",
                    words::one_line(&problem.message)
                ));
                Ok(json!({"upstream": name, "problem": problem}))
            }
            Ok(other) => Err(other.into()),
            Err(other) => Err(other),
        },
    }
}

async fn wanted(arguments: Add) -> Result<api::Add> {
    let Add { name, at, env, cwd, url, headers, transport, from_json, command, .. } = arguments;
    if let Some(source) = from_json {
        let snippet = snippet(&source).await?;
        return Ok(api::Add::Snippet { snippet, name: name.as_deref().map(valid).transpose()? });
    }
    let Some(name) = name else {
        let message = "say what to add, like: traygate add files -- npx -y some-server";
        return Err(usage(message));
    };
    if let Some(at) = at.as_deref().filter(|at| !at.contains("://")) {
        let message =
            format!("{at:?} is no URL; a command stands after --: traygate add {name} -- {at} …");
        return Err(usage(message));
    }
    let transport = if let Some(url) = url.or(at) {
        Transport::Http { url, headers: parse_headers(&headers)?, flavour: transport.into() }
    } else if let Some((command, args)) = command.split_first() {
        Transport::Stdio {
            command: command.clone(),
            args: args.to_vec(),
            env: env.iter().map(|pair| parse_env(pair)).collect::<Result<_>>()?,
            cwd: cwd.as_deref().map(directory).transpose()?,
        }
    } else {
        return pasted::read(&name);
    };
    Ok(definition(valid(&name)?, transport))
}

pub fn definition(name: UpstreamName, transport: Transport) -> api::Add {
    let settings = UpstreamSettings::default();
    api::Add::Definition(Box::new(Definition { name, transport, enabled: true, settings }))
}

fn valid(name: &str) -> Result<UpstreamName> {
    UpstreamName::parse(name).map_err(|error| match UpstreamName::suggest(name) {
        Some(better) => usage(format!("{error}, for example {better}")),
        None => usage(error.to_string()),
    })
}

/// The text itself, a file's, or standard input's.
async fn snippet(source: &str) -> Result<String> {
    if source == "-" || pasted::is_json(source) {
        return text_or_stdin(source).await;
    }
    std::fs::read_to_string(source)
        .with_context(|| format!("cannot read a snippet from {source:?}, which isn't JSON either"))
}

fn parse_env(pair: &str) -> Result<(String, String)> {
    let (key, value) = match pair.split_once('=') {
        Some((key, value)) => (key, value.to_owned()),
        None => match std::env::var(pair) {
            Ok(value) => (pair, value),
            Err(_) => {
                return Err(usage(format!("{pair} isn't set here; write --env {pair}=VALUE")));
            }
        },
    };
    if key.is_empty() {
        return Err(usage("an environment variable has no name; write --env KEY=VALUE"));
    }
    Ok((key.to_owned(), value))
}

fn parse_headers(lines: &[String]) -> Result<BTreeMap<String, String>> {
    let header = |line: &String| {
        // What follows the name may be a secret, so it isn't repeated.
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| usage("a header has no colon; write --header 'Name: value'"))?;
        if http::HeaderName::try_from(name.trim()).is_err() {
            return Err(usage("a header's name has characters that no header may have"));
        }
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines.iter().map(header).collect()
}

fn directory(path: &std::path::Path) -> Result<String> {
    let path = std::path::absolute(path).context("cannot tell the working directory")?;
    path.into_os_string()
        .into_string()
        .map_err(|path| usage(format!("{} is no text", path.display())))
}

fn holds_secrets(wanted: &api::Add) -> bool {
    match wanted {
        api::Add::Definition(definition) => match &definition.transport {
            Transport::Stdio { env, .. } => !env.is_empty(),
            Transport::Http { headers, .. } => !headers.is_empty(),
        },
        api::Add::Snippet { snippet, .. } => {
            ["\"env\"", "\"headers\""].iter().any(|member| snippet.contains(member))
        }
    }
}

impl From<Flavour> for HttpFlavour {
    fn from(flavour: Flavour) -> Self {
        match flavour {
            Flavour::Auto => Self::Auto,
            Flavour::Http => Self::StreamableHttp,
            Flavour::Sse => Self::Sse,
        }
    }
}
