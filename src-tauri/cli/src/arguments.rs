//! The words of the command line. Most comments here are help texts.

#![allow(clippy::doc_markdown)] // help knows no backticks

use std::path::PathBuf;

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
    /// Tell what happened: what broke, what was done about it, and which calls it touched
    ///
    /// Also what you switched, and through what. Times are this machine's. With --json, one object
    /// a line.
    #[command(
        after_help = "Examples:\n  traygate journal\n  traygate journal files --since 1h\n  traygate journal --follow --calls"
    )]
    Journal(Journal),
    /// Change how an upstream is treated, or show its settings
    ///
    /// The settings: auto_enable_new_capabilities (true, false), legacy_ttl (seconds, until_told),
    /// isolation (shared; isolated is not available yet), request_timeout, call_idle_timeout, call_total_timeout
    /// (seconds), notifications (true, false), idle_stop (minutes, off: a program that no app has used for so long is
    /// stopped until the next call).
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
    /// Start Traygate with your session, or say whether it does
    #[command(after_help = "Example:\n  traygate autostart on")]
    Autostart(Autostart),
    /// Print completions for a shell
    #[command(
        after_help = "Examples:\n  source <(traygate completions bash)\n  traygate completions zsh > ~/.zfunc/_traygate\n  traygate completions fish > ~/.config/fish/completions/traygate.fish"
    )]
    Completions(Completions),
    /// Write the manual pages into a directory
    #[command(hide = true, after_help = "Example:\n  traygate man ~/.local/share/man/man1")]
    Man(Man),
    /// End the running Traygate in good order
    #[command(hide = true, after_help = "Example:\n  traygate shutdown")]
    Shutdown,
}

const ADD_EXAMPLES: &str = "\
Examples:
  traygate add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  traygate add search --env API_KEY -- uvx some-search-server
  traygate add docs https://mcp.example.com/mcp --header 'X-Key: …'
  traygate add --from-json servers.json
  traygate add 'npx -y @modelcontextprotocol/server-memory'

--json alone asks for JSON output, as everywhere. Followed by a snippet ({…}),
a .json file or -, it is --from-json:
  traygate add --json '{\"time\": {\"command\": \"uvx\", \"args\": [\"mcp-server-time\"]}}'";

#[derive(Args)]
pub struct Serve {
    /// The port, instead of the configured one
    #[arg(long)]
    pub port: Option<u16>,
    /// Say nothing on standard output and make no token: nobody would see it
    #[arg(long, hide = true)]
    pub background: bool,
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
pub struct Journal {
    /// Only what is about this upstream
    pub upstream: Option<String>,
    /// Go on with what happens until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// From how long ago on: 15m, 1h, 1h30m, 2d
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Every call, and not only those that an outage touched
    #[arg(long)]
    pub calls: bool,
    /// How many of the last entries; 100, or with --since all
    #[arg(short = 'n', long)]
    pub lines: Option<usize>,
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
pub struct Autostart {
    #[arg(value_enum, default_value_t = AtLogin::Status)]
    pub wanted: AtLogin,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum AtLogin {
    On,
    Off,
    Status,
}

#[derive(Args)]
pub struct Completions {
    pub shell: Shell,
}

#[derive(Args)]
pub struct Man {
    pub directory: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

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
}
