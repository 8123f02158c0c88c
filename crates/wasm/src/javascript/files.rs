//! Files for JavaScript, by the worker's own hand: below the directories that code may see, and nowhere else, whatever links
//! it has made.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// No file is read whole past this: it becomes text in an interpreter that has little room.
const READ_MAX: u64 = 64 * 1024 * 1024;

const LISTED_MAX: usize = 10_000;

/// Where code may read, and where it may write.
const READABLE: [&str; 3] = ["/tools", "/skills", "/belljar/lib"];
const WRITABLE: [&str; 4] = ["/workspace", "/tmp", "/var/tmp", "/home/agent"];

/// What the interpreter is told: text, or the name of an error and its words.
pub(super) type Answer = Result<String, String>;

pub(super) fn read(path: &str) -> Answer {
    let mut bytes = Vec::new();
    let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    File::from(file).take(READ_MAX).read_to_end(&mut bytes).map_err(|error| words(path, &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn write(path: &str, text: &str, how: OFlags) -> Answer {
    let file = open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | how)?;
    File::from(file).write_all(text.as_bytes()).map_err(|error| words(path, &error))?;
    Ok(String::new())
}

pub(super) fn list(path: &str) -> Answer {
    let directory = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let entries = Dir::new(directory).map_err(|error| refused(path, error))?;
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: Vec<String> = names.filter(|name| name != "." && name != "..").take(LISTED_MAX).collect();
    Ok(serde_json::Value::from(names).to_string())
}

pub(super) fn make_directory(path: &str) -> Answer {
    let (parent, name) = parent(path)?;
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)).map_err(|error| refused(path, error))?;
    Ok(String::new())
}

pub(super) fn remove(path: &str) -> Answer {
    let (parent, name) = parent(path)?;
    rustix::fs::unlinkat(&parent, name, AtFlags::empty())
        .or_else(|_| rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR))
        .map_err(|error| refused(path, error))?;
    Ok(String::new())
}

fn parent(path: &str) -> Result<(OwnedFd, &str), String> {
    let (above, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or((".", path));
    if !WRITABLE.iter().any(|place| absolute(path).starts_with(place)) {
        return Err(refused(path, Errno::ACCESS));
    }
    Ok((open(if above.is_empty() { "/" } else { above }, OFlags::RDONLY | OFlags::DIRECTORY)?, name))
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", belljar_core::WORKSPACE) }
}

fn open(path: &str, flags: OFlags) -> Result<OwnedFd, String> {
    let whole = absolute(path);
    let may_write = !flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE);
    let places = WRITABLE.iter().chain(READABLE.iter().filter(|_| may_write));
    let below = |place: &str| whole.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let Some(place) = places.copied().find(|place| below(place)) else { return Err(refused(path, Errno::ACCESS)) };
    let rest = whole[place.len()..].trim_start_matches('/');
    let rest = if rest.is_empty() { "." } else { rest };
    let directory = rustix::fs::open(place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let opened = directory.and_then(|directory| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o644) } else { Mode::empty() };
        rustix::fs::openat2(directory, rest, flags | OFlags::CLOEXEC | OFlags::NOCTTY, mode, resolve)
    });
    opened.map_err(|error| refused(path, error))
}

fn refused(path: &str, errno: Errno) -> String {
    words(path, &std::io::Error::from(errno))
}

fn words(path: &str, error: &std::io::Error) -> String {
    let code = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "ENOENT",
        Some(Errno::NOTDIR) => "ENOTDIR",
        Some(Errno::EXIST) => "EEXIST",
        Some(Errno::NOSPC) => "ENOSPC",
        Some(Errno::ISDIR) => "EISDIR",
        Some(Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::ROFS) => "EACCES",
        _ => "EIO",
    };
    format!("{code} {error}, '{path}'")
}
