//! What is ours as a tree that a machine lays over its root: the fittings, files of /etc, and the places that are mounted on.

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use belljar_core::LayerKind;
use belljar_core::wire::TRUST;

use super::roots::Root;
use super::snapshot::name_of;
use crate::fittings::{self, Fitting, LAYERS, mode_of, slot_of};
use crate::layout::OWN_ETC;

/// Mounted on in every place, or looked for.
const PLACES: [&str; 7] = ["/workspace", "/tmp", "/var/tmp", "/home/agent", "/dev", "/proc", "/sys"];

/// Files that something is mounted over.
const FILES: [&str; 2] = [TRUST, "/etc/machine-id"];

/// Tells two such trees apart.
pub(super) fn name(root: &Root) -> String {
    format!(
        "fittings-{}",
        name_of(&(fittings::digest(), root.inside().fronts().collect::<Vec<_>>(), OWN_ETC, FILES, PLACES))
    )
}

/// Writes it into an empty directory.
pub(super) fn write(top: &Path, root: &Root) -> io::Result<()> {
    let below = |path: &str| top.join(path.trim_start_matches('/'));
    let file = |path: &str, bytes: &[u8], mode: u32| {
        let path = below(path);
        make_directories(top, &path)?;
        std::fs::write(&path, bytes)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
    };
    for (path, fitting) in fittings::all() {
        match fitting {
            Fitting::Directory => make_directories(top, &below(&format!("{path}/x")))?,
            Fitting::Program(bytes) => file(&path, bytes, 0o555)?,
            Fitting::Text(text) => file(&path, text.as_bytes(), mode_of(text))?,
            Fitting::Link(target) => link(top, &below(&path), &target)?,
        }
    }
    for (path, target) in fittings::root_links().into_iter().chain(root.inside().fronts()) {
        link(top, &below(&path), &target)?;
    }
    for kind in LayerKind::ALL {
        make_directories(top, &below(&format!("{LAYERS}/{}/x", slot_of(kind))))?;
    }
    // Python looks for its packages when it starts, and a layer may come later.
    for version in root.inside().pythons() {
        make_directories(top, &below(&format!("{LAYERS}/python/lib/python{version}/site-packages/x")))?;
    }
    for place in PLACES {
        make_directories(top, &below(&format!("{place}/x")))?;
    }
    for (path, text) in OWN_ETC {
        file(path, text.as_bytes(), 0o444)?;
    }
    FILES.iter().try_for_each(|path| file(path, b"", 0o444))
}

fn link(top: &Path, at: &Path, target: &str) -> io::Result<()> {
    make_directories(top, at)?;
    symlink(target, at)
}

/// The directories that a path is in, for everybody to read.
fn make_directories(top: &Path, path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|parent| parent.starts_with(top) && !parent.is_dir()) else {
        return Ok(());
    };
    make_directories(top, parent)?;
    std::fs::create_dir(parent)?;
    std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_mounted_on_is_there() {
        let tree = tempfile::tempdir().unwrap();
        let image = tempfile::tempdir().unwrap();
        let python = image.path().join("usr/bin/python3.11");
        std::fs::create_dir_all(python.parent().unwrap()).unwrap();
        std::fs::write(&python, "").unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        write(tree.path(), &Root::of_directory(image.path()).unwrap()).unwrap();
        for place in ["workspace", "var/tmp", "home/agent", "belljar/disk", "belljar/build", "belljar/layers/node"] {
            assert!(tree.path().join(place).is_dir(), "{place}");
        }
        assert!(tree.path().join("belljar/layers/python/lib/python3.11/site-packages").is_dir());
        assert_eq!(std::fs::read_link(tree.path().join("tools")).unwrap(), Path::new("/belljar/layers/tools"));
        assert!(tree.path().join("belljar/guest").is_file() && tree.path().join("etc/machine-id").is_file());
    }
}
