//! What a test stands on: a home, a display and a session bus of its own, and a started Traygate.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use traygate_gateway::api::RunFile;
use traygate_tests::{Traygate, process::MARK};

use crate::http;

/// Long enough for a busy machine; nothing waits for it when all is well.
pub const PATIENCE: Duration = Duration::from_mins(1);

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:tmpdir=/tmp</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// An empty home with a port that was free a moment ago.
pub struct Home {
    /// What lies in it, and the control API of whoever hosts there.
    pub traygate: Traygate,
}

impl Home {
    pub fn new() -> Self {
        Self { traygate: Traygate::unstarted().expect("a temporary directory and a free port") }
    }

    pub fn path(&self) -> &str {
        self.traygate.home.path().to_str().expect("a path of plain text")
    }

    pub fn port(&self) -> u16 {
        self.traygate.port
    }

    /// Traygate in this home, on its port, without a display.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_traygate-desktop"));
        command.args(["--port", &self.port().to_string()]);
        self.furnish(&mut command);
        command
    }

    pub fn furnish(&self, command: &mut Command) {
        let home = self.traygate.home.path();
        command
            .env("HOME", home)
            .env("XDG_RUNTIME_DIR", home)
            .env("TRAYGATE_HOME", home)
            .env("SHELL", "/bin/sh")
            .env(MARK, &self.traygate.mark)
            .env("NO_AT_BRIDGE", "1")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("DBUS_SESSION_BUS_ADDRESS");
    }

    /// The directory of what may be thrown away.
    pub fn cache(&self) -> String {
        self.traygate.paths().cache.display().to_string()
    }

    pub fn has_run_file(&self) -> bool {
        self.traygate.paths().run_file().exists()
    }

    pub fn run_file(&self) -> RunFile {
        self.traygate.run_file().expect("a host writes its run file")
    }
}

/// The HTTP status that `GET /control/v1/status` gives to the holder of the run file.
pub fn status_of_control(run: &RunFile) -> u16 {
    http::ask(run.port, "GET", "/control/v1/status", Some(&run.token), None).status
}

/// A display and a session bus where nobody else is.
pub struct Desktop {
    display: String,
    bus: String,
    _configuration: TempDir,
    _processes: [Ended; 2],
}

impl Desktop {
    pub fn start() -> Self {
        let configuration = tempfile::tempdir().expect("a temporary directory");
        let file = configuration.path().join("bus.conf");
        fs::write(&file, BUS).expect("the bus's configuration");
        let (x, display) = announced(Command::new("Xvfb").args([
            "-displayfd",
            "1",
            "-screen",
            "0",
            "1024x768x24",
            "-nolisten",
            "tcp",
        ]));
        let (daemon, bus) =
            announced(
                Command::new("dbus-daemon")
                    .arg(format!("--config-file={}", file.display()))
                    .args(["--nofork", "--nopidfile", "--print-address=1"]),
            );
        Self {
            display: format!(":{display}"),
            bus,
            _configuration: configuration,
            _processes: [x, daemon],
        }
    }

    /// Traygate in `home` on this desktop.
    pub fn command(&self, home: &Home) -> Command {
        let mut command = home.command();
        self.furnish(&mut command);
        command
    }

    pub fn furnish(&self, command: &mut Command) {
        command.env("DISPLAY", &self.display).env("DBUS_SESSION_BUS_ADDRESS", &self.bus);
    }

    pub fn display(&self) -> &str {
        &self.display
    }

    /// Makes its bus the system's.
    pub fn furnish_as_system_bus(&self, command: &mut Command) {
        command.env("DBUS_SYSTEM_BUS_ADDRESS", &self.bus);
    }

    /// A connection to be made to the session bus, for a service that the test plays. What is served
    /// by the builder itself hears every call from the moment its name is known.
    pub fn bus(&self) -> zbus::connection::Builder<'_> {
        zbus::connection::Builder::address(self.bus.as_str())
    }
}

/// A process that ends with the test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program that tells on its first line where it can be reached.
fn announced(command: &mut Command) -> (Ended, String) {
    let mut child = Ended(
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap_or_else(|error| {
            panic!(
                "{} can't start ({error}); `make setup` installs it",
                command.get_program().display()
            )
        }),
    );
    let lines = lines_of([child.0.stdout.take().expect("a piped stdout")]);
    let first = lines.recv_timeout(PATIENCE).expect("it says where it is");
    (child, first)
}

/// The lines of several streams as they come; read to the end, so that no pipe ever fills.
fn lines_of<R: Read + Send + 'static>(
    streams: impl IntoIterator<Item = R>,
) -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel();
    for stream in streams {
        let send = send.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                // Who doesn't listen any more doesn't stop the reading.
                let _ = send.send(line);
            }
        });
    }
    lines
}

/// A started Traygate and all that it says.
pub struct Started {
    process: Ended,
    lines: mpsc::Receiver<String>,
    heard: Vec<String>,
}

impl Started {
    pub fn new(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("Traygate starts");
        let out: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("a piped stdout"));
        let err: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("a piped stderr"));
        Self { process: Ended(child), lines: lines_of([out, err]), heard: Vec::new() }
    }

    /// In the tray, on any free port.
    pub fn hidden(desktop: &Desktop, home: &mut Home) -> Self {
        home.traygate.port = 0;
        let mut started = Self::new(desktop.command(home).arg("--hidden"));
        started.hear("on the desktop");
        home.traygate.port = home.run_file().port;
        started
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Waits for a line that contains `words`, on either stream; one that came already counts.
    pub fn hear(&mut self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.heard.iter().any(|line| line.contains(words)) {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.heard.push(line),
                Err(end) => panic!("no {words:?} ({end}) in what was said: {:#?}", self.heard),
            }
        }
    }

    pub fn ask_to_end(&self) {
        let kill = format!("kill -TERM {}", self.pid());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(sent.success(), "Traygate still runs");
    }

    /// Waits for the end.
    pub fn exit_code(&mut self) -> Option<i32> {
        // Both streams are closed when the process is gone.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.heard.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("Traygate didn't end"),
            }
        }
        self.process.0.wait().expect("a child can be waited for").code()
    }
}

impl Drop for Started {
    /// What it said is what a failed test is understood by.
    fn drop(&mut self) {
        if thread::panicking() {
            self.heard.extend(self.lines.try_iter());
            eprintln!("Traygate said: {:#?}", self.heard);
        }
    }
}

/// A process and all below it.
pub fn descendants_of(pid: u32) -> Vec<u32> {
    let ids = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = ids.split_whitespace().filter_map(|child| child.parse().ok());
    std::iter::once(pid).chain(children.flat_map(descendants_of)).collect()
}

/// The names of a process's children.
pub fn children_of(pid: u32) -> Vec<String> {
    let ids = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    ids.split_whitespace()
        .filter_map(|child| fs::read_to_string(format!("/proc/{child}/comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}
