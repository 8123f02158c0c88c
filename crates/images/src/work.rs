//! One build: what comes in becomes layers, the layers a root, and the root gets its name.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::assemble::{Layer, assemble};
use crate::building::{Building, put};
use crate::decode::{decoded, sha256};
use crate::error::{Doing, ImageError, ImageErrorKind};
use crate::names::Record;
use crate::registry::Pulled;
use crate::store::{Built, LOCK, Progress, Store, Tell};
use crate::survey::survey;
use crate::unpack::{Budget, Unpacked, unpack};
use crate::{directory, tree};

pub(crate) struct Work {
    pub(crate) store: Store,
    pub(crate) name: String,
    pub(crate) building: Arc<Building>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) tell: Tell,
}

impl Work {
    pub(crate) async fn download(self: Arc<Work>, pulled: Pulled) -> Result<Built, ImageError> {
        let of = pulled.layers.len();
        let (mut done_bytes, mut skipped) = (0, 0);
        let bounds = Arc::clone(self.store.bounds());
        let (mut bytes_left, mut entries_left) = (bounds.unpacked_bytes_max, bounds.entries_max);
        let total_bytes = pulled.layers.iter().map(|layer| layer.bytes).sum();
        for (index, layer) in pulled.layers.iter().enumerate() {
            let number = index + 1;
            let before = done_bytes;
            done_bytes += layer.bytes;
            if self.layer_path(&layer.diff_id).is_dir() {
                continue;
            }
            let blob = self.building.path("blob");
            let told = Arc::clone(&self.tell);
            let tell = move |bytes| {
                told(Progress::Downloading { number, of, done_bytes: before + bytes, total_bytes });
            };
            pulled.fetch(layer, &blob, &bounds, tell).await?;
            (self.tell)(Progress::Unpacking { number, of });
            let (work, diff_id) = (Arc::clone(&self), layer.diff_id.clone());
            let left = blocking(move || {
                let mut budget = Budget::new(work.store.bounds(), &work.stop);
                (budget.bytes, budget.entries) = (bytes_left, entries_left);
                let file = File::open(&blob).doing("reading a layer")?;
                let stream = decoded(file).map_err(|error| ImageError::of_files("reading a layer", &error))?;
                work.layer(stream, Some(&diff_id), &mut budget)?;
                fs::remove_file(&blob).doing("removing what was downloaded")?;
                Ok((budget.bytes, budget.entries, budget.skipped))
            })
            .await?;
            (bytes_left, entries_left) = (left.0, left.1);
            skipped += left.2;
        }
        blocking(move || {
            let layers = pulled.layers.iter().map(|layer| layer.diff_id.clone()).collect();
            self.finish(pulled.source, pulled.digest, layers, pulled.env, skipped)
        })
        .await
    }

    pub(crate) fn of_tar(&self, path: &Path) -> Result<Built, ImageError> {
        let what = format!("reading {}", path.display());
        let file = File::open(path).map_err(|error| missing(&what, &error))?;
        if file.metadata().doing(&what)?.is_dir() {
            return Err(ImageError::new(ImageErrorKind::NotFound, format!("{} is a directory", path.display())));
        }
        let stream = decoded(file).map_err(|error| missing(&what, &error))?;
        (self.tell)(Progress::Unpacking { number: 1, of: 1 });
        let mut budget = Budget::new(self.store.bounds(), &self.stop);
        let diff_id = self.layer(stream, None, &mut budget)?;
        let tree = self.layer_path(&diff_id).join("tree");
        if tree.join("manifest.json").is_file() || tree.join("oci-layout").is_file() {
            let words = format!(
                "{} is a saved image, not a root file system; make one with `docker export`, or give the image to a registry",
                path.display()
            );
            return Err(ImageError::new(ImageErrorKind::Unsupported, words));
        }
        let source = format!("tar {}", path.display());
        self.finish(source, format!("sha256:{diff_id}"), vec![diff_id], Vec::new(), budget.skipped)
    }

    pub(crate) fn of_directory(&self, path: &Path) -> Result<Built, ImageError> {
        let what = format!("reading {}", path.display());
        let real = directory::real(path).map_err(|error| missing(&what, &error))?;
        if self.store.path("").starts_with(&real) {
            let words = format!("{} has the store itself in it", path.display());
            return Err(ImageError::new(ImageErrorKind::Unsupported, words));
        }
        (self.tell)(Progress::Unpacking { number: 1, of: 1 });
        let (stream, tar) = io::pipe().doing("making a pipe")?;
        let mut budget = Budget::new(self.store.bounds(), &self.stop);
        let (written, unpacked) = std::thread::scope(|scope| {
            let depth_max = self.store.bounds().depth_max;
            let writer = scope.spawn(move || directory::write_tar(&real, io::BufWriter::new(tar), depth_max));
            let unpacked = self.unpacked(stream, &mut budget);
            (writer.join(), unpacked)
        });
        // Where unpacking failed the writer met a closed pipe, which says nothing.
        if let (Ok(Err(error)), true) = (&written, unpacked.is_ok() || !is_closed_pipe(&written)) {
            return Err(ImageError::of_files(&what, error));
        }
        let skipped = written.ok().and_then(Result::ok).unwrap_or_default();
        let unpacked = unpacked?;
        let diff_id = self.put_layer(unpacked, None)?;
        let source = format!("directory {}", path.display());
        self.finish(source, format!("sha256:{diff_id}"), vec![diff_id], Vec::new(), skipped)
    }

    /// Unpacks a layer and puts it in its place.
    fn layer(
        &self,
        stream: impl io::Read,
        promised: Option<&str>,
        budget: &mut Budget<'_>,
    ) -> Result<String, ImageError> {
        let unpacked = self.unpacked(stream, budget)?;
        self.put_layer(unpacked, promised)
    }

    fn unpacked(&self, stream: impl io::Read, budget: &mut Budget<'_>) -> Result<Unpacked, ImageError> {
        let layer = self.building.directory("layer").doing("making a layer's directory")?;
        let tree = self.building.directory("layer/tree").doing("making a layer's directory")?;
        debug_assert!(tree.starts_with(&layer));
        unpack(stream, tree::open_root(&tree).doing("opening a layer's directory")?, budget)
    }

    fn put_layer(&self, unpacked: Unpacked, promised: Option<&str>) -> Result<String, ImageError> {
        let Unpacked { diff_id, implied } = unpacked;
        if promised.is_some_and(|promised| promised != diff_id) {
            let words = format!("a layer is not what the image says: its content has the digest sha256:{diff_id}");
            return Err(ImageError::new(ImageErrorKind::Corrupt, words));
        }
        let layer = self.building.path("layer");
        // A name that is not UTF-8 is not kept: the directory then takes the place of a link, as any other.
        let implied: Vec<&str> = implied.iter().filter_map(|path| path.to_str()).collect();
        let text = serde_json::to_vec(&implied).map_err(io::Error::from).doing("describing a layer")?;
        fs::write(layer.join("implied.json"), text).doing("describing a layer")?;
        put(&layer, &self.layer_path(&diff_id)).doing("keeping a layer")?;
        Ok(diff_id)
    }

    fn layer_path(&self, diff_id: &str) -> PathBuf {
        self.store.path("layers").join(diff_id)
    }

    /// Assembles the root, looks what is in it, and gives it its name.
    fn finish(
        &self,
        source: String,
        digest: String,
        layers: Vec<String>,
        env: Vec<(String, String)>,
        skipped: u64,
    ) -> Result<Built, ImageError> {
        (self.tell)(Progress::Assembling);
        let chain = chain(&layers);
        let place = self.store.path("roots").join(&chain);
        if !place.is_dir() {
            let made = self.building.directory("made").doing("making a root")?;
            let root = self.building.directory("made/root").doing("making a root")?;
            let from = layers.iter().map(|layer| self.read_layer(layer)).collect::<Result<Vec<_>, _>>()?;
            assemble(&root, &from, &self.stop)?;
            File::create(made.join(LOCK)).doing("making a root")?;
            put(&made, &place).doing("keeping a root")?;
        }
        let root = place.join("root");
        let interpreters = survey(&root, &env);
        let bytes = size(&root).doing("looking at a root")?;
        let built = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let layers_count = layers.len();
        let record = Record::new(source, digest, chain, layers, env, interpreters, bytes, built);
        let path = self.store.record_path(&self.name);
        record.write(&self.building.path("name"), &path).doing("naming an image")?;
        let gone = || ImageError::new(ImageErrorKind::Files, "the image was removed while it was built");
        let root = self.store.root_of(record)?.ok_or_else(gone)?;
        Ok(Built { root, bytes, layers: layers_count, skipped })
    }

    fn read_layer(&self, diff_id: &str) -> Result<Layer, ImageError> {
        let directory = self.layer_path(diff_id);
        let text = fs::read(directory.join("implied.json")).doing("reading of a layer")?;
        let implied: BTreeSet<PathBuf> =
            serde_json::from_slice(&text).map_err(io::Error::from).doing("reading of a layer")?;
        Ok(Layer { tree: directory.join("tree"), implied })
    }
}

/// As OCI has it: the digest of the one below, and of this one.
fn chain(layers: &[String]) -> String {
    layers.iter().fold(String::new(), |below, layer| {
        if below.is_empty() { layer.clone() } else { sha256(format!("sha256:{below} sha256:{layer}").as_bytes()) }
    })
}

fn size(directory: &Path) -> io::Result<u64> {
    let mut seen = BTreeSet::new();
    let mut total = 0;
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                left.push(entry.path());
            } else if seen.insert(metadata.ino()) {
                total += metadata.len();
            }
        }
    }
    Ok(total)
}

fn missing(what: &str, error: &io::Error) -> ImageError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ImageError::new(ImageErrorKind::NotFound, format!("{what}: {error}"))
        }
        _ => ImageError::of_files(what, error),
    }
}

fn is_closed_pipe<T>(written: &std::thread::Result<io::Result<T>>) -> bool {
    matches!(written, Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe)
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let ended = || ImageError::new(ImageErrorKind::Cancelled, "the build ended half-way");
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ended()))
}
