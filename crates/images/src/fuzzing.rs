//! The reader of archives, for those who fuzz it (`fuzz/`). Nothing else uses this.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::bounds::Bounds;
use crate::error::{Doing, ImageError};
use crate::tree::open_root;
use crate::unpack::{Budget, unpack};

/// Small, so that no input takes long.
fn bounds() -> Bounds {
    Bounds { unpacked_bytes_max: 1 << 20, file_bytes_max: 1 << 18, entries_max: 64, depth_max: 16, ..Bounds::default() }
}

/// Unpacks a tar into a directory that is there.
pub fn unpack_into(tar: &[u8], directory: &Path) -> Result<(), ImageError> {
    let (bounds, stop) = (bounds(), AtomicBool::new(false));
    let root = open_root(directory).doing("opening the directory")?;
    unpack(tar, root, &mut Budget::new(&bounds, &stop)).map(drop)
}
