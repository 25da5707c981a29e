//! The official SDKs' clients and the real servers, as `scripts/setup-sdk.sh` installs them.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::io::AsyncBufReadExt as _;

use crate::DEADLINE;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("sdk")
}

/// A file of an installation.
///
/// # Panics
/// If it isn't installed.
fn installed(path: &str) -> PathBuf {
    let file = directory().join(path);
    assert!(file.exists(), "the SDKs aren't installed; run make setup");
    file
}

/// The script of a real server, to be run with `node`.
pub fn node_server(name: &str) -> PathBuf {
    installed(&format!("ts/node_modules/@modelcontextprotocol/{name}/dist/index.js"))
}

/// The Python server, to be run with `python()`.
pub fn python_server() -> PathBuf {
    directory().join("py/server.py")
}

pub fn python() -> PathBuf {
    installed("py/.venv/bin/python")
}

/// The official conformance suite against a URL: one scenario, of the modern revision. Returns what
/// it said, if every check of it passed.
pub async fn conformance(url: &str, scenario: &str) -> Result<String> {
    let node = installed("conformance/node_modules/node/bin/node");
    let suite =
        installed("conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let output = tokio::process::Command::new(node)
        .arg(suite)
        .args(["server", "--url", url, "--scenario", scenario, "--spec-version", "2026-07-28"])
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(6 * DEADLINE, output).await.context("it hangs")??;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(output.status.success(), "{scenario} ended with {}: {said}", output.status);
    Ok(said)
}

/// The official clients, by package and era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// `@modelcontextprotocol/sdk`
    TypeScriptOld,
    /// `@modelcontextprotocol/client`
    TypeScriptLegacy,
    TypeScriptModern,
    PythonLegacy,
    PythonModern,
}

impl Sdk {
    pub const ALL: [Self; 5] = [
        Self::TypeScriptOld,
        Self::TypeScriptLegacy,
        Self::TypeScriptModern,
        Self::PythonLegacy,
        Self::PythonModern,
    ];

    pub const fn is_modern(self) -> bool {
        matches!(self, Self::TypeScriptModern | Self::PythonModern)
    }

    /// Connects, lists everything, does what the plan names, and says what came of it.
    pub async fn run(self, url: &str, token: &str, plan: &Value) -> Result<Value> {
        let (program, script, era) = match self {
            Self::TypeScriptOld => (PathBuf::from("node"), "ts/app.mjs", "sdk"),
            Self::TypeScriptLegacy => (PathBuf::from("node"), "ts/app.mjs", "legacy"),
            Self::TypeScriptModern => (PathBuf::from("node"), "ts/app.mjs", "modern"),
            Self::PythonLegacy => (python(), "py/app.py", "legacy"),
            Self::PythonModern => (python(), "py/app.py", "modern"),
        };
        installed("ts/node_modules/@modelcontextprotocol");
        let output = tokio::process::Command::new(program)
            .arg(directory().join(script))
            .args([era, url, &plan.to_string()])
            .env("TRAYGATE_TOKEN", token)
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(6 * DEADLINE, output).await.context("it hangs")??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{self:?} ended with {}: {said}", output.status);
        serde_json::from_slice(&output.stdout).with_context(|| format!("{self:?} said {said}"))
    }
}

/// An app of the official TypeScript SDK that stays connected, and lists its tools whenever it is told
/// that they changed.
pub struct Follower {
    lines: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
    _process: tokio::process::Child,
}

impl Follower {
    pub fn start(url: &str, token: &str) -> Result<Self> {
        installed("ts/node_modules/@modelcontextprotocol");
        let mut process = tokio::process::Command::new("node")
            .arg(directory().join("ts/follow.mjs"))
            .arg(url)
            .env("TRAYGATE_TOKEN", token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().context("a pipe")?;
        Ok(Self { lines: tokio::io::BufReader::new(stdout).lines(), _process: process })
    }

    /// What it listed next.
    pub async fn tools(&mut self, within: Duration) -> Result<Vec<String>> {
        let line = tokio::time::timeout(within, self.lines.next_line()).await;
        let line = line.context("the app lists nothing in time")??.context("the app ended")?;
        Ok(serde_json::from_str(&line)?)
    }
}
