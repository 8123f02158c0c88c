//! Directories that a server left behind when it was killed outright.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const PREFIX: &str = "belljar-";

/// The name of this server's directory. A process number alone comes back; with the start time it does not.
pub(super) fn own_name() -> String {
    // A process has one backend, but a test may have many at once, each with cgroups of its own.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let name = format!("{PREFIX}{pid}-{}", start_time(pid).unwrap_or(0));
    match STARTED.fetch_add(1, Ordering::Relaxed) {
        0 => name,
        others => format!("{name}-{others}"),
    }
}

/// Removes the directories of servers that are no more.
pub(super) fn remove_dead(own: &Path) {
    let Ok(entries) = fs::read_dir(own) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(owner_is_dead) {
            remove(&entry.path());
        }
    }
}

/// Control files go with their directory, so only directories are removed, deepest first. One that is still busy stays
/// for the next start.
fn remove(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    let _ = fs::remove_dir(directory);
}

fn owner_is_dead(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    // `<pid>-<start time>`, or the same with a number or `-server` behind it.
    let mut parts = rest.splitn(3, '-').map(str::parse::<u64>);
    let (Some(Ok(pid)), Some(Ok(started))) = (parts.next(), parts.next()) else { return false };
    let Ok(pid) = u32::try_from(pid) else { return true };
    start_time(pid) != Some(started)
}

/// When a process began, in clock ticks since boot; `None` if there is none.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, second field, may hold anything; the last parenthesis ends it. The start time is field 22.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_servers_directories_go() {
        let own = tempfile::tempdir().unwrap();
        let alive = own_name();
        let pid = std::process::id();
        let reused = format!("{PREFIX}{pid}-1");
        for name in [
            alive.as_str(),
            reused.as_str(),
            "belljar-999999999-5",
            "belljar-999999999-5-server",
            "belljar-notes",
            "other",
        ] {
            fs::create_dir_all(own.path().join(name).join("7")).unwrap();
        }
        remove_dead(own.path());
        let mut left: Vec<_> =
            fs::read_dir(own.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        let mut expected = vec![alive, "belljar-notes".to_owned(), "other".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
    }
}
