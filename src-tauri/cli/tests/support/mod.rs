//! A home of its own for each test, and the real program in it.

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt as _, process::Command};

pub const TOKEN: &str = "the-token-of-the-run-file";

pub struct Home(TempDir);

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    #[allow(dead_code)] // not every test file
    pub err: String,
}

impl Home {
    pub fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory"))
    }

    /// A home whose run file points at this port.
    pub fn of_host(port: u16) -> Self {
        let home = Self::new();
        home.write_run_file(port);
        home
    }

    pub fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    pub fn write_run_file(&self, port: u16) {
        let run = self.path().join("run");
        std::fs::create_dir_all(&run).expect("the run directory");
        let text = json!({"pid": std::process::id(), "port": port, "token": TOKEN, "version": "0.1.0", "host": "headless"});
        std::fs::write(run.join("host.json"), text.to_string()).expect("the run file");
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_traygate"));
        command
            .args(arguments)
            .env("TRAYGATE_HOME", self.path())
            .env("TZ", "UTC")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("TRAYGATE_LOG")
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    #[allow(dead_code)] // not every test file
    pub async fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().await.expect("traygate runs").into()
    }

    #[allow(dead_code)]
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let mut child =
            self.command(arguments).stdin(Stdio::piped()).spawn().expect("traygate runs");
        let mut stdin = child.stdin.take().expect("its standard input");
        stdin.write_all(input.as_bytes()).await.expect("it reads");
        drop(stdin);
        child.wait_with_output().await.expect("traygate ends").into()
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("an exit code"),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

impl Ended {
    #[allow(dead_code)]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("no JSON: {error}\n{self:?}"))
    }
}
