//! The name of an entry, taken apart.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::hostile;
use crate::bounds::Bounds;
use crate::error::{ImageError, ImageErrorKind};
use crate::tree::shown;

const PATH_BYTES_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 255;

/// A path below the root: at least one part, and none of them leads up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts<'a>(Vec<&'a [u8]>);

impl<'a> Parts<'a> {
    /// `None` for the root itself. An absolute name is one below the root.
    pub(super) fn of(name: &'a [u8], bounds: &Bounds) -> Result<Option<Parts<'a>>, ImageError> {
        let parts: Vec<&[u8]> =
            name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        let is_long = name.len() > PATH_BYTES_MAX || parts.iter().any(|part| part.len() > NAME_BYTES_MAX);
        if is_long || parts.len() > bounds.depth_max {
            let words = format!("the name {} is longer or deeper than a path may be", shown(name));
            return Err(ImageError::new(ImageErrorKind::TooLarge, words));
        }
        if parts.contains(&b"..".as_slice()) {
            return Err(hostile(name, "leads up with \"..\""));
        }
        if name.contains(&0) {
            return Err(hostile(name, "has a zero byte in its name"));
        }
        Ok(Some(Parts(parts)).filter(|parts| !parts.0.is_empty()))
    }

    pub(super) fn last(&self) -> &'a OsStr {
        OsStr::from_bytes(self.0.last().copied().unwrap_or_default())
    }

    pub(super) fn parents(&self) -> &[&'a [u8]] {
        self.0.split_last().map_or(&[], |(_, parents)| parents)
    }

    pub(super) fn whole(&self) -> Vec<u8> {
        self.0.join(&b'/')
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.iter().map(|part| OsStr::from_bytes(part)).collect()
    }
}
