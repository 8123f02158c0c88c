//! Layers past the budget go, those that were not used for the longest time first.

use std::fs::{self, File};
use std::io;
use std::time::SystemTime;

use super::{Lock, Record, Store, is_id};

/// A layer as the budget sees it.
#[derive(Debug)]
struct Candidate {
    id: String,
    used: SystemTime,
    bytes: u64,
}

impl Store {
    /// Removes layers until all together are within the budget; those in use stay, whosever they are. Tells which went.
    pub(crate) fn keep_budget(&self, budget_bytes: u64) -> io::Result<Vec<String>> {
        let mut candidates = self.candidates()?;
        candidates.sort_by_key(|candidate| candidate.used);
        let mut total: u64 = candidates.iter().map(|candidate| candidate.bytes).sum();
        let mut removed = Vec::new();
        for candidate in candidates {
            if total <= budget_bytes {
                break;
            }
            if self.evict(&candidate.id)? {
                total = total.saturating_sub(candidate.bytes);
                removed.push(candidate.id);
            }
        }
        if !removed.is_empty() {
            self.forget_requests(&removed)?;
        }
        Ok(removed)
    }

    pub(crate) fn is_past(&self, budget_bytes: u64) -> io::Result<bool> {
        Ok(self.candidates()?.iter().map(|candidate| candidate.bytes).sum::<u64>() > budget_bytes)
    }

    fn candidates(&self) -> io::Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(id) = name.strip_suffix(".json").filter(|id| is_id(id)) else { continue };
            let Ok(file) = File::open(entry.path()) else { continue };
            // Without a record that can be read nobody can use it.
            let bytes = Record::read(&file).map_or(u64::MAX / 1024, |record| record.bytes);
            candidates.push(Candidate { id: id.to_owned(), used: file.metadata()?.modified()?, bytes });
        }
        Ok(candidates)
    }

    /// Whether it could be removed: nobody used it.
    fn evict(&self, id: &str) -> io::Result<bool> {
        let record = self.record_path(id);
        let aside = {
            let _changing = self.change()?;
            let Ok(file) = File::open(&record) else { return Ok(false) };
            if !Lock::try_own(&file)? {
                return Ok(false);
            }
            // From here on nobody finds it; whoever opened the record before sees that it has no name any more.
            fs::remove_file(&record)?;
            let path = self.root.join(id);
            path.exists().then(|| self.set_aside(&path)).transpose()?
        };
        aside.map_or(Ok(()), |aside| self.empty(&aside))?;
        Ok(true)
    }

    fn forget_requests(&self, removed: &[String]) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join("requests"))? {
            let path = entry?.path();
            let request = File::open(&path).ok().and_then(|file| super::Request::read(&file));
            if request.is_some_and(|request| removed.contains(&request.id)) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}
