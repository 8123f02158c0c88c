//! What of the host may be shown for an interpreter's sake.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::host::Host;

/// Shown to every sandbox whole, so nothing below needs a bind of its own.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store"];

/// Directories with much in them besides an interpreter, should one have been installed straight into them.
const TOPS: [&str; 15] = [
    "/",
    "/dev",
    "/etc",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/srv",
    "/sys",
    "/tmp",
    "/var",
    "/workspace",
];

/// What the directory of an interpreter or a compiler alone has in it: a prefix, a virtual environment, a conda
/// environment, an unpacked archive of Node's or Go's, a toolchain of rustup's.
const USUAL: [&str; 42] = [
    ".gitignore",
    ".lock",
    "BUILD",
    "CACHEDIR.TAG",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "EXTERNALLY-MANAGED",
    "PATENTS",
    "README.md",
    "SECURITY.md",
    "VERSION",
    "__init__.py",
    "__pycache__",
    "api",
    "bin",
    "codereview.cfg",
    "compiler_compat",
    "conda-meta",
    "condabin",
    "doc",
    "envs",
    "etc",
    "go.env",
    "include",
    "lib",
    "lib32",
    "lib64",
    "libexec",
    "man",
    "misc",
    "pip-selfcheck.json",
    "pkg",
    "pkgs",
    "pyvenv.cfg",
    "sbin",
    "share",
    "shell",
    "src",
    "ssl",
    "test",
    "uv-receipt.json",
    "var",
];

pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

pub(super) fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Whether a directory is an interpreter's own and nothing else, by what is in it, so that it can be shown whole.
pub(super) fn is_own(home: &Path, host: &Host) -> bool {
    let Ok(real) = fs::canonicalize(home) else { return false };
    let is_shared = TOPS.iter().any(|top| real == Path::new(top))
        || real.parent() == Some(Path::new("/home"))
        || real.ends_with(".local")
        || host.home.as_ref().is_some_and(|own| own.starts_with(&real));
    let Ok(entries) = fs::read_dir(&real) else { return false };
    let is_usual = |name: &str| USUAL.contains(&name) || name.ends_with("-linux-gnu") || name.starts_with("LICENSE");
    !is_shared && entries.flatten().all(|entry| entry.file_name().to_str().is_some_and(is_usual))
}
