//! A tar becomes a directory. Each entry is looked at by us, and written by descriptors that cannot be led elsewhere.
//!
//! What an entry says of its owner, of setuid bits and of extended attributes is dropped: all belongs to us, directories and
//! programs are 0755, other files 0644. Devices, pipes and sockets are left out and counted. Whiteouts stay as the empty files
//! that they are in a layer; `assemble` heeds them.

mod path;
#[cfg(test)]
mod tests;
mod write;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use tar::{Archive, EntryType};

use self::path::Parts;
use self::write::Writer;
use crate::bounds::Bounds;
use crate::decode::{Measured, TooMuch};
use crate::error::{Doing, ImageError, ImageErrorKind};
use crate::tree::shown;

/// Of all that may come before one entry: long names and extended headers are held in memory.
const HEADERS_BYTES_MAX: u64 = 2 << 20;

/// Headers and padding, beyond the bytes of files.
const AROUND_ENTRY_BYTES: u64 = 1024;

/// What all layers of an image may still have.
#[derive(Debug)]
pub(crate) struct Budget<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    /// Devices and the like that were left out.
    pub(crate) skipped: u64,
    /// Set by whoever does not want it any more.
    pub(crate) stop: &'a AtomicBool,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(bounds: &'a Bounds, stop: &'a AtomicBool) -> Budget<'a> {
        Budget { bounds, bytes: bounds.unpacked_bytes_max, entries: bounds.entries_max, skipped: 0, stop }
    }

    fn goes_on(&self) -> Result<(), ImageError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ImageError::new(ImageErrorKind::Cancelled, "the build was given up"));
        }
        Ok(())
    }

    fn takes_bytes(&mut self, bytes: u64) -> Result<(), ImageError> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| {
            let max = self.bounds.unpacked_bytes_max >> 20;
            ImageError::new(ImageErrorKind::TooLarge, format!("it is larger than {max} MiB when unpacked"))
        })?;
        Ok(())
    }

    fn takes_entry(&mut self) -> Result<(), ImageError> {
        self.entries = self.entries.checked_sub(1).ok_or_else(|| {
            let max = self.bounds.entries_max;
            ImageError::new(ImageErrorKind::TooLarge, format!("it has more than {max} files and directories"))
        })?;
        Ok(())
    }
}

/// A layer that stands, under its temporary name.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// The digest of the tar, as sixty-four digits.
    pub(crate) diff_id: String,
    /// Directories that no entry made: those of a layer below may be links instead.
    pub(crate) implied: BTreeSet<PathBuf>,
}

pub(crate) fn unpack(stream: impl Read, into: OwnedFd, budget: &mut Budget<'_>) -> Result<Unpacked, ImageError> {
    let allowance = Rc::new(Cell::new(u64::MAX));
    let around = budget.entries.saturating_mul(AROUND_ENTRY_BYTES);
    let stream = Measured::new(stream, budget.bytes.saturating_add(around), Rc::clone(&allowance));
    let mut archive = Archive::new(stream);
    let mut writer = Writer::new(into, budget.bounds.implied_max);
    let mut entries = archive.entries().map_err(|error| unreadable(&error))?;
    loop {
        budget.goes_on()?;
        // The reader holds what comes before an entry in memory; its data it does not.
        allowance.set(HEADERS_BYTES_MAX);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(|error| unreadable(&error))?;
        allowance.set(u64::MAX);
        budget.takes_entry()?;
        place(&mut entry, &mut writer, budget)?;
        // Read to its end, so that what the next one costs is its own headers.
        io::copy(&mut entry, &mut io::sink()).map_err(|error| unreadable(&error))?;
    }
    let implied = writer.finish();
    let diff_id = archive.into_inner().finish().map_err(|error| unreadable(&error))?;
    Ok(Unpacked { diff_id, implied })
}

fn place(
    entry: &mut tar::Entry<'_, impl Read>,
    writer: &mut Writer,
    budget: &mut Budget<'_>,
) -> Result<(), ImageError> {
    let kind = entry.header().entry_type();
    if kind.is_pax_global_extensions() {
        return Ok(());
    }
    refuse_sparse_by_pax(entry)?;
    let name = entry.path_bytes().into_owned();
    let parts = Parts::of(&name, budget.bounds)?;
    let Some(parts) = parts else {
        // The root itself, which is a directory and nothing else.
        return if kind.is_dir() { Ok(()) } else { Err(hostile(&name, "would be the root itself")) };
    };
    let link = || entry.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default();
    match kind {
        EntryType::Directory => writer.directory(&parts),
        EntryType::Symlink => writer.symlink(&parts, &link()),
        EntryType::Link => {
            let target = link();
            match Parts::of(&target, budget.bounds)? {
                Some(target) => writer.hard_link(&parts, &target),
                None => Err(hostile(&name, "is a hard link to the root")),
            }
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let size = entry.size();
            if size > budget.bounds.file_bytes_max {
                let max = budget.bounds.file_bytes_max >> 20;
                let words = format!("{} is larger than {max} MiB", shown(&name));
                return Err(ImageError::new(ImageErrorKind::TooLarge, words));
            }
            budget.takes_bytes(size)?;
            let is_program = entry.header().mode().unwrap_or(0o644) & 0o111 != 0;
            let modified = entry.header().mtime().unwrap_or(0);
            writer.file(&parts, is_program, modified, entry, budget.stop)
        }
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            budget.skipped += 1;
            Ok(())
        }
        other => {
            let words = format!("{} is of a kind that we do not read ({:#x})", shown(&name), other.as_byte());
            Err(ImageError::new(ImageErrorKind::Unsupported, words))
        }
    }
}

/// GNU's newer ways to write a file with holes: the reader would take the list of holes for the file's beginning.
fn refuse_sparse_by_pax(entry: &mut tar::Entry<'_, impl Read>) -> Result<(), ImageError> {
    let Some(extensions) = entry.pax_extensions().map_err(|error| unreadable(&error))? else { return Ok(()) };
    for extension in extensions {
        let extension = extension.map_err(|error| unreadable(&error))?;
        if extension.key_bytes().starts_with(b"GNU.sparse.") {
            let words = "it has files with holes in a form that we do not read; make the tar without --sparse";
            return Err(ImageError::new(ImageErrorKind::Unsupported, words));
        }
    }
    Ok(())
}

fn hostile(name: &[u8], why: &str) -> ImageError {
    ImageError::new(ImageErrorKind::Hostile, format!("the entry {} {why}", shown(name)))
}

/// What could not be read of the tar.
fn unreadable(error: &io::Error) -> ImageError {
    if error.get_ref().is_some_and(|inner| inner.is::<TooMuch>()) {
        return ImageError::new(ImageErrorKind::TooLarge, "it unpacks to more than it may");
    }
    // Some of the reader's own errors are wrapped in words of the tar crate's.
    match error.to_string() {
        words if words.contains("it has more than it may") => {
            ImageError::new(ImageErrorKind::TooLarge, "it unpacks to more than it may")
        }
        words => ImageError::new(ImageErrorKind::Corrupt, format!("the tar cannot be read: {words}")),
    }
}

/// What could not be written of it.
fn unwritten<T>(name: &[u8], result: Result<T, impl Into<io::Error>>) -> Result<T, ImageError> {
    result.doing(&format!("unpacking {}", shown(name)))
}
