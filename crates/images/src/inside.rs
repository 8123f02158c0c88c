//! Paths as whoever has a directory for his root sees them. Links are followed as they would be there, never out of it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// The path without links that `path` leads to in `root`, relative to it; `None` where nothing is, or links lead in a circle.
pub(crate) fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut left: VecDeque<OsString> = parts(path);
    let mut at = PathBuf::new();
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            // Above the root is the root.
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let metadata = fs::symlink_metadata(root.join(&next)).ok()?;
        if !metadata.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return None;
        }
        let target = fs::read_link(root.join(&next)).ok()?;
        if target.is_absolute() {
            at = PathBuf::new();
        }
        for part in parts(&target).into_iter().rev() {
            left.push_front(part);
        }
    }
    Some(at)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_inside() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::write(root.join("usr/bin/sh"), "").unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("/bin/sh", root.join("absolute")).unwrap();
        symlink("../../../../usr/bin/sh", root.join("usr/above")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/etc/passwd", root.join("out")).unwrap();
        for path in ["/bin/sh", "absolute", "/usr/above", "bin/../bin/sh", "../../usr/bin/sh"] {
            assert_eq!(resolve(root, Path::new(path)), Some(PathBuf::from("usr/bin/sh")), "{path}");
        }
        for path in ["loop", "out", "usr/bin/sh/x", "none"] {
            assert_eq!(resolve(root, Path::new(path)), None, "{path}");
        }
    }
}
