//! What all machines of a server have in common: their monitor, the kernel, images and snapshots. Made when the first is
//! asked for, since it takes a moment, and a boot where none was tried yet.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use belljar_core::wire::{DRIVES_FOR_LAYERS, DRIVES_OWN};
use belljar_core::{BackendError, Limits};
use sha2::{Digest, Sha256};

use super::boot::{self, Verdict};
use super::disk::{Disks, IMAGE_BYTES, Maker, hex, private};
use super::firecracker::Firecracker;
use super::kernel::{self, Kernel};
use super::process::Walls;
use super::qemu::{Acceleration, Qemu};
use super::roots::Root;
use super::snapshot::Snapshots;
use super::vmm::{Machine, Vmm};
use super::{fitted, initramfs, modules};
use crate::host::Host;
use crate::{carried, setup};

/// What a machine's kernel, its keeper and the guest need beside the sandbox's own.
const OVERHEAD_BYTES: u64 = 160 << 20;

/// Sizes are rounded up to these, so that limits that differ little share a snapshot.
const STEP_BYTES: u64 = 64 << 20;

const MONITORS: [&str; 2] = ["firecracker", "qemu-system-x86_64"];

#[derive(Debug)]
pub(super) struct Base {
    pub(super) vmm: Box<dyn Vmm>,
    /// Why the processor does not run the machines itself, where an emulator does.
    pub(super) emulated: Option<String>,
    /// How long a first machine took to come up, where one was tried.
    pub(super) tried: Option<Duration>,
    pub(super) kernel: Kernel,
    files: Files,
    pub(super) disks: Arc<Disks>,
    pub(super) snapshots: Snapshots,
    pub(super) walls: Arc<Walls>,
    /// A drive that nothing is in.
    empty: PathBuf,
    directory: PathBuf,
}

/// What a machine starts with: the kernel as an ELF file, and its first file system.
#[derive(Debug, Clone)]
struct Files {
    elf: PathBuf,
    initramfs: PathBuf,
}

/// What was found before anything is started.
#[derive(Debug)]
struct Found {
    directory: PathBuf,
    disks: Disks,
    kernel: Kernel,
    snapshots: Snapshots,
    empty: PathBuf,
    /// The one named, or those of the host.
    monitors: Vec<PathBuf>,
    emulation: bool,
}

impl Base {
    /// Looks for everything, and tries whether a machine comes up.
    pub(super) async fn new(host: Host) -> Result<Base, BackendError> {
        let looking = tokio::task::spawn_blocking(move || Found::new(&host));
        let found = looking.await.map_err(|error| setup("looking for what machines need", &error))??;
        let walls = Arc::new(Walls::new()?);
        let (vmm, files, tried, emulated) = found.monitor(&walls).await?;
        let Found { directory, disks, kernel, snapshots, empty, .. } = found;
        Ok(Base { vmm, emulated, tried, kernel, files, disks: Arc::new(disks), snapshots, walls, empty, directory })
    }

    /// The machine of a sandbox with this root and these limits. Stands still where an image has to be made.
    pub(super) fn machine(&self, root: &Root, limits: &Limits) -> Result<Machine, BackendError> {
        let root_image = self.disks.image(&root.id, &root.path)?;
        let fittings = self.fittings(root)?;
        let mut drives = vec![root_image, fittings];
        drives.resize(usize::from(DRIVES_OWN + DRIVES_FOR_LAYERS), self.empty.clone());
        let needed = limits.memory_bytes.saturating_add(limits.disk_bytes).saturating_add(OVERHEAD_BYTES);
        let fs = self.disks.maker().file_system();
        Ok(Machine {
            memory_bytes: needed.next_multiple_of(STEP_BYTES),
            cpu_milli: limits.cpu_milli,
            kernel: self.files.elf.clone(),
            initramfs: self.files.initramfs.clone(),
            command_line: format!("{} belljar.fs={fs}", self.vmm.command_line()),
            drives,
        })
    }

    /// The monitor's own way to boot a machine that says one line and ends.
    pub(super) fn floor(&self) -> Option<(PathBuf, Vec<OsString>)> {
        self.vmm.floor(&self.files.elf, &self.files.initramfs)
    }

    fn fittings(&self, root: &Root) -> Result<PathBuf, BackendError> {
        let name = fitted::name(root);
        if let Some(image) = self.disks.find(&name) {
            return Ok(image);
        }
        let failed = |error: std::io::Error| setup("writing the fittings", &error);
        let tree = self.directory.join(format!("fitting-{}-{name}", crate::unique()));
        let _ = std::fs::remove_dir_all(&tree);
        private(&tree)?;
        let image = fitted::write(&tree, root).map_err(failed).and_then(|()| {
            // Of the tree itself everybody may read what is in it, once it is an image.
            std::fs::set_permissions(&tree, std::os::unix::fs::PermissionsExt::from_mode(0o755)).map_err(failed)?;
            self.disks.image(&name, &tree)
        });
        let _ = std::fs::remove_dir_all(&tree);
        image
    }
}

impl Found {
    fn new(host: &Host) -> Result<Found, BackendError> {
        let settings = &host.walls.microvm;
        if !cfg!(target_arch = "x86_64") {
            return Err(BackendError::Unavailable {
                why: "machines are made for x86-64 processors only".to_owned(),
                fix: "use another backend here".to_owned(),
            });
        }
        let directory = host.cache.as_deref().map(|cache| cache.join("microvm"));
        let directory = directory.ok_or_else(|| BackendError::Unavailable {
            why: "there is no cache directory to keep machines' files in".to_owned(),
            fix: "start the server with a home directory of its own".to_owned(),
        })?;
        private(&directory)?;
        let monitors = monitors(settings.vmm.as_deref(), &host.path)?;
        let wanted = kernel::Wanted { kernel: settings.kernel.clone(), modules: settings.modules.clone() };
        let kernel = kernel::find(&wanted)?;
        let disks = Disks::new(directory.join("images"), Maker::find(settings.mkfs.as_deref(), &host.path)?)?;
        let snapshots = Snapshots::new(directory.join("snapshots"))?;
        let empty = directory.join("empty");
        let made = File::options().write(true).create(true).truncate(false).open(&empty);
        made.and_then(|file| file.set_len(IMAGE_BYTES)).map_err(|error| setup("making an empty drive", &error))?;
        Ok(Found { directory, disks, kernel, snapshots, empty, monitors, emulation: settings.emulation })
    }

    /// The first that a machine comes up with; or an emulator, if that will do.
    async fn monitor(
        &self,
        walls: &Arc<Walls>,
    ) -> Result<(Box<dyn Vmm>, Files, Option<Duration>, Option<String>), BackendError> {
        let mut why = boot::objection();
        if why.is_none() {
            for program in &self.monitors {
                let tried = async {
                    let vmm = monitor(program, Acceleration::Kvm, &self.directory)?;
                    let files = self.files(&*vmm)?;
                    let kernel = (files.elf.clone(), files.initramfs.clone());
                    let verdict = boot::tried(&self.directory, &*vmm, walls, kernel).await?;
                    Ok::<_, BackendError>((vmm, files, verdict))
                };
                match tried.await {
                    Ok((vmm, files, Verdict::Up { after })) => return Ok((vmm, files, Some(after), None)),
                    Ok((vmm, _, Verdict::Not { why: not })) => why = Some(format!("{}: {not}", vmm.name())),
                    Err(error) => why = Some(error.to_string()),
                }
            }
        }
        let why = why.unwrap_or_else(|| "nothing was tried".to_owned());
        let emulator = self.monitors.iter().find(|program| !is_firecracker(program));
        match emulator.filter(|_| self.emulation) {
            Some(program) => {
                let vmm = monitor(program, Acceleration::Emulation, &self.directory)?;
                let files = self.files(&*vmm)?;
                Ok((vmm, files, None, Some(why)))
            }
            None => Err(BackendError::Unavailable {
                why: format!("virtual machines do not run here: {why}"),
                fix: "use a host with KVM, or another backend; for tests alone there is [microvm] emulation = true, \
                      which is no wall"
                    .to_owned(),
            }),
        }
    }

    /// Made once of each kernel, for each build of ours.
    fn files(&self, vmm: &dyn Vmm) -> Result<Files, BackendError> {
        let failed = |error: std::io::Error| setup("reading the kernel", &error);
        let metadata = self.kernel.image.metadata().map_err(failed)?;
        let mut hash = Sha256::new();
        hash.update(format!("{:?} {:?} {}", self.kernel, metadata.modified().ok(), metadata.len()));
        let kernel = hex(&hash.clone().finalize()[..16]);
        hash.update(carried::SETTLE);
        let fs = self.disks.maker().file_system();
        hash.update(format!("{fs} {:?}", vmm.modules()));
        let files = Files {
            elf: self.directory.join(format!("{kernel}.elf")),
            initramfs: self.directory.join(format!("{}.cpio", hex(&hash.finalize()[..16]))),
        };
        if !files.elf.exists() {
            put(&files.elf, &kernel::elf(&self.kernel.image)?)?;
        }
        if !files.initramfs.exists() {
            let needed: Vec<&str> = vmm.modules().iter().copied().chain([fs]).collect();
            let modules = match &self.kernel.modules {
                Some(directory) => modules::in_order(directory, &needed).map_err(|why| BackendError::Unavailable {
                    why: format!("the kernel {} cannot be used: {why}", self.kernel.image.display()),
                    fix: "name another in the configuration: [microvm] kernel and modules".to_owned(),
                })?,
                None => Vec::new(),
            };
            put(&files.initramfs, &initramfs::build(carried::SETTLE, &modules))?;
        }
        Ok(files)
    }
}

/// A file that is there whole or not at all. A monitor reads it as another user.
fn put(path: &Path, bytes: &[u8]) -> Result<(), BackendError> {
    let part = path.with_extension(format!("{}.part", crate::unique()));
    let written = std::fs::write(&part, bytes).and_then(|()| {
        std::fs::set_permissions(&part, std::os::unix::fs::PermissionsExt::from_mode(0o444))?;
        std::fs::rename(&part, path)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        setup("writing a machine's file", &error)
    })
}

fn is_firecracker(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"firecracker"))
}

fn monitor(program: &Path, acceleration: Acceleration, directory: &Path) -> Result<Box<dyn Vmm>, BackendError> {
    if is_firecracker(program) {
        return Ok(Box::new(Firecracker::new(program, directory)?));
    }
    Ok(Box::new(Qemu::new(program, acceleration)?))
}

/// The one named, or all that this host has, in the order in which they are tried.
fn monitors(named: Option<&Path>, path: &OsStr) -> Result<Vec<PathBuf>, BackendError> {
    let found: Vec<PathBuf> = match named {
        Some(named) => vec![named.to_owned()],
        None => {
            let places =
                |name: &'static str| std::env::split_paths(path).map(move |place| place.join(name)).collect::<Vec<_>>();
            MONITORS.into_iter().flat_map(places).collect()
        }
    };
    let found: Vec<PathBuf> = found.into_iter().filter(|program| program.is_file()).collect();
    if found.is_empty() {
        return Err(BackendError::Unavailable {
            why: match named {
                Some(named) => format!("there is no {}", named.display()),
                None => "there is neither Firecracker nor QEMU here".to_owned(),
            },
            fix: "install QEMU 9 or newer (Debian: apt install qemu-system-x86), or put firecracker into PATH"
                .to_owned(),
        });
    }
    Ok(found)
}
