//! What the system's package manager has written down: Debian's and Alpine's, which are text.

use std::path::Path;

use super::version::{parse, read};

/// A full desktop's is a few megabytes.
const LIST_BYTES_MAX: u64 = 32 << 20;

/// The version of the first of these packages that is installed.
pub(super) fn version_of(root: &Path, names: &[&str]) -> Option<Vec<u32>> {
    let debian = read(root, Path::new("var/lib/dpkg/status"), LIST_BYTES_MAX);
    let alpine = read(root, Path::new("lib/apk/db/installed"), LIST_BYTES_MAX);
    names.iter().find_map(|name| {
        let of_debian = || field(debian.as_deref()?, "Package: ", name, "Version: ");
        let of_alpine = || field(alpine.as_deref()?, "P:", name, "V:");
        parse(of_debian().or_else(of_alpine)?)
    })
}

/// A field of the paragraph that has this name.
fn field<'a>(list: &'a str, key: &str, name: &str, wanted: &str) -> Option<&'a str> {
    let is_it = |paragraph: &&str| paragraph.lines().any(|line| line.strip_prefix(key) == Some(name));
    let paragraph = list.split("\n\n").find(is_it)?;
    paragraph.lines().find_map(|line| line.strip_prefix(wanted))
}
