//! What a place has of ours, below `/belljar` and at a few places beside it, where somebody else makes the place: as files
//! in a directory that is shown to it, or as a tar that is put into it.
//!
//! ```text
//! /belljar/settle, guest, ask, transpile   programs
//! /belljar/bin, lib, node                  what programs find before, or after, their own
//! /belljar/layers/<kind>                   layers, one of a kind: whoever makes the place shows them there
//! /belljar/disk, build                     empty: mounted over
//! /tools, /skills, /node_modules           links to the layers, in the root itself
//! ```

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use belljar_core::wire::{ASK, GUEST, SETTLE, TRANSPILE};
use belljar_core::{BUILD, LayerKind, PackageKind};

use crate::carried;
use crate::layout::{ASKING, BIN, PROGRAMS, PYTHON_LIB};

/// Where a place has its layers, by the names of [`slot_of`].
pub(crate) const LAYERS: &str = "/belljar/layers";

/// Where settle mounts the disk before its parts go to their places.
const DISK: &str = "/belljar/disk";

/// One thing of ours, by its path inside.
#[derive(Debug)]
pub(crate) enum Fitting {
    Directory,
    Program(&'static [u8]),
    Text(&'static str),
    Link(String),
}

/// The name of a layer's kind below [`LAYERS`].
pub(crate) fn slot_of(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Packages(PackageKind::Python) => "python",
        LayerKind::Packages(PackageKind::Node) => "node",
        LayerKind::Tools => "tools",
        LayerKind::Skills => "skills",
    }
}

/// All that is below `/belljar`, parents before what is in them.
pub(crate) fn all() -> Vec<(String, Fitting)> {
    let mut all = vec![
        (SETTLE.to_owned(), Fitting::Program(carried::SETTLE)),
        (GUEST.to_owned(), Fitting::Program(carried::GUEST)),
        (ASK.to_owned(), Fitting::Link("guest".to_owned())),
        (TRANSPILE.to_owned(), Fitting::Program(carried::TRANSPILE)),
    ];
    all.extend([BIN, PYTHON_LIB, LAYERS, DISK, BUILD].map(|path| (path.to_owned(), Fitting::Directory)));
    all.extend(PROGRAMS.map(|(path, text)| (path.to_owned(), Fitting::Text(text))));
    all.extend(ASKING.map(|name| (format!("{BIN}/{name}"), Fitting::Link(ASK.to_owned()))));
    let packages = LayerKind::Packages(PackageKind::Python);
    all.push((packages.inside().to_owned(), Fitting::Link(format!("{LAYERS}/{}", slot_of(packages)))));
    all
}

/// What the root itself has beside it: links to the layers.
pub(crate) fn root_links() -> Vec<(String, String)> {
    let outside = LayerKind::ALL.into_iter().filter(|kind| !kind.inside().starts_with("/belljar/"));
    outside.map(|kind| (kind.inside().to_owned(), format!("{LAYERS}/{}", slot_of(kind)))).collect()
}

/// Tells two builds of ours apart: what is in one place may not be taken for what another wants.
pub(crate) fn digest() -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for (path, fitting) in all() {
        path.hash(&mut hasher);
        match fitting {
            Fitting::Directory => 0u8.hash(&mut hasher),
            Fitting::Program(bytes) => bytes.hash(&mut hasher),
            Fitting::Text(text) => text.hash(&mut hasher),
            Fitting::Link(target) => target.hash(&mut hasher),
        }
    }
    format!("{:016x}", hasher.finish())
}

/// The fittings as a directory of the host, which stands for `/belljar`. Made once for each build of ours, below `cache`, which
/// has to be ours; everybody may read it, since sandboxes are other users.
pub(crate) fn directory(cache: &Path) -> io::Result<PathBuf> {
    let place = cache.join(format!("fittings-{}", digest()));
    let is_ours = |found: &fs::Metadata| {
        found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
    };
    match fs::symlink_metadata(&place) {
        Ok(found) if is_ours(&found) => return Ok(place),
        Ok(_) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the fittings there are not ours")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::create_dir_all(cache)?;
    // Under another name until it is whole.
    let unfinished = cache.join(format!("fittings-unfinished-{}-{}", crate::unique(), digest()));
    let written = write_below(&unfinished).and_then(|()| match fs::rename(&unfinished, &place) {
        // Another server was quicker, with the same.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other,
    });
    let _ = fs::remove_dir_all(&unfinished);
    written.map(|()| place)
}

fn write_below(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    for (path, fitting) in all() {
        let inside = path.strip_prefix("/belljar/").unwrap_or(&path);
        let place = directory.join(inside);
        if let Some(parent) = place.parent() {
            make_directories(directory, parent)?;
        }
        match fitting {
            Fitting::Directory => make_directories(directory, &place)?,
            Fitting::Program(bytes) => write_file(&place, bytes, 0o555)?,
            Fitting::Text(text) => write_file(&place, text.as_bytes(), mode_of(text))?,
            Fitting::Link(target) => symlink(target, &place)?,
        }
    }
    Ok(())
}

/// A script is to be run.
pub(crate) fn mode_of(text: &str) -> u32 {
    if text.starts_with("#!") { 0o555 } else { 0o444 }
}

fn make_directories(top: &Path, directory: &Path) -> io::Result<()> {
    let Ok(below) = directory.strip_prefix(top) else { return Ok(()) };
    let mut at = top.to_owned();
    for part in below {
        at.push(part);
        match fs::create_dir(&at) {
            Ok(()) => fs::set_permissions(&at, fs::Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_made_once_and_is_for_everybody_to_read() {
        let cache = tempfile::tempdir().unwrap();
        let place = directory(cache.path()).unwrap();
        let inode = fs::metadata(&place).unwrap().ino();
        assert_eq!(directory(cache.path()).unwrap(), place);
        assert_eq!(fs::metadata(&place).unwrap().ino(), inode);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1, "nothing unfinished is left");
        assert_eq!(fs::metadata(place.join("settle")).unwrap().mode() & 0o777, 0o555);
        assert_eq!(fs::read_link(place.join("bin/pip")).unwrap(), Path::new(ASK));
        assert_eq!(fs::metadata(place.join("lib/mcp_runtime/_wire.py")).unwrap().mode() & 0o777, 0o444);
        assert!(place.join("layers").is_dir() && place.join("build").is_dir());
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(directory(cache.path()).is_err(), "others could have changed it");
    }
}
