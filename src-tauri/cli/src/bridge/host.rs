//! Finds the running host, and starts one if there is none.

use std::{
    fs::OpenOptions,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use traygate_gateway::{api::RunFile, paths::Paths};

use crate::desktop;

/// How long a host may take to start.
const START: Duration = Duration::from_secs(15);
/// How long to go on looking after the started one has ended: another start may have been quicker.
const OTHERS: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(25);

/// The host of this data directory; one is started if none appears within `grace`. Fails with words
/// for a person.
pub async fn reach(paths: &Paths, grace: Duration) -> Result<RunFile, String> {
    let patience = Instant::now() + grace;
    loop {
        if let Some(run) = living(paths).await {
            return Ok(run);
        }
        if Instant::now() >= patience {
            break;
        }
        sleep(LOOK).await;
    }
    let mut started = start(paths)?;
    let mut deadline = Instant::now() + START;
    let mut ended = None;
    while Instant::now() < deadline {
        sleep(LOOK).await;
        if let Some(run) = living(paths).await {
            return Ok(run);
        }
        if ended.is_some() {
            continue;
        }
        match started.process.try_wait() {
            Ok(Some(status)) if started.desktop && !status.success() => {
                started = start_headless(paths)?;
            }
            Ok(Some(status)) => {
                ended = Some(status);
                deadline = deadline.min(Instant::now() + OTHERS);
            }
            _ => {}
        }
    }
    let log = log_file(paths);
    Err(match ended {
        Some(status) => format!("it was started, but ended ({status}); see {}", log.display()),
        None => format!("it did not start within {} s; see {}", START.as_secs(), log.display()),
    })
}

/// The run file, if somebody listens where it says.
async fn living(paths: &Paths) -> Option<RunFile> {
    let text = std::fs::read(paths.run_file()).ok()?;
    let run: RunFile = serde_json::from_slice(&text).ok()?;
    let connected = timeout(Duration::from_secs(1), TcpStream::connect(("127.0.0.1", run.port)));
    connected.await.ok()?.ok()?;
    Some(run)
}

struct Started {
    process: Child,
    desktop: bool,
}

fn start(paths: &Paths) -> Result<Started, String> {
    if let Some(program) = desktop::find().filter(|_| desktop::has_display()) {
        let mut command = Command::new(program);
        command.arg("--hidden");
        if let Ok(process) = desktop::detached(command, log(paths)?) {
            return Ok(Started { process, desktop: true });
        }
    }
    start_headless(paths)
}

fn start_headless(paths: &Paths) -> Result<Started, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find traygate: {error}"))?;
    let mut command = Command::new(own);
    command.args(["serve", "--background"]);
    match desktop::detached(command, log(paths)?) {
        Ok(process) => Ok(Started { process, desktop: false }),
        Err(error) => Err(format!("cannot start `traygate serve`: {error}")),
    }
}

/// What a host in the background logs goes to a file, since nobody sees its standard error.
fn log(paths: &Paths) -> Result<Stdio, String> {
    paths.create().map_err(|error| format!("cannot make Traygate's directories: {error}"))?;
    let file = log_file(paths);
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(&file) {
        Ok(file) => Ok(file.into()),
        Err(error) => Err(format!("cannot write {}: {error}", file.display())),
    }
}

fn log_file(paths: &Paths) -> std::path::PathBuf {
    paths.data.join("host.log")
}
