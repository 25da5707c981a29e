//! Opening the database: look first, then back up, then bring it to this version's format.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    SqlitePool,
    migrate::{MigrateError, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    code,
    inspect::{Found, inspect, newest},
    primary_code,
};

pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Why there is no store. Each sentence says what to do next; the file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "{path} was written by a newer Traygate{by} (format {found}; this version knows formats up to {known}), \
         and was left untouched; update Traygate, {backup}or set TRAYGATE_HOME to another directory to start anew",
        path = path.display(),
        by = written_by.as_ref().map(|version| format!(", {version}")).unwrap_or_default(),
        backup = backup.as_ref().map(|backup| format!("put the backup {} in its place, ", backup.display())).unwrap_or_default(),
    )]
    Newer {
        path: PathBuf,
        found: i64,
        known: i64,
        /// The version that wrote it, if that could be found out.
        written_by: Option<String>,
        /// The newest backup that this version can read.
        backup: Option<PathBuf>,
    },
    #[error(
        "{path} can't be used: {why}; it was left untouched; move it away to start anew, or put {backup} in its place",
        path = path.display(),
        backup = backup.as_ref().map_or("a backup of yours".to_owned(), |backup| format!("the backup {}", backup.display())),
    )]
    Corrupt { path: PathBuf, why: String, backup: Option<PathBuf> },
    #[error(
        "{path} was brought to format {version} by another build of Traygate than this one, and was left untouched; \
         use that build, or set TRAYGATE_HOME to another directory to start anew",
        path = path.display(),
    )]
    Altered { path: PathBuf, version: i64 },
    #[error("the disk is full, so {path} could not be opened; free some space and try again", path = path.display())]
    Full { path: PathBuf },
    #[error("{path} can't be read or written ({source}); check that its directory exists and is yours", path = path.display())]
    Files { path: PathBuf, source: io::Error },
    #[error("{path} could not be opened: {source}", path = path.display())]
    Sql { path: PathBuf, source: sqlx::Error },
    #[error("{path} could not be brought to this version's format, and is as it was: {source}", path = path.display())]
    Migration { path: PathBuf, source: MigrateError },
}

impl OpenError {
    pub(super) fn newer(path: &Path, found: i64, known: i64, written_by: Option<String>) -> Self {
        let backup = newest_backup(path, known);
        Self::Newer { path: path.to_owned(), found, known, written_by, backup }
    }

    pub(super) fn corrupt(path: &Path, why: &str) -> Self {
        let backup = newest_backup(path, i64::MAX);
        Self::Corrupt { path: path.to_owned(), why: why.to_owned(), backup }
    }

    pub(super) fn files(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Files { path, source },
        }
    }

    pub(super) fn from_sqlite(path: &Path, error: sqlx::Error) -> Self {
        match (primary_code(&error), error) {
            (Some(code::CORRUPT | code::NOT_A_DATABASE), _) => Self::corrupt(path, "it is damaged"),
            (Some(code::FULL), _) => Self::Full { path: path.to_owned() },
            (Some(code::READ_ONLY | code::PERMISSION | code::CAN_NOT_OPEN), error) => {
                Self::files(path, io::Error::other(error))
            }
            (_, sqlx::Error::Io(error)) => Self::files(path, error),
            (_, source) => Self::Sql { path: path.to_owned(), source },
        }
    }
}

pub(super) async fn open(path: &Path, migrations: &Migrator) -> Result<SqlitePool, OpenError> {
    let found = inspect(path, migrations).await?;
    for_this_user_only(path).map_err(|error| OpenError::files(path, error))?;
    let pool = connect(path).await.map_err(|error| OpenError::from_sqlite(path, error))?;
    let prepared = prepare(&pool, path, migrations, found).await;
    if prepared.is_err() {
        pool.close().await;
    }
    prepared.map(|()| pool)
}

async fn prepare(
    pool: &SqlitePool,
    path: &Path,
    migrations: &Migrator,
    found: Found,
) -> Result<(), OpenError> {
    if let Found::Older(version) = found {
        back_up(pool, path, version).await?;
    }
    if found != Found::Current {
        migrations.run(pool).await.map_err(|source| migration_failed(path, source))?;
        tracing::info!(from = ?found, to = newest(migrations), "the database was brought to this version's format");
    }
    // So that an older version can say which one it meets.
    sqlx::query(
        "INSERT INTO settings (key, value) VALUES ('internal.written_by', ?)
         ON CONFLICT DO UPDATE SET value = excluded.value WHERE value <> excluded.value",
    )
    .bind(env!("CARGO_PKG_VERSION"))
    .execute(pool)
    .await
    .map_err(|error| OpenError::from_sqlite(path, error))?;
    Ok(())
}

async fn connect(path: &Path) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        // NORMAL would outlive a killed process, but not a power cut. Writes are rare (a toggle, a
        // first sight, a `last_seen_at` a minute), so each can afford its sync.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5))
        // A removed upstream takes its secrets with it.
        .pragma("secure_delete", "ON");
    SqlitePoolOptions::new()
        .max_connections(4)
        .acquire_timeout(Duration::from_secs(10))
        .connect_with(options)
        .await
}

fn migration_failed(path: &Path, source: MigrateError) -> OpenError {
    match source {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)
            if primary_code(&error) == Some(code::FULL) =>
        {
            OpenError::Full { path: path.to_owned() }
        }
        source => OpenError::Migration { path: path.to_owned(), source },
    }
}

/// Keeps the database as the older version knows it. It gets its name when it is whole.
async fn back_up(pool: &SqlitePool, path: &Path, version: i64) -> Result<(), OpenError> {
    let files = |error| OpenError::files(path, error);
    let (partial, backup) = (beside(path, ".backup-partial"), backup_path(path, version));
    restricted().create(true).truncate(true).open(&partial).map_err(files)?;
    // Sqlx opens paths that are UTF-8 only, so this one is.
    sqlx::query("VACUUM INTO ?")
        .bind(partial.to_string_lossy())
        .execute(pool)
        .await
        .map_err(|error| OpenError::from_sqlite(path, error))?;
    File::open(&partial).and_then(|file| file.sync_all()).map_err(files)?;
    fs::rename(&partial, &backup).map_err(files)?;
    tracing::info!(backup = %backup.display(), "kept a backup of the database before bringing it to a newer format");
    Ok(())
}

fn backup_path(path: &Path, version: i64) -> PathBuf {
    beside(path, &format!(".backup-{version}"))
}

fn newest_backup(path: &Path, up_to: i64) -> Option<PathBuf> {
    let prefix = format!("{}.backup-", path.file_name()?.to_str()?);
    let version = fs::read_dir(path.parent()?)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix(&prefix)?.parse().ok())
        .filter(|version: &i64| *version <= up_to)
        .max()?;
    Some(backup_path(path, version))
}

/// Makes the file, or takes it and its companions from everybody else. `SQLite` gives what it makes
/// beside a database the database's own mode.
fn for_this_user_only(path: &Path) -> io::Result<()> {
    restricted().create(true).truncate(false).open(path)?;
    #[cfg(unix)]
    for suffix in ["", "-wal", "-shm", "-journal"] {
        use std::os::unix::fs::PermissionsExt as _;
        match fs::set_permissions(beside(path, suffix), fs::Permissions::from_mode(0o600)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

/// Opens for writing; a file that this makes is for this user only from its first byte.
pub(super) fn restricted() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// The path with something behind its file name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
