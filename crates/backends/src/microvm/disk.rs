//! File systems as single files, for drives that machines read: the root of a template, what is ours, and layers. Each is
//! made once, under a name that says what is in it, and used by every machine that needs it.
//!
//! All are of one length, whatever is in them: the size of a drive is part of a snapshot, and what is put into its slot
//! later must not have another. The rest is a hole, which takes no space.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use belljar_core::BackendError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sha2::{Digest, Sha256};

/// The length of every image. More than any template or layer is.
pub(super) const IMAGE_BYTES: u64 = 32 << 30;

/// What a directory may hold before it is not made into an image.
const CONTENT_BYTES_MAX: u64 = 16 << 30;
const ENTRIES_MAX: u64 = 2_000_000;

/// A maker of images that has not ended by then hangs.
const MAKING_MAX: Duration = Duration::from_secs(300);

/// Past this, images that were not used for longest go. One that a machine has open stays until it is closed.
const IMAGES_MAX: usize = 64;

/// The end of what a maker of images said, for the error.
const SAID_MAX: u64 = 4096;

/// What makes images, and which file system they then are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Maker {
    /// Read-only by its nature, and made quickest.
    Erofs(PathBuf),
    /// In every distribution, and in every kernel.
    Ext4(PathBuf),
}

impl Maker {
    /// The one given, or the first that this host has.
    pub(super) fn find(given: Option<&Path>, path: &OsStr) -> Result<Maker, BackendError> {
        let by_name = |program: &Path| match program.file_name().and_then(OsStr::to_str) {
            Some("mke2fs" | "mkfs.ext4") => Maker::Ext4(program.to_owned()),
            _ => Maker::Erofs(program.to_owned()),
        };
        if let Some(given) = given {
            return Ok(by_name(given));
        }
        let directories = || std::env::split_paths(path).chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from));
        for name in ["mkfs.erofs", "mke2fs"] {
            if let Some(program) = directories().map(|directory| directory.join(name)).find(|path| path.is_file()) {
                return Ok(by_name(&program));
            }
        }
        Err(BackendError::Unavailable {
            why: "nothing here makes images of file systems".to_owned(),
            fix: "install erofs-utils, or e2fsprogs".to_owned(),
        })
    }

    pub(super) fn file_system(&self) -> &'static str {
        match self {
            Maker::Erofs(_) => "erofs",
            Maker::Ext4(_) => "ext4",
        }
    }

    fn command(&self, from: &Path, to: &Path, content: &Content) -> Command {
        match self {
            Maker::Erofs(program) => {
                let mut command = Command::new(program);
                // Everything root's: whose it was on this host means nothing inside.
                command.args(["--all-root", "--quiet", "-x-1", "-U", UUID]).arg(to).arg(from);
                command
            }
            Maker::Ext4(program) => {
                // Twice the content and an inode for each entry: the file system's own tables, and blocks that are not full.
                let kib = (content.bytes / 1024 + content.entries * 4) * 5 / 4 + 16 * 1024;
                let inodes = content.entries + content.entries / 8 + 64;
                let mut command = Command::new(program);
                command.args(["-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096", "-I", "256", "-U", UUID]);
                command.args(["-O", "^has_journal,^resize_inode,^metadata_csum,^orphan_file", "-E", "root_owner=0:0"]);
                command.arg("-N").arg(inodes.to_string()).arg("-d").arg(from).arg(to).arg(format!("{kib}k"));
                command
            }
        }
    }
}

/// Nobody tells these file systems apart by it.
const UUID: &str = "00000000-0000-4000-8000-000000000000";

/// What a directory holds, and a name for just that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    /// Of every path with its kind, size and time, in hexadecimal.
    pub(super) stamp: String,
}

/// Looks through a directory without following links.
pub(super) fn look(directory: &Path) -> Result<Content, BackendError> {
    let failed =
        |path: &Path, why: &dyn std::fmt::Display| setup("looking at files", &format!("{}: {why}", path.display()));
    let (mut bytes, mut entries, mut hash) = (0u64, 0u64, Sha256::new());
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let listed = std::fs::read_dir(&directory).map_err(|error| failed(&directory, &error))?;
        let mut paths: Vec<PathBuf> = listed.filter_map(Result::ok).map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let metadata = path.symlink_metadata().map_err(|error| failed(&path, &error))?;
            entries += 1;
            bytes = bytes.saturating_add(metadata.size());
            if bytes > CONTENT_BYTES_MAX || entries > ENTRIES_MAX {
                return Err(failed(&path, &"there is more in it than an image may have"));
            }
            hash.update(path.as_os_str().as_encoded_bytes());
            for number in
                [metadata.mode().into(), metadata.size(), metadata.mtime() as u64, metadata.mtime_nsec() as u64]
            {
                hash.update(number.to_le_bytes());
            }
            if metadata.is_dir() {
                left.push(path);
            }
        }
    }
    Ok(Content { bytes, entries, stamp: hex(&hash.finalize()) })
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The images of this server's user.
#[derive(Debug)]
pub(super) struct Disks {
    directory: PathBuf,
    maker: Maker,
    /// One image is made at a time: two of the same would be made twice, and two large ones only get in each other's way.
    making: Mutex<()>,
}

impl Disks {
    pub(super) fn new(directory: PathBuf, maker: Maker) -> Result<Disks, BackendError> {
        private(&directory)?;
        Ok(Disks { directory, maker, making: Mutex::new(()) })
    }

    pub(super) fn maker(&self) -> &Maker {
        &self.maker
    }

    /// The image of this name, if it is there.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.directory.join(format!("{name}.{}", self.maker.file_system()));
        is_used(&path).then_some(path)
    }

    /// The image of `from`, which is called `name`: the same name is always the same content. Stands still while it is
    /// made: not for a thread that others wait for.
    pub(super) fn image(&self, name: &str, from: &Path) -> Result<PathBuf, BackendError> {
        if let Some(path) = self.find(name) {
            return Ok(path);
        }
        let path = self.directory.join(format!("{name}.{}", self.maker.file_system()));
        let _one = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if is_used(&path) {
            return Ok(path);
        }
        let content = look(from)?;
        self.make_room(&content)?;
        let part = Part(self.directory.join(format!(".{name}.{}.part", crate::unique())));
        run(self.maker.command(from, &part.0, &content))?;
        let failed = |error: std::io::Error| setup("making an image", &error);
        let file = File::options().write(true).open(&part.0).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > IMAGE_BYTES {
            return Err(setup("making an image", &"there is more in it than an image may have"));
        }
        file.set_len(IMAGE_BYTES).map_err(failed)?;
        std::fs::rename(&part.0, &path).map_err(failed)?;
        self.forget_oldest();
        Ok(path)
    }

    /// Nothing is begun that cannot be ended for want of space.
    fn make_room(&self, content: &Content) -> Result<(), BackendError> {
        let failed = |error: rustix::io::Errno| setup("looking for space", &error);
        let there = rustix::fs::statvfs(&self.directory).map_err(failed)?;
        let (free, needed) = (there.f_bavail * there.f_frsize, content.bytes + content.entries * 4096);
        if free < needed {
            return Err(full(needed, free));
        }
        Ok(())
    }

    fn forget_oldest(&self) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let age =
            |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut images: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        images.sort_by_key(age);
        let many = images.len().saturating_sub(IMAGES_MAX);
        for path in images.into_iter().take(many) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether an image is there; if so it counts as used just now.
fn is_used(path: &Path) -> bool {
    File::options().write(true).open(path).is_ok_and(|file| {
        let _ = file.set_modified(SystemTime::now());
        true
    })
}

/// A file on its way, removed unless it got another name.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A directory that is ours alone.
pub(super) fn private(directory: &Path) -> Result<(), BackendError> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let failed = |error: std::io::Error| setup("making a directory", &format!("{}: {error}", directory.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let metadata = directory.symlink_metadata().map_err(failed)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() || !metadata.is_dir() {
        return Err(setup("making a directory", &format!("{} is somebody else's", directory.display())));
    }
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).map_err(failed)
}

/// Runs a program to its end, or to its deadline.
fn run(mut command: Command) -> Result<(), BackendError> {
    let failed = |why: &dyn std::fmt::Display| setup("making an image", why);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let said = child.stderr.take();
    let listener = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut said) = said {
            let _ = said.by_ref().take(SAID_MAX).read_to_end(&mut text);
            // What it has to say beyond that must not hold it.
            let _ = std::io::copy(&mut said, &mut std::io::sink());
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    });
    let deadline = Timespec { tv_sec: MAKING_MAX.as_secs() as i64, tv_nsec: 0 };
    if let Some(pid) = Pid::from_raw(child.id() as i32)
        && let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
        && poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&deadline)) == Ok(0)
    {
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    let said = listener.join().unwrap_or_default();
    if status.success() {
        return Ok(());
    }
    if said.contains("No space left") || said.contains("Could not allocate block") {
        return Err(full(0, 0));
    }
    Err(failed(&format!("{status}: {said}")))
}

fn full(needed: u64, free: u64) -> BackendError {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let figures =
        if needed > 0 { format!(": {} MB are needed, {} are free", mib(needed), mib(free)) } else { String::new() };
    BackendError::Unavailable {
        why: format!("the disk is full, and a machine's file system could not be made{figures}"),
        fix: "make room in the cache directory's file system, or name another: [microvm] cache = \"/path\"".to_owned(),
    }
}

fn setup(step: &str, why: &dyn std::fmt::Display) -> BackendError {
    BackendError::Setup { step: step.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests;
