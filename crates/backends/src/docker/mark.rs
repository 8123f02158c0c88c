//! How we know images that we made: by a secret of this host's user, without which nobody can label one as we do.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use belljar_core::BackendError;
use sha2::{Digest, Sha256};

use crate::setup;

const FILE: &str = "docker-mark";

pub(super) struct Mark([u8; 32]);

impl std::fmt::Debug for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mark(..)")
    }
}

impl Mark {
    /// The one that is kept in the cache, made if there is none. Without a cache it holds as long as the server: images are
    /// then made anew by each.
    pub(super) fn find(cache: Option<&Path>) -> Result<Mark, BackendError> {
        let found = cache.map_or_else(fresh, kept);
        found.map(Mark).map_err(|error| setup("keeping the secret by which images are known", &error))
    }

    /// What an image of just this is marked with.
    pub(super) fn of(&self, what: &[&str]) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        for part in what {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        // Once more around it: what can be seen is then no state that could be gone on from.
        let inner = hasher.finalize();
        let outer = Sha256::new().chain_update(self.0).chain_update(inner).finalize();
        outer.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn fresh() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    Ok(secret)
}

fn kept(cache: &Path) -> io::Result<[u8; 32]> {
    let path = cache.join(FILE);
    if let Some(secret) = read(&path)? {
        return Ok(secret);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(cache)?;
    let unfinished = cache.join(format!("{FILE}-{}", crate::unique()));
    let written = || {
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(&fresh()?)?;
        // Of several that make one at the same time the first has it.
        fs::hard_link(&unfinished, &path)
    };
    let made = written();
    let _ = fs::remove_file(&unfinished);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(&path)?.ok_or_else(|| io::ErrorKind::NotFound.into()),
    }
}

/// What is there, if it is a secret: ours, and nobody else's to read.
fn read(path: &Path) -> io::Result<Option<[u8; 32]>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = match fs::File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let found = file.metadata()?;
    let mut secret = [0; 32];
    let is_ours = found.is_file() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if !is_ours || found.len() != secret.len() as u64 {
        let why = format!("{} is no secret of this user's; remove it, and a new one is made", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    file.read_exact(&mut secret)?;
    Ok(Some(secret))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_host_knows_its_own_images_and_no_others() {
        let cache = tempfile::tempdir().unwrap();
        let mark = |cache: Option<&Path>| Mark::find(cache).unwrap().of(&["fittings", "sha256:base"]);
        let ours = mark(Some(cache.path()));
        assert_eq!(ours, mark(Some(cache.path())), "it is kept");
        assert_ne!(ours, mark(None));
        assert_ne!(mark(None), mark(None));
        let found = Mark::find(Some(cache.path())).unwrap();
        assert_ne!(ours, found.of(&["fittingssha256:base"]));
        assert_ne!(ours, found.of(&["fittings", "sha256:other"]));
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1, "nothing unfinished is left");
        let mode = fs::metadata(cache.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_secret_that_others_can_read_is_none() {
        let cache = tempfile::tempdir().unwrap();
        Mark::find(Some(cache.path())).unwrap();
        let file = cache.path().join(FILE);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Mark::find(Some(cache.path())).unwrap_err().to_string();
        assert!(error.contains("remove it"), "{error}");
    }
}
