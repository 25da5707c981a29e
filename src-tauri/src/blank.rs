//! Web views stay blank on many machines with NVIDIA's driver (requirement F7), unless WebKit is told
//! from the first moment on how not to draw.

use std::{env, os::unix::process::CommandExt as _, path::Path, process::Command};

const VARIABLE: &str = "WEBKIT_DISABLE_DMABUF_RENDERER";
const DRIVER: &str = "/proc/driver/nvidia";

/// Becomes this very program with WebKit told, where that is needed. What the user has set holds.
pub fn prevent() {
    if !Path::new(DRIVER).exists() || env::var_os(VARIABLE).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut told = Command::new(program);
    told.args(env::args_os().skip(1)).env(VARIABLE, "1");
    // It returns only if it failed, and then a window may be blank, which is no reason not to serve.
    eprintln!("{DRIVER} is here, but WebKit can't be told: {}", told.exec());
}
