//! Removes what no name leads to any more, and what builds that were killed have left.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::building::{BUILDING, Lock};
use crate::decode::is_digits;
use crate::store::{LOCK, Store};

impl Store {
    /// Does nothing while anybody builds: what he has made has no name yet. Roots that are in use stay until the next time.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let Some(_lock) = Lock::alone(&self.path(LOCK))? else { return Ok(()) };
        let (mut layers, mut roots) = (BTreeSet::new(), BTreeSet::new());
        for (_, record) in self.records()? {
            // One that cannot be read may be a newer version's: nobody knows what it needs.
            let Ok(record) = record else { return Ok(()) };
            layers.extend(record.layers);
            roots.insert(record.chain);
        }
        for name in entries(&self.path(""))?.iter().filter(|name| name.starts_with(BUILDING)) {
            fs::remove_dir_all(self.path(name))?;
        }
        for name in entries(&self.path("layers"))?.iter().filter(|name| is_digits(name) && !layers.contains(*name)) {
            self.discard(&self.path("layers").join(name))?;
        }
        for name in entries(&self.path("roots"))?.iter().filter(|name| is_digits(name) && !roots.contains(*name)) {
            let root = self.path("roots").join(name);
            let Ok(held) = fs::File::open(root.join(LOCK)) else {
                self.discard(&root)?;
                continue;
            };
            if flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok() {
                self.discard(&root)?;
            }
        }
        Ok(())
    }

    /// Out of everybody's way first: half of it is nothing that anybody should find.
    fn discard(&self, directory: &Path) -> io::Result<()> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let aside = self.path(&format!("{BUILDING}{}", crate::decode::hex(&random)));
        fs::rename(directory, &aside)?;
        fs::remove_dir_all(aside)
    }
}

pub(crate) fn entries(directory: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
    Ok(names.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}
