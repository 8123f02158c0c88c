//! Reading a part of a file, a chunk at a time.

use std::os::fd::OwnedFd;

use belljar_core::wire::{CHUNK_MAX, FromGuest};
use belljar_core::{FileErrorKind, Range};
use rustix::buffer::spare_capacity;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Progress, absolute, is_of_the_kernel, kind_of, refusal};
use crate::stream::{Gone, Stream};

#[derive(Debug)]
pub(super) struct Read {
    id: u32,
    path: String,
    file: OwnedFd,
    size: u64,
    offset: u64,
    left: u64,
}

impl Read {
    pub(super) fn open(id: u32, path: String, range: Range) -> Result<Read, (FileErrorKind, String)> {
        match open_regular(&path) {
            Ok((file, size)) => Ok(Read { id, path, file, size, offset: range.offset, left: range.length }),
            Err(kind) => Err((kind, path)),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Sends one chunk, or the answer that ends the operation.
    pub(super) fn advance(&mut self, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<Progress, Gone> {
        let length = self.left.min(CHUNK_MAX as u64) as usize;
        chunk.reserve_exact(length);
        // An offset that the kernel has no number for is past every end.
        let past = self.offset > i64::MAX as u64;
        let outcome = if length == 0 || past { Ok(0) } else { self.read(chunk) };
        match outcome {
            Ok(0) => {
                stream.send(&FromGuest::Read { id: self.id, size: self.size })?;
                Ok(Progress::Over)
            }
            Ok(_) => {
                // The memory is larger than asked for after a larger chunk, so the file may give too much.
                chunk.truncate(length);
                self.offset += chunk.len() as u64;
                self.left -= chunk.len() as u64;
                let frame = FromGuest::Content { id: self.id, bytes: std::mem::take(chunk) };
                stream.send(&frame)?;
                if let FromGuest::Content { bytes, .. } = frame {
                    *chunk = bytes;
                    chunk.clear();
                }
                Ok(Progress::GoesOn)
            }
            Err(Errno::INTR) => Ok(Progress::GoesOn),
            Err(errno) => {
                stream.send(&FromGuest::Refused { id: self.id, error: refusal(kind_of(errno), &self.path) })?;
                Ok(Progress::Over)
            }
        }
    }

    fn read(&self, chunk: &mut Vec<u8>) -> rustix::io::Result<usize> {
        rustix::io::pread(&self.file, spare_capacity(chunk), self.offset)
    }
}

/// A regular file and its size. Never waits: opening a FIFO or a device for reading could, but for the flags.
fn open_regular(path: &str) -> Result<(OwnedFd, u64), FileErrorKind> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let errors = |errno| kind_of(errno);
    // Links of /proc lead to what the guest has, not the code: its executable, its stream.
    let path = absolute(path)?;
    let opened = match rustix::fs::openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        // gVisor's kernel has no such call. There they lead to nothing that the code has not got: the executable is at
        // `ASK` for everybody, and a socket cannot be opened.
        Err(Errno::NOSYS) => rustix::fs::openat(CWD, &path, flags, Mode::empty()),
        other => other,
    };
    let file = opened.map_err(|errno| match errno {
        Errno::LOOP => FileErrorKind::NotRegular,
        errno => kind_of(errno),
    })?;
    let stat = rustix::fs::fstat(&file).map_err(errors)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(FileErrorKind::IsDirectory),
        _ => return Err(FileErrorKind::NotRegular),
    }
    // Files of /proc say they are regular. They have no end to rely on, and /proc/self here would be the guest.
    if is_of_the_kernel(&file) {
        return Err(FileErrorKind::NotRegular);
    }
    Ok((file, stat.st_size as u64))
}
