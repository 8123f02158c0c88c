//! The layers of a sandbox whose mounts cannot be changed once it runs: a directory of the host that it sees, read-only, in
//! which there is a link for each kind of layer. Putting another layer there is turning a link.
//!
//! ```text
//! inside                      in the sandbox's directory of slots, which is at /belljar/layers
//! /tools ─▶ /belljar/layers/tools ─▶ none/tools     there is none
//!                                 ─▶ held/tools     was there from the beginning: the layer itself is mounted there
//!                                 ─▶ 3              came later: a tree of hard links to the layer's files
//! ```
//!
//! What came later is linked and not shown where it is, since the store as a whole is nowhere in a sandbox.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use belljar_core::wire::{Bind, is_store_name};
use belljar_core::{Layer, LayerKind};

use crate::fittings::{LAYERS, slot_of};

/// Each is a tree of its own, which stays until the end.
const ADDED_MAX: u32 = 64;
/// More than any layer of the store's has.
const ENTRIES_MAX: u32 = 400_000;
const DEPTH_MAX: u32 = 64;

/// A sandbox's slots. The directory goes with the sandbox's own.
#[derive(Debug)]
pub(crate) struct Slots {
    store: PathBuf,
    directory: PathBuf,
    added: AtomicU32,
}

impl Slots {
    /// Makes the slots of one sandbox in `directory`, which is not there yet, and tells what has to be mounted, read-only, for
    /// them. `pythons` are the versions (`3.12`) whose packages may come.
    pub(crate) fn open(
        store: &Path,
        directory: PathBuf,
        pythons: &[String],
        layers: &[Layer],
    ) -> io::Result<(Slots, Vec<Bind>)> {
        make_directory(&directory)?;
        for inner in ["none", "held"] {
            make_directory(&directory.join(inner))?;
        }
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or(io::ErrorKind::InvalidInput);
        let mut binds = vec![Bind { host: text(&directory)?, inside: LAYERS.to_owned() }];
        for kind in LayerKind::ALL {
            let slot = slot_of(kind);
            for inner in ["none", "held"] {
                make_directory(&directory.join(inner).join(slot))?;
            }
            let target = match layers.iter().find(|layer| layer.kind == kind) {
                Some(layer) => {
                    binds.push(Bind { host: text(&find(store, layer)?)?, inside: format!("{LAYERS}/held/{slot}") });
                    format!("held/{slot}")
                }
                None => format!("none/{slot}"),
            };
            symlink(target, directory.join(slot))?;
        }
        // Python looks for its packages when it starts, and a layer may come later.
        for version in pythons {
            make_all(&directory.join("none/python"), &["lib", &format!("python{version}"), "site-packages"])?;
        }
        Ok((Slots { store: store.to_owned(), directory, added: AtomicU32::new(0) }, binds))
    }

    /// Puts a layer where the one of its kind was. Programs see the old one or the new. Takes a while: a link for each file.
    pub(crate) fn add(&self, layer: &Layer) -> io::Result<()> {
        let number = self.added.fetch_add(1, Ordering::Relaxed);
        if number >= ADDED_MAX {
            return Err(io::Error::other("they were added too often here; make a new sandbox"));
        }
        let from = find(&self.store, layer)?;
        let to = self.directory.join(number.to_string());
        link_all(&from, &to)?;
        let turned = self.directory.join(format!("turned-{number}"));
        symlink(number.to_string(), &turned)?;
        fs::rename(turned, self.directory.join(slot_of(layer.kind)))
    }
}

fn find(store: &Path, layer: &Layer) -> io::Result<PathBuf> {
    if !is_store_name(&layer.id) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no name of the store's"));
    }
    let path = store.join(&layer.id);
    if fs::symlink_metadata(&path)?.is_dir() { Ok(path) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Readable for the sandbox's user, whatever the server's own mask is.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

fn make_all(base: &Path, names: &[&str]) -> io::Result<()> {
    let mut path = base.to_owned();
    for name in names {
        path.push(name);
        match make_directory(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    Ok(())
}

/// A tree of `from`'s directories at `to`, which is not there yet, with links to its files. What is linked is never changed, and its
/// own links are not followed.
pub(crate) fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    link_tree(from, to, DEPTH_MAX, &mut { ENTRIES_MAX })
}

fn link_tree(from: &Path, to: &Path, depth: u32, left: &mut u32) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other("it has too many directories in each other"));
    }
    make_directory(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other("it has too many files"))?;
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            link_tree(&old, &new, depth - 1, left)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&old)?, &new)?;
        } else if kind.is_file() {
            match fs::hard_link(&old, &new) {
                // On another disk, or linked by too many sandboxes already.
                Err(error) if matches!(error.kind(), io::ErrorKind::CrossesDevices | io::ErrorKind::TooManyLinks) => {
                    fs::copy(&old, &new)?;
                }
                other => other?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use belljar_core::PackageKind;

    use super::*;

    fn layer(kind: LayerKind, id: &str) -> Layer {
        Layer { kind, id: id.to_owned() }
    }

    const PYTHON: LayerKind = LayerKind::Packages(PackageKind::Python);

    #[test]
    fn a_later_layer_takes_the_place_of_the_one_before() {
        let ground = tempfile::tempdir().unwrap();
        let store = ground.path().join("store");
        for (id, text) in [("aa", "one"), ("bb", "two")] {
            fs::create_dir_all(store.join(id).join("deep/er")).unwrap();
            fs::write(store.join(id).join("deep/er/file"), text).unwrap();
            symlink("/etc/passwd", store.join(id).join("out")).unwrap();
        }
        let directory = ground.path().join("slots");
        let (slots, binds) =
            Slots::open(&store, directory.clone(), &["3.11".to_owned()], &[layer(LayerKind::Skills, "aa")]).unwrap();
        assert_eq!(binds.len(), 2);
        assert_eq!(binds[1].inside, "/belljar/layers/held/skills");
        assert!(directory.join("python/lib/python3.11/site-packages").is_dir());
        let read = |path: &str| fs::read_to_string(directory.join(path)).unwrap();
        for (id, text) in [("aa", "one"), ("bb", "two")] {
            slots.add(&layer(PYTHON, id)).unwrap();
            assert_eq!(read("python/deep/er/file"), text);
        }
        // What a layer's links say is passed on, and not followed.
        assert_eq!(fs::read_link(directory.join("python/out")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(fs::read_dir(directory.join("tools")).unwrap().count(), 0);
    }

    #[test]
    fn nothing_but_a_layer_of_the_stores_is_added() {
        let ground = tempfile::tempdir().unwrap();
        let store = ground.path().join("store");
        fs::create_dir_all(store.join("aa")).unwrap();
        symlink("/etc", store.join("cc")).unwrap();
        let (slots, _) = Slots::open(&store, ground.path().join("slots"), &[], &[]).unwrap();
        for id in ["..", "", "../store/aa", "cc", "dd"] {
            assert!(slots.add(&layer(PYTHON, id)).is_err(), "{id:?}");
        }
        for _ in 0..ADDED_MAX {
            let _ = slots.add(&layer(PYTHON, "aa"));
        }
        assert!(slots.add(&layer(PYTHON, "aa")).unwrap_err().to_string().contains("too often"));
    }
}
