//! Looking back: what a person asks of the history.

use std::path::{Path, PathBuf};

use belljar_core::Reached;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;

use crate::process::{Fate, Process};
use crate::{StoreError, schema};

/// Rows of one answer, at most.
const ROWS_MAX: u32 = 10_000;

#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    database: Connection,
    this: Process,
}

/// Which runs or sandboxes.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Only what began at or after this.
    pub since_ms: Option<i64>,
    pub principal: Option<String>,
    pub limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PastRun {
    pub id: String,
    pub principal: String,
    pub sandbox: Option<String>,
    pub tool: String,
    pub language: Option<String>,
    pub code_sha256: String,
    pub code: Option<String>,
    pub began_ms: i64,
    pub waited_ms: i64,
    pub ended_ms: Option<i64>,
    /// `running` while it does; `lost` if its server is no more; `refused` if it never began.
    pub ending: String,
    pub exit_code: Option<i64>,
    pub duration_ms: Option<i64>,
    pub cpu_ms: Option<i64>,
    pub memory_peak_bytes: Option<i64>,
    pub network_bytes: Option<i64>,
    pub backend: Option<String>,
    /// What went wrong on our side, or why it was refused: a word, and what its caller was told.
    pub error_kind: Option<String>,
    pub error: Option<String>,
    /// As `server.tool` with what was decided and what came of it.
    pub calls: Vec<String>,
    /// Hosts that it was refused.
    pub refused: Vec<String>,
    /// Hosts that it reached, and what went there and back.
    pub reached: Vec<Reached>,
}

/// What a person said, or that nobody could be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PastDecision {
    pub at_ms: i64,
    /// Through whose client it was asked.
    pub principal: String,
    /// A program has none before it is approved.
    pub run: Option<String>,
    /// `program` or `call`.
    pub what: String,
    /// The program's language, or `server.tool`.
    pub name: String,
    /// Of the program's text, as its runs have it, or of the call's arguments.
    pub sha256: String,
    pub outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PastSandbox {
    pub id: String,
    pub principal: String,
    pub template: Option<String>,
    pub backend: String,
    pub memory_bytes: i64,
    pub opened_ms: i64,
    pub closed_ms: Option<i64>,
    /// `open`, `lost`, or `closed`.
    pub state: &'static str,
    /// Why it was closed, in a word.
    pub why: Option<String>,
    pub runs: i64,
}

impl Reader {
    /// `None` where there is no history yet.
    pub fn open(path: &Path) -> Result<Option<Reader>, StoreError> {
        match std::fs::metadata(path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::NoPlace { path: path.to_owned(), error }),
        }
        let broken = |error| StoreError::of(path, error);
        let database = schema::connect(path).map_err(broken)?;
        // One that no server has brought up to date has nothing that we could ask for.
        if schema::version(&database, path)? < schema::MIGRATIONS.len() {
            return Ok(None);
        }
        Ok(Some(Reader { path: path.to_owned(), database, this: Process::this() }))
    }

    /// The latest first.
    pub fn runs(&self, wanted: &Wanted) -> Result<Vec<PastRun>, StoreError> {
        self.read_runs(wanted).map_err(|error| self.broken(error))
    }

    fn read_runs(&self, wanted: &Wanted) -> rusqlite::Result<Vec<PastRun>> {
        let mut select = self.database.prepare(
            "SELECT r.id, r.principal, r.sandbox, r.tool, r.language, r.code_sha256, r.code, r.began_ms, r.waited_ms, r.ended_ms,
                r.ending, r.exit_code, r.duration_ms, r.cpu_ms, r.memory_peak_bytes, r.network_bytes, r.backend, r.error_kind, r.error,
                s.boot, s.namespace, s.pid, s.started
             FROM runs r LEFT JOIN servers s ON s.id = r.server
             WHERE r.began_ms >= ?1 AND (?2 IS NULL OR r.principal = ?2)
             ORDER BY r.began_ms DESC LIMIT ?3",
        )?;
        let limit = wanted.limit.min(ROWS_MAX);
        let rows = select.query_map(params![wanted.since_ms.unwrap_or(i64::MIN), wanted.principal, limit], |row| {
            let ending: Option<String> = row.get(10)?;
            let ending = match ending {
                Some(ending) => ending,
                None if self.is_lost(row, 19)? => "lost".to_owned(),
                None => "running".to_owned(),
            };
            Ok(PastRun {
                id: row.get(0)?,
                principal: row.get(1)?,
                sandbox: row.get(2)?,
                tool: row.get(3)?,
                language: row.get(4)?,
                code_sha256: row.get(5)?,
                code: row.get(6)?,
                began_ms: row.get(7)?,
                waited_ms: row.get(8)?,
                ended_ms: row.get(9)?,
                ending,
                exit_code: row.get(11)?,
                duration_ms: row.get(12)?,
                cpu_ms: row.get(13)?,
                memory_peak_bytes: row.get(14)?,
                network_bytes: row.get(15)?,
                backend: row.get(16)?,
                error_kind: row.get(17)?,
                error: row.get(18)?,
                calls: Vec::new(),
                refused: Vec::new(),
                reached: Vec::new(),
            })
        })?;
        let mut runs = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut calls = self.database.prepare(
            "SELECT server || '.' || tool || ' ' || decision || ' ' || outcome FROM calls WHERE run = ?1 ORDER BY at_ms",
        )?;
        let mut refused = self
            .database
            .prepare("SELECT host FROM egress WHERE run = ?1 AND decision = 'refused' ORDER BY at_ms, rowid")?;
        let mut reached = self.database.prepare(
            "SELECT host, connections, bytes_out, bytes_in FROM egress
             WHERE run = ?1 AND decision = 'allowed' ORDER BY at_ms, rowid",
        )?;
        for run in &mut runs {
            run.calls = calls.query_map([&run.id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            run.refused = refused.query_map([&run.id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            let rows = reached.query_map([&run.id], |row| {
                let count = |at| row.get(at).map(i64::unsigned_abs);
                let (connections, bytes_out, bytes_in) = (count(1)?, count(2)?, count(3)?);
                Ok(Reached { host: row.get(0)?, connections, bytes_out, bytes_in })
            })?;
            run.reached = rows.collect::<rusqlite::Result<_>>()?;
        }
        Ok(runs)
    }

    /// The latest first.
    pub fn sandboxes(&self, wanted: &Wanted) -> Result<Vec<PastSandbox>, StoreError> {
        self.read_sandboxes(wanted).map_err(|error| self.broken(error))
    }

    fn read_sandboxes(&self, wanted: &Wanted) -> rusqlite::Result<Vec<PastSandbox>> {
        let mut select = self.database.prepare(
            "SELECT b.id, b.principal, b.template, b.backend, b.memory_bytes, b.opened_ms, b.closed_ms, b.why,
                (SELECT count(*) FROM runs r WHERE r.sandbox = b.id AND r.began_ms >= b.opened_ms - 1000
                    AND r.ending IS NOT 'refused'),
                s.boot, s.namespace, s.pid, s.started
             FROM sandboxes b LEFT JOIN servers s ON s.id = b.server
             WHERE b.opened_ms >= ?1 AND (?2 IS NULL OR b.principal = ?2)
             ORDER BY b.opened_ms DESC LIMIT ?3",
        )?;
        let limit = wanted.limit.min(ROWS_MAX);
        let rows = select.query_map(params![wanted.since_ms.unwrap_or(i64::MIN), wanted.principal, limit], |row| {
            let (closed_ms, why): (Option<i64>, Option<String>) = (row.get(6)?, row.get(7)?);
            let state = match why.as_deref() {
                Some("lost") => "lost",
                Some(_) => "closed",
                None if self.is_lost(row, 9)? => "lost",
                None => "open",
            };
            Ok(PastSandbox {
                id: row.get(0)?,
                principal: row.get(1)?,
                template: row.get(2)?,
                backend: row.get(3)?,
                memory_bytes: row.get(4)?,
                opened_ms: row.get(5)?,
                closed_ms,
                state,
                why,
                runs: row.get(8)?,
            })
        })?;
        rows.collect()
    }

    /// Whether a sandbox of this principal's went with its server: at an end in order, or at another.
    pub(crate) fn has_lost(&self, principal: &str, sandbox: &str) -> Result<bool, StoreError> {
        let select = "SELECT b.why, s.boot, s.namespace, s.pid, s.started
             FROM sandboxes b LEFT JOIN servers s ON s.id = b.server WHERE b.id = ?1 AND b.principal = ?2";
        let mut select = self.database.prepare_cached(select).map_err(|error| self.broken(error))?;
        let found = select.query_row([sandbox, principal], |row| match row.get::<_, Option<String>>(0)?.as_deref() {
            Some(why) => Ok(why == "lost" || why == "shutdown"),
            None => self.is_lost(row, 1),
        });
        found.optional().map(Option::unwrap_or_default).map_err(|error| self.broken(error))
    }

    /// The latest first.
    pub fn decisions(&self, wanted: &Wanted) -> Result<Vec<PastDecision>, StoreError> {
        self.read_decisions(wanted).map_err(|error| self.broken(error))
    }

    fn read_decisions(&self, wanted: &Wanted) -> rusqlite::Result<Vec<PastDecision>> {
        let mut select = self.database.prepare(
            "SELECT at_ms, principal, run, what, name, sha256, outcome FROM decisions
             WHERE at_ms >= ?1 AND (?2 IS NULL OR principal = ?2)
             ORDER BY at_ms DESC, rowid DESC LIMIT ?3",
        )?;
        let limit = wanted.limit.min(ROWS_MAX);
        let rows = select.query_map(params![wanted.since_ms.unwrap_or(i64::MIN), wanted.principal, limit], |row| {
            Ok(PastDecision {
                at_ms: row.get(0)?,
                principal: row.get(1)?,
                run: row.get(2)?,
                what: row.get(3)?,
                name: row.get(4)?,
                sha256: row.get(5)?,
                outcome: row.get(6)?,
            })
        })?;
        rows.collect()
    }

    /// How much is known to be missing.
    pub fn dropped(&self) -> Result<i64, StoreError> {
        let sum = "SELECT coalesce(sum(dropped), 0) FROM gaps";
        self.database.query_row(sum, [], |row| row.get(0)).map_err(|error| self.broken(error))
    }

    fn broken(&self, error: rusqlite::Error) -> StoreError {
        StoreError::of(&self.path, error)
    }

    /// Whether the server of a row, in four columns from `at` on, is no more.
    fn is_lost(&self, row: &Row<'_>, at: usize) -> rusqlite::Result<bool> {
        let Some(boot) = row.get::<_, Option<String>>(at)? else { return Ok(true) };
        let (namespace, pid, started) = (row.get(at + 1)?, row.get(at + 2)?, row.get(at + 3)?);
        Ok(Process { boot, namespace, pid, started }.fate(&self.this) == Fate::Dead)
    }
}
