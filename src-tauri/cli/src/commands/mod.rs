//! The commands, one file for each group.

pub mod add;
mod autostart;
mod call;
mod config;
mod journal;
mod logs;
mod pasted;
pub mod pause;
mod settings;
mod show;
mod status;
mod switch;
pub mod token;
mod transfer;
mod upstreams;

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use traygate_gateway::paths::Paths;

use crate::{
    arguments::{Cli, Command, Shell},
    bridge,
    client::Client,
    desktop,
    output::Output,
    serve,
};

/// What a command works with.
pub struct Context {
    pub client: Client,
    pub output: Output,
}

pub fn run(cli: Cli) -> Result<()> {
    let output = Output::new(cli.json);
    let command = match cli.command {
        Some(Command::Completions(wanted)) => return completions(wanted.shell, output),
        Some(Command::Autostart(wanted)) => return autostart::autostart(wanted.wanted, output),
        Some(Command::Man(wanted)) => return manual(&wanted.directory),
        Some(Command::Stdio(stdio)) => return bridge::run(stdio, paths()?),
        Some(Command::Serve(wanted)) => {
            let somebody = serve::Reader::Somebody(output);
            let reader = if wanted.background { serve::Reader::Nobody } else { somebody };
            return serve::run(paths()?, wanted.port, reader);
        }
        None => return desktop::open(paths()?, output),
        Some(command) => command,
    };
    let context = Context { client: Client::find(&paths()?)?, output };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(context.run(command));
    // A read of standard input can't be interrupted; nobody waits for it any more.
    runtime.shutdown_background();
    done
}

impl Context {
    async fn run(&self, command: Command) -> Result<()> {
        match command {
            Command::Status => status::status(self).await,
            Command::Add(add) => add::add(self, add).await,
            Command::List => upstreams::list(self).await,
            Command::Show(wanted) => show::show(self, &wanted.upstream, wanted.live).await,
            Command::Enable(wanted) => switch::enable(self, &wanted.targets, true).await,
            Command::Disable(wanted) => switch::enable(self, &wanted.targets, false).await,
            Command::Test(wanted) => upstreams::test(self, &wanted.upstream).await,
            Command::Call(wanted) => call::call(self, wanted).await,
            Command::Refresh(wanted) => upstreams::refresh(self, &wanted.upstream).await,
            Command::Restart(wanted) => upstreams::restart(self, &wanted.upstream).await,
            Command::Logs(wanted) => logs::logs(self, &wanted).await,
            Command::Journal(wanted) => journal::journal(self, &wanted).await,
            Command::Set(wanted) => settings::set(self, &wanted.upstream, &wanted.settings).await,
            Command::Rename(wanted) => {
                upstreams::rename(self, &wanted.upstream, &wanted.name).await
            }
            Command::Move(wanted) => {
                upstreams::move_to(self, &wanted.upstream, wanted.position as usize).await
            }
            Command::Remove(wanted) => upstreams::remove(self, &wanted.upstream).await,
            Command::Pin(wanted) => switch::pin(self, &wanted.targets, true).await,
            Command::Unpin(wanted) => switch::pin(self, &wanted.targets, false).await,
            Command::Forget(wanted) => switch::forget(self, &wanted.targets).await,
            Command::Token(command) => token::token(self, command).await,
            Command::Pause(wanted) => pause::pause(self, wanted).await,
            Command::Resume => pause::resume(self).await,
            Command::Config(wanted) => config::config(self, wanted).await,
            Command::Export(wanted) => transfer::export(self, wanted.file.as_deref()).await,
            Command::Import(wanted) => transfer::import(self, &wanted.file).await,
            Command::Shutdown => self.shutdown().await,
            Command::Serve(_)
            | Command::Stdio(_)
            | Command::Autostart(_)
            | Command::Completions(_)
            | Command::Man(_) => {
                unreachable!("these need no running host and were taken before")
            }
        }
    }

    async fn shutdown(&self) -> Result<()> {
        self.client.post("/shutdown").done().await?;
        self.done(&serde_json::json!({"shutdown": true}), "Traygate is ending")
    }

    /// One sentence for people, or what changed for programs.
    fn done(&self, value: &impl serde::Serialize, words: &str) -> Result<()> {
        self.output.tell(value, || format!("{words}\n"))
    }
}

fn paths() -> Result<Paths> {
    Paths::from_env().context("cannot tell where Traygate's files are")
}

fn completions(shell: Shell, output: Output) -> Result<()> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "traygate", &mut script);
    Ok(output.text(&String::from_utf8(script)?)?)
}

/// A page for Traygate and one for each command.
fn manual(directory: &Path) -> Result<()> {
    let pages = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    pages.with_context(|| format!("cannot write manual pages into {}", directory.display()))
}

/// A text argument, or all of standard input for `-`.
async fn text_or_stdin(text: &str) -> Result<String> {
    if text == "-" {
        let mut read = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut tokio::io::stdin(), &mut read)
            .await
            .context("cannot read standard input")?;
        Ok(read)
    } else {
        Ok(text.to_owned())
    }
}
