//! A program of this machine, as a definition names it, and its start.
//!
//! No shell is involved: the command is searched on the login shell's path, variables are filled
//! in, and the child is given a minimal environment and a group of its own.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fmt, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use tokio::process::Command;

use super::wire::{Failure, FailureKind, Ran};

mod batch;
mod children;
mod environment;
pub(super) mod expand;
mod group;
#[cfg(unix)]
mod leader;
mod login_shell;
#[cfg(unix)]
mod os;
#[cfg(unix)]
mod roll;
mod search;
#[cfg(unix)]
mod table;
#[cfg(unix)]
mod watcher;

pub use children::{Children, Watch};
pub use group::{Exit, Group};
#[cfg(unix)]
pub use {roll::end_left_behind, watcher::run_if_asked};

use expand::{Field, Scope, Unexpandable};

/// After a command was not found, an answer of the login shell older than this is asked for
/// again: the user may have installed what was missing.
const PATH_RETRY: Duration = Duration::from_secs(10);

/// What to run, as the user wrote it.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// A name to be searched, a path, or, with no `args`, a whole command line.
    pub command: String,
    pub args: Vec<String>,
    /// Added to the minimal environment.
    pub env: BTreeMap<String, String>,
    /// The user's home if absent: Traygate's own directory means nothing to the user.
    pub cwd: Option<String>,
}

impl fmt::Debug for Program {
    /// Without the arguments and the values of variables: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Program")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl Program {
    /// Starts the program with all three standard streams piped.
    pub async fn start(&self, children: &Arc<Children>) -> Result<Group, Failure> {
        let ready = match self.ready(&login_shell::search_path(Duration::MAX, children).await) {
            Err(Unready::Command(search::NotFound::OnPath { .. })) => {
                self.ready(&login_shell::search_path(PATH_RETRY, children).await)
            }
            ready => ready,
        };
        let ready = ready.map_err(|why| misconfigured(why.to_string()))?;
        let command = ready.command().map_err(|why| misconfigured(why.to_string()))?;
        Group::spawn(command, children).map_err(|error| refused(&ready.program, &error))
    }

    /// Fills everything in and finds the program on `path`, or on the definition's own `PATH`.
    fn ready(&self, path: &OsStr) -> Result<Ready, Unready> {
        let home = home();
        let own = |name: &str| match name {
            // As the child will have it, so that "PATH": "/more:$PATH" adds to it.
            "PATH" => path.to_str().map(str::to_owned),
            name => env::var(name).ok(),
        };
        let scope = Scope { variable: &own, home: home.as_deref() };
        let mut defined = BTreeMap::new();
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(Unready::Variable(name.clone()));
            }
            defined.insert(name.clone(), scope.expand(value, Field::Env(name))?);
        }

        // What the definition sets may be used in the rest of it.
        let variable = |name: &str| defined.get(name).cloned().or_else(|| own(name));
        let scope = Scope { variable: &variable, home: home.as_deref() };
        let cwd = self.directory(&scope)?;
        let (command, args) = self.command_line(&scope, &cwd)?;
        if std::iter::once(&command).chain(&args).any(|text| text.contains('\0')) {
            return Err(Unready::Nul);
        }
        let path = defined.get("PATH").map_or(path, OsStr::new).to_owned();
        let program = search::find(&command, &path, &cwd)?;
        let environment = environment::of_child(env::vars_os(), &path, &defined);
        Ok(Ready { program, args, environment, cwd })
    }

    fn directory(&self, scope: &Scope) -> Result<PathBuf, Unready> {
        let Some(cwd) = self.cwd.as_deref().filter(|cwd| !cwd.is_empty()) else {
            let home = scope.home.map(PathBuf::from).filter(|home| home.is_dir());
            return Ok(home.unwrap_or_else(env::temp_dir));
        };
        let directory = PathBuf::from(scope.expand(cwd, Field::Cwd)?);
        if directory.is_relative() {
            return Err(Unready::RelativeDirectory(directory));
        }
        if !directory.is_dir() {
            return Err(Unready::Directory(directory));
        }
        Ok(directory)
    }

    /// The command and its arguments, filled in after they were told apart: white space in a value
    /// never makes two arguments of one.
    fn command_line(&self, scope: &Scope, cwd: &Path) -> Result<(String, Vec<String>), Unready> {
        let whole = self.command.trim();
        if whole.is_empty() {
            return Err(Unready::NoCommand);
        }
        let written_as_one = self.args.is_empty() && whole.contains(char::is_whitespace);
        if written_as_one && !is_file(whole, scope, cwd) {
            let mut words = words(whole).into_iter();
            let command = scope.expand(&words.next().unwrap_or_default(), Field::Command)?;
            let args =
                words.map(|word| scope.expand(&word, Field::Args)).collect::<Result<_, _>>()?;
            return Ok((command, args));
        }
        let args = self.args.iter().map(|arg| scope.expand(arg, Field::Args));
        Ok((scope.expand(whole, Field::Command)?, args.collect::<Result<_, _>>()?))
    }
}

fn is_file(command: &str, scope: &Scope, cwd: &Path) -> bool {
    scope.expand(command, Field::Command).is_ok_and(|path| cwd.join(path).is_file())
}

/// Words as a shell would tell them apart. An unbalanced quote is no quote.
fn words(line: &str) -> Vec<String> {
    let plain = || line.split_whitespace().map(str::to_owned).collect();
    // On Windows a backslash separates folders and escapes nothing.
    if cfg!(windows) && line.contains('\\') {
        return plain();
    }
    shell_words::split(line).ok().filter(|words| !words.is_empty()).unwrap_or_else(plain)
}

/// A program with everything filled in.
#[derive(Debug)]
struct Ready {
    program: PathBuf,
    args: Vec<String>,
    environment: BTreeMap<OsString, OsString>,
    cwd: PathBuf,
}

impl Ready {
    fn command(&self) -> Result<Command, batch::Unpassable> {
        let mut command = self.called()?;
        command
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    #[cfg(not(windows))]
    #[allow(clippy::unnecessary_wraps)] // on Windows not everything can be passed
    fn called(&self) -> Result<Command, batch::Unpassable> {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        Ok(command)
    }

    /// `npx` is a script there, `npx.cmd`, which only the command processor runs.
    #[cfg(windows)]
    fn called(&self) -> Result<Command, batch::Unpassable> {
        if batch::is_script(&self.program) {
            let line = batch::command_line(&self.program.display().to_string(), &self.args)?;
            let mut command = Command::new(batch::command_processor());
            command.raw_arg(line);
            return Ok(command);
        }
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        Ok(command)
    }
}

/// Why a program can't be started before the user changes something.
#[derive(Debug, thiserror::Error)]
enum Unready {
    #[error("the command is empty; name the program that is the server")]
    NoCommand,
    #[error("the command or an argument holds a NUL character; remove it")]
    Nul,
    #[error(
        "{0:?} can't be set as an environment variable; names hold no '=' and nothing holds NUL"
    )]
    Variable(String),
    #[error("the working directory {} doesn't exist; create it or change cwd", .0.display())]
    Directory(PathBuf),
    #[error("the working directory {} is relative; give its full path as cwd", .0.display())]
    RelativeDirectory(PathBuf),
    #[error(transparent)]
    Text(#[from] Unexpandable),
    #[error(transparent)]
    Command(#[from] search::NotFound),
}

fn misconfigured(reason: String) -> Failure {
    Failure::new(FailureKind::Misconfigured, Ran::CertainlyNot, reason)
}

/// What the system says against starting a program that was found.
fn refused(program: &Path, error: &io::Error) -> Failure {
    use io::ErrorKind::{ArgumentListTooLong, NotFound, PermissionDenied};

    let program = program.display();
    match error.kind() {
        NotFound => misconfigured(format!(
            "{program} can't be started: the interpreter that its first line names doesn't exist"
        )),
        PermissionDenied => misconfigured(format!(
            "{program} can't be started: permission denied; check its rights and those of its folders"
        )),
        ArgumentListTooLong => {
            misconfigured(format!("{program} can't be started: its arguments are too long"))
        }
        _ if is_no_program(error) => misconfigured(format!(
            "{program} can't be started: it is no program for this system; a script needs a first line such as #!/bin/sh"
        )),
        _ => Failure::new(
            FailureKind::Gone,
            Ran::CertainlyNot,
            format!("{program} can't be started: {error}"),
        ),
    }
}

fn is_no_program(error: &io::Error) -> bool {
    #[cfg(unix)]
    let code = libc::ENOEXEC;
    #[cfg(windows)]
    let code = 193;
    error.raw_os_error() == Some(code)
}

/// The user's home directory.
fn home() -> Option<String> {
    env::home_dir().and_then(|home| home.into_os_string().into_string().ok())
}

#[cfg(all(test, unix))]
mod tests;
