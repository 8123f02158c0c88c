//! Firecracker, with its jailer where we are root. Written against its documented API (1.x) and tried with a server that
//! plays it: no host of ours has both its program and a KVM that runs machines.
//!
//! Its streams are connections of a vsock, which the guest's side makes: Firecracker connects them to Unix sockets of the
//! host that have the port's number in their name. A snapshot does not keep them, so only machines in which no guest stands
//! yet are copied; their keeper connects again.

mod api;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use belljar_core::wire::{GUEST_VSOCK, KEEPER_VSOCK};
use belljar_core::{BackendError, Later};
use serde_json::{Value, json};
use tokio::net::UnixListener;

use super::console::Console;
use super::process::{Process, User, Walls, Wanted};
use super::vmm::{Beginning, Machine, Started, Streams, Vm, Vmm};
use crate::ids::Ids;
use crate::{setup, sys};

/// Files of a machine, by the names that it knows them by: below its own directory, so that copies have the same.
const SOCKET: &str = "api.sock";
const VSOCK: &str = "v.sock";
const STATE: &str = "state";
const MEMORY: &str = "memory";

/// How long a machine may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Firecracker {
    program: PathBuf,
    version: String,
    /// What it is started by where we are root: gives it a root, a user and namespaces of its own.
    jailer: Option<PathBuf>,
    /// Where machines have their directories, each for as long as it lives. On the file system of the images, so that
    /// those can be linked there.
    directory: PathBuf,
}

impl Firecracker {
    pub(super) fn new(program: &Path, directory: &Path) -> Result<Firecracker, BackendError> {
        let unusable = |why: String| BackendError::Unavailable {
            why: format!("{} cannot be used: {why}", program.display()),
            fix:
                "put a release of Firecracker into PATH, or name QEMU: [microvm] vmm = \"/usr/bin/qemu-system-x86_64\""
                    .to_owned(),
        };
        let said = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
        let said = said.map_err(|error| unusable(error.to_string()))?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = text.lines().next().and_then(|line| line.strip_prefix("Firecracker v"));
        let version = version.ok_or_else(|| unusable("it does not say its version".to_owned()))?.trim().to_owned();
        let jailer = sys::is_admin().then(|| program.with_file_name("jailer"));
        if let Some(jailer) = jailer.as_deref().filter(|jailer| !jailer.is_file()) {
            return Err(unusable(format!("its jailer is not beside it, at {}", jailer.display())));
        }
        Ok(Firecracker { program: program.to_owned(), version, jailer, directory: directory.join("running") })
    }
}

impl Vmm for Firecracker {
    fn name(&self) -> &'static str {
        "Firecracker"
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn modules(&self) -> &'static [&'static str] {
        &["vmw_vsock_virtio_transport"]
    }

    fn command_line(&self) -> String {
        "console=ttyS0 quiet loglevel=4 reboot=k panic=-1 random.trust_cpu=on".to_owned()
    }

    fn keeps_streams(&self) -> bool {
        false
    }

    fn start<'a>(&'a self, walls: &'a Arc<Walls>, machine: &'a Machine, from: Beginning<'a>) -> Later<'a, Started> {
        Box::pin(async move {
            let jailed = self.jailer.as_deref().zip(walls.ids.as_ref().map(Ids::lease));
            let place = Directory::new(&self.directory, jailed.as_ref().map(|(_, id)| id.number()))?;
            let files = [(&machine.kernel, "kernel".to_owned()), (&machine.initramfs, "initramfs".to_owned())];
            let drives = machine.drives.iter().enumerate().map(|(number, drive)| (drive, format!("drive{number}")));
            for (file, name) in files.into_iter().chain(drives) {
                place.link(file, &name)?;
            }
            if let Some(snapshot) = from.from {
                place.link(&snapshot.join(STATE), STATE)?;
                place.link(&snapshot.join(MEMORY), MEMORY)?;
            }
            let listen = |port: u32| {
                let path = place.0.join(format!("{VSOCK}_{port}"));
                let listener = UnixListener::bind(&path).map_err(|error| setup("listening to a machine", &error))?;
                // A monitor that is another user connects to it; the directory is for it and us alone.
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))
                    .map_err(|error| setup("listening to a machine", &error))?;
                Ok::<_, BackendError>(listener)
            };
            let (guest, keeper) = (listen(GUEST_VSOCK)?, listen(KEEPER_VSOCK)?);
            let (console, says) =
                std::os::unix::net::UnixStream::pair().map_err(|error| setup("making a stream", &error))?;
            let mut command = match &jailed {
                None => Command::new(&self.program),
                Some((jailer, id)) => place.jailed(jailer, &self.program, id.number()),
            };
            command.args(["--api-sock", SOCKET]).env_clear().current_dir(&place.0).stdin(Stdio::null());
            // The jailer puts a copy of the program into the machine's root before it becomes it.
            let copied = jailed.as_ref().map_or(Ok(0), |_| self.program.metadata().map(|found| found.len()));
            let copied = copied.map_err(|error| setup("looking at the monitor", &error))?;
            let user = jailed.map_or(User::Own, |(_, id)| User::Becomes(id));
            let says = std::os::fd::OwnedFd::from(says);
            let again = says.try_clone().map_err(|error| setup("making a stream", &error))?;
            command.stdout(says).stderr(again);
            console.set_nonblocking(true).map_err(|error| setup("making a stream", &error))?;
            let console =
                tokio::net::UnixStream::from_std(console).map_err(|error| setup("making a stream", &error))?;
            let console = Console::of(console);
            let file_bytes = if from.to.is_some() { machine.memory_bytes + (256 << 20) } else { copied };
            let (memory_bytes, cpu_milli) = (machine.memory_bytes, machine.cpu_milli);
            let wanted = Wanted { command, descriptors: Vec::new(), memory_bytes, cpu_milli, file_bytes, user };
            let process = Process::start(walls, wanted).await?;
            let socket = place.0.join(SOCKET);
            let to = from.to.map(Path::to_owned);
            let vm = FirecrackerVm { process, socket, console, place, to };
            api::listens(&vm.socket).await?;
            for (method, path, body) in requests(machine, from.from.is_some()) {
                api::ask(&vm.socket, method, &path, &body).await?;
            }
            let accepted = async {
                let (keeper, _) = keeper.accept().await?;
                let (guest, _) = guest.accept().await?;
                Ok::<_, std::io::Error>(Streams { guest, keeper })
            };
            let streams = match tokio::time::timeout(CONNECT_MAX, accepted).await {
                Ok(Ok(streams)) => streams,
                Ok(Err(error)) => return Err(setup("listening to a machine", &error)),
                Err(_) => {
                    let last = vm.console();
                    return Err(setup("booting", &format!("the machine did not connect; the last it said: {last}")));
                }
            };
            Ok(Started { vm: Arc::new(vm), streams })
        })
    }
}

/// What a machine is made of, or what its snapshot is loaded by.
fn requests(machine: &Machine, is_snapshot: bool) -> Vec<(&'static str, String, Value)> {
    let put = |path: &str, body: Value| ("PUT", path.to_owned(), body);
    if is_snapshot {
        let memory = json!({ "backend_type": "File", "backend_path": MEMORY });
        return vec![put(
            "/snapshot/load",
            json!({ "snapshot_path": STATE, "mem_backend": memory, "resume_vm": true }),
        )];
    }
    let mut requests = vec![
        put(
            "/machine-config",
            json!({ "vcpu_count": machine.cpus(), "mem_size_mib": machine.memory_bytes.div_ceil(1 << 20), "smt": false }),
        ),
        put(
            "/boot-source",
            json!({ "kernel_image_path": "kernel", "initrd_path": "initramfs", "boot_args": machine.command_line }),
        ),
    ];
    for number in 0..machine.drives.len() {
        let id = format!("drive{number}");
        let body = json!({ "drive_id": id, "path_on_host": id, "is_root_device": false, "is_read_only": true });
        requests.push(put(&format!("/drives/{id}"), body));
    }
    requests.push(put("/vsock", json!({ "guest_cid": 3, "uds_path": VSOCK })));
    requests.push(put("/actions", json!({ "action_type": "InstanceStart" })));
    requests
}

/// A machine's own directory, which goes with it. Where there is a jailer it is laid out as that expects it, and becomes the
/// monitor's root.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn new(below: &Path, user: Option<u32>) -> Result<Directory, BackendError> {
        super::disk::private(below)?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| setup("naming a machine", &error))?;
        let path = below.join("firecracker").join(super::disk::hex(&random)).join("root");
        let failed = |error: std::io::Error| setup("making a machine's directory", &error);
        std::fs::create_dir_all(&path).map_err(failed)?;
        if let Some(user) = user {
            std::os::unix::fs::chown(&path, Some(user), Some(user)).map_err(failed)?;
        }
        Ok(Directory(path))
    }

    /// The jailer's words, up to those that are the monitor's own.
    fn jailed(&self, jailer: &Path, program: &Path, user: u32) -> Command {
        let id = self.0.parent().and_then(Path::file_name).unwrap_or_default();
        let base = self.0.ancestors().nth(3).unwrap_or(&self.0);
        let mut command = Command::new(jailer);
        command.arg("--id").arg(id).arg("--exec-file").arg(program);
        command.arg("--uid").arg(user.to_string()).arg("--gid").arg(user.to_string());
        command.arg("--chroot-base-dir").arg(base).arg("--");
        command
    }

    fn link(&self, file: &Path, name: &str) -> Result<(), BackendError> {
        let failed =
            |error: std::io::Error| setup("giving a machine its files", &format!("{}: {error}", file.display()));
        std::fs::hard_link(file, self.0.join(name)).map_err(failed)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap_or(&self.0));
    }
}

#[derive(Debug)]
struct FirecrackerVm {
    // Before its directory: nothing is to be in use there when that goes.
    process: Process,
    socket: PathBuf,
    console: Console,
    place: Directory,
    to: Option<PathBuf>,
}

impl Vm for FirecrackerVm {
    fn snapshot(&self) -> Later<'_, ()> {
        Box::pin(async {
            let to = self.to.as_deref().ok_or_else(|| setup("taking a snapshot", &"nobody said where to"))?;
            api::ask(&self.socket, "PATCH", "/vm", &json!({ "state": "Paused" })).await?;
            let body = json!({ "snapshot_type": "Full", "snapshot_path": STATE, "mem_file_path": MEMORY });
            api::ask(&self.socket, "PUT", "/snapshot/create", &body).await?;
            for name in [STATE, MEMORY] {
                let (from, to) = (self.place.0.join(name), to.join(name));
                let kept = std::fs::rename(from, &to)
                    // Copies are other users than their model was, and only read.
                    .and_then(|()| std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o444)));
                kept.map_err(|error| setup("keeping a snapshot", &error))?;
            }
            Ok(())
        })
    }

    fn attach<'a>(&'a self, drive: u8, image: &'a Path) -> Later<'a, ()> {
        Box::pin(async move {
            let (id, name) = (format!("drive{drive}"), format!("layer{drive}"));
            self.place.link(image, &name)?;
            let body = json!({ "drive_id": id, "path_on_host": name });
            api::ask(&self.socket, "PATCH", &format!("/drives/{id}"), &body).await
        })
    }

    fn process(&self) -> &Process {
        &self.process
    }

    fn console(&self) -> String {
        self.console.last()
    }
}

#[cfg(test)]
mod tests;
