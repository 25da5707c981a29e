//! What the user chose, in one `SQLite` file: upstreams, preferences, pins, apps, settings
//! and the journal.
//!
//! It never holds a capability's title, description or schema (design section 2); the only state
//! of a capability in it is `capability_preferences`.
//!
//! One process at a time opens it: the host that holds the data directory's lock. Every write is a
//! transaction of its own, on disk when the method returns, so a choice survives a killed process
//! and a power cut.
//!
//! The migrations are the format. What is stored as JSON (transports, settings) is part of it: a
//! field more there needs a migration too, if only to raise the number, so that an older Traygate
//! says that it is older.

mod apps;
mod inspect;
mod journal;
#[cfg(test)]
mod killed;
mod open;
mod pins;
mod preferences;
mod settings;
#[cfg(test)]
pub(crate) mod tests;
mod upstreams;

use std::path::Path;

use sqlx::{Sqlite, SqlitePool, Transaction};

pub use self::{
    apps::StoredApp,
    journal::{Calls, From as JournalFrom, JournalQuery},
    open::OpenError,
    preferences::Preference,
    upstreams::{StoredUpstream, UpstreamId},
};
use crate::capability::CapabilityType;

/// The open database. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    pool: SqlitePool,
}

/// Why something could not be stored or read. Never tells a stored value.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the name {0:?} is taken; choose another one")]
    Taken(String),
    #[error("the upstream is gone; it was removed meanwhile")]
    Gone,
    #[error(
        "the stored {what} of {name:?} can't be read by this version; remove {name:?} and add it again"
    )]
    Unreadable { name: String, what: &'static str },
    #[error("the disk is full, nothing was changed; free some space and try again")]
    Full,
    #[error("the database can't be written, nothing was changed; check its permissions")]
    ReadOnly,
    #[error("the database is damaged; stop Traygate and put a backup in its place")]
    Damaged,
    #[error("the database could not be used: {0}")]
    Sql(#[source] sqlx::Error),
}

impl Store {
    /// Opens the database, makes it if it isn't there, and brings it to this version's format. A
    /// file from a newer version, or one that isn't Traygate's, is left as it is to the byte.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let pool = open::open(path, &open::MIGRATIONS).await?;
        Ok(Self { pool })
    }

    /// Ends all use and folds the write-ahead log into the file.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// A transaction that writes. It takes the write lock at once: one that began by reading could
    /// not wait for another writer and would fail.
    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        Ok(self.pool.begin_with("BEGIN IMMEDIATE").await?)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match primary_code(&error) {
            Some(code::FULL) => Self::Full,
            Some(code::READ_ONLY) => Self::ReadOnly,
            Some(code::CORRUPT | code::NOT_A_DATABASE) => Self::Damaged,
            _ if is_foreign_key_violation(&error) => Self::Gone,
            _ => Self::Sql(error),
        }
    }
}

/// `SQLite`'s primary result codes that a person is told about in words of their own.
mod code {
    pub const PERMISSION: i32 = 3;
    pub const READ_ONLY: i32 = 8;
    pub const CORRUPT: i32 = 11;
    pub const FULL: i32 = 13;
    pub const CAN_NOT_OPEN: i32 = 14;
    pub const NOT_A_DATABASE: i32 = 26;
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let extended: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
}

fn is_foreign_key_violation(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_foreign_key_violation)
}

/// A unique column already holds this name.
fn taken(error: sqlx::Error, name: &str) -> StoreError {
    match error.as_database_error() {
        Some(database) if database.is_unique_violation() => StoreError::Taken(name.to_owned()),
        _ => error.into(),
    }
}

/// A word that the table's `CHECK` let in.
fn kind(word: &str) -> CapabilityType {
    word.parse().expect("the table's CHECK allows the four words only")
}
