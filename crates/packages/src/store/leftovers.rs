//! What servers that were killed left.

use std::fs::{self, File};
use std::io;

use super::{BUILDING, Lock, REMOVING, Store, is_id};

impl Store {
    /// Removes half-built layers whose builder is gone, half-removed ones, and layers without a record. For the start.
    pub(crate) fn clear_leftovers(&self) -> io::Result<()> {
        let mut aside = Vec::new();
        let mut locks = Vec::new();
        {
            let _changing = self.change()?;
            let names = fs::read_dir(&self.root)?.map(|entry| entry.map(|entry| entry.file_name()));
            for name in names.collect::<io::Result<Vec<_>>>()? {
                let name = name.to_string_lossy().into_owned();
                if name.starts_with(BUILDING) {
                    let Some(lock) = Lock::try_take(&self.lock_path(&name))? else { continue };
                    locks.push((name.clone(), lock));
                } else if !(name.starts_with(REMOVING) || is_id(&name) && !self.record_path(&name).exists()) {
                    continue;
                }
                aside.push(self.set_aside(&self.root.join(name))?);
            }
        }
        for path in aside {
            // Another server may be at it too.
            if let Err(error) = self.empty(&path).or_else(|error| if path.exists() { Err(error) } else { Ok(()) }) {
                tracing::warn!(%error, "a leftover in the layers' store could not be removed");
            }
        }
        for (name, _lock) in &locks {
            let _ = fs::remove_file(self.lock_path(name));
        }
        self.clear_locks()
    }

    /// Locks of builds that have no directory any more, and half-written records.
    fn clear_locks(&self) -> io::Result<()> {
        let _changing = self.change()?;
        for entry in fs::read_dir(self.root.join("locks"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_orphan = name.starts_with(BUILDING)
                && !self.root.join(&name).exists()
                && File::open(entry.path()).and_then(|file| Lock::try_own(&file)).unwrap_or(false);
            let is_old = name.starts_with("new-")
                && entry.metadata()?.modified()?.elapsed().is_ok_and(|age| age.as_secs() > 3600);
            if is_orphan || is_old {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}
