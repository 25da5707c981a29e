//! Looks at a database file without changing a byte of it, and without leaving anything beside it.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection, migrate::Migrator,
    sqlite::SqliteConnectOptions,
};

use super::open::{OpenError, beside, restricted};

/// "Tray", as the first migration sets it.
const APPLICATION_ID: i64 = 0x5472_6179;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// What `SQLite` keeps beside a database of a process that was killed, and needs to read it.
const COMPANIONS: [&str; 2] = ["-wal", "-journal"];

/// What lies at the path, if it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No file, or one in which nothing was ever written.
    Nothing,
    /// Of this version's format.
    Current,
    /// Of an older format: this migration was the last.
    Older(i64),
}

pub(super) async fn inspect(path: &Path, known: &Migrator) -> Result<Found, OpenError> {
    if !begins_like_sqlite(path)? {
        return Ok(Found::Nothing);
    }
    let copy = copy_with_companions(path)?;
    let options = SqliteConnectOptions::new();
    // An immutable file is read without locks, log or shared memory, so nothing appears beside it.
    // It would not show what is still in a log; then a copy is looked at, where SQLite may recover.
    let options = match &copy {
        Some(copy) => options.filename(&copy.file),
        None => options.filename(path).read_only(true).immutable(true),
    };
    let unusable = |error| OpenError::from_sqlite(path, error);
    let mut connection = options.connect().await.map_err(unusable)?;
    let found = look(&mut connection, path, known).await;
    connection.close().await.map_err(unusable)?;
    found
}

async fn look(
    connection: &mut SqliteConnection,
    path: &Path,
    known: &Migrator,
) -> Result<Found, OpenError> {
    let seen = Seen::read(connection).await.map_err(|error| OpenError::from_sqlite(path, error))?;
    let corrupt = |why: &str| Err(OpenError::corrupt(path, why));
    let newest = newest(known);
    if !seen.ours && (seen.tables > 0 || seen.application_id != 0 || seen.user_version != 0) {
        return corrupt("it is another program's database");
    }
    let number = seen.applied.iter().map(|(version, _)| *version).fold(seen.user_version, i64::max);
    if number > newest {
        return Err(OpenError::newer(path, number, newest, seen.written_by));
    }
    if !seen.whole {
        return corrupt("it is damaged");
    }
    for (version, checksum) in &seen.applied {
        let same = known.iter().any(|m| m.version == *version && *m.checksum == **checksum);
        if !same {
            return Err(OpenError::Altered { path: path.to_owned(), version: *version });
        }
    }
    match seen.applied.last() {
        None if seen.user_version > 0 => corrupt("its list of migrations is gone"),
        None => Ok(Found::Nothing),
        Some((version, _)) if *version == newest => Ok(Found::Current),
        Some((version, _)) => Ok(Found::Older(*version)),
    }
}

pub(super) fn newest(known: &Migrator) -> i64 {
    known.iter().map(|migration| migration.version).max().unwrap_or_default()
}

struct Seen {
    ours: bool,
    application_id: i64,
    user_version: i64,
    tables: i64,
    /// Version and checksum, the oldest first.
    applied: Vec<(i64, Vec<u8>)>,
    written_by: Option<String>,
    whole: bool,
}

impl Seen {
    async fn read(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let application_id =
            sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await?;
        let user_version =
            sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *connection).await?;
        let (tables, with_migrations): (i64, i64) = sqlx::query_as(
            "SELECT count(*), count(*) FILTER (WHERE name = '_sqlx_migrations') FROM sqlite_schema",
        )
        .fetch_one(&mut *connection)
        .await?;
        let applied = if with_migrations > 0 {
            sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations ORDER BY version")
                .fetch_all(&mut *connection)
                .await?
        } else {
            Vec::new()
        };
        // Where a newer version keeps it is its own affair.
        let written_by =
            sqlx::query_scalar("SELECT value FROM settings WHERE key = 'internal.written_by'")
                .fetch_optional(&mut *connection)
                .await
                .unwrap_or_default();
        let verdict: String =
            sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut *connection).await?;
        Ok(Self {
            ours: application_id == APPLICATION_ID || with_migrations > 0,
            application_id,
            user_version,
            tables,
            applied,
            written_by,
            whole: verdict == "ok",
        })
    }
}

/// `false`: there is no file, or an empty one.
fn begins_like_sqlite(path: &Path) -> Result<bool, OpenError> {
    let unusable = |error| OpenError::files(path, error);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(unusable(error)),
    };
    if file.metadata().map_err(unusable)?.is_dir() {
        return Err(OpenError::corrupt(path, "it is a directory"));
    }
    let mut start = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut start).map_err(unusable)?;
    match start.as_slice() {
        [] => Ok(false),
        start if start == MAGIC => Ok(true),
        _ => Err(OpenError::corrupt(path, "it is not an SQLite database")),
    }
}

/// A copy in a directory of its own, gone when this is dropped.
struct Copy {
    directory: PathBuf,
    file: PathBuf,
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "a copy could not be removed");
        }
    }
}

/// `None` if the file alone tells everything.
fn copy_with_companions(path: &Path) -> Result<Option<Copy>, OpenError> {
    let not_empty = |file: &Path| file.metadata().is_ok_and(|metadata| metadata.len() > 0);
    if !COMPANIONS.iter().any(|suffix| not_empty(&beside(path, suffix))) {
        return Ok(None);
    }
    copy(path).map(Some).map_err(|error| OpenError::files(path, error))
}

fn copy(path: &Path) -> io::Result<Copy> {
    // Always the same name, so that what a killed process left is used up by the next one.
    let directory = beside(path, ".inspect");
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    std::fs::create_dir(&directory)?;
    let copy = Copy { file: directory.join("traygate.db"), directory };
    for suffix in std::iter::once("").chain(COMPANIONS) {
        match File::open(beside(path, suffix)) {
            Ok(mut from) => {
                let mut to = restricted().create_new(true).open(beside(&copy.file, suffix))?;
                io::copy(&mut from, &mut to)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(copy)
}
