//! A layer that is there, and stays while it is used.

use std::collections::BTreeSet;
use std::fs::{File, FileTimes};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use belljar_core::{Layer, PackageKind};

use crate::names::normal;
use crate::store::{Record, seconds};

/// A finished layer. While this is held, no server removes it.
#[derive(Debug)]
pub struct Environment {
    pub layer: Layer,
    pub kind: PackageKind,
    /// Names and versions, in order.
    pub packages: Vec<(String, String)>,
    /// The names alone, in the one spelling that they are compared by.
    names: BTreeSet<String>,
    /// What can be imported from it, by its first name.
    pub modules: BTreeSet<String>,
    pub bytes: u64,
    /// What was asked for to get it.
    pub(crate) requirements: Vec<String>,
    /// Inferred names that could not be had when it was built.
    pub(crate) left_out: Vec<(String, String)>,
    /// Its record's file, locked for sharing.
    held: File,
    touched: AtomicU64,
}

/// How often its use is noted down.
const TOUCH_SECONDS: u64 = 60;

impl Environment {
    pub(crate) fn new(layer: Layer, record: Record, held: File) -> Environment {
        let Record { kind, packages, modules, bytes, requirements, left_out, .. } = record;
        let named = |(name, _): &(String, String)| match kind {
            PackageKind::Python => normal(name),
            PackageKind::Node => name.clone(),
        };
        let names = packages.iter().map(named).collect();
        let touched = AtomicU64::new(0);
        Environment { layer, kind, packages, names, modules, bytes, requirements, left_out, held, touched }
    }

    /// Whether a distribution or npm package of this name is in it.
    pub fn has(&self, package: &str) -> bool {
        match self.kind {
            PackageKind::Python => self.names.contains(&normal(package)),
            PackageKind::Node => self.names.contains(package),
        }
    }

    /// Whether it was asked for in just these words.
    pub(crate) fn was_asked_for(&self, requirement: &str) -> bool {
        self.requirements.iter().any(|one| one == requirement)
    }

    /// Notes down that it is used now.
    pub(crate) fn touch(&self) {
        let now = SystemTime::now();
        let before = self.touched.swap(seconds(now), Ordering::Relaxed);
        if seconds(now).saturating_sub(before) >= TOUCH_SECONDS {
            // It only decides what is removed first.
            let _ = self.held.set_times(FileTimes::new().set_modified(now));
        } else {
            self.touched.store(before, Ordering::Relaxed);
        }
    }
}
