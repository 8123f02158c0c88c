//! What is too old or too much goes.

use rusqlite::Connection;

use crate::HistorySettings;

/// Of the rows, what goes at once when the file is too large.
const SHARE: i64 = 10;

/// Pages that are given back in one step. Nobody else writes meanwhile, and all at once could be half a gigabyte.
const STEP: u32 = 1000;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Removes what is past its days, and then the oldest until little enough is left.
pub(crate) fn tidy(database: &Connection, settings: &HistorySettings, now_ms: i64) -> rusqlite::Result<()> {
    forget_before(database, now_ms.saturating_sub(i64::from(settings.days).saturating_mul(DAY_MS)))?;
    // Each round takes a tenth of what is left, so that a hundred leave next to nothing.
    for _ in 0..100 {
        if used_bytes(database)? <= settings.bytes_max {
            break;
        }
        let runs: i64 = database.query_row("SELECT count(*) FROM runs", [], |row| row.get(0))?;
        let nth = "SELECT began_ms FROM runs ORDER BY began_ms LIMIT 1 OFFSET ?1";
        match database.query_row(nth, [runs / SHARE], |row| row.get::<_, i64>(0)) {
            Ok(before) => forget_before(database, before.saturating_add(1))?,
            Err(rusqlite::Error::QueryReturnedNoRows) => {
                // Without runs it is the rest that takes the room.
                forget_before(database, now_ms)?;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives some of the free pages back to the disk; whether there are more.
pub(crate) fn give_back(database: &Connection) -> rusqlite::Result<bool> {
    let free = || database.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
    let before = free()?;
    if before == 0 {
        return Ok(false);
    }
    let mut vacuum = database.prepare(&format!("PRAGMA incremental_vacuum({STEP})"))?;
    let mut pages = vacuum.query([])?;
    // A row for each.
    while pages.next()?.is_some() {}
    // A file that somebody else has made may give none.
    Ok((1..before).contains(&free()?))
}

fn forget_before(database: &Connection, before_ms: i64) -> rusqlite::Result<()> {
    for statement in [
        "DELETE FROM calls WHERE at_ms < ?1",
        "DELETE FROM decisions WHERE at_ms < ?1",
        "DELETE FROM egress WHERE at_ms < ?1",
        "DELETE FROM gaps WHERE at_ms < ?1",
        "DELETE FROM runs WHERE began_ms < ?1",
        // What stands is kept as long as its server lives, however old it is.
        "DELETE FROM sandboxes WHERE opened_ms < ?1 AND (closed_ms IS NOT NULL
            OR server NOT IN (SELECT id FROM servers WHERE ended_ms IS NULL))",
        "DELETE FROM servers WHERE began_ms < ?1 AND ended_ms IS NOT NULL
            AND id NOT IN (SELECT server FROM sandboxes) AND id NOT IN (SELECT server FROM runs)",
    ] {
        database.execute(statement, [before_ms])?;
    }
    Ok(())
}

/// What the file would take without its free pages.
pub(crate) fn used_bytes(database: &Connection) -> rusqlite::Result<u64> {
    let pragma = |name: &str| database.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
    Ok(pages.saturating_mul(pragma("page_size")?).try_into().unwrap_or(0))
}
