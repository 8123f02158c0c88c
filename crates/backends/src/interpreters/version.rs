//! Versions, and where they can be read without running anything.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use belljar_core::Language;

/// As much of it as was found out: at least what makes the name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Version {
    numbers: Vec<u32>,
    /// `nightly`, of a compiler that has no number yet.
    channel: Option<String>,
}

impl Version {
    /// Of what nobody asks the version of.
    pub(super) fn none() -> Version {
        Version { numbers: Vec::new(), channel: None }
    }

    /// What a text begins with, after an optional `v` or `go`: `3.12.1`, `v20.11.0`, `go1.22rc1`, `1.97.0-nightly (...)`.
    pub(super) fn parse(text: &str) -> Option<Version> {
        let text = text.trim();
        let text = text.strip_prefix("go").or_else(|| text.strip_prefix('v')).unwrap_or(text);
        let length = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (digits, rest) = text.split_at(length);
        let numbers: Option<Vec<u32>> = digits.trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect();
        let channel = ["nightly", "beta"].into_iter().find(|channel| rest.starts_with(&format!("-{channel}")));
        Some(Version { numbers: numbers?, channel: channel.map(str::to_owned) })
    }

    /// The part that tells one from another for whoever chooses: two numbers, of Node one.
    pub(super) fn short(&self, language: Language) -> String {
        if let Some(channel) = &self.channel {
            return channel.clone();
        }
        let count = if language == Language::JavaScript { 1 } else { 2 };
        join(&self.numbers[..count.min(self.numbers.len())])
    }

    /// Whether it has both numbers of `least`, or later ones.
    pub(super) fn is_at_least(&self, least: [u32; 2]) -> bool {
        self.numbers.as_slice() >= least.as_slice()
    }

    /// Of a Python by its own name, `python3.12`, or by the one library that is beside it.
    pub(super) fn of_python(real: &Path) -> Option<Version> {
        let named =
            |name: &str| Version::parse(name.strip_prefix("python")?).filter(|version| version.numbers.len() > 1);
        if let Some(version) = real.file_name().and_then(|name| named(name.to_str()?)) {
            return Some(version);
        }
        let libraries = fs::read_dir(real.parent()?.parent()?.join("lib")).ok()?;
        let has_library = |entry: &fs::DirEntry| entry.path().join("os.py").is_file();
        let mut versions =
            libraries.flatten().filter(has_library).filter_map(|entry| named(entry.file_name().to_str()?));
        versions.next().filter(|_| versions.next().is_none())
    }

    /// With its third number, if it is in a directory that says it: `3.12.1`, `cpython-3.12.1-linux-x86_64-gnu`.
    pub(super) fn in_full_by(self, directory: &Path) -> Version {
        let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let full = Version::parse(name.strip_prefix("cpython-").unwrap_or(name));
        full.filter(|full| full.numbers.starts_with(&self.numbers)).unwrap_or(self)
    }

    /// Of a Node by the header that comes with it.
    pub(super) fn of_node(prefix: &Path) -> Option<Version> {
        let header = read_some(&prefix.join("include/node/node_version.h"), 64 * 1024)?;
        let number = |name: &str| {
            let define = format!("#define NODE_{name}_VERSION ");
            header.lines().find_map(|line| line.strip_prefix(&define)?.trim().parse().ok())
        };
        Some(Version { numbers: vec![number("MAJOR")?, number("MINOR")?, number("PATCH")?], channel: None })
    }

    pub(super) fn of_go(goroot: &Path) -> Option<Version> {
        Version::parse(read_some(&goroot.join("VERSION"), 4096)?.lines().next()?)
    }

    /// Of a toolchain by its name, or by the list of its parts that rustup keeps.
    pub(super) fn of_rust(toolchain: &Path) -> Option<Version> {
        let named = toolchain.file_name().and_then(|name| Version::parse(name.to_str()?));
        named.or_else(|| {
            let manifest = fs::File::open(toolchain.join("lib/rustlib/multirust-channel-manifest.toml")).ok()?;
            // A megabyte, of which one line is wanted: not to be held at once.
            let mut lines = BufReader::new(manifest.take(4 << 20)).lines().map_while(Result::ok);
            lines.find(|line| line == "[pkg.rustc]")?;
            Version::parse(lines.next()?.strip_prefix("version = \"")?)
        })
    }
}

/// A text file of the host; one that is larger than it should be is not read.
fn read_some(path: &Path, bytes_max: u64) -> Option<String> {
    if fs::metadata(path).ok()?.len() > bytes_max {
        return None;
    }
    fs::read_to_string(path).ok()
}

fn join(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.numbers))?;
        self.channel.iter().try_for_each(|channel| write!(f, "-{channel}"))
    }
}
