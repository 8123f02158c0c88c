//! Directories in the backends' store of layers that sandboxes see as `/tools` and `/skills`. Each is made once, whole, under
//! a name that is the digest of what is in it, and never changed.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use belljar_core::{Layer, LayerKind};
use sha2::{Digest as _, Sha256};

/// Packages' layers have 64.
const ID_DIGITS: usize = 40;

/// One that nobody has asked for in so long is removed; whoever has it mounted is long gone.
const KEPT: Duration = Duration::from_secs(8 * 24 * 60 * 60);

#[derive(Debug, Clone)]
pub(crate) struct Layers {
    store: PathBuf,
    /// Those of tools that this process made, the newest last.
    made: Arc<Mutex<Vec<String>>>,
}

/// A server that changes its list again and again is not to fill the disk. Whoever has an older one mounted sees it empty, and
/// calls all the same.
const MADE_MAX: usize = 8;

impl Layers {
    pub(crate) fn at(store: PathBuf) -> Layers {
        Layers { store, made: Arc::default() }
    }

    /// The layer with these files, made if it is not there. Blocking.
    pub(crate) fn put(&self, kind: LayerKind, files: &BTreeMap<String, Vec<u8>>) -> io::Result<Layer> {
        let mut digest = Sha256::new();
        for (path, bytes) in files {
            digest.update((path.len() as u64).to_le_bytes());
            digest.update(path);
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        }
        let id: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let id = id[..ID_DIGITS].to_owned();
        let place = self.store.join(&id);
        if place.is_dir() {
            // That it is used is noted down in its time.
            let _ = fs::File::open(&place).and_then(|directory| directory.set_modified(SystemTime::now()));
            return Ok(Layer { kind, id });
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let fresh = self.store.join(format!("new-files-{name}"));
        if kind == LayerKind::Tools {
            self.forget_oldest(&id);
        }
        let made = write_all(&fresh, files).and_then(|()| fs::rename(&fresh, &place));
        if made.is_err() {
            let _ = fs::remove_dir_all(&fresh);
            // Another server may have been first.
            if !place.is_dir() {
                made?;
            }
        }
        Ok(Layer { kind, id })
    }

    fn forget_oldest(&self, id: &str) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.push(id.to_owned());
        if made.len() > MADE_MAX {
            let _ = fs::remove_dir_all(self.store.join(made.remove(0)));
        }
    }

    /// Removes what nobody uses any more.
    pub(crate) fn tidy(&self) {
        for entry in fs::read_dir(&self.store).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_ours = (name.len() == ID_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
                || name.starts_with("new-files-");
            let is_old = entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > KEPT));
            if is_ours && is_old {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Files for everybody to read: sandboxes are other users of this host.
fn write_all(directory: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    // Whatever the server's own mask is.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    for (path, bytes) in files {
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        if !path.split('/').all(is_plain) {
            return Err(io::Error::other(format!("{path:?} is no path below a layer")));
        }
        let to = directory.join(path);
        if let Some(parent) = to.parent().filter(|parent| !parent.is_dir()) {
            DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
            fs::set_permissions(parent, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(&to, bytes)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_are_the_same_layer() {
        let store = tempfile::tempdir().unwrap();
        let layers = Layers::at(store.path().to_owned());
        let mut files = BTreeMap::from([("a/b.txt".to_owned(), b"one".to_vec())]);
        let first = layers.put(LayerKind::Tools, &files).unwrap();
        assert_eq!(layers.put(LayerKind::Tools, &files).unwrap(), first);
        assert_eq!(fs::read(store.path().join(&first.id).join("a/b.txt")).unwrap(), b"one");
        files.insert("c".into(), Vec::new());
        assert_ne!(layers.put(LayerKind::Tools, &files).unwrap().id, first.id);
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 2);
        layers.tidy();
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 2, "both are young");
    }

    #[test]
    fn no_path_leads_out() {
        let store = tempfile::tempdir().unwrap();
        let layers = Layers::at(store.path().join("layers"));
        fs::create_dir(store.path().join("layers")).unwrap();
        for bad in ["../x", "a/../../x", "/x", "", "a//b"] {
            let files = BTreeMap::from([(bad.to_owned(), Vec::new())]);
            assert!(layers.put(LayerKind::Tools, &files).is_err(), "{bad}");
        }
        assert_eq!(fs::read_dir(store.path().join("layers")).unwrap().count(), 0);
    }
}
