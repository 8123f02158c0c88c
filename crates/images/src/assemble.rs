//! A root from its layers: each is laid over those below it, by hard links, so that a file is on the disk once however many
//! images have it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Doing, ImageError, ImageErrorKind};
use crate::inside::resolve;
use crate::tree::{clear, kind_of, make_directory, names_in, open_directory, open_root, remove, shown};

/// Of a root. A layer may go on in a directory of the one below, and by a link still further down, so that no layer's own depth
/// says how deep it comes to be; who removes it has a descriptor open for each step.
const DEPTH_MAX: usize = 400;

const WHITEOUT: &[u8] = b".wh.";
/// In a directory that hides all that the layers below have in it.
const OPAQUE: &str = ".wh..wh..opq";

/// One layer, as it stands in the store.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) tree: PathBuf,
    /// As [`crate::unpack::Unpacked::implied`].
    pub(crate) implied: BTreeSet<PathBuf>,
}

/// Lays the layers over each other in `root`, an empty directory.
pub(crate) fn assemble(root: &Path, layers: &[Layer], stop: &AtomicBool) -> Result<(), ImageError> {
    let to = open_root(root).doing("opening a new root")?;
    for layer in layers {
        let from = open_root(&layer.tree).doing("opening a layer")?;
        let over = Over { root, root_directory: &to, layer, stop };
        over.lay(from.as_fd(), to.as_fd(), Path::new(""), 0)?;
    }
    Ok(())
}

struct Over<'a> {
    root: &'a Path,
    root_directory: &'a OwnedFd,
    layer: &'a Layer,
    stop: &'a AtomicBool,
}

impl Over<'_> {
    /// As deep as unpacking allowed, and no deeper. `depth` is that of the place in the root.
    fn lay(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, path: &Path, depth: usize) -> Result<(), ImageError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ImageError::new(ImageErrorKind::Cancelled, "the build was given up"));
        }
        let shown = shown(path.as_os_str().as_bytes());
        if depth > DEPTH_MAX {
            let words = format!("with its links, {shown} is more than {DEPTH_MAX} directories deep");
            return Err(ImageError::new(ImageErrorKind::Hostile, words));
        }
        let at = format!("assembling {shown}");
        let (hidden, names): (Vec<OsString>, Vec<OsString>) =
            names_in(from).doing(&at)?.into_iter().partition(|name| name.as_bytes().starts_with(WHITEOUT));
        // What is hidden is that of the layers below; what this one has of the same name stays.
        if hidden.iter().any(|name| name == OPAQUE) {
            clear(to).doing(&at)?;
        }
        for name in hidden.iter().map(|name| &name.as_bytes()[WHITEOUT.len()..]) {
            let is_of_the_format = name.starts_with(WHITEOUT);
            if !is_of_the_format && ![b"".as_slice(), b".", b".."].contains(&name) {
                remove(to, OsStr::from_bytes(name)).doing(&at)?;
            }
        }
        for name in names {
            match kind_of(from, &name).doing(&at)? {
                Some(FileType::Directory) => {
                    let path = path.join(&name);
                    let below = open_directory(from, &name).doing(&at)?;
                    let (place, depth) = self.directory(to, &name, &path, depth).doing(&at)?;
                    self.lay(below.as_fd(), place.as_fd(), &path, depth)?;
                }
                Some(FileType::Symlink) => {
                    remove(to, &name).doing(&at)?;
                    let target = rustix::fs::readlinkat(from, &name, Vec::new()).doing(&at)?;
                    rustix::fs::symlinkat(&target, to, &name).doing(&at)?;
                }
                Some(_) => {
                    remove(to, &name).doing(&at)?;
                    link(from, to, &name).doing(&at)?;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// The directory of the root that a layer's goes over, made if there is none, and how deep it is.
    fn directory(&self, to: BorrowedFd<'_>, name: &OsStr, path: &Path, depth: usize) -> io::Result<(OwnedFd, usize)> {
        match kind_of(to, name)? {
            Some(FileType::Directory) => {}
            // Whoever packed the layer wrote to lib/x, and below him lib is a link to usr/lib: he meant what is there.
            Some(FileType::Symlink) if self.layer.implied.contains(path) => {
                if let Some(real) = resolve(self.root, path)
                    && let Ok(directory) = self.open_real(&real)
                {
                    return Ok((directory, real.components().count()));
                }
                remove(to, name)?;
                make_directory(to, name)?;
            }
            Some(_) => {
                remove(to, name)?;
                make_directory(to, name)?;
            }
            None => make_directory(to, name)?,
        }
        Ok((open_directory(to, name)?, depth + 1))
    }

    /// A path of the root without links, opened step by step.
    fn open_real(&self, path: &Path) -> io::Result<OwnedFd> {
        let start = self.root_directory.try_clone()?;
        path.iter().try_fold(start, |at, part| Ok(open_directory(at.as_fd(), part)?))
    }
}

fn link(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::linkat(from, name, to, name, AtFlags::empty()) {
        // A file has as many names as it may, or the file system has no such links.
        Err(Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP) => copy(from, to, name),
        other => Ok(other?),
    }
}

fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let reading = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::openat(from, name, reading, Mode::empty())?);
    let writing = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = File::from(rustix::fs::openat(to, name, writing, Mode::from_raw_mode(0o600))?);
    io::copy(&mut source, &mut target)?;
    let metadata = source.metadata()?;
    target.set_permissions(metadata.permissions())?;
    target.set_modified(metadata.modified()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    struct Layers {
        directory: tempfile::TempDir,
        layers: Vec<Layer>,
    }

    impl Layers {
        fn new() -> Layers {
            Layers { directory: tempfile::tempdir().unwrap(), layers: Vec::new() }
        }

        fn with(mut self, implied: &[&str], fill: impl FnOnce(&Path)) -> Layers {
            let tree = self.directory.path().join(format!("layer{}", self.layers.len()));
            fs::create_dir(&tree).unwrap();
            fill(&tree);
            self.layers.push(Layer { tree, implied: implied.iter().map(PathBuf::from).collect() });
            self
        }

        fn assembled(&self) -> PathBuf {
            let root = self.directory.path().join("root");
            fs::create_dir(&root).unwrap();
            assemble(&root, &self.layers, &AtomicBool::new(false)).unwrap();
            root
        }
    }

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn whiteouts_hide_what_is_below_and_nothing_of_their_own_layer() {
        let layers = Layers::new()
            .with(&[], |tree| {
                write(tree.join("a/gone"), "1");
                write(tree.join("a/kept"), "1");
                write(tree.join("whole/one"), "1");
                write(tree.join("whole/two/three"), "1");
                write(tree.join("dir/x/y"), "1");
            })
            .with(&[], |tree| {
                write(tree.join("a/.wh.gone"), "");
                write(tree.join("whole/.wh..wh..opq"), "");
                write(tree.join("whole/new"), "2");
                write(tree.join("dir/.wh.x"), "");
                write(tree.join("dir/x"), "2");
                write(tree.join("a/.wh."), "");
                write(tree.join("a/.wh..."), "");
                write(tree.join("a/.wh.."), "");
            });
        let root = layers.assembled();
        assert!(!root.join("a/gone").exists() && root.join("a/kept").exists());
        assert_eq!(names_in(open_root(&root.join("whole")).unwrap().as_fd()).unwrap(), ["new"]);
        assert_eq!(fs::read_to_string(root.join("dir/x")).unwrap(), "2");
        assert!(!root.join("a/.wh.gone").exists());
        // The layers themselves are as they were, and share their files with the root.
        assert!(layers.layers[0].tree.join("a/gone").exists());
        assert_eq!(fs::metadata(root.join("a/kept")).unwrap().nlink(), 2);
    }

    /// Each layer goes on below the link that the one before has left at the end of its own.
    #[test]
    fn links_do_not_make_a_root_endlessly_deep() {
        let mut layers = Layers::new();
        let (mut link, mut end) = (String::new(), String::new());
        for number in 0..DEPTH_MAX / 100 + 1 {
            let own = format!("{number}/{}", "d/".repeat(99));
            let next = format!("link{number}");
            let target = format!("{end}{own}");
            let below = if link.is_empty() { own } else { format!("{link}/{own}") };
            layers = layers.with(&[&link], |tree| {
                fs::create_dir_all(tree.join(&below)).unwrap();
                symlink(&target, tree.join(&next)).unwrap();
            });
            (link, end) = (next, target);
        }
        let root = layers.directory.path().join("root");
        fs::create_dir(&root).unwrap();
        let error = assemble(&root, &layers.layers, &AtomicBool::new(false)).unwrap_err();
        assert_eq!(error.kind, ImageErrorKind::Hostile, "{error}");
    }

    #[test]
    fn kinds_take_each_others_place_and_links_lead_nowhere_else() {
        let outside = tempfile::tempdir().unwrap();
        let layers = Layers::new()
            .with(&[], |tree| {
                write(tree.join("file"), "1");
                write(tree.join("dir/in"), "1");
                symlink(outside.path(), tree.join("out")).unwrap();
                symlink(outside.path(), tree.join("implied")).unwrap();
                fs::create_dir_all(tree.join("usr/lib")).unwrap();
                symlink("usr/lib", tree.join("lib")).unwrap();
            })
            .with(&["implied", "lib"], |tree| {
                write(tree.join("file/in"), "2");
                symlink("file", tree.join("dir")).unwrap();
                write(tree.join("out/in"), "2");
                write(tree.join("implied/in"), "2");
                write(tree.join("lib/new.so"), "2");
            });
        let root = layers.assembled();
        assert_eq!(fs::read_to_string(root.join("file/in")).unwrap(), "2");
        assert_eq!(fs::read_link(root.join("dir")).unwrap(), Path::new("file"));
        assert!(!root.join("out").is_symlink() && root.join("out/in").is_file());
        assert!(!root.join("implied").is_symlink() && root.join("implied/in").is_file());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert_eq!(fs::read_link(root.join("lib")).unwrap(), Path::new("usr/lib"));
        assert!(root.join("usr/lib/new.so").is_file());
    }
}
