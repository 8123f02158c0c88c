//! The store of layers, from the host's side: a directory of ours, of which sandboxes get single directories.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use belljar_core::wire::{is_building, is_store_name};
use belljar_core::{BackendError, Layer, Spec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid, geteuid};

use super::setup;

#[derive(Debug)]
pub(super) struct Store {
    /// Without links on the way to it.
    directory: PathBuf,
}

impl Store {
    /// The store, made if it is not there. One that others can write to is none.
    pub(super) fn find(directory: &Path) -> Option<Store> {
        let found = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).and_then(|()| {
            let directory = directory.canonicalize()?;
            let metadata = fs::symlink_metadata(&directory)?;
            let is_ours = metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0;
            if is_ours { Ok(Store { directory }) } else { Err(io::ErrorKind::PermissionDenied.into()) }
        });
        match found {
            Ok(store) if store.path().is_some() => Some(store),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error, "there is no store of packages; \
                    it has to be a directory of this user's own, which nobody else may write to");
                None
            }
        }
    }

    pub(super) fn path(&self) -> Option<&str> {
        self.directory.to_str()
    }

    /// Lets a sandbox's host user write the directory in which it builds. The directory is empty and ours; the name leads
    /// to nothing else.
    pub(super) fn give(&self, name: &str, host_id: u32) -> Result<(), BackendError> {
        let given = rustix::fs::open(
            self.directory.join(name),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .and_then(|directory| {
            rustix::fs::fchown(directory, Some(Uid::from_raw(host_id)), Some(Gid::from_raw(host_id)))
        });
        given.map_err(|error| setup("giving a sandbox its directory to build in", &error))
    }
}

/// Whether this is what a sandbox may have of the store.
pub(super) fn check(store: Option<&Store>, spec: &Spec) -> Result<(), BackendError> {
    if spec.layers.is_empty() && spec.build.is_none() {
        return Ok(());
    }
    if store.is_none() {
        return Err(BackendError::Unavailable {
            why: "this server has no store of packages".to_owned(),
            fix: "start it with a home directory of its own, in which it can keep one".to_owned(),
        });
    }
    let mut kinds: Vec<_> = spec.layers.iter().map(|layer| layer.kind).collect();
    kinds.sort();
    kinds.dedup();
    let is_build_named = spec.build.iter().all(|name| is_store_name(name) && is_building(name));
    if kinds.len() < spec.layers.len() || !is_build_named {
        return Err(setup("naming layers", &"there is one of a kind, and one that is built is named building-..."));
    }
    spec.layers.iter().try_for_each(check_layer)
}

pub(super) fn check_layer(layer: &Layer) -> Result<(), BackendError> {
    if is_store_name(&layer.id) { Ok(()) } else { Err(setup("naming a layer", &"it is no name of the store's")) }
}
