//! What an image has to run programs with. Each that is found is asked for its version, inside the place and nowhere else:
//! what an image says of itself is the image's word.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};

/// By the names that they are looked for, and how each is asked.
const ASKED: [(&str, &[&str]); 6] = [
    ("python3", &["--version"]),
    ("node", &["--version"]),
    ("bash", &["--version"]),
    ("sh", &[]),
    ("go", &["version"]),
    ("rustc", &["--version"]),
];

const USUAL: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/go/bin", "/usr/local/cargo/bin", "/opt/bin"];

/// One that takes longer has no version.
const PATIENCE: Duration = Duration::from_secs(5);
const WORDS_MAX: u64 = 512;
const DIRECTORIES_MAX: usize = 64;

/// Prints what is there. Its exit code.
pub(crate) fn tell(path: &[u8]) -> i32 {
    let named = path.split(|byte| *byte == b':').map(|part| PathBuf::from(std::ffi::OsStr::from_bytes(part)));
    let mut seen = BTreeSet::new();
    let directories: Vec<PathBuf> = named
        .chain(USUAL.map(PathBuf::from))
        .filter(|directory| directory.is_absolute() && seen.insert(directory.clone()))
        .take(DIRECTORIES_MAX)
        .collect();
    let mut out = std::io::stdout().lock();
    for (name, question) in ASKED {
        let found = directories.iter().map(|directory| directory.join(name)).find(|file| is_program(file));
        let Some(file) = found else { continue };
        let version = version(&file, question).unwrap_or_default();
        if writeln!(out, "{name}\t{}\t{version}", file.display()).is_err() {
            return 1;
        }
    }
    i32::from(out.flush().is_err())
}

fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

/// The first line that it prints.
fn version(file: &Path, question: &[&str]) -> Option<String> {
    if question.is_empty() {
        return None;
    }
    let mut child = Command::new(file)
        .args(question)
        .env_clear()
        .env("HOME", "/tmp")
        .env("PATH", USUAL.join(":"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + PATIENCE;
    let is_done = loop {
        match child.try_wait() {
            Ok(Some(_)) => break true,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            _ => break false,
        }
    };
    if !is_done {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    let mut words = Vec::new();
    child.stdout.take()?.take(WORDS_MAX).read_to_end(&mut words).ok()?;
    let line = String::from_utf8_lossy(&words).lines().next()?.trim().to_owned();
    Some(line.chars().filter(|character| !character.is_control()).collect())
}
