//! QEMU's machine `microvm`: a few virtio devices and nothing else, with KVM, or emulated where the operator said so.

mod command;
mod qmp;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use belljar_core::{BackendError, Later};
use serde_json::json;
use tokio::net::UnixStream;

use self::command::{content_name, drive_name, file_of};
use self::qmp::Qmp;
use super::console::Console;
use super::process::{Process, User, Walls, Wanted};
use super::vmm::{Beginning, Machine, Started, Streams, Vm, Vmm};
use crate::microvm::boot::in_short;
use crate::{setup, sys};

/// From this version on a snapshot can be used in place ("mapped-ram").
const MAJOR_MIN: u32 = 9;

/// A snapshot of a machine with all the memory that we give, on a slow disk.
const SNAPSHOT_MAX: Duration = Duration::from_secs(120);

/// The file in a snapshot's directory.
const STATE: &str = "state";

/// The first number of the sets that content is added under once a machine runs.
const ADDED_SETS: u32 = 1000;

/// Whether the processor runs the machine itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Acceleration {
    Kvm,
    /// By a program that was never meant to hold what it runs.
    Emulation,
}

#[derive(Debug)]
pub(super) struct Qemu {
    program: PathBuf,
    version: String,
    acceleration: Acceleration,
}

impl Qemu {
    /// Asks the program what it is.
    pub(super) fn new(program: &Path, acceleration: Acceleration) -> Result<Qemu, BackendError> {
        let unusable = |why: String| BackendError::Unavailable {
            why: format!("{} cannot be used: {why}", program.display()),
            fix: format!(
                "install QEMU {MAJOR_MIN} or newer (Debian 12: apt install -t bookworm-backports qemu-system-x86)"
            ),
        };
        let said = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
        let said = said.map_err(|error| unusable(error.to_string()))?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = text.lines().next().and_then(|line| line.strip_prefix("QEMU emulator version "));
        let version = version.ok_or_else(|| unusable("it does not say its version".to_owned()))?.to_owned();
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < MAJOR_MIN) {
            return Err(unusable(format!("it is version {version}")));
        }
        Ok(Qemu { program: program.to_owned(), version, acceleration })
    }
}

impl Vmm for Qemu {
    fn name(&self) -> &'static str {
        match self.acceleration {
            Acceleration::Kvm => "QEMU with KVM",
            Acceleration::Emulation => "QEMU, emulated",
        }
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn modules(&self) -> &'static [&'static str] {
        &[]
    }

    fn command_line(&self) -> String {
        // `reboot=t`: the end of the machine is the end of QEMU.
        let common = "console=ttyS0 quiet loglevel=4 reboot=t panic=-1 random.trust_cpu=on";
        match (self.acceleration, ticks_per_ms()) {
            // This machine has nothing that an emulated processor's clock could be measured against, and it is the host's.
            (Acceleration::Emulation, Some(khz)) => format!("{common} tsc_early_khz={khz}"),
            _ => common.to_owned(),
        }
    }

    fn floor(&self, kernel: &Path, initramfs: &Path) -> Option<(PathBuf, Vec<OsString>)> {
        Some((self.program.clone(), command::floor(self.acceleration, kernel, initramfs, &self.command_line())))
    }

    fn start<'a>(&'a self, walls: &'a Arc<Walls>, machine: &'a Machine, from: Beginning<'a>) -> Later<'a, Started> {
        Box::pin(async move {
            let (guest, guests) = stream()?;
            let (keeper, keepers) = stream()?;
            let (qmp, qmps) = stream()?;
            let (console, consoles) = stream()?;
            let open = |path: &Path| {
                File::open(path).map(OwnedFd::from).map_err(|error| setup("opening a machine's file", &error))
            };
            // What QEMU itself has to say goes where its machine speaks.
            let says = consoles.try_clone().map_err(|error| setup("making a stream", &error))?;
            let mut descriptors = vec![
                (guests, command::GUEST_FD),
                (keepers, command::KEEPER_FD),
                (qmps, command::QMP_FD),
                (consoles, command::CONSOLE_FD),
                (open(&machine.kernel)?, command::KERNEL_FD),
                (open(&machine.initramfs)?, command::INITRAMFS_FD),
            ];
            for (number, drive) in machine.drives.iter().enumerate() {
                descriptors.push((open(drive)?, command::DRIVES_FD + number as i32));
            }
            if self.acceleration == Acceleration::Kvm {
                // A user of its own may not open it.
                let kvm = File::options().read(true).write(true).open("/dev/kvm");
                descriptors.push((kvm.map_err(|error| setup("opening /dev/kvm", &error))?.into(), command::KVM_FD));
            }
            if let Some(directory) = from.from {
                descriptors.push((open(&directory.join(STATE))?, command::FROM_FD));
            }
            let mut file_bytes = 0;
            if let Some(directory) = from.to {
                let state = File::options().write(true).create_new(true).open(directory.join(STATE));
                let state = state.map_err(|error| setup("making a snapshot's file", &error))?;
                descriptors.push((state.into(), command::TO_FD));
                file_bytes = machine.memory_bytes * 2 + (256 << 20);
            }
            let mut command = command::command(&self.program, self.acceleration, machine, from);
            command.stderr(says);
            let (memory_bytes, cpu_milli) = (machine.memory_bytes, machine.cpu_milli);
            let wanted = Wanted { command, descriptors, memory_bytes, cpu_milli, file_bytes, user: User::Own };
            let console = Console::of(console);
            let process = Process::start(walls, wanted).await?;
            let why = |error: BackendError| match console.last() {
                last if last.is_empty() => error,
                last => setup("starting QEMU", &format!("{} ({last})", in_short(&error))),
            };
            let qmp = Qmp::greet(qmp).await.map_err(why)?;
            let vm = QemuVm { process, qmp, console: console.clone(), changes: AtomicU32::new(1) };
            if from.from.is_some() {
                vm.restore().await.map_err(why)?;
            }
            Ok(Started { vm: Arc::new(vm), streams: Streams { guest, keeper } })
        })
    }
}

fn stream() -> Result<(UnixStream, OwnedFd), BackendError> {
    let failed = |error: std::io::Error| setup("making a stream", &error);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    Ok((UnixStream::from_std(ours).map_err(failed)?, theirs.into()))
}

/// How fast this processor counts. Measured once: it takes a moment, and does not change.
fn ticks_per_ms() -> Option<u64> {
    static KNOWN: std::sync::OnceLock<Option<u64>> = std::sync::OnceLock::new();
    *KNOWN.get_or_init(|| {
        let (before, began) = (sys::ticks()?, Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (after, lasted) = (sys::ticks()?, began.elapsed());
        Some((u128::from(after - before) * 1_000_000 / lasted.as_nanos().max(1)) as u64)
    })
}

#[derive(Debug)]
struct QemuVm {
    process: Process,
    qmp: Qmp,
    console: Console,
    changes: AtomicU32,
}

impl QemuVm {
    async fn use_in_place(&self) -> Result<(), BackendError> {
        let capabilities = json!({ "capabilities": [{ "capability": "mapped-ram", "state": true }] });
        self.qmp.ask("migrate-set-capabilities", capabilities).await.map(drop)
    }

    async fn restore(&self) -> Result<(), BackendError> {
        self.use_in_place().await?;
        let uri = format!("file:{}", file_of(command::FROM_FD));
        self.qmp.ask("migrate-incoming", json!({ "uri": uri })).await?;
        self.qmp.migrated(SNAPSHOT_MAX).await?;
        self.qmp.ask("cont", json!({})).await.map(drop)
    }
}

impl Vm for QemuVm {
    fn snapshot(&self) -> Later<'_, ()> {
        Box::pin(async {
            self.use_in_place().await?;
            self.qmp.ask("stop", json!({})).await?;
            let uri = format!("file:{}", file_of(command::TO_FD));
            self.qmp.ask("migrate", json!({ "uri": uri })).await?;
            self.qmp.migrated(SNAPSHOT_MAX).await
        })
    }

    fn attach<'a>(&'a self, drive: u8, image: &'a Path) -> Later<'a, ()> {
        Box::pin(async move {
            let file = File::open(image).map_err(|error| setup("opening an image", &error))?;
            let change = self.changes.fetch_add(1, Ordering::Relaxed);
            let set = ADDED_SETS + change;
            self.qmp.ask_with("add-fd", json!({ "fdset-id": set }), &[file.as_fd()]).await?;
            let content = content_name(drive, change);
            let file = json!({
                "driver": "file", "node-name": content, "filename": format!("/dev/fdset/{set}"),
                "read-only": true, "locking": "off",
            });
            self.qmp.ask("blockdev-add", file).await?;
            let drive = json!({ "driver": "raw", "node-name": drive_name(drive), "read-only": true, "file": content });
            self.qmp.ask("blockdev-reopen", json!({ "options": [drive] })).await.map(drop)
        })
    }

    fn process(&self) -> &Process {
        &self.process
    }

    fn console(&self) -> String {
        self.console.last()
    }
}
