//! Go's own library, compiled once for all sandboxes to come: ten seconds of CPU that every fresh one would spend before
//! its first program. Only the operator's word makes it (see [`fill`]); it is kept below the user's cache directory and
//! shown to sandboxes read-only. Nothing that a sandbox compiles ever gets there.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use belljar_core::Language;

use super::interpreters::{Interpreter, Interpreters};
use crate::host::Host;

/// Where a sandbox finds it. The script that compiles Go looks there.
pub(super) const INSIDE: &str = "/belljar/go-cache";

/// Why there is no warm cache now.
#[derive(Debug)]
pub enum NotWarm {
    NoGo { fix: String },
    NoHome,
    Compiler { told: String },
    Files(io::Error),
}

impl std::fmt::Display for NotWarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotWarm::NoGo { fix } => write!(f, "there is no Go here; {fix}"),
            NotWarm::NoHome => f.write_str("there is no home directory to keep the cache in; set HOME"),
            NotWarm::Compiler { told } => write!(f, "Go could not compile its library: {told}"),
            NotWarm::Files(error) => write!(f, "the cache could not be written: {error}; see that HOME has room"),
        }
    }
}

impl std::error::Error for NotWarm {}

/// The cache of a Go, if it was filled, and by nobody but us.
pub(super) fn cache_of(go: &Interpreter, host: &Host) -> Option<PathBuf> {
    let directory = place_of(go, host)?;
    let is_ours = fs::symlink_metadata(&directory).is_ok_and(|found| {
        found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
    });
    is_ours.then_some(directory)
}

fn place_of(go: &Interpreter, host: &Host) -> Option<PathBuf> {
    Some(host.home.as_ref()?.join(".cache/belljar").join(format!("go-{}", go.version)))
}

/// Fills the cache of this host's Go, unless it is filled; says where it is.
pub(crate) fn fill(host: &Host) -> Result<PathBuf, NotWarm> {
    let interpreters = Interpreters::find(host);
    let Some(go) = interpreters.default_of(Language::Go) else {
        let missing = interpreters.missing().iter().find(|missing| missing.language == Language::Go);
        return Err(NotWarm::NoGo { fix: missing.map_or("install it", |missing| missing.fix).to_owned() });
    };
    if let Some(filled) = cache_of(go, host) {
        return Ok(filled);
    }
    let place = place_of(go, host).ok_or(NotWarm::NoHome)?;
    let around = place.parent().ok_or(NotWarm::NoHome)?;
    fs::create_dir_all(around).map_err(NotWarm::Files)?;
    // Under another name until it is whole; what an interrupted one left is in nobody's way.
    let unfinished = around.join(format!("unfinished-{}", std::process::id()));
    let filled = compile(go, &unfinished).and_then(|()| {
        make_readable(&unfinished).and_then(|()| fs::rename(&unfinished, &place)).map_err(NotWarm::Files)
    });
    if filled.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    filled.map(|()| place)
}

fn compile(go: &Interpreter, cache: &Path) -> Result<(), NotWarm> {
    let output = Command::new(&go.program)
        .args(["build", "std"])
        // The settings that sandboxes have, and nothing of the user's own: another setting is another cache entry.
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("GOCACHE", cache)
        .env("GOENV", "off")
        .env("GOPATH", cache.join("none"))
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(NotWarm::Files)?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(NotWarm::Compiler { told: told.lines().next().unwrap_or("it said nothing").to_owned() })
}

/// Sandboxes are other users.
fn make_readable(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_readable(&entry.path())?;
        } else {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}
