//! Tokens: what entered the model's context, against what the same calls would have put there had the model made them itself.
//!
//! A file of totals, so that `belljar tools stats` can tell what code mode was worth. Counting goes by the length of the text:
//! the tokenizer's tables would take more memory than the rest of the server.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Bytes of JSON and English to a token of o200k: `cargo test -p belljar-gateway tokens -- --nocapture` measures it on the
/// recorded catalogue.
const BYTES_PER_TOKEN: f64 = 3.9;

/// About how many tokens a text of this length is.
pub fn estimate(bytes: u64) -> u64 {
    (bytes as f64 / BYTES_PER_TOKEN).ceil() as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    pub runs: u64,
    pub calls: u64,
    /// Tokens that entered the context.
    pub entered: u64,
    /// Tokens that direct calls would have put there.
    pub direct: u64,
}

#[derive(Debug, Clone)]
pub struct Ledger {
    path: Option<PathBuf>,
}

impl Ledger {
    /// Without a path nothing is kept.
    pub fn at(path: Option<PathBuf>) -> Ledger {
        Ledger { path }
    }

    /// Adds to the totals, which several servers share.
    pub fn add(&self, more: Totals) -> io::Result<Totals> {
        let Some(path) = &self.path else { return Ok(more) };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let before = read(&mut file);
        let totals = Totals {
            runs: before.runs.saturating_add(more.runs),
            calls: before.calls.saturating_add(more.calls),
            entered: before.entered.saturating_add(more.entered),
            direct: before.direct.saturating_add(more.direct),
        };
        file.rewind()?;
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec(&totals)?)?;
        Ok(totals)
    }

    pub fn totals(&self) -> Totals {
        let Some(path) = &self.path else { return Totals::default() };
        File::open(path).map(|mut file| read(&mut file)).unwrap_or_default()
    }
}

/// One that cannot be read begins anew: it holds nothing but a figure for people.
fn read(file: &mut File) -> Totals {
    let mut text = String::new();
    let _ = file.take(4096).read_to_string(&mut text);
    serde_json::from_str(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_grow_and_are_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/tokens.json");
        let ledger = Ledger::at(Some(path.clone()));
        assert_eq!(ledger.totals(), Totals::default());
        let one = Totals { runs: 1, calls: 3, entered: 10, direct: 500 };
        ledger.add(one).unwrap();
        assert_eq!(Ledger::at(Some(path.clone())).add(one).unwrap().direct, 1000);
        assert_eq!(ledger.totals(), Totals { runs: 2, calls: 6, entered: 20, direct: 1000 });
        fs::write(&path, "garbage").unwrap();
        assert_eq!(ledger.add(one).unwrap(), one);
    }
}
