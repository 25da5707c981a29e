//! The snapshot file: public catalogues of modern upstreams, kept over a restart (design section 4.5).
//!
//! It is disposable. Whatever is wrong with it, it isn't used, and one line says so.

mod entry;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub use self::entry::{Entry, Listed, Refusal, Stored};
/// A larger file is not one of ours.
const LARGEST: u64 = 256 << 20;

/// Where it lies.
#[derive(Clone, Debug)]
pub struct SnapshotFile {
    path: PathBuf,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is {0}")]
    NotOurs(&'static str),
    #[error("it is not whole, or not a snapshot")]
    Garbled,
    #[error("another version of Traygate wrote it")]
    OtherFormat,
}

#[derive(Serialize)]
struct Written<'a> {
    format: &'a str,
    entries: &'a [Entry<Listed>],
}

/// Read and compared before anything else is.
#[derive(Deserialize)]
struct Heading {
    format: String,
}

#[derive(Deserialize)]
struct Content {
    entries: Vec<Stored>,
}

/// What a file gives.
#[derive(Debug, Default)]
pub struct Loaded {
    pub entries: Vec<Stored>,
    /// What was wrong with others, in words that tell nothing of what they hold.
    pub odd: Option<String>,
}

impl SnapshotFile {
    pub fn below(cache: &Path) -> Self {
        Self { path: cache.join("catalogues.json") }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The entries that may be used at this moment of the wall clock; `None` if there is no file.
    pub fn load(&self, now: i64) -> Result<Option<Loaded>, Unusable> {
        let file = match open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        check(&file.metadata()?)?;
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text)?;
        let heading: Heading = serde_json::from_slice(&text).map_err(|_| Unusable::Garbled)?;
        if heading.format != entry::format() {
            return Err(Unusable::OtherFormat);
        }
        let content: Content = serde_json::from_slice(&text).map_err(|_| Unusable::Garbled)?;
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        for entry in content.entries {
            match entry.check(now) {
                Ok(()) => entries.push(entry),
                Err(why) => refused.push(why),
            }
        }
        Ok(Some(Loaded { entries, odd: in_words(&refused) }))
    }

    /// Replaces the file as a whole: who reads it sees the old one, the new one, or none.
    pub fn write(&self, entries: &[Entry<Listed>]) -> io::Result<()> {
        let beside = self.path.with_extension("json.new");
        let written = write_beside(&beside, entries).and_then(|()| fs::rename(&beside, &self.path));
        if written.is_err() {
            // It may not have come into being at all.
            let _ = fs::remove_file(&beside);
        }
        written
    }

    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn write_beside(beside: &Path, entries: &[Entry<Listed>]) -> io::Result<()> {
    // What a killed process left there may have another's mode.
    match fs::remove_file(beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(beside)?;
    let mut out = io::BufWriter::new(file);
    serde_json::to_writer(&mut out, &Written { format: entry::format(), entries })?;
    out.flush()?;
    out.get_ref().sync_all()
}

/// Never follows a link, and never waits for whoever writes to a pipe.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    options.open(path)
}

/// Only what this user alone could write is believed.
fn check(found: &fs::Metadata) -> Result<(), Unusable> {
    if !found.is_file() {
        return Err(Unusable::NotOurs("not a file"));
    }
    if found.len() >= LARGEST {
        return Err(Unusable::NotOurs("too large"));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o022 != 0 {
        return Err(Unusable::NotOurs("writable by others than this user"));
    }
    Ok(())
}

fn in_words(refused: &[Refusal]) -> Option<String> {
    // That a time is over is the usual end of an entry, and nothing to tell.
    let odd: Vec<_> = refused.iter().filter(|why| **why != Refusal::Over).collect();
    let first = odd.first()?;
    Some(format!("{} of its entries not used, the first because {first}", odd.len()))
}
