//! A machine of its own for each sandbox, with a kernel of its own: behind the processor's wall instead of the kernel's.
//!
//! ```text
//! Microvm ──▶ monitor (QEMU, Firecracker) ──▶ kernel ─▶ keeper (root, outside) ─▶ settle ─▶ guest (pid 1 of its place)
//!    │           cgroup, own user, seccomp       drives: root, fittings, layers; all read-only
//!    └──▶ images, snapshots: a sandbox is a copy of a machine that is up, and not a boot
//! ```
//!
//! Two snapshots are kept of each kind of machine. The *bare* one has its keeper up and no guest yet, and fits any sandbox
//! of that size. The *warm* one has a guest with a Python kernel that waits, and fits sandboxes that want just that.

mod base;
mod boot;
mod built;
mod console;
mod control;
mod disk;
mod firecracker;
mod fitted;
mod initramfs;
mod kernel;
mod modules;
mod open;
mod place;
mod probe;
mod process;
mod qemu;
mod roots;
mod snapshot;
mod unpack;
mod vmm;
mod warm;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_core::{Backend, BackendError, Capabilities, Language, Later, Probe, Sandbox, Spec};

use self::base::Base;
use self::roots::Root;
use self::warm::Makers;
use crate::host::Host;
use crate::images::Images;
use crate::store;
use crate::store::Store;

#[derive(Debug)]
pub(crate) struct Microvm {
    host: Host,
    images: Images,
    /// Of sandboxes that name none.
    root: Result<Root, BackendError>,
    store: Option<Store>,
    /// Once it could be made. What is missing may be put there later.
    base: tokio::sync::Mutex<Option<Arc<Base>>>,
    makers: tokio::sync::Mutex<Makers>,
}

impl Microvm {
    pub(crate) fn start(host: &Host) -> Microvm {
        let images = Images::find(host.images.as_deref());
        let root = default_root(host, &images);
        let store = host.layers.as_deref().and_then(Store::find);
        Microvm {
            host: host.clone(),
            images,
            root,
            store,
            base: tokio::sync::Mutex::default(),
            makers: Default::default(),
        }
    }

    async fn base(&self) -> Result<Arc<Base>, BackendError> {
        let mut base = self.base.lock().await;
        if let Some(base) = &*base {
            return Ok(Arc::clone(base));
        }
        let made = Arc::new(Base::new(self.host.clone()).await?);
        *base = Some(Arc::clone(&made));
        Ok(made)
    }

    fn root(&self, spec: &Spec) -> Result<Root, BackendError> {
        match &spec.ground.image {
            None => self.root.clone(),
            Some(name) => self.images.root(name).map(Root::from),
        }
    }

    fn store_path(&self) -> Option<PathBuf> {
        self.store.as_ref().and_then(Store::path).map(PathBuf::from)
    }
}

/// A bare machine by its monitor's own means, which boots and says a line: its program and its words.
pub(crate) fn floor(host: &Host) -> Result<(PathBuf, Vec<OsString>), String> {
    let base = probe::found(&Microvm::start(host)).map_err(|error| error.to_string())?;
    base.floor().ok_or_else(|| format!("{} has no way to boot a machine by one command", base.vmm.name()))
}

/// What a bare machine says.
pub(crate) const FLOOR_OUTPUT: &str = "2\r\n";

/// What the configuration names. Only there a path will do: it is the operator's.
fn default_root(host: &Host, images: &Images) -> Result<Root, BackendError> {
    match host.walls.microvm.image.as_deref() {
        Some(path) if path.starts_with('/') => Root::of_directory(Path::new(path)),
        Some(name) => images.root(name).map(Root::from),
        None => Err(BackendError::Unavailable {
            why: "a machine has no root file system of its own, and no image is named".to_owned(),
            fix: "build one (`belljar template build NAME --image REF`) and name it: [microvm] image = \"NAME\""
                .to_owned(),
        }),
    }
}

impl Backend for Microvm {
    fn name(&self) -> &'static str {
        "microvm"
    }

    fn probe(&self) -> Probe {
        probe::probe(self)
    }

    fn capabilities(&self) -> Capabilities {
        let (languages, interpreters) = match &self.root {
            Ok(root) => (root.inside().languages(), root.inside().names()),
            Err(_) => (Vec::new(), Vec::new()),
        };
        let lacks = |language: &Language| !languages.contains(language);
        let fix = |language: Language| (language, format!("use an image that has {language}"));
        Capabilities {
            missing: Language::ALL.into_iter().filter(lacks).map(fix).collect(),
            languages,
            interpreters,
            network: true,
            layers: self.store.is_some(),
            processes: true,
            images: self.images.are_there(),
        }
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move {
            store::check(self.store.as_ref(), spec)?;
            let root = self.root(spec)?;
            let base = self.base().await?;
            let opened = open::open(self, base, root, spec).await?;
            Ok(Box::new(opened) as Box<dyn Sandbox>)
        })
    }
}
