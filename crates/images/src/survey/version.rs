//! Versions, by the files that come with a program.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::inside::resolve;

/// `3.12.1`, `v20.1`, `go1.22.3`, `1:18.13.0+dfsg1-1`: the numbers after what is no part of them.
pub(super) fn parse(text: &str) -> Option<Vec<u32>> {
    let text = text.trim().rsplit_once(':').map_or(text.trim(), |(_, rest)| rest);
    let text = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let numbers: Option<Vec<u32>> =
        text[..end].trim_end_matches('.').split('.').take(3).map(|number| number.parse().ok()).collect();
    numbers.filter(|numbers| !numbers.is_empty())
}

pub(super) fn short(version: &[u32], parts: usize) -> String {
    version.iter().take(parts).map(u32::to_string).collect::<Vec<_>>().join(".")
}

/// By the name that it really has, or by the one library beside it.
pub(super) fn of_python(root: &Path, real: &Path) -> Option<Vec<u32>> {
    let named = |name: &str| parse(name.strip_prefix("python")?).filter(|version| version.len() > 1);
    if let Some(version) = real.file_name().and_then(|name| named(name.to_str()?)) {
        return Some(version);
    }
    let library = resolve(root, &real.parent()?.parent()?.join("lib"))?;
    let entries = fs::read_dir(root.join(&library)).ok()?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut versions =
        names.filter(|name| is_file(root, &library.join(name).join("os.py"))).filter_map(|name| named(&name));
    versions.next().filter(|_| versions.next().is_none())
}

pub(super) fn of_node(root: &Path, prefix: &Path) -> Option<Vec<u32>> {
    let header = read(root, &prefix.join("include/node/node_version.h"), 64 * 1024)?;
    let number = |name: &str| {
        let define = format!("#define NODE_{name}_VERSION ");
        header.lines().find_map(|line| line.strip_prefix(&define)?.trim().parse().ok())
    };
    Some(vec![number("MAJOR")?, number("MINOR")?, number("PATCH")?])
}

pub(super) fn of_go(root: &Path, goroot: &Path) -> Option<Vec<u32>> {
    parse(read(root, &goroot.join("VERSION"), 4096)?.lines().next()?)
}

/// The one toolchain that rustup has, by its name: `1.95.0-x86_64-unknown-linux-gnu`.
pub(super) fn of_rustup(root: &Path, home: &Path) -> Option<Vec<u32>> {
    let toolchains = resolve(root, &home.join("toolchains"))?;
    let entries = fs::read_dir(root.join(toolchains)).ok()?;
    let mut versions = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        parse(&name).filter(|_| name.starts_with(|c: char| c.is_ascii_digit()))
    });
    versions.next().filter(|_| versions.next().is_none())
}

/// By the list of parts that its installer leaves: `rustc-1.95.0-x86_64-unknown-linux-gnu`, or the version file beside it.
pub(super) fn of_rust_library(root: &Path, prefix: &Path) -> Option<Vec<u32>> {
    parse(&read(root, &prefix.join("lib/rustlib/version"), 256)?)
}

fn is_file(root: &Path, path: &Path) -> bool {
    resolve(root, path)
        .is_some_and(|real| fs::symlink_metadata(root.join(real)).is_ok_and(|metadata| metadata.is_file()))
}

/// A text file of the root; one that is larger than it should be is not read.
pub(super) fn read(root: &Path, path: &Path, bytes_max: u64) -> Option<String> {
    let real = root.join(resolve(root, path)?);
    let metadata = fs::symlink_metadata(&real).ok()?;
    if !metadata.is_file() || metadata.len() > bytes_max {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(real).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
