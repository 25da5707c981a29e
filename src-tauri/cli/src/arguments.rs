//! The words of the command line. Most comments here are help texts.

#![allow(clippy::doc_markdown)] // help knows no backticks

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::{
    bridge::Stdio,
    commands::{add::Add, pause::PauseArguments, token::TokenCommand},
};

/// One MCP endpoint for all your AI apps, in front of all your MCP servers
///
/// Traygate hosts one MCP endpoint on this machine and stands in front of the MCP servers you add.
/// Without a command it opens the tray application, or serves without one where there is no display.
#[derive(Parser)]
#[command(
    name = "traygate",
    version,
    max_term_width = 100,
    after_help = "\
First steps:
  traygate serve
  traygate add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  traygate token new claude

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no Traygate is running.
TRAYGATE_HOME moves all of Traygate's files into one directory."
)]
pub struct Cli {
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Host the endpoint without a desktop, until Ctrl-C
    ///
    /// Prints the endpoint, a token for a first app if there is no app yet, and the next step.
    /// What it does is logged on standard error; TRAYGATE_LOG=debug tells more.
    #[command(after_help = "Example:\n  traygate serve --port 8717")]
    Serve(Serve),
    /// Show the endpoint, the upstreams and the apps
    #[command(after_help = "Example:\n  traygate status")]
    Status,

    /// Add an upstream: a command, a URL or a snippet as READMEs print it
    #[command(after_help = ADD_EXAMPLES)]
    Add(Add),
    /// List the upstreams in your order
    #[command(after_help = "Example:\n  traygate list")]
    List,
    /// Show what an upstream offers, and which of it is on
    #[command(after_help = "Example:\n  traygate show files --live")]
    Show(Show),
    /// Let apps see an upstream, or some of its capabilities
    ///
    /// Works while the upstream is offline; apps are told at once.
    #[command(
        after_help = "Examples:\n  traygate enable files\n  traygate enable files/tool/write_file files/tool/edit_file"
    )]
    Enable(Targets),
    /// Hide an upstream, or some of its capabilities, from apps
    ///
    /// A disabled capability is missing in lists and refused on use. Works while the upstream is
    /// offline; apps are told at once.
    #[command(
        after_help = "Examples:\n  traygate disable files\n  traygate disable files/tool/write_file\n  traygate disable docs/resource/file:///etc/hosts"
    )]
    Disable(Targets),
    /// Connect to an upstream afresh, and say what was found and how long it took
    ///
    /// The upstream's running link isn't touched.
    #[command(after_help = "Example:\n  traygate test files")]
    Test(Upstream),
    /// Call a tool by the name that apps see
    ///
    /// Prints the result's text. Exits with 1 if the tool reports an error.
    #[command(
        after_help = "Examples:\n  traygate call files__list_directory '{\"path\": \"/tmp\"}'\n  echo '{\"a\": 1, \"b\": 2}' | traygate call everything__add -"
    )]
    Call(Call),
    /// Read an upstream's catalogues anew
    #[command(after_help = "Example:\n  traygate refresh files")]
    Refresh(Upstream),
    /// End an upstream's link and make a new one
    #[command(after_help = "Example:\n  traygate restart files")]
    Restart(Upstream),
    /// Show the last lines of an upstream's log
    #[command(
        after_help = "Examples:\n  traygate logs files -n 20\n  traygate logs files --follow"
    )]
    Logs(Logs),
    /// Change how an upstream is treated, or show its settings
    ///
    /// The settings: auto_enable_new_capabilities (true, false), legacy_ttl (seconds, until_told),
    /// isolation (shared, isolated), request_timeout, call_idle_timeout, call_total_timeout
    /// (seconds), notifications (true, false).
    #[command(
        after_help = "Examples:\n  traygate set files\n  traygate set files legacy_ttl=120 auto_enable_new_capabilities=false"
    )]
    Set(Set),
    /// Give an upstream another name; your choices stay
    #[command(after_help = "Example:\n  traygate rename files documents")]
    Rename(Rename),
    /// Move an upstream to another place in your order
    #[command(after_help = "Example:\n  traygate move files 1")]
    Move(Move),
    /// Remove an upstream with all choices about it
    #[command(after_help = "Example:\n  traygate remove files")]
    Remove(Upstream),
    /// Pin capabilities to the tray's menu
    #[command(after_help = "Example:\n  traygate pin files/tool/write_file")]
    Pin(Capabilities),
    /// Take capabilities out of the tray's menu
    #[command(after_help = "Example:\n  traygate unpin files/tool/write_file")]
    Unpin(Capabilities),
    /// Forget the choice about capabilities
    ///
    /// One that the upstream still has starts anew by the upstream's policy.
    #[command(after_help = "Example:\n  traygate forget files/tool/gone_since_2_0")]
    Forget(Capabilities),

    /// Manage the apps that may connect
    #[command(subcommand)]
    Token(TokenCommand),
    /// Refuse all use, or all but read-only tools, for a while
    ///
    /// Lists stay as they are, and no choice is changed.
    #[command(
        after_help = "Examples:\n  traygate pause\n  traygate pause writes --for 1h\n  traygate pause all --for until-tomorrow"
    )]
    Pause(PauseArguments),
    /// End a pause
    #[command(after_help = "Example:\n  traygate resume")]
    Resume,
    /// Show or change Traygate's own settings
    #[command(
        after_help = "Examples:\n  traygate config\n  traygate config port 8800\n  traygate config port --reset"
    )]
    Config(Config),
    /// Write definitions and choices as JSON, without secrets
    ///
    /// Values of environment variables and headers stand as ${NAME}.
    #[command(after_help = "Examples:\n  traygate export traygate.json\n  traygate export | less")]
    Export(Export),
    /// Read what `export` wrote
    ///
    /// Upstreams that are already there keep their definition; choices are merged.
    #[command(after_help = "Example:\n  traygate import traygate.json")]
    Import(Import),

    /// The bridge for apps that only speak stdio: forwards to the endpoint
    ///
    /// Put it into an app's configuration as a command. Starts Traygate if it isn't running.
    #[command(
        after_help = "Example, as apps want it:\n  {\"mcpServers\": {\"traygate\": {\"command\": \"traygate\", \"args\": [\"stdio\", \"--app\", \"claude\"]}}}"
    )]
    Stdio(Stdio),
    /// Print completions for a shell
    #[command(
        after_help = "Examples:\n  source <(traygate completions bash)\n  traygate completions zsh > ~/.zfunc/_traygate\n  traygate completions fish > ~/.config/fish/completions/traygate.fish"
    )]
    Completions(Completions),
    /// End the running Traygate in good order
    #[command(hide = true, after_help = "Example:\n  traygate shutdown")]
    Shutdown,
}

const ADD_EXAMPLES: &str = "\
Examples:
  traygate add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  traygate add github --env GITHUB_TOKEN -- docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/github-mcp-server
  traygate add docs --url https://mcp.example.com/mcp --header 'Authorization: Bearer …'
  traygate add --from-json '{\"mcpServers\": {\"time\": {\"command\": \"uvx\", \"args\": [\"mcp-server-time\"]}}}'
  traygate add --json '{\"mcpServers\": …}'      the same; --json without a snippet asks for JSON output
  traygate add 'npx -y @modelcontextprotocol/server-memory'";

#[derive(Args)]
pub struct Serve {
    /// The port, instead of the configured one
    #[arg(long)]
    pub port: Option<u16>,
}

#[derive(Args)]
pub struct Upstream {
    /// The upstream's name, as `traygate list` shows it
    pub upstream: String,
}

#[derive(Args)]
pub struct Show {
    /// The upstream's name, as `traygate list` shows it
    pub upstream: String,
    /// Also what the upstream says about each capability
    #[arg(long)]
    pub live: bool,
}

#[derive(Args)]
pub struct Targets {
    /// <upstream> or <upstream>/<type>/<key>; the types are tool, resource, template and prompt
    #[arg(required = true, value_name = "UPSTREAM[/TYPE/KEY]")]
    pub targets: Vec<String>,
}

#[derive(Args)]
pub struct Capabilities {
    /// <upstream>/<type>/<key>; the types are tool, resource, template and prompt
    #[arg(required = true, value_name = "UPSTREAM/TYPE/KEY")]
    pub targets: Vec<String>,
}

#[derive(Args)]
pub struct Call {
    /// The tool's name as apps see it: <upstream>__<tool>
    pub tool: String,
    /// The arguments, a JSON object; - reads them from standard input
    #[arg(value_name = "JSON|-", default_value = "{}")]
    pub arguments: String,
}

#[derive(Args)]
pub struct Logs {
    /// The upstream's name, as `traygate list` shows it
    pub upstream: String,
    /// Go on with new lines until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// How many of the last lines
    #[arg(short = 'n', long, default_value_t = 100)]
    pub lines: usize,
}

#[derive(Args)]
pub struct Set {
    /// The upstream's name, as `traygate list` shows it
    pub upstream: String,
    /// What to change; without any, the settings are shown
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

#[derive(Args)]
pub struct Rename {
    /// The upstream's name now
    pub upstream: String,
    /// 1 to 31 of a-z, 0-9 and -
    pub name: String,
}

#[derive(Args)]
pub struct Move {
    /// The upstream's name, as `traygate list` shows it
    pub upstream: String,
    /// The place, from 1
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub position: u32,
}

#[derive(Args)]
pub struct Config {
    /// A setting's name; without it, all are shown
    pub key: Option<String>,
    /// Its new value
    #[arg(conflicts_with = "reset")]
    pub value: Option<String>,
    /// Back to the default
    #[arg(long, requires = "key")]
    pub reset: bool,
}

#[derive(Args)]
pub struct Export {
    /// Where to; without it, standard output
    pub file: Option<PathBuf>,
}

#[derive(Args)]
pub struct Import {
    /// What `export` wrote; - reads standard input
    #[arg(value_name = "FILE|-")]
    pub file: String,
}

#[derive(Args)]
pub struct Completions {
    pub shell: Shell,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// `add --json '<snippet>'` means `add --from-json '<snippet>'`, while `--json` elsewhere asks for
/// JSON output. The two can't be confused: no upstream's name begins with `{` or `"`, is `-`, or
/// ends in `.json`.
pub fn with_snippet(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
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
    use clap::CommandFactory as _;

    use super::*;

    fn rewritten(words: &[&str]) -> Vec<String> {
        let all = std::iter::once("traygate").chain(words.iter().copied()).map(OsString::from);
        let all = with_snippet(all).into_iter().skip(1);
        all.map(|word| word.into_string().expect("only plain text is tested")).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        let mut cli = Cli::command();
        cli.build();
        let mut left: Vec<_> = cli.get_subcommands().cloned().collect();
        while let Some(command) = left.pop() {
            if command.get_name() == "help" {
                continue;
            }
            left.extend(command.get_subcommands().cloned());
            if command.has_subcommands() {
                continue;
            }
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{} has no example:\n{help}", command.get_name());
        }
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
