//! The database as a file: what is in it, who may read it, and which files are refused.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use sqlx::{
    Connection as _, SqlSafeStr as _, SqliteConnection,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::SqliteConnectOptions,
};

use super::{open::MIGRATIONS, *};
use crate::{
    definition::{Definition, Transport, UpstreamSettings},
    names::UpstreamName,
};

/// A store in a directory of its own.
pub(crate) struct Fixture {
    pub store: Store,
    directory: tempfile::TempDir,
}

impl Fixture {
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(&directory.path().join("traygate.db")).await.expect("a new store");
        Self { store, directory }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("traygate.db")
    }

    /// As the next start sees it.
    pub async fn reopen(&self) -> Store {
        self.store.close().await;
        Store::open(&self.path()).await.expect("opened again")
    }

    pub fn definition(name: &str) -> Definition {
        Definition {
            name: UpstreamName::parse(name).expect("a valid name"),
            transport: Transport::Stdio {
                command: "npx".into(),
                args: vec!["-y".into(), "a server".into()],
                env: [("KEY".to_owned(), "a secret value".to_owned())].into(),
                cwd: None,
            },
            enabled: true,
            settings: UpstreamSettings::default(),
        }
    }

    pub async fn add(&self, name: &str) -> UpstreamId {
        self.store.add_upstream(&Self::definition(name)).await.expect("added")
    }

    /// Closes it and lets a statement of another version, or of an accident, loose on it.
    async fn alter(&self, statement: &'static str) {
        self.store.close().await;
        let options = SqliteConnectOptions::new().filename(self.path());
        let mut connection = SqliteConnection::connect_with(&options).await.expect("connected");
        sqlx::raw_sql(statement).execute(&mut connection).await.expect("altered");
        connection.close().await.expect("closed");
    }
}

/// Every file of the directory with the hash of its content.
fn files(of: &Path) -> BTreeMap<String, [u8; 32]> {
    let entries = std::fs::read_dir(of.parent().expect("a directory")).expect("readable");
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let content = std::fs::read(&path).expect("a readable file");
            (path.display().to_string(), Sha256::digest(content).into())
        })
        .collect()
}

/// A later version's number.
const NEXT: i64 = 1000;

/// A later version's format.
fn with_next_migration(sql: &'static str) -> Migrator {
    let next =
        Migration::new(NEXT, "next".into(), MigrationType::Simple, sql.into_sql_str(), false);
    Migrator::with_migrations(MIGRATIONS.iter().cloned().chain([next]).collect())
}

const ADDITION: &str = "ALTER TABLE apps ADD COLUMN colour TEXT; PRAGMA user_version = 1000;";

async fn columns(store: &Store) -> BTreeMap<String, Vec<String>> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c
         WHERE m.type = 'table' ORDER BY m.name, c.cid",
    )
    .fetch_all(&store.pool)
    .await
    .expect("the schema");
    let mut tables = BTreeMap::<String, Vec<String>>::new();
    for (table, column) in rows {
        tables.entry(table).or_default().push(column);
    }
    tables
}

#[tokio::test]
async fn a_preference_is_a_key_and_a_choice_and_nothing_else_tells_of_capabilities() {
    let fixture = Fixture::new().await;
    let mut tables = columns(&fixture.store).await;
    assert_eq!(
        tables.remove("capability_preferences").expect("the table"),
        [
            "upstream_id",
            "capability_type",
            "capability_key",
            "enabled",
            "first_seen_at",
            "last_seen_at"
        ]
    );
    // Sqlx describes its migrations.
    tables.remove("_sqlx_migrations").expect("the list of migrations");
    for (table, columns) in tables {
        for word in ["title", "description", "schema"] {
            assert!(!columns.iter().any(|column| column.contains(word)), "{table} has a {word}");
        }
    }
}

#[tokio::test]
async fn the_number_in_the_file_is_the_newest_migrations() {
    let fixture = Fixture::new().await;
    let number: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&fixture.store.pool)
        .await
        .expect("the number");
    assert_eq!(number, inspect::newest(&MIGRATIONS));
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_may_read_the_database_or_what_lies_beside_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new().await;
    fixture.add("one").await;
    let mode = |suffix| {
        let path = open::beside(&fixture.path(), suffix);
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
    };
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o600; 3]);
    fixture.store.close().await;
    std::fs::set_permissions(fixture.path(), std::fs::Permissions::from_mode(0o644)).expect("set");
    let store = Store::open(&fixture.path()).await.expect("opened again");
    assert_eq!(mode(""), 0o600, "a file that others could read is taken from them");
    store.close().await;
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_to_the_byte() {
    for statement in [
        "PRAGMA user_version = 1000",
        "PRAGMA user_version = 1001",
        "UPDATE _sqlx_migrations SET version = version + 1000",
        "PRAGMA user_version = 1000; ALTER TABLE apps ADD COLUMN colour TEXT",
        "PRAGMA user_version = 1001; ALTER TABLE settings RENAME TO options",
        "PRAGMA user_version = 1000; ALTER TABLE _sqlx_migrations RENAME TO steps",
    ] {
        let fixture = Fixture::new().await;
        fixture.add("one").await;
        fixture.alter(statement).await;
        let before = files(&fixture.path());
        let error = Store::open(&fixture.path()).await.expect_err(statement);
        assert!(matches!(error, OpenError::Newer { .. }), "{statement}: {error}");
        assert_eq!(files(&fixture.path()), before, "{statement}: nothing written, nothing left");
    }
}

#[tokio::test]
async fn a_newer_version_that_was_killed_is_recognised_by_what_is_still_in_its_log() {
    let fixture = Fixture::new().await;
    let mut other = fixture.store.pool.acquire().await.expect("a connection");
    sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA user_version = 1007")
        .execute(&mut *other)
        .await
        .expect("altered");
    // A killed process leaves just this: the file and its log.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("traygate.db");
    for suffix in ["", "-wal"] {
        std::fs::copy(open::beside(&fixture.path(), suffix), open::beside(&path, suffix))
            .expect("copied");
    }
    let before = files(&path);
    let error = Store::open(&path).await.expect_err("newer");
    assert!(matches!(error, OpenError::Newer { found: 1007, .. }), "{error}");
    assert_eq!(files(&path), before, "nothing written, nothing left");
}

#[tokio::test]
async fn before_a_newer_format_a_backup_is_made_and_an_older_version_names_it() {
    let fixture = Fixture::new().await;
    fixture.add("one").await;
    fixture.store.close().await;
    let newer =
        open::open(&fixture.path(), &with_next_migration(ADDITION)).await.expect("migrated");
    newer.close().await;
    let backup =
        open::beside(&fixture.path(), &format!(".backup-{}", inspect::newest(&MIGRATIONS)));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&backup).expect("a backup").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let error = Store::open(&fixture.path()).await.expect_err("newer").to_string();
    for word in [&*fixture.path().to_string_lossy(), &*backup.to_string_lossy(), "TRAYGATE_HOME"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    std::fs::rename(&backup, fixture.path()).expect("put in its place");
    let store = Store::open(&fixture.path()).await.expect("the backup is this version's");
    assert_eq!(store.upstreams().await.expect("the list").len(), 1);
}

#[tokio::test]
async fn a_migration_that_fails_half_way_leaves_the_old_state() {
    let fixture = Fixture::new().await;
    fixture.store.close().await;
    let broken = with_next_migration("DROP TABLE pins; PRAGMA user_version = 1000; SELECT oh_no;");
    let error = open::open(&fixture.path(), &broken).await.expect_err("broken");
    assert!(matches!(error, OpenError::Migration { .. }), "{error}");
    let store = Store::open(&fixture.path()).await.expect("still of this version's format");
    assert_eq!(store.pins().await.expect("the table is there"), []);
}

#[tokio::test]
async fn a_database_of_another_build_is_refused_and_left_to_the_byte() {
    let fixture = Fixture::new().await;
    fixture.alter("UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1").await;
    let before = files(&fixture.path());
    let error = Store::open(&fixture.path()).await.expect_err("altered");
    assert!(matches!(error, OpenError::Altered { version: 1, .. }), "{error}");
    assert_eq!(files(&fixture.path()), before);
}

#[tokio::test]
async fn what_is_no_database_of_traygate_is_refused_and_left_to_the_byte() {
    let fixture = Fixture::new().await;
    fixture.store.close().await;
    let good = std::fs::read(fixture.path()).expect("readable");
    let mut scribbled = good.clone();
    scribbled[4096..].fill(0x5a);
    let mut bad_header = good.clone();
    bad_header[16..100].fill(0xff);
    for (what, content) in [
        ("text", b"these are my shopping notes, not a database at all".to_vec()),
        ("scribbled", scribbled),
        ("bad header", bad_header),
        ("cut short", good[..good.len() / 2].to_vec()),
        ("header only", good[..20].to_vec()),
    ] {
        std::fs::write(fixture.path(), content).expect("written");
        let before = files(&fixture.path());
        let error = Store::open(&fixture.path()).await.expect_err(what);
        assert!(matches!(error, OpenError::Corrupt { .. }), "{what}: {error}");
        assert!(error.to_string().contains("move it away"), "{what}: {error}");
        assert_eq!(files(&fixture.path()), before, "{what}");
    }
    std::fs::remove_file(fixture.path()).expect("removed");
    let options = SqliteConnectOptions::new().filename(fixture.path()).create_if_missing(true);
    let mut foreign = SqliteConnection::connect_with(&options).await.expect("connected");
    sqlx::raw_sql("CREATE TABLE notes (text)").execute(&mut foreign).await.expect("created");
    foreign.close().await.expect("closed");
    let error = Store::open(&fixture.path()).await.expect_err("foreign").to_string();
    assert!(error.contains("another program's"), "{error}");
}

#[tokio::test]
async fn a_path_that_can_not_be_used_is_named_and_an_empty_file_is_a_beginning() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = directory.path().join("missing").join("traygate.db");
    let error = Store::open(&missing).await.expect_err("no such directory").to_string();
    assert!(error.contains("missing") && error.contains("directory exists"), "{error}");
    let error = Store::open(directory.path()).await.expect_err("a directory").to_string();
    assert!(error.contains("it is a directory"), "{error}");
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        let odd = directory.path().join(std::ffi::OsStr::from_bytes(b"\xff.db"));
        let error = Store::open(&odd).await.expect_err("not UTF-8").to_string();
        assert!(error.contains("UTF-8"), "{error}");
    }
    let empty = directory.path().join("ä #?%41 traygate.db");
    std::fs::write(&empty, "").expect("written");
    Store::open(&empty).await.expect("a new store").close().await;
    Store::open(&empty).await.expect("the same store");
}

#[tokio::test]
async fn a_full_disk_is_said_in_words() {
    let fixture = Fixture::new().await;
    fixture.add("one").await;
    let mut connection = fixture.store.pool.acquire().await.expect("a connection");
    sqlx::query("PRAGMA max_page_count = 1").execute(&mut *connection).await.expect("limited");
    let error = sqlx::query("INSERT INTO settings (key, value) VALUES ('k', ?)")
        .bind("x".repeat(100_000))
        .execute(&mut *connection)
        .await
        .expect_err("no room");
    let error = StoreError::from(error);
    assert!(matches!(error, StoreError::Full), "{error}");
}

#[tokio::test]
async fn writers_at_the_same_time_wait_for_each_other() {
    let fixture = Fixture::new().await;
    let id = fixture.add("one").await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16i64 {
        let store = fixture.store.clone();
        writers.spawn(async move {
            let keys: Vec<_> = (0..20).map(|n| format!("{}", (n + writer) % 40)).collect();
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            store.insert_new(id, CapabilityType::Tool, &keys, true, writer).await?;
            store.seen(id, CapabilityType::Tool, &keys, 1_000 + writer).await?;
            store.set_enabled(id, CapabilityType::Tool, keys[0], false, writer).await?;
            store.preferences().await.map(drop)
        });
    }
    while let Some(done) = writers.join_next().await {
        done.expect("no panic").expect("no writer is turned away");
    }
    assert_eq!(fixture.store.preferences().await.expect("preferences").len(), 35);
}
