//! Sandboxes on the root file system of an image: where it is, what it has, and what of it a sandbox sees.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_core::wire::{Bind, Setup};
use belljar_core::{BUILD, BackendError, LayerKind};
use belljar_images::{ImageErrorKind, Root, Store};

use crate::interpreters::OfImage;
use crate::{layout, store};

/// What no image has a say in: mounted, written or made by us. Below it is nothing of the image's, and above it no bind.
const OURS: [&str; 14] = [
    "proc",
    "sys",
    "dev",
    "run",
    "mnt",
    "tmp",
    "belljar",
    "workspace",
    "var/tmp",
    "home/agent",
    "etc/mtab",
    "tools",
    "skills",
    "node_modules",
];

/// Small files are written anew: each bind is one more mount that every sandbox's namespace copies.
const FILE_BYTES_MAX: u64 = 2048;
const FILES_BYTES_MAX: usize = 16 * 1024;

/// Of all that is shown one by one. The jail is told in one datagram, of which what is ours takes the other half.
const SHOWN_BYTES_MAX: usize = 64 * 1024;

/// The images that this host has.
#[derive(Debug)]
pub(crate) struct Images {
    store: Option<Store>,
}

impl Images {
    pub(crate) fn find(directory: Option<&Path>) -> Images {
        let open = |directory: &Path| {
            let opened = Store::open(directory);
            opened.inspect_err(|error| tracing::info!(%error, "there are no images here")).ok()
        };
        Images { store: directory.and_then(open) }
    }

    pub(crate) fn are_there(&self) -> bool {
        self.store.is_some()
    }

    /// The root of an image, held as long as anybody has it.
    pub(crate) fn root(&self, name: &str) -> Result<Root, BackendError> {
        // In words for whoever named it: another template may do.
        let lacks = |what: String, instead: String| BackendError::Lacks { what, instead };
        let Some(store) = &self.store else {
            let instead = "use a template without an image";
            return Err(lacks("this server has no store of images".to_owned(), instead.to_owned()));
        };
        let shown: String = name.chars().take(64).collect();
        let found = store.find(name).map_err(|error| match error.kind {
            ImageErrorKind::BadName => lacks(error.words, "use another template".to_owned()),
            _ => BackendError::Unavailable { why: error.words, fix: error.kind.next_step().to_owned() },
        })?;
        let root = found.ok_or_else(|| {
            let fix = format!("the operator makes it with `belljar template build {shown} --image REFERENCE`");
            lacks(format!("there is no image {shown:?} here"), fix)
        })?;
        if root.interpreters.is_empty() {
            let why = format!("the image {shown:?} has no shell and no interpreter that programs could be run by");
            let fix = "build it from an image with a shell, Python 3.8 or later, or Node.js in its PATH";
            return Err(lacks(why, fix.to_owned()));
        }
        Ok(root)
    }
}

/// What a sandbox on an image sees: the image's tree in place of the host's, and what is ours as ever.
pub(crate) fn plan(root: &Root, store: Option<&store::Store>) -> Result<Setup, BackendError> {
    let store = store.and_then(store::Store::path).map(str::to_owned);
    let mut setup = Setup { store, ask: true, ..Setup::default() };
    let inside = OfImage::from(root);
    layout::fit(&mut setup, inside.pythons());
    let mut show = Show { root: &root.path, files_bytes: 0, shown_bytes: 0, ours: ours(&setup), setup: &mut setup };
    show.directory(Path::new(""));
    if show.shown_bytes > SHOWN_BYTES_MAX {
        return Err(BackendError::Lacks {
            what: "the image has more files at the top of it, in /etc, /var and /home than a sandbox can be shown"
                .to_owned(),
            instead: "use an image with fewer of them, or another wall".to_owned(),
        });
    }
    setup.links.extend(inside.fronts());
    Ok(setup)
}

fn ours(setup: &Setup) -> Vec<PathBuf> {
    let files = setup.files.iter().map(|(path, _)| path.as_str());
    let layers = LayerKind::ALL.into_iter().map(LayerKind::inside).chain([BUILD]);
    let below_root = |path: &str| PathBuf::from(path.trim_start_matches('/'));
    let mut ours: Vec<PathBuf> = files.map(below_root).collect();
    ours.extend(layers.chain(OURS).map(below_root));
    ours
}

struct Show<'a> {
    root: &'a Path,
    ours: Vec<PathBuf>,
    files_bytes: usize,
    shown_bytes: usize,
    setup: &'a mut Setup,
}

impl Show<'_> {
    /// Each thing in a directory as a bind, a link or a small file. What has something of ours below it is gone into, if it
    /// is a directory; a link there would lead what is ours elsewhere, and is left out.
    fn directory(&mut self, inside: &Path) {
        let Ok(entries) = fs::read_dir(self.root.join(inside)) else { return };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        for name in names {
            let path = inside.join(&name);
            let on_host = self.root.join(&path);
            let Ok(metadata) = fs::symlink_metadata(&on_host) else { continue };
            let is_above_ours = self.ours.iter().any(|ours| ours.starts_with(&path) && *ours != path);
            let is_ours = self.ours.iter().any(|ours| path.starts_with(ours));
            if is_ours || (is_above_ours && !metadata.is_dir()) || self.shown_bytes > SHOWN_BYTES_MAX {
                continue;
            }
            let Some((inside, host)) = path.to_str().zip(on_host.to_str()) else { continue };
            let inside = format!("/{inside}");
            // A number before each, and a target or a content.
            self.shown_bytes += inside.len() + host.len() + 16;
            if is_above_ours {
                self.directory(&path);
            } else if metadata.is_symlink() {
                let target = fs::read_link(&on_host).ok().and_then(|target| target.to_str().map(str::to_owned));
                self.setup.links.extend(target.map(|target| (inside, target)));
            } else if let Some(text) = self.small(&on_host, &metadata) {
                self.setup.files.push((inside, text));
            } else if metadata.is_dir() || metadata.is_file() {
                self.setup.binds.push(Bind { host: host.to_owned(), inside });
            }
        }
    }

    fn small(&mut self, on_host: &Path, metadata: &fs::Metadata) -> Option<String> {
        let fits = metadata.is_file() && metadata.len() <= FILE_BYTES_MAX;
        let text = fits.then(|| fs::read_to_string(on_host).ok()).flatten()?;
        // A bind keeps the mode that a program would lose.
        let is_plain = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 == 0;
        if !is_plain || text.starts_with("#!") || self.files_bytes + text.len() > FILES_BYTES_MAX {
            return None;
        }
        self.files_bytes += text.len();
        self.shown_bytes += text.len();
        Some(text)
    }
}
