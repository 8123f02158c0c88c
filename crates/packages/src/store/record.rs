//! What is noted down beside a layer, and about a request.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

use belljar_core::PackageKind;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// No record is longer; one that is was not written by us.
const RECORD_MAX: u64 = 16 << 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) kind: PackageKind,
    /// Names and versions, in order.
    pub(crate) packages: Vec<(String, String)>,
    pub(crate) modules: BTreeSet<String>,
    pub(crate) bytes: u64,
    /// Seconds since 1970.
    pub(crate) made: u64,
    /// The interpreter and the platform that it is for.
    pub(crate) made_for: String,
    pub(crate) requirements: Vec<String>,
    pub(crate) left_out: Vec<(String, String)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: String,
    /// When it was resolved, in seconds since 1970.
    pub(crate) at: u64,
}

impl Record {
    pub(crate) fn read(file: &File) -> Option<Record> {
        read(file)
    }
}

impl Request {
    pub(crate) fn read(file: &File) -> Option<Request> {
        read(file)
    }
}

fn read<T: DeserializeOwned>(file: &File) -> Option<T> {
    let mut bytes = Vec::new();
    file.take(RECORD_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}
