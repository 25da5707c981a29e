//! What a fake upstream is told at its start.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum FakeTransport {
    Stdio,
    Http,
    Sse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum FakeEra {
    Legacy,
    Modern,
    Dual,
}

impl FakeEra {
    pub const fn speaks_legacy(self) -> bool {
        matches!(self, Self::Legacy | Self::Dual)
    }

    pub const fn speaks_modern(self) -> bool {
        matches!(self, Self::Modern | Self::Dual)
    }
}

/// How a list's pages name their next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cursors {
    Plain,
    /// The second page's cursor is the empty string, which is not the end.
    Empty,
    /// Every page names itself as the next one.
    Stuck,
}

/// What a legacy server does with a first message that it doesn't know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Probe {
    Error,
    Exit,
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Answers {
    Json,
    Sse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    Public,
    Private,
}

/// A real MCP server in its own process, with a failure switch.
#[derive(Clone, Debug, Parser)]
#[allow(clippy::struct_excessive_bools)] // a command line's flags
pub struct Options {
    #[arg(long, value_enum)]
    pub transport: FakeTransport,
    #[arg(long, value_enum, default_value = "legacy")]
    pub era: FakeEra,
    /// Where the log, the armed failures and the addresses of the control API live.
    #[arg(long)]
    pub control_dir: PathBuf,
    /// The port of http and sse; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    #[arg(long, default_value = "fake")]
    pub server_name: String,
    /// The host part of its resources' URIs.
    #[arg(long, default_value = "fake")]
    pub authority: String,
    /// Stands before every tool and prompt name.
    #[arg(long, default_value = "")]
    pub prefix: String,
    /// So many more tools, `tool-0001` and on.
    #[arg(long, default_value_t = 0)]
    pub tools: usize,
    /// A further tool of this name; may be given several times.
    #[arg(long)]
    pub tool_name: Vec<String>,
    /// Adds a tool without a schema, whose title is a number.
    #[arg(long)]
    pub bad_tool: bool,
    #[arg(long)]
    pub page_size: Option<usize>,
    #[arg(long, value_enum, default_value = "plain")]
    pub cursors: Cursors,
    #[arg(long)]
    pub no_tools: bool,
    #[arg(long)]
    pub no_prompts: bool,
    #[arg(long)]
    pub no_resources: bool,
    #[arg(long)]
    pub no_completions: bool,
    /// Modern: the `ttlMs` of every cacheable result.
    #[arg(long, default_value_t = 0)]
    pub ttl: u64,
    #[arg(long, value_enum, default_value = "private")]
    pub scope: Scope,
    /// Modern: no `ttlMs` and no `cacheScope`.
    #[arg(long)]
    pub no_hints: bool,
    /// Legacy: the only revision that it speaks.
    #[arg(long)]
    pub revision: Option<String>,
    #[arg(long, value_enum, default_value = "error")]
    pub probe: Probe,
    /// HTTP: the form of an answer that nothing precedes.
    #[arg(long, value_enum, default_value = "json")]
    pub answers: Answers,
    /// http and sse: ends with its stdin, so that it never outlives who started it.
    #[arg(long)]
    pub while_stdin_is_open: bool,
    /// Milliseconds before it reads its first message or opens its port.
    #[arg(long, default_value_t = 0)]
    pub delay_start: u64,
    /// Says this on stderr at its start.
    #[arg(long)]
    pub say: Option<String>,
    /// Ends at once with this code.
    #[arg(long)]
    pub exit_at_start: Option<i32>,
    /// stdio: a line on stdout that is no message, before the first one.
    #[arg(long)]
    pub noise: bool,
}
