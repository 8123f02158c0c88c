//! What is known of an image that has a name: one small file each.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::decode::is_digits;
use crate::survey::Found;

/// Written by another version of ours it may mean something else.
const FORMAT: u32 = 1;

const RECORD_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    format: u32,
    pub(crate) source: String,
    pub(crate) digest: String,
    /// The root's directory: the chain of its layers' digests.
    pub(crate) chain: String,
    /// Diff-ids, the lowest first.
    pub(crate) layers: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) interpreters: Vec<Found>,
    pub(crate) bytes: u64,
    /// Seconds since 1970.
    pub(crate) built: u64,
}

impl Record {
    #[expect(clippy::too_many_arguments, reason = "one for each field; the format is ours")]
    pub(crate) fn new(
        source: String,
        digest: String,
        chain: String,
        layers: Vec<String>,
        env: Vec<(String, String)>,
        interpreters: Vec<Found>,
        bytes: u64,
        built: u64,
    ) -> Record {
        Record { format: FORMAT, source, digest, chain, layers, env, interpreters, bytes, built }
    }

    pub(crate) fn read(path: &Path) -> io::Result<Record> {
        let mut text = Vec::new();
        File::open(path)?.take(RECORD_BYTES_MAX).read_to_end(&mut text)?;
        let record: Record = serde_json::from_slice(&text)?;
        let are_digests = is_digits(&record.chain) && record.layers.iter().all(|layer| is_digits(layer));
        if record.format == FORMAT && are_digests {
            Ok(record)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it was written by another version of belljar"))
        }
    }

    /// Whole or not at all.
    pub(crate) fn write(&self, beside: &Path, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        // What cannot be read again would keep the store from ever being cleaned.
        if text.len() as u64 > RECORD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its environment is too long"));
        }
        let mut file = File::create(beside)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(beside, path)
    }
}

/// Whether an image may have this name, which becomes that of a file.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let (beside, path) = (directory.path().join("beside"), directory.path().join("name.json"));
        let record = |bytes: usize| {
            let env = vec![("LONG".to_owned(), "x".repeat(bytes))];
            Record::new("source".to_owned(), String::new(), "0".repeat(64), Vec::new(), env, Vec::new(), 0, 0)
        };
        record(1000).write(&beside, &path).unwrap();
        assert_eq!(Record::read(&path).unwrap(), record(1000));
        assert!(record(RECORD_BYTES_MAX as usize).write(&beside, &path).is_err());
        assert_eq!(Record::read(&path).unwrap(), record(1000), "what was there stays");
    }
}
