//! What all sandboxes of a server share: its directory, the thread that starts them, and the roots that they stand on.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::{BackendError, Language};

use super::root::{Gone, Root};
use super::start::Starter;
use crate::host::Host;
use crate::interpreters::Interpreters;
use crate::run_directory::RunDirectory;
use crate::{fittings, images as image, layout, setup, warm};

/// A socket of runsc's is below the directory of a sandbox, and such a path may have 107 letters.
const RUN_PATH_MAX: usize = 75;

/// Roots of images are some files each. The one that was not used for the longest time goes.
const IMAGES_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Base {
    /// With the host's programs.
    pub(super) root: Arc<Root>,
    /// Those of images, by where the image is; the one that was used last comes last.
    of_images: Mutex<Vec<(PathBuf, Arc<Root>)>>,
    fittings: PathBuf,
    trust: Option<String>,
    pub(super) starter: Arc<Starter>,
    /// After the roots, which are in it.
    pub(super) run: Arc<RunDirectory>,
}

impl Base {
    pub(super) fn prepare(host: &Host, interpreters: &Interpreters) -> io::Result<Base> {
        // On the disk that the layers are on, where possible: only there can they be linked.
        let cache = host.cache.as_ref().or(host.runtime.as_ref());
        let cache = cache.ok_or_else(|| io::Error::other("this server has no directory to keep it in"))?;
        let run = RunDirectory::claim(&cache.join("gvisor"))?;
        if run.path().as_os_str().len() > RUN_PATH_MAX {
            return Err(io::Error::other(format!("the path {} is too long", run.path().display())));
        }
        let go_cache = interpreters.default_of(Language::Go).and_then(|go| warm::cache_of(go, host));
        let planned = layout::plan(interpreters, go_cache.as_deref(), None);
        let fittings = fittings::directory(cache)?;
        let root = Root::build(run.path().join("root"), &planned, &fittings, host.trust.as_deref())?;
        let root = Arc::new(Root { pythons: interpreters.pythons().collect(), ..root });
        let (starter, trust) = (Arc::new(Starter::new()?), host.trust.clone());
        Ok(Base { root, of_images: Mutex::default(), fittings, trust, starter, run: Arc::new(run) })
    }

    /// A root on an image, made when it is first asked for.
    pub(super) fn root_of(&self, image: &belljar_images::Root) -> Result<Arc<Root>, BackendError> {
        let mut known = self.of_images.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, root) = match known.iter().position(|(path, _)| *path == image.path) {
            Some(at) => known.remove(at),
            None => {
                let failed = |error: io::Error| setup("making a root of an image", &error);
                let at = Gone(self.run.add().map_err(failed)?);
                let planned = image::plan(image, None)?;
                let made = Root::build(at.0.join("root"), &planned, &self.fittings, self.trust.as_deref());
                let names = image.interpreters.iter().map(|found| found.name.as_str());
                let pythons = names.filter_map(|name| name.strip_prefix("python-")).map(str::to_owned).collect();
                let root = Root { pythons, _image: Some(image.clone()), _goes: Some(at), ..made.map_err(failed)? };
                (image.path.clone(), Arc::new(root))
            }
        };
        known.push((path, Arc::clone(&root)));
        if known.len() > IMAGES_MAX {
            known.remove(0);
        }
        Ok(root)
    }
}
