//! gVisor's program: where it is, whether it is new enough, and how it is called.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use belljar_core::BackendError;

use crate::host::Host;

/// The first release whose platform systrap is the default. Those before have ptrace and KVM, neither of which we take.
pub(super) const OLDEST: u32 = 20_230_904;

/// How to get one, for whoever lacks it.
pub(super) const FIX: &str = "install runsc of 2023-09 or later: on Debian 12 `apt install -t bookworm-backports runsc`, elsewhere \
     see https://gvisor.dev/docs/user_guide/install/; then start belljar again";

const VERSION_PATIENCE: Duration = Duration::from_secs(10);
const VERSION_BYTES_MAX: u64 = 4096;

/// The runsc that every sandbox of this backend is started with.
#[derive(Debug, Clone)]
pub(super) struct Runsc {
    pub(super) program: PathBuf,
    /// As it tells it: `release-20240729.0`.
    pub(super) version: String,
    /// Whether it has to do without root.
    pub(super) rootless: bool,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoRunsc(pub(super) String);

impl From<&NoRunsc> for BackendError {
    fn from(none: &NoRunsc) -> BackendError {
        BackendError::Unavailable { why: none.0.clone(), fix: FIX.to_owned() }
    }
}

impl Runsc {
    /// The one that the operator named, or the first in the server's `PATH`, if it is new enough.
    pub(super) fn find(host: &Host, rootless: bool) -> Result<Runsc, NoRunsc> {
        let in_path = || {
            let programs = std::env::split_paths(&host.path).map(|directory| directory.join("runsc"));
            programs.into_iter().find(|program| program.is_absolute() && program.is_file())
        };
        let program = host.walls.gvisor.runsc.clone().or_else(in_path);
        let program = program.ok_or_else(|| NoRunsc("there is no runsc, gVisor's program, in PATH".to_owned()))?;
        let told =
            ask_version(&program).ok_or_else(|| NoRunsc(format!("{} does not tell its version", program.display())))?;
        let version = told.lines().next().unwrap_or_default().trim_start_matches("runsc version").trim().to_owned();
        // One that was built by hand has no date. It is taken at its word, and the first sandbox tells.
        match date_of(&version) {
            Some(date) if date < OLDEST => {
                Err(NoRunsc(format!("{} is {version}, which has no systrap", program.display())))
            }
            _ => Ok(Runsc { program, version, rootless }),
        }
    }

    /// The command that starts the sandbox `name` of the bundle in `bundle`, and is its life: it ends when the sandbox has.
    pub(super) fn run(&self, name: &str, bundle: &Path, state: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(state);
        command.args([
            // Never KVM: that it can be opened proves nothing. Never ptrace, which is slow and wide.
            "--platform=systrap",
            // Its network has loopback, and no way out.
            "--network=none",
            // The sandbox is in cgroups of ours before runsc is even started.
            "--ignore-cgroups",
            // Nobody writes to the root; what is writable is a tmpfs of gVisor's own.
            "--overlay2=none",
            "--host-uds=none",
            "--host-fifo=none",
            // Layers come and go while the sandbox runs, so what is bound is looked at again each time. The root never changes.
            "--file-access=exclusive",
            "--file-access-mounts=shared",
            // What it logs nobody would read; what it says on its standard error is kept.
            "--log=/dev/null",
        ]);
        if self.rootless {
            command.arg("--rootless");
        }
        command.args([OsStr::new("run"), OsStr::new("--bundle"), bundle.as_os_str(), OsStr::new(name)]);
        command.env_clear().current_dir("/");
        command
    }
}

/// What it says to `--version`, in a bounded time. It is somebody else's program.
fn ask_version(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + VERSION_PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let mut told = String::new();
    child.stdout.take()?.take(VERSION_BYTES_MAX).read_to_string(&mut told).ok()?;
    status.success().then_some(told)
}

/// The day of a release: the first eight digits in a row that begin with 20.
fn date_of(version: &str) -> Option<u32> {
    let runs = version.split(|letter: char| !letter.is_ascii_digit());
    runs.filter(|run| run.len() == 8 && run.starts_with("20")).find_map(|run| run.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_by_its_day() {
        for (version, day) in [
            ("release-20240729.0", Some(20_240_729)),
            ("0.0~20221219.0", Some(20_221_219)),
            ("release-20250505.0-24-g1234567", Some(20_250_505)),
            ("VERSION_MISSING", None),
            ("1.2.3", None),
        ] {
            assert_eq!(date_of(version), day, "{version}");
        }
    }

    #[test]
    fn one_that_is_too_old_or_none_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let host = |path: &Path| Host { path: path.into(), ..Host::default() };
        let why = |found: Result<Runsc, NoRunsc>| found.unwrap_err().0;
        assert!(why(Runsc::find(&host(directory.path()), false)).contains("no runsc"));
        let program = directory.path().join("runsc");
        std::fs::write(&program, "#!/bin/sh\necho 'runsc version 0.0~20221219.0'\necho 'spec: 1.0.2'\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(why(Runsc::find(&host(directory.path()), false)).contains("0.0~20221219.0, which has no systrap"));
        std::fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
        assert!(why(Runsc::find(&host(directory.path()), false)).contains("does not tell its version"));
    }
}
