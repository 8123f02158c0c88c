//! The history's writer: one thread, one connection, some entries at a time.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use belljar_core::Reached;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::StoreError;
use crate::entry::{Began, Call, Closed, Decision, Ended, Entry, Opened, Task};
use crate::error::passes;
use crate::process::{Fate, Process};
use crate::queue::{Batch, Queue};
use crate::{Reader, now_ms, retention, schema};

/// What waits to be written, at most.
const ENTRIES_MAX: usize = 4096;

/// How often old things are looked for.
const TIDY_EVERY: Duration = Duration::from_secs(60 * 60);
/// And after how many entries, for a file that grows fast.
const TIDY_AFTER: usize = 2000;

/// How often entries are tried again while others write, each time for as long as SQLite waits for them: a minute in all.
const TRIES_MAX: u32 = 12;

/// Between two steps of giving room back, so that others who wait to write have their turn.
const PAUSE: Duration = Duration::from_millis(50);

/// How long an ending server waits for its last entries to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistorySettings {
    pub file: PathBuf,
    pub days: u32,
    pub bytes_max: u64,
    /// Keep the programs' text, and not only its digest.
    pub code: bool,
}

/// Takes entries; dropping it ends the writer, without waiting.
#[derive(Debug)]
pub struct History {
    queue: Arc<Queue>,
    ended: Arc<(Mutex<bool>, Condvar)>,
    pub(crate) keeps_code: bool,
    file: PathBuf,
    /// Opened by the first who asks for what was before.
    before: Mutex<Option<Reader>>,
}

impl History {
    /// Opens the file, or makes it; marks what servers left that are no more; and begins to write.
    pub fn open(settings: HistorySettings) -> Result<History, StoreError> {
        let database = schema::open(&settings.file)?;
        History::begin(database, settings)
    }

    fn begin(database: Connection, settings: HistorySettings) -> Result<History, StoreError> {
        let enrolled = enrol(&database, &Process::this(), now_ms());
        let server = enrolled.map_err(|error| StoreError::of(&settings.file, error))?;
        let queue = Arc::new(Queue::new(ENTRIES_MAX));
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let keeps_code = settings.code;
        let (file, incoming, done) = (settings.file.clone(), queue.clone(), ended.clone());
        let writer = Writer { database, server, settings };
        let started = thread::Builder::new().name("history".into()).spawn(move || {
            writer.write_all(&incoming);
            let (flag, told) = &*done;
            *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
            told.notify_all();
        });
        started.map_err(|error| StoreError::NoPlace { path: file.clone(), error })?;
        Ok(History { queue, ended, keeps_code, file, before: Mutex::new(None) })
    }

    /// Whether a sandbox of this principal's was lost with its server. What cannot be read is not known.
    pub(crate) fn has_lost(&self, principal: &str, sandbox: &str) -> bool {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if before.is_none() {
            *before = Reader::open(&self.file).ok().flatten();
        }
        before.as_ref().is_some_and(|reader| reader.has_lost(principal, sandbox).unwrap_or_default())
    }

    pub(crate) fn push(&self, at_ms: i64, entry: Entry) {
        self.queue.push(at_ms, entry);
    }

    /// A call that a program made. It must not wait, and does not.
    pub fn called(&self, call: Call) {
        self.push(now_ms(), Entry::Called(call));
    }

    /// So many events are not told one by one.
    pub(crate) fn leave_out(&self, count: u64) {
        self.queue.leave_out(count);
    }

    /// Writes what is left, and waits for that a while.
    pub fn end(&self) {
        self.queue.end();
        let (flag, told) = &*self.ended;
        let ended = flag.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = told.wait_timeout_while(ended, LAST_WORDS, |ended| !*ended);
        if waited.is_ok_and(|(_, timeout)| timeout.timed_out()) {
            tracing::warn!("the history's last entries were not written in time");
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// Writes this server down, and closes the books of those that did not come to do it themselves.
pub(crate) fn enrol(database: &Connection, this: &Process, now_ms: i64) -> rusqlite::Result<i64> {
    let writing = rusqlite::Transaction::new_unchecked(database, TransactionBehavior::Immediate)?;
    let mut servers =
        writing.prepare("SELECT id, boot, namespace, pid, started FROM servers WHERE ended_ms IS NULL")?;
    let dead: Vec<i64> = servers
        .query_map([], |row| {
            let process = Process { boot: row.get(1)?, namespace: row.get(2)?, pid: row.get(3)?, started: row.get(4)? };
            Ok((row.get(0)?, process))
        })?
        .filter_map(|row| row.ok().filter(|(_, process)| process.fate(this) == Fate::Dead).map(|(id, _)| id))
        .collect();
    drop(servers);
    for server in dead {
        let lost = writing.execute(
            "UPDATE sandboxes SET closed_ms = ?2, why = 'lost' WHERE server = ?1 AND closed_ms IS NULL",
            [server, now_ms],
        )?;
        let cut_off = writing.execute(
            "UPDATE runs SET ended_ms = ?2, ending = 'lost' WHERE server = ?1 AND ended_ms IS NULL",
            [server, now_ms],
        )?;
        writing.execute("UPDATE servers SET ended_ms = ?2 WHERE id = ?1", [server, now_ms])?;
        if lost + cut_off > 0 {
            tracing::warn!(
                sandboxes = lost,
                runs = cut_off,
                "a server ended without a word, and these were lost with it"
            );
        }
    }
    let server = write_server(&writing, this, now_ms)?;
    writing.commit()?;
    Ok(server)
}

fn write_server(database: &Connection, process: &Process, now_ms: i64) -> rusqlite::Result<i64> {
    database.execute(
        "INSERT INTO servers (boot, namespace, pid, started, began_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![process.boot, process.namespace, process.pid, process.started, now_ms],
    )?;
    Ok(database.last_insert_rowid())
}

pub(crate) struct Writer {
    pub(crate) database: Connection,
    pub(crate) server: i64,
    pub(crate) settings: HistorySettings,
}

impl Writer {
    fn write_all(mut self, queue: &Queue) {
        let mut tidied = None;
        let mut written = 0;
        let mut has_room_to_give = false;
        loop {
            // Not before the first entries: a server that only starts is not held up by it.
            let batch = queue.next(if has_room_to_give { PAUSE } else { TIDY_EVERY });
            written += batch.entries.len();
            self.write_or_count(&batch, queue);
            if batch.last {
                break;
            }
            if written > TIDY_AFTER || tidied.is_none_or(|at: Instant| at.elapsed() >= TIDY_EVERY) {
                (tidied, written) = (Some(Instant::now()), 0);
                let removed = retention::tidy(&self.database, &self.settings, now_ms());
                has_room_to_give = told_of_tidying(removed.map(|()| true));
            }
            if has_room_to_give {
                has_room_to_give = told_of_tidying(retention::give_back(&self.database));
            }
        }
        let ended = "UPDATE servers SET ended_ms = ?2 WHERE id = ?1";
        if let Err(error) = self.database.execute(ended, [self.server, now_ms()]) {
            tracing::warn!(%error, "the history does not know that this server ended");
        }
    }

    /// While others write it is tried again. What cannot be written is missing, and the next that can says how much.
    pub(crate) fn write_or_count(&mut self, batch: &Batch, queue: &Queue) {
        let mut tries = 1;
        let error = loop {
            match self.write(batch, now_ms()) {
                Ok(()) => return,
                Err(error) if passes(&error) && tries < TRIES_MAX => tries += 1,
                Err(error) => break error,
            }
        };
        let entries = batch.entries.len();
        queue.leave_out(batch.dropped.saturating_add(entries as u64));
        tracing::error!(%error, entries, "the history could not be written");
    }

    /// All of a batch, or nothing of it.
    pub(crate) fn write(&mut self, batch: &Batch, now_ms: i64) -> rusqlite::Result<()> {
        if batch.entries.is_empty() && batch.dropped == 0 {
            return Ok(());
        }
        let writing = self.database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (at_ms, entry) in &batch.entries {
            match entry {
                Entry::Opened(opened) => write_opened(&writing, self.server, *at_ms, opened)?,
                Entry::Closed(closed) => write_closed(&writing, *at_ms, closed)?,
                Entry::Began(began) => write_began(&writing, self.server, *at_ms, began)?,
                Entry::Ended(ended) => write_ended(&writing, self.server, *at_ms, ended)?,
                Entry::Called(call) => write_called(&writing, *at_ms, call)?,
                Entry::Decided(decision) => write_decided(&writing, *at_ms, decision)?,
            }
        }
        if batch.dropped > 0 {
            let gap = "INSERT INTO gaps (server, at_ms, dropped) VALUES (?1, ?2, ?3)";
            writing.execute(gap, params![self.server, now_ms, number(batch.dropped)])?;
        }
        writing.commit()?;
        if batch.dropped > 0 {
            tracing::warn!(dropped = batch.dropped, "the history has a gap: more happened than could be written");
        }
        Ok(())
    }
}

/// Whether to go on with it.
fn told_of_tidying(tidied: rusqlite::Result<bool>) -> bool {
    tidied.inspect_err(|error| tracing::warn!(%error, "the history could not be tidied")).unwrap_or_default()
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn write_opened(database: &Connection, server: i64, at_ms: i64, opened: &Opened) -> rusqlite::Result<()> {
    let isolation = serde_json::to_string(&opened.isolation).unwrap_or_default();
    let mut insert = database.prepare_cached(
        "INSERT OR REPLACE INTO sandboxes (id, server, principal, template, backend, isolation, memory_bytes, opened_ms, took_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let Opened { principal, sandbox, template, memory_bytes, took_ms, backend, .. } = opened;
    let memory = number(*memory_bytes);
    insert.execute(params![sandbox, server, principal, template, backend, isolation, memory, at_ms, took_ms])?;
    Ok(())
}

fn write_closed(database: &Connection, at_ms: i64, closed: &Closed) -> rusqlite::Result<()> {
    let mut update = database.prepare_cached("UPDATE sandboxes SET closed_ms = ?2, why = ?3 WHERE id = ?1")?;
    update.execute(params![closed.sandbox, at_ms, closed.why])?;
    Ok(())
}

fn write_began(database: &Connection, server: i64, at_ms: i64, began: &Began) -> rusqlite::Result<()> {
    write_task(database, server, at_ms, began.waited_ms, &began.task)
}

fn write_task(database: &Connection, server: i64, began_ms: i64, waited_ms: i64, task: &Task) -> rusqlite::Result<()> {
    let mut insert = database.prepare_cached(
        "INSERT OR IGNORE INTO runs
            (id, server, principal, sandbox, tool, language, code_sha256, code_bytes, code, began_ms, waited_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    let Task { principal, tool, run, sandbox, language, code_sha256, code_bytes, code } = task;
    let bytes = number(*code_bytes);
    insert.execute(params![
        run,
        server,
        principal,
        sandbox,
        tool,
        language,
        code_sha256,
        bytes,
        code,
        began_ms,
        waited_ms
    ])?;
    Ok(())
}

fn write_ended(database: &Connection, server: i64, at_ms: i64, ended: &Ended) -> rusqlite::Result<()> {
    // Its beginning may have been dropped.
    write_task(database, server, at_ms.saturating_sub(ended.duration_ms), 0, &ended.task)?;
    let mut update = database.prepare_cached(
        "UPDATE runs SET ended_ms = ?2, ending = ?3, exit_code = ?4, duration_ms = ?5, cpu_ms = ?6, memory_peak_bytes = ?7,
            network_bytes = ?8, stdout_bytes = ?9, stderr_bytes = ?10, backend = ?11, error = ?12,
            error_kind = ?13
         WHERE id = ?1",
    )?;
    update.execute(params![
        ended.task.run,
        at_ms,
        ended.ending,
        ended.exit_code,
        ended.duration_ms,
        number(ended.cpu_ms),
        number(ended.memory_peak_bytes),
        number(ended.network_bytes),
        number(ended.stdout_bytes),
        number(ended.stderr_bytes),
        ended.backend,
        ended.error,
        ended.error_kind
    ])?;
    let refused = "INSERT INTO egress (run, at_ms, host, decision) VALUES (?1, ?2, ?3, 'refused')";
    let mut insert = database.prepare_cached(refused)?;
    for host in &ended.refused {
        insert.execute(params![ended.task.run, at_ms, host])?;
    }
    let mut insert = database.prepare_cached(
        "INSERT INTO egress (run, at_ms, host, decision, connections, bytes_out, bytes_in)
         VALUES (?1, ?2, ?3, 'allowed', ?4, ?5, ?6)",
    )?;
    for Reached { host, connections, bytes_out, bytes_in } in &ended.reached {
        let [connections, bytes_out, bytes_in] = [connections, bytes_out, bytes_in].map(|count| number(*count));
        insert.execute(params![ended.task.run, at_ms, host, connections, bytes_out, bytes_in])?;
    }
    Ok(())
}

fn write_called(database: &Connection, at_ms: i64, call: &Call) -> rusqlite::Result<()> {
    let mut insert = database.prepare_cached(
        "INSERT INTO calls (run, at_ms, principal, server, tool, decision, outcome, milliseconds)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let Call { principal, run, server, tool, decision, outcome, milliseconds } = call;
    insert.execute(params![run, at_ms, principal, server, tool, decision, outcome, number(*milliseconds)])?;
    Ok(())
}

fn write_decided(database: &Connection, at_ms: i64, decision: &Decision) -> rusqlite::Result<()> {
    let mut insert = database.prepare_cached(
        "INSERT INTO decisions (at_ms, principal, run, what, name, sha256, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let Decision { principal, run, what, name, sha256, outcome } = decision;
    insert.execute(params![at_ms, principal, run, what, name, sha256, outcome])?;
    Ok(())
}

#[cfg(test)]
mod tests;
