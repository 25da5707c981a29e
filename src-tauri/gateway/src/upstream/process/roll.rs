//! The file of running children: how a next start knows whom a host left behind whose watcher was
//! killed with it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    leader::{self, Graces, Leader},
    table,
};
use crate::private;

const BEGINS: &str = "children-";
const ENDS: &str = ".json";
/// Children of an earlier host have long lost their input; only a signal is left to try.
const GRACES: Graces = Graces { to_leave: Duration::ZERO, to_end: Duration::from_millis(1_500) };

/// Who runs for one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roll {
    /// The run of the system in which the start times count.
    boot: String,
    /// The last moment at which all of them were known to be the host's.
    until: u64,
    pub leaders: Vec<Leader>,
}

impl Roll {
    /// What another watcher of the same host wrote down, as far as it is true still: the host may be
    /// gone before it has told the next watcher of everybody.
    pub fn inherited(file: &Path) -> Self {
        let mut roll = Self::read(file).unwrap_or_default();
        if roll.boot != table::boot() {
            roll.leaders.clear();
        }
        roll.leaders.retain(|leader| Leader::of(leader.pid).as_ref() == Some(leader));
        roll
    }

    fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    /// Says that everybody on it is the host's at this moment.
    pub fn confirm(&mut self) {
        (self.boot, self.until) = (table::boot(), table::now());
    }

    /// Ends everybody on it who still runs; how many had to be told.
    pub fn end(&self, graces: Graces) -> usize {
        if self.boot == table::boot() {
            leader::end_all(&self.leaders, self.until, graces)
        } else {
            0
        }
    }

    /// Nobody on it: no file.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        if self.leaders.is_empty() {
            return remove(file);
        }
        private::write(file, &serde_json::to_vec(self)?)
    }
}

/// Where the children of the host with this process id stand.
pub fn file(data: &Path, host: u32) -> PathBuf {
    data.join(format!("{BEGINS}{host}{ENDS}"))
}

/// Ends whoever an earlier host of this data directory left behind, and removes its file; blocks
/// for at most a few seconds, and only where somebody is left. The caller is the directory's only
/// host. Returns how many there were.
pub fn end_left_behind(data: &Path) -> usize {
    let Ok(entries) = fs::read_dir(data) else { return 0 };
    // One that was being written when its writer was killed has another ending.
    let is_roll = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(BEGINS))
    };
    let mut ended = 0;
    for path in entries.flatten().map(|entry| entry.path()).filter(is_roll) {
        // One that can't be read names nobody.
        ended += Roll::read(&path).map_or(0, |roll| roll.end(GRACES));
        if let Err(error) = remove(&path) {
            tracing::warn!(file = %path.display(), %error, "a file of children can't be removed");
        }
    }
    ended
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
