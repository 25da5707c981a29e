//! Processes seen from outside: what runs, what belongs to a test, and how it is ended.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{DEADLINE, fake::control_dir::is_running};

/// The variable that marks every process of one test.
pub const MARK: &str = "TRAYGATE_TEST_ID";

/// A binary that was built beside this test.
///
/// # Panics
/// If it isn't there: cargo builds another package's binary only when asked to.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let found = test
        .ancestors()
        .skip(1)
        .take(3)
        .map(|directory| directory.join(name).with_extension(std::env::consts::EXE_EXTENSION))
        .find(|file| file.is_file());
    found.unwrap_or_else(|| {
        let package = if name == "traygate" { "traygate" } else { "traygate-tests" };
        panic!("{name} isn't built; run cargo build -p {package}")
    })
}

/// The processes whose environment carries this mark, with their command lines.
pub fn marked(id: &str) -> Vec<(u32, String)> {
    let mark = format!("{MARK}={id}");
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id() && is_running(*pid))
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|b| *b == 0).any(|v| v == mark.as_bytes()))
        })
        .map(|pid| (pid, command_line(pid)))
        .collect()
}

fn command_line(pid: u32) -> String {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&raw).replace('\0', " ").trim().to_owned()
}

/// `TERM`, `KILL`, `STOP` or `CONT`, to one process that this test started.
pub fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .stderr(std::process::Stdio::null())
        .status()
        .context("kill")?;
    ensure!(status.success() || !is_running(pid), "kill -{name} {pid} failed");
    Ok(())
}

/// Waits until a thing that can only be looked at is so.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !holds() {
        ensure!(tokio::time::Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Every file below a directory, with its bytes.
pub fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else if let Ok(bytes) = fs::read(&path) {
            found.push((path, bytes));
        }
    }
    found
}

/// Whether the bytes hold this text anywhere.
pub fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The processes whose command line holds all of these words.
pub fn running(words: &[&str]) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id() && is_running(*pid))
        .filter(|pid| {
            let line = command_line(*pid);
            words.iter().all(|word| line.contains(word))
        })
        .collect()
}
