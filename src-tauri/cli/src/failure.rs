//! How a command ends when it doesn't end well: one sentence, and an exit code that scripts can use.

use std::{fmt, io, process::ExitCode};

use traygate_gateway::api::Problem;

/// The ends with an exit code of their own. Any other error is a plain failure: 1.
#[derive(Debug)]
pub enum Failure {
    /// The host said no.
    Refused(Problem),
    /// The arguments make no sense together.
    Usage(String),
    /// No Traygate answers.
    Unreachable(String),
    /// All is said; only the exit code is left.
    Told,
}

impl Failure {
    const fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) | Self::Told => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Refused(problem) => f.write_str(&problem.message),
            Self::Usage(words) | Self::Unreachable(words) => f.write_str(words),
            Self::Told => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// A wrong use of the command line, as an error.
pub fn usage(words: impl Into<String>) -> anyhow::Error {
    Failure::Usage(words.into()).into()
}

/// Says it on standard error, for people or as a `Problem` for programs.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    if error.chain().any(is_broken_pipe) {
        // Whoever read the output has seen enough, as in `traygate logs files | head`.
        return ExitCode::SUCCESS;
    }
    let failure = error.downcast_ref::<Failure>();
    if !matches!(failure, Some(Failure::Told)) {
        eprintln!("{}", sentence(error, failure, json));
    }
    failure.map_or(1, Failure::exit_code).into()
}

fn sentence(error: &anyhow::Error, failure: Option<&Failure>, json: bool) -> String {
    // `{:#}` joins what was tried and why it failed in one sentence.
    let words = format!("{error:#}");
    if !json {
        return format!("error: {words}");
    }
    let problem = match failure {
        Some(Failure::Refused(problem)) => problem.clone(),
        _ => Problem { message: words.clone(), code: None, upstream: None },
    };
    serde_json::to_string(&problem).unwrap_or(words)
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
