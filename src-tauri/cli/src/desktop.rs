//! Where the tray application is, and whether there is a display for it.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};
pub use traygate_gateway::host::has_display;
use traygate_gateway::paths::Paths;

use crate::{
    output::{Output, remark},
    serve,
};

/// `traygate` alone: opens the tray application; without a display, says so and serves headless.
pub fn open(paths: Paths, output: Output) -> Result<()> {
    let why_not = match (has_display(), find()) {
        (true, Some(desktop)) => {
            let name = desktop.display().to_string();
            detached(Command::new(desktop), Stdio::null())
                .with_context(|| format!("cannot start {name}"))?;
            return Ok(output.line("Traygate opens in the tray")?);
        }
        (true, None) => "traygate-desktop is neither beside this program nor on the PATH",
        (false, _) => "there is no display",
    };
    remark(&format!("{why_not}, so Traygate serves without a desktop"));
    serve::run(paths, None, serve::Reader::Somebody(output))
}

/// The desktop's program: beside this one, else on the PATH.
pub fn find() -> Option<PathBuf> {
    let name = format!("traygate-desktop{}", env::consts::EXE_SUFFIX);
    let beside = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_path_buf));
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = beside.into_iter().chain(env::split_paths(&path));
    directories.map(|directory| directory.join(&name)).find(|program| program.is_file())
}

/// Starts a program that outlives this one and its terminal.
pub fn detached(mut program: Command, log: Stdio) -> std::io::Result<Child> {
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // A group of its own: an app that ends its bridge by the group doesn't end the host, nor does
    // Ctrl-C in a terminal.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut program, 0);
    #[cfg(windows)]
    {
        const DETACHED_PROCESS: u32 = 0x8;
        const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
        let flags = DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP;
        std::os::windows::process::CommandExt::creation_flags(&mut program, flags);
    }
    program.spawn()
}
