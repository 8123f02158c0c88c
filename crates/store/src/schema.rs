//! The tables, and how an older file becomes a newer one.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::StoreError;

/// Each brings a file from the version of its place to the next. What was released is never changed.
pub(crate) const MIGRATIONS: [&str; 5] = [
    "CREATE TABLE servers (
        id INTEGER PRIMARY KEY,
        boot TEXT NOT NULL,
        namespace TEXT NOT NULL,
        pid INTEGER NOT NULL,
        started INTEGER NOT NULL,
        began_ms INTEGER NOT NULL,
        ended_ms INTEGER
    );
    CREATE TABLE sandboxes (
        id TEXT PRIMARY KEY,
        server INTEGER NOT NULL,
        principal TEXT NOT NULL,
        template TEXT,
        backend TEXT NOT NULL,
        isolation TEXT NOT NULL,
        memory_bytes INTEGER NOT NULL,
        opened_ms INTEGER NOT NULL,
        took_ms INTEGER NOT NULL,
        closed_ms INTEGER,
        why TEXT
    ) WITHOUT ROWID;
    CREATE INDEX sandboxes_by_time ON sandboxes (opened_ms);
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        server INTEGER NOT NULL,
        principal TEXT NOT NULL,
        sandbox TEXT,
        tool TEXT NOT NULL,
        language TEXT,
        code_sha256 TEXT NOT NULL,
        code_bytes INTEGER NOT NULL,
        code TEXT,
        began_ms INTEGER NOT NULL,
        waited_ms INTEGER NOT NULL DEFAULT 0,
        ended_ms INTEGER,
        ending TEXT,
        exit_code INTEGER,
        duration_ms INTEGER,
        cpu_ms INTEGER,
        memory_peak_bytes INTEGER,
        network_bytes INTEGER,
        stdout_bytes INTEGER,
        stderr_bytes INTEGER,
        backend TEXT,
        error TEXT
    ) WITHOUT ROWID;
    CREATE INDEX runs_by_time ON runs (began_ms);
    CREATE TABLE gaps (server INTEGER NOT NULL, at_ms INTEGER NOT NULL, dropped INTEGER NOT NULL);",
    "CREATE TABLE calls (
        run TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        principal TEXT NOT NULL,
        server TEXT NOT NULL,
        tool TEXT NOT NULL,
        decision TEXT NOT NULL,
        outcome TEXT NOT NULL,
        milliseconds INTEGER NOT NULL
    );
    CREATE INDEX calls_by_run ON calls (run);
    CREATE INDEX calls_by_time ON calls (at_ms);
    CREATE TABLE egress (run TEXT NOT NULL, at_ms INTEGER NOT NULL, host TEXT NOT NULL, decision TEXT NOT NULL);
    CREATE INDEX egress_by_run ON egress (run);
    CREATE INDEX egress_by_time ON egress (at_ms);",
    "CREATE TABLE decisions (
        at_ms INTEGER NOT NULL,
        principal TEXT NOT NULL,
        run TEXT,
        what TEXT NOT NULL,
        name TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        outcome TEXT NOT NULL
    );
    CREATE INDEX decisions_by_time ON decisions (at_ms);",
    "ALTER TABLE egress ADD COLUMN connections INTEGER;
    ALTER TABLE egress ADD COLUMN bytes_out INTEGER;
    ALTER TABLE egress ADD COLUMN bytes_in INTEGER;",
    "ALTER TABLE runs ADD COLUMN error_kind TEXT;",
];

/// How long one server waits for another that writes.
const BUSY: Duration = Duration::from_secs(5);

/// Opens the file, or makes it for its owner alone, and brings it up to date.
pub(crate) fn open(path: &Path) -> Result<Connection, StoreError> {
    let no_place = |error| StoreError::NoPlace { path: path.to_owned(), error };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(no_place)?;
    }
    // SQLite would make it as the umask has it; its other files get the mode of this one.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(no_place)?;
    let broken = |error| StoreError::of(path, error);
    let mut database = connect(path).map_err(broken)?;
    let begin = |database: &mut Connection| -> rusqlite::Result<()> {
        // Before there is a table: what is deleted can then be given back page by page.
        database.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "NORMAL")?;
        // The next that writes does it; whoever ends is waited for.
        database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(())
    };
    begin(&mut database).map_err(broken)?;
    migrate(&mut database, path)?;
    Ok(database)
}

/// Without making anything, to read.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(BUSY)?;
    // A file that somebody else has written is data, and never more.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    database.pragma_update(None, "trusted_schema", false)?;
    Ok(database)
}

/// The version, if the file is one that this program can use.
pub(crate) fn version(database: &Connection, path: &Path) -> Result<usize, StoreError> {
    let broken = |error| StoreError::of(path, error);
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(broken)?;
    let count = "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'";
    let tables: i64 = database.query_row(count, [], |row| row.get(0)).map_err(broken)?;
    match usize::try_from(version) {
        Ok(0) if tables > 0 => Err(StoreError::NotOurs { path: path.to_owned() }),
        Ok(known) if known <= MIGRATIONS.len() => Ok(known),
        _ => Err(StoreError::Newer { path: path.to_owned(), version }),
    }
}

fn migrate(database: &mut Connection, path: &Path) -> Result<(), StoreError> {
    if version(database, path)? == MIGRATIONS.len() {
        return Ok(());
    }
    let broken = |error| StoreError::of(path, error);
    // Another server may be at it too: whoever comes second finds it done.
    let writing = database.transaction_with_behavior(TransactionBehavior::Immediate).map_err(broken)?;
    let from = version(&writing, path)?;
    for (at, step) in MIGRATIONS.iter().enumerate().skip(from) {
        writing.execute_batch(step).map_err(broken)?;
        writing.pragma_update(None, "user_version", at as i64 + 1).map_err(broken)?;
    }
    writing.commit().map_err(broken)
}
