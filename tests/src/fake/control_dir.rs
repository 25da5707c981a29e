//! The directory that a test and all incarnations of one fake share: it outlives a process that
//! dies on purpose.
//!
//! * `log.jsonl`: what the fake saw and did, one JSON object a line;
//! * `arms/`: one file for each failure to come; whoever removes the file commits the failure;
//! * `lists.json`: what the fake lists instead of its own sets;
//! * `hints.json`: what its results say about their reuse, instead of what its options have;
//! * `control/<pid>`: the address of that process's control API.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

#[derive(Clone, Debug)]
pub struct ControlDir(PathBuf);

/// A failure to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    pub what: Failure,
    /// The method that it waits for; `start` is the start of the process.
    pub method: String,
    /// How often; 0 is for ever.
    #[serde(default = "once")]
    pub times: u32,
    /// For `slow` and `cut`.
    #[serde(default)]
    pub ms: u64,
    /// For `error` the JSON-RPC code, for `http-status` the status.
    #[serde(default)]
    pub code: i64,
    /// For `http-status` the body, for `error` the message.
    #[serde(default)]
    pub text: String,
    /// For `http-status`: seconds.
    #[serde(default)]
    pub retry_after: Option<u64>,
    /// Waits for a page after the first.
    #[serde(default)]
    pub on_cursor: bool,
}

fn once() -> u32 {
    1
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The request runs, then the process ends without an answer.
    DieBeforeAnswer,
    /// The process ends right after the answer is out.
    DieAfterAnswer,
    /// The process ends before the request runs.
    DieAtOnce,
    /// No answer, until the client cancels.
    Hang,
    /// A JSON-RPC error with `code`.
    Error,
    /// Bytes that are no message.
    Garbage,
    /// The session is forgotten, and this request is refused for it.
    DropSession,
    /// The answer comes `ms` later.
    Slow,
    /// HTTP: this status, with `text` and `retry_after`; nothing runs.
    HttpStatus,
    /// The request runs, then after `ms` its connection is cut; the process lives, except on stdio.
    Cut,
    /// The same before it runs.
    CutAtOnce,
}

impl Arm {
    pub fn new(what: Failure, method: &str) -> Self {
        Self {
            what,
            method: method.to_owned(),
            times: 1,
            ms: 0,
            code: 0,
            text: String::new(),
            retry_after: None,
            on_cursor: false,
        }
    }

    /// A bare HTTP status in the place of an answer.
    pub fn status(status: u16, method: &str) -> Self {
        Self::new(Failure::HttpStatus, method).code(status.into())
    }

    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        text.clone_into(&mut self.text);
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    #[must_use]
    pub fn for_ever(self) -> Self {
        self.times(0)
    }

    #[must_use]
    pub fn ms(mut self, ms: u64) -> Self {
        self.ms = ms;
        self
    }

    #[must_use]
    pub fn on_cursor(mut self) -> Self {
        self.on_cursor = true;
        self
    }

    #[must_use]
    pub fn code(mut self, code: i64) -> Self {
        self.code = code;
        self
    }
}

/// One line of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// Milliseconds of Unix time.
    pub at: u64,
    pub pid: u32,
    /// `message` for what came in; else `start`, `violation`, `cancelled`, `ran`, `end`, …
    pub event: String,
    /// What else there is to say of an event: the broken rule, the tool that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// HTTP only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The message as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<RawValue>>,
}

impl LogEntry {
    pub fn new(event: &str) -> Self {
        Self {
            at: now(),
            pid: std::process::id(),
            event: event.to_owned(),
            what: None,
            method: None,
            session: None,
            headers: BTreeMap::new(),
            message: None,
        }
    }

    #[must_use]
    pub fn what(mut self, what: impl Into<String>) -> Self {
        self.what = Some(what.into());
        self
    }

    /// The message's `params`, for looking into.
    pub fn params(&self) -> Value {
        self.message
            .as_deref()
            .and_then(|message| serde_json::from_str::<Value>(message.get()).ok())
            .and_then(|mut message| message.get_mut("params").map(Value::take))
            .unwrap_or_default()
    }
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

impl ControlDir {
    pub fn at(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path.join("arms"))?;
        fs::create_dir_all(path.join("control"))?;
        Ok(Self(path.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, entry: &LogEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // One write to a file opened for appending is one line, whoever else writes.
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.log_file())?;
        file.write_all(&line)
    }

    pub fn log(&self) -> io::Result<Vec<LogEntry>> {
        match fs::read_to_string(self.log_file()) {
            // A last line without its end is still being written.
            Ok(text) => text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'))
                .map(|line| serde_json::from_str(line).map_err(io::Error::from))
                .collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn log_file(&self) -> PathBuf {
        self.0.join("log.jsonl")
    }

    /// Each time is a file of its own, so that taking one is atomic between processes.
    pub fn arm(&self, arm: &Arm) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        for _ in 0..arm.times.max(1) {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{:015}-{}-{number:06}", now(), std::process::id());
            let hidden = self.0.join(format!("arm-{name}"));
            fs::write(&hidden, serde_json::to_vec(arm)?)?;
            fs::rename(hidden, self.0.join("arms").join(name))?;
        }
        Ok(())
    }

    pub fn disarm(&self) -> io::Result<()> {
        for path in self.armed()? {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The oldest failure that waits for this method, and for a cursor only where there is one.
    pub fn take(&self, method: &str, has_cursor: bool) -> io::Result<Option<Arm>> {
        self.take_if(method, |arm| has_cursor || !arm.on_cursor)
    }

    /// The oldest one of this sort.
    pub fn take_if(&self, method: &str, wanted: impl Fn(&Arm) -> bool) -> io::Result<Option<Arm>> {
        for path in self.armed()? {
            let Ok(text) = fs::read(&path) else { continue };
            let arm: Arm = serde_json::from_slice(&text)?;
            if arm.method == method
                && wanted(&arm)
                && (arm.times == 0 || fs::remove_file(&path).is_ok())
            {
                return Ok(Some(arm));
            }
        }
        Ok(None)
    }

    fn armed(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = fs::read_dir(self.0.join("arms"))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    }

    /// Replaces what is listed under a list's member: `tools`, `prompts`, …
    pub fn set_list(&self, member: &str, items: &[Box<RawValue>]) -> io::Result<()> {
        let mut lists = self.lists()?;
        lists.insert(member.to_owned(), items.to_vec());
        let hidden = self.0.join("lists.new");
        fs::write(&hidden, serde_json::to_vec(&lists)?)?;
        fs::rename(hidden, self.0.join("lists.json"))
    }

    pub fn list(&self, member: &str) -> io::Result<Option<Vec<Box<RawValue>>>> {
        Ok(self.lists()?.remove(member))
    }

    fn lists(&self) -> io::Result<BTreeMap<String, Vec<Box<RawValue>>>> {
        match fs::read(self.0.join("lists.json")) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    /// What the results of a method carry as hints, page by page, the last one for all that follow:
    /// members as text, such as `"ttlMs":-1`. In either era.
    pub fn set_hints(&self, method: &str, pages: &[&str]) -> io::Result<()> {
        let mut hints = self.all_hints()?;
        hints.insert(method.to_owned(), pages.iter().map(|page| (*page).to_owned()).collect());
        let hidden = self.0.join("hints.new");
        fs::write(&hidden, serde_json::to_vec(&hints)?)?;
        fs::rename(hidden, self.0.join("hints.json"))
    }

    /// Of one page, counted from 0.
    pub fn hints(&self, method: &str, page: usize) -> io::Result<Option<String>> {
        let mut pages = self.all_hints()?.remove(method).unwrap_or_default();
        pages.truncate(page + 1);
        Ok(pages.pop())
    }

    fn all_hints(&self) -> io::Result<BTreeMap<String, Vec<String>>> {
        match fs::read(self.0.join("hints.json")) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    pub fn announce_control(&self, address: &str) -> io::Result<()> {
        let pid = std::process::id();
        let hidden = self.0.join(format!("control-{pid}"));
        fs::write(&hidden, address)?;
        fs::rename(hidden, self.control_file(pid))
    }

    pub fn withdraw_control(&self) {
        // It may be gone already; then there is nothing to withdraw.
        let _ = fs::remove_file(self.control_file(std::process::id()));
    }

    fn control_file(&self, pid: u32) -> PathBuf {
        self.0.join("control").join(pid.to_string())
    }

    /// The processes that live, with the addresses of their control APIs.
    pub fn alive(&self) -> io::Result<BTreeMap<u32, String>> {
        let mut alive = BTreeMap::new();
        for entry in fs::read_dir(self.0.join("control"))? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if is_running(pid)
                && let Ok(address) = fs::read_to_string(entry.path())
            {
                alive.insert(pid, address);
            }
        }
        Ok(alive)
    }
}

/// Whether this process exists and isn't a zombie.
pub fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        // The state follows the name, which stands in parentheses and may hold anything.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}
