//! The store: layers by their digests, roots by the chain of them, names that lead to roots.
//!
//! ```text
//! <directory>/        0700, of this user alone
//! ├── lock            shared by builds, alone for who removes
//! ├── building-*/     what is not whole yet; goes with its build
//! ├── layers/<diff-id>/tree, implied.json
//! ├── roots/<chain>/root, lock
//! └── names/<name>.json
//! ```

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use crate::bounds::Bounds;
use crate::building::{Building, Lock, Wanted};
use crate::error::{Doing, ImageError, ImageErrorKind};
use crate::names::{Record, is_name};
use crate::registry::{self, Registries};
use crate::survey::Found;
use crate::sweep::entries;
use crate::work::{Work, blocking};

pub(crate) const LOCK: &str = "lock";

#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
    registries: Arc<Registries>,
    bounds: Arc<Bounds>,
}

/// What an image is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A reference such as `python:3.12-slim`.
    Image(String),
    /// A root file system, plain or compressed with gzip or zstd.
    Tar(PathBuf),
    Dir(PathBuf),
}

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Layer `number` of `of`.
    Downloading {
        number: usize,
        of: usize,
        done_bytes: u64,
        total_bytes: u64,
    },
    Unpacking {
        number: usize,
        of: usize,
    },
    Assembling,
}

pub type Tell = Arc<dyn Fn(Progress) + Send + Sync>;

#[derive(Debug)]
pub struct Built {
    pub root: Root,
    /// Of all files, each once.
    pub bytes: u64,
    pub layers: usize,
    /// Devices, pipes and sockets that were left out.
    pub skipped: u64,
}

/// A root file system that sandboxes can be opened on. As long as anybody has it, it is not removed.
#[derive(Debug, Clone)]
pub struct Root {
    pub path: PathBuf,
    /// Of the image's manifest, or of the tar.
    pub digest: String,
    pub env: Vec<(String, String)>,
    pub interpreters: Vec<Found>,
    pub source: String,
    _held: Arc<File>,
}

/// An image as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub source: String,
    pub digest: String,
    pub bytes: u64,
    /// Seconds since 1970.
    pub built: u64,
    pub interpreters: Vec<Found>,
}

impl Store {
    /// The store in a directory, which is made if it is not there. One that others can write to is none.
    pub fn open(directory: &Path) -> Result<Store, ImageError> {
        let private = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        let what = format!("opening the store of images {}", directory.display());
        private(directory).doing(&what)?;
        let directory = directory.canonicalize().doing(&what)?;
        let metadata = fs::symlink_metadata(&directory).doing(&what)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            let words = format!("{what}: it has to belong to this user, and nobody else may write to it");
            return Err(ImageError::new(ImageErrorKind::Files, words));
        }
        for part in ["layers", "roots", "names"] {
            private(&directory.join(part)).doing(&what)?;
        }
        Ok(Store { directory, registries: Arc::default(), bounds: Arc::default() })
    }

    pub fn with(self, registries: Registries, bounds: Bounds) -> Store {
        Store { registries: Arc::new(registries), bounds: Arc::new(bounds), ..self }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes an image and gives it the name, which is taken from the one that had it. Dropped half-way, or where anything
    /// fails, it leaves nothing. Inside a runtime.
    pub async fn build(&self, name: &str, source: Source, tell: Tell) -> Result<Built, ImageError> {
        check_name(name)?;
        // Whatever was left by builds that were killed would take the room of this one.
        self.sweep().doing("cleaning the store of images")?;
        let built = self.make(name, source, tell).await;
        // What the name led to before, or what a failed build has put in its place already; if nobody else builds just now.
        let swept = self.sweep().doing("cleaning the store of images");
        let built = built?;
        swept.map(|()| built)
    }

    async fn make(&self, name: &str, source: Source, tell: Tell) -> Result<Built, ImageError> {
        let lock = Lock::shared(&self.path(LOCK)).doing("locking the store of images")?;
        let building = Arc::new(Building::start(&self.directory, lock).doing("starting to build")?);
        let wanted = Wanted::default();
        let work = Work { store: self.clone(), name: name.to_owned(), building, stop: wanted.flag(), tell };
        match source {
            Source::Image(reference) => {
                let pulled = registry::resolve(&self.registries, &self.bounds, &reference).await?;
                Arc::new(work).download(pulled).await
            }
            Source::Tar(file) => blocking(move || work.of_tar(&file)).await,
            Source::Dir(directory) => blocking(move || work.of_directory(&directory)).await,
        }
    }

    /// The image of this name, if there is one that is whole.
    pub fn find(&self, name: &str) -> Result<Option<Root>, ImageError> {
        check_name(name)?;
        match Record::read(&self.record_path(name)) {
            Ok(record) => self.root_of(record),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ImageError::of_files(&format!("reading of the image {name}"), &error)),
        }
    }

    pub fn list(&self) -> Result<Vec<Listed>, ImageError> {
        let records = self.records().doing("listing images")?;
        let mut listed: Vec<Listed> = records
            .into_iter()
            .filter_map(|(name, record)| {
                let Record { source, digest, bytes, built, interpreters, .. } = record.ok()?;
                Some(Listed { name, source, digest, bytes, built, interpreters })
            })
            .collect();
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// Takes the name away, and what nothing else needs; says whether there was one. What is in use goes later.
    pub fn remove(&self, name: &str) -> Result<bool, ImageError> {
        check_name(name)?;
        match fs::remove_file(self.record_path(name)) {
            Ok(()) => self.sweep().doing("removing an image's files").map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(ImageError::of_files(&format!("removing the image {name}"), &error)),
        }
    }

    pub(crate) fn records(&self) -> io::Result<Vec<(String, io::Result<Record>)>> {
        let names = entries(&self.path("names"))?;
        let names = names.iter().filter_map(|name| name.strip_suffix(".json")).filter(|name| is_name(name));
        Ok(names.map(|name| (name.to_owned(), Record::read(&self.record_path(name)))).collect())
    }

    pub(crate) fn bounds(&self) -> &Arc<Bounds> {
        &self.bounds
    }

    pub(crate) fn record_path(&self, name: &str) -> PathBuf {
        self.path("names").join(format!("{name}.json"))
    }

    pub(crate) fn root_of(&self, record: Record) -> Result<Option<Root>, ImageError> {
        let directory = self.path("roots").join(&record.chain);
        let held = match File::open(directory.join(LOCK)) {
            Ok(held) => held,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ImageError::of_files("opening an image", &error)),
        };
        flock(&held, FlockOperation::LockShared).doing("holding an image")?;
        // Somebody may have removed it before we had it.
        let is_there = fs::metadata(directory.join(LOCK))
            .is_ok_and(|now| held.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (now.dev(), now.ino())));
        let Record { digest, env, interpreters, source, .. } = record;
        let path = directory.join("root");
        Ok(is_there.then(|| Root { path, digest, env, interpreters, source, _held: Arc::new(held) }))
    }
}

fn check_name(name: &str) -> Result<(), ImageError> {
    if is_name(name) {
        return Ok(());
    }
    Err(ImageError::new(ImageErrorKind::BadName, format!("{name:?} is no name for a template")))
}
