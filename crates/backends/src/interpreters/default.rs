//! The one that `PATH` leads to. A shim, or one whose directory does not say what it is, is asked.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use belljar_core::Language;

use super::home::{is_executable, is_own, is_system};
use super::{Interpreter, Version};
use crate::host::Host;

/// A shim that has to think (pyenv's takes 60 ms) is waited for; one that hangs is not.
const PATIENCE: Duration = Duration::from_secs(10);

/// The oldest that our driver runs in.
pub(super) const PYTHON_MIN: [u32; 2] = [3, 8];

/// An error says why there is none.
pub(super) fn find(language: Language, host: &Host) -> Result<Interpreter, String> {
    let mut why = format!("no {} in PATH", language.interpreters().join(" or "));
    for name in language.interpreters() {
        for directory in directories(host) {
            let candidate = directory.join(name);
            if !is_executable(&candidate) {
                continue;
            }
            match resolve(language, &candidate, host) {
                Ok(found) => return Ok(found),
                // A broken one, such as a shim without a version, does not hide a good one further on.
                Err(reason) => why = format!("{}: {reason}", candidate.display()),
            }
        }
    }
    Err(why)
}

/// Those of `PATH`, but for relative ones, which mean another place inside.
pub(super) fn directories(host: &Host) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(&host.path).filter(|directory| directory.is_absolute())
}

/// An interpreter as it says itself that it is.
struct Answer {
    program: PathBuf,
    homes: Vec<PathBuf>,
    version: Version,
}

fn resolve(language: Language, candidate: &Path, host: &Host) -> Result<Interpreter, String> {
    let real = canonical(candidate)?;
    let Answer { program, mut homes, version } = match language {
        Language::Python => python(candidate, &real)?,
        Language::JavaScript | Language::TypeScript => node(candidate, &real)?,
        Language::Go => go(candidate, &real)?,
        Language::Rust => rust(candidate, &real, host)?,
        Language::Shell => Answer { program: candidate.to_owned(), homes: Vec::new(), version: Version::none() },
    };
    let found = |program, homes| Interpreter { language, version, program, homes };
    let real = canonical(&program)?;
    if is_system(&program) && is_system(&real) && homes.iter().all(|home| is_system(home)) {
        return Ok(found(program, Vec::new()));
    }
    if !is_system(&real) && !homes.iter().any(|home| real.starts_with(home)) {
        // What is in some `bin` has the rest of its files beside that.
        homes.push(prefix(&real).to_owned());
    }
    homes.retain(|home| !is_system(home));
    if homes.iter().all(|home| is_own(home, host)) {
        // A link from elsewhere, such as ~/.local/bin/python3, is not there inside; what it leads to is.
        let program = if homes.iter().any(|home| program.starts_with(home)) { program } else { real };
        return Ok(found(program, homes));
    }
    // It shares its home with others: ~/.local, or an application's directory. Then only its own parts are shown.
    let below = |parts: &[&str]| homes.iter().flat_map(|home| parts.iter().map(|part| home.join(part))).collect();
    let mut parts: Vec<PathBuf> = match language {
        Language::Python => python_parts(candidate)?,
        Language::JavaScript | Language::TypeScript => below(&["lib/node_modules"]),
        Language::Go => below(&["bin/go", "bin/gofmt", "go.env", "lib/time", "pkg", "src", "VERSION"]),
        Language::Rust => return Err("it is not in a directory of its own".to_owned()),
        Language::Shell => Vec::new(),
    };
    // A virtual environment in a directory with other things: it is found by its program's own path.
    let environment = homes.iter().find(|home| home.join("pyvenv.cfg").is_file() && program.starts_with(home));
    let shown = match environment {
        Some(environment) => {
            parts.extend(["bin", "lib", "lib64", "pyvenv.cfg"].map(|part| environment.join(part)));
            parts.extend(homes.iter().filter(|home| is_own(home, host)).cloned());
            program.clone()
        }
        None => real.clone(),
    };
    parts.push(real);
    parts.retain(|part| part.exists() && !is_system(part));
    parts.dedup();
    Ok(found(shown, parts))
}

fn canonical(path: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(path).map_err(|error| error.to_string())
}

/// Of a program in some `bin`, the directory that has it.
fn prefix(program: &Path) -> &Path {
    program.parent().and_then(Path::parent).unwrap_or(Path::new("/"))
}

fn unclear() -> String {
    "it does not say what it is".to_owned()
}

fn python(candidate: &Path, real: &Path) -> Result<Answer, String> {
    let known = Version::of_python(real).filter(|_| is_system(candidate) && is_system(real));
    let answer = match known {
        Some(version) => Answer { program: candidate.to_owned(), homes: Vec::new(), version },
        None => {
            let script = "import sys; print(sys.executable); print('%d.%d.%d' % sys.version_info[:3]); \
                          print(sys.prefix); print(sys.base_prefix)";
            let lines = ask(candidate, &["-I", "-c", script])?;
            let [program, version, homes @ ..] = lines.as_slice() else { return Err(unclear()) };
            let version = Version::parse(version).ok_or_else(unclear)?;
            Answer { program: PathBuf::from(program), homes: homes.iter().map(PathBuf::from).collect(), version }
        }
    };
    if !answer.version.is_at_least(PYTHON_MIN) {
        return Err(format!("it is Python {}, and 3.8 or later is needed", answer.version));
    }
    Ok(answer)
}

fn node(candidate: &Path, real: &Path) -> Result<Answer, String> {
    // A header beside it says that this is the real one, and which.
    if let Some(version) = Version::of_node(prefix(real)) {
        let program = if is_system(candidate) { candidate } else { real };
        return Ok(Answer { program: program.to_owned(), homes: Vec::new(), version });
    }
    if is_system(candidate) && is_system(real) {
        let lines = ask(candidate, &["--version"])?;
        let version = lines.first().and_then(|line| Version::parse(line)).ok_or_else(unclear)?;
        return Ok(Answer { program: candidate.to_owned(), homes: Vec::new(), version });
    }
    let lines = ask(candidate, &["-p", "process.execPath + '\\n' + process.version"])?;
    let [program, version] = lines.as_slice() else { return Err(unclear()) };
    let version = Version::parse(version).ok_or_else(unclear)?;
    Ok(Answer { program: PathBuf::from(program), homes: Vec::new(), version })
}

/// Whether a directory is what `go env GOROOT` says.
pub(super) fn is_goroot(directory: &Path) -> bool {
    directory.join("src/runtime").is_dir() && is_executable(&directory.join("bin/go"))
}

fn go(candidate: &Path, real: &Path) -> Result<Answer, String> {
    let goroot = match prefix(real) {
        goroot if is_goroot(goroot) => goroot.to_owned(),
        _ => match ask(candidate, &["env", "GOROOT"])?.as_slice() {
            [goroot] if is_goroot(Path::new(goroot)) => canonical(Path::new(goroot))?,
            _ => return Err(unclear()),
        },
    };
    let program = goroot.join("bin/go");
    let version = match Version::of_go(&goroot) {
        Some(version) => version,
        None => {
            ask(&program, &["env", "GOVERSION"])?.first().and_then(|line| Version::parse(line)).ok_or_else(unclear)?
        }
    };
    Ok(Answer { program, homes: vec![goroot], version })
}

/// Whether a directory has a Rust compiler with its library.
pub(super) fn is_toolchain(directory: &Path) -> bool {
    directory.join("lib/rustlib").is_dir() && is_executable(&directory.join("bin/rustc"))
}

fn rust(candidate: &Path, real: &Path, host: &Host) -> Result<Answer, String> {
    let is_shim = real.file_name().is_none_or(|name| name != "rustc") || !is_toolchain(prefix(real));
    let toolchain = match rustup_default(host).filter(|_| is_shim) {
        Some(toolchain) => toolchain,
        None if !is_shim => prefix(real).to_owned(),
        None => match ask(candidate, &["--print", "sysroot"])?.as_slice() {
            [toolchain] if is_toolchain(Path::new(toolchain)) => PathBuf::from(toolchain),
            _ => return Err(unclear()),
        },
    };
    let toolchain = canonical(&toolchain)?;
    let program = toolchain.join("bin/rustc");
    let version = match Version::of_rust(&toolchain) {
        Some(version) => version,
        None => {
            let lines = ask(&program, &["--version"])?;
            let version = lines.first().and_then(|line| Version::parse(line.strip_prefix("rustc ")?));
            version.ok_or_else(unclear)?
        }
    };
    Ok(Answer { program, homes: vec![toolchain], version })
}

/// Where rustup keeps its toolchains: in the user's home, or beside the directory of its shims, as in container images.
pub(super) fn rustup_homes(host: &Host) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = Vec::new();
    for shims in directories(host).filter(|directory| is_executable(&directory.join("rustup"))) {
        let (Some(cargo), Some(around)) = (shims.parent(), shims.parent().and_then(Path::parent)) else { continue };
        let name = if cargo.ends_with(".cargo") { ".rustup" } else { "rustup" };
        homes.push(around.join(name));
    }
    if !homes.is_empty() {
        homes.extend(host.home.iter().map(|home| home.join(".rustup")));
    }
    homes.retain(|home| home.join("toolchains").is_dir());
    homes
}

pub(super) fn has_rustup(host: &Host) -> bool {
    directories(host).any(|directory| is_executable(&directory.join("rustup")))
}

/// The toolchain that rustup's shims use where no project says otherwise, by its settings: a shim takes 30 ms to say it.
fn rustup_default(host: &Host) -> Option<PathBuf> {
    let home = rustup_homes(host).into_iter().next()?;
    let settings = fs::read_to_string(home.join("settings.toml")).ok()?;
    let line = settings.lines().find_map(|line| line.strip_prefix("default_toolchain = \"")?.strip_suffix('"'))?;
    let toolchain = home.join("toolchains").join(line);
    is_toolchain(&toolchain).then_some(toolchain)
}

/// The library of a Python, its packages, and the shared library that some are built as.
fn python_parts(python: &Path) -> Result<Vec<PathBuf>, String> {
    let script = "import sysconfig as s, os, glob\n\
                  for name in ('stdlib', 'platstdlib', 'purelib', 'platlib'): print(s.get_path(name))\n\
                  for lib in glob.glob(os.path.join(s.get_config_var('LIBDIR') or '-', 'libpython*')): print(lib)";
    Ok(ask(python, &["-I", "-c", script])?.into_iter().map(PathBuf::from).collect())
}

/// Runs an interpreter of the host and returns the lines that it prints.
fn ask(program: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir("/")
        // Asked for its version, a shim of rustup's may otherwise fetch one.
        .env("RUSTUP_AUTO_INSTALL", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut stdout = child.stdout.take();
    let asked = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if asked.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err("it did not answer".to_owned());
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    if !status.success() {
        return Err(format!("it failed ({status})"));
    }
    let mut text = String::new();
    if let Some(stdout) = &mut stdout {
        // Some path names: far below what a pipe holds, so it never blocked on us.
        stdout.take(64 * 1024).read_to_string(&mut text).map_err(|error| error.to_string())?;
    }
    Ok(text.lines().map(str::to_owned).collect())
}
