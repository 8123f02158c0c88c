//! A directory of the host as a tar, in an order of its own: what is unpacked from it is checked as any other.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

/// Writes it, and tells how many devices, pipes and sockets were left out. Only this file system: what is mounted below, such
/// as /proc, is not part of it.
pub(crate) fn write_tar(directory: &Path, to: impl Write, depth_max: usize) -> io::Result<u64> {
    let mut builder = Builder::new(to);
    let device = fs::symlink_metadata(directory)?.dev();
    let mut packer = Packer { builder: &mut builder, device, depth_max, skipped: 0 };
    packer.directory(directory, Path::new(""), 0)?;
    let skipped = packer.skipped;
    builder.into_inner()?.flush()?;
    Ok(skipped)
}

struct Packer<'a, W: Write> {
    builder: &'a mut Builder<W>,
    device: u64,
    depth_max: usize,
    skipped: u64,
}

impl<W: Write> Packer<'_, W> {
    fn directory(&mut self, on_host: &Path, inside: &Path, depth: usize) -> io::Result<()> {
        if depth > self.depth_max {
            return Err(io::Error::other(format!("{} is deeper than a path may be", on_host.display())));
        }
        let mut names: Vec<OsString> =
            fs::read_dir(on_host)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        names.sort();
        for name in names {
            self.entry(&on_host.join(&name), &inside.join(&name), depth)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", on_host.join(&name).display())))?;
        }
        Ok(())
    }

    fn entry(&mut self, on_host: &Path, inside: &Path, depth: usize) -> io::Result<()> {
        let metadata = fs::symlink_metadata(on_host)?;
        let kind = metadata.file_type();
        let mut header = Header::new_gnu();
        header.set_mode(metadata.mode() & 0o755);
        header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
        header.set_size(0);
        if kind.is_dir() {
            header.set_entry_type(EntryType::Directory);
            // A tar of it tells nothing of the time: files that come and go would give another digest.
            header.set_mtime(0);
            self.builder.append_data(&mut header, inside, io::empty())?;
            if metadata.dev() == self.device {
                self.directory(on_host, inside, depth + 1)?;
            }
        } else if kind.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            self.builder.append_link(&mut header, inside, fs::read_link(on_host)?)?;
        } else if kind.is_file() {
            header.set_size(metadata.len());
            let file = File::open(on_host)?;
            // One that grows meanwhile is cut where it was; one that shrinks is an error.
            let mut file = io::Read::take(file, metadata.len());
            self.builder.append_data(&mut header, inside, &mut file)?;
            if file.limit() > 0 {
                return Err(io::Error::other("it changed while it was read"));
            }
        } else {
            debug_assert!(kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket());
            self.skipped += 1;
        }
        Ok(())
    }
}

/// The directory without links on the way to it.
pub(crate) fn real(directory: &Path) -> io::Result<PathBuf> {
    let real = directory.canonicalize()?;
    if real.is_dir() { Ok(real) } else { Err(io::ErrorKind::NotADirectory.into()) }
}
