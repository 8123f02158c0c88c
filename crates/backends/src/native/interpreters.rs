//! Which languages this host can run, and what of the host a sandbox must see for them.
//!
//! What is below /usr is there anyway. An interpreter that lives elsewhere (pyenv, nvm, uv, conda) is asked where its
//! own files are, and just those directories are shown.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use belljar_core::Language;

use crate::host::Host;

/// A shim that has to think (pyenv's takes 60 ms) is waited for; one that hangs is not.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// What the directory of an interpreter alone has in it: a prefix, a virtual environment, a conda environment, an
/// unpacked archive of node's.
const USUAL: [&str; 30] = [
    ".gitignore",
    ".lock",
    "BUILD",
    "CACHEDIR.TAG",
    "CHANGELOG.md",
    "EXTERNALLY-MANAGED",
    "README.md",
    "bin",
    "compiler_compat",
    "conda-meta",
    "condabin",
    "doc",
    "envs",
    "etc",
    "include",
    "lib",
    "lib32",
    "lib64",
    "libexec",
    "man",
    "pip-selfcheck.json",
    "pkgs",
    "pyvenv.cfg",
    "sbin",
    "share",
    "shell",
    "ssl",
    "src",
    "uv-receipt.json",
    "var",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Interpreter {
    Found {
        /// The program, as the sandbox sees it too.
        program: PathBuf,
        /// Directories and files outside the system's own that it needs.
        homes: Vec<PathBuf>,
    },
    Missing {
        why: String,
    },
}

#[derive(Debug)]
pub(super) struct Interpreters(BTreeMap<Language, Interpreter>);

impl Interpreters {
    pub(super) fn find(host: &Host) -> Interpreters {
        Interpreters(Language::ALL.into_iter().map(|language| (language, look_for(language, host))).collect())
    }

    pub(super) fn languages(&self) -> Vec<Language> {
        let found = |(language, interpreter): (&Language, &Interpreter)| {
            matches!(interpreter, Interpreter::Found { .. }).then_some(*language)
        };
        self.0.iter().filter_map(found).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Language, &Interpreter)> {
        self.0.iter().map(|(language, interpreter)| (*language, interpreter))
    }

    /// What to show besides the system's own, none of it below another.
    pub(super) fn homes(&self) -> Vec<PathBuf> {
        let mut homes: Vec<PathBuf> = Vec::new();
        let mut all: Vec<&PathBuf> = self.found().flat_map(|(_, homes)| homes).collect();
        all.sort();
        for home in all {
            if !homes.iter().any(|kept| home.starts_with(kept)) {
                homes.push(home.clone());
            }
        }
        homes
    }

    /// Where programs are looked for inside: beside each interpreter first, then as usual.
    pub(super) fn path(&self) -> String {
        let mut path: Vec<String> = Vec::new();
        let usual = ["/usr/local/bin", "/usr/bin", "/bin"];
        let beside = self.found().filter_map(|(program, _)| program.parent()?.to_str());
        let beside = beside.filter(|directory| !usual.contains(directory));
        for directory in beside.chain(usual) {
            if !path.iter().any(|known| known == directory) {
                path.push(directory.to_owned());
            }
        }
        path.join(":")
    }

    fn found(&self) -> impl Iterator<Item = (&Path, &[PathBuf])> {
        self.0.values().filter_map(|interpreter| match interpreter {
            Interpreter::Found { program, homes } => Some((program.as_path(), homes.as_slice())),
            Interpreter::Missing { .. } => None,
        })
    }
}

fn look_for(language: Language, host: &Host) -> Interpreter {
    let mut why = format!("no {} in PATH", language.interpreters().join(" or "));
    for name in language.interpreters() {
        for directory in std::env::split_paths(&host.path).filter(|directory| directory.is_absolute()) {
            let candidate = directory.join(name);
            if !is_executable(&candidate) {
                continue;
            }
            match resolve(language, &candidate, host) {
                Ok(found) => return found,
                // A broken one, such as a shim without a version, does not hide a good one further on.
                Err(reason) => why = format!("{}: {reason}", candidate.display()),
            }
        }
    }
    Interpreter::Missing { why }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn resolve(language: Language, candidate: &Path, host: &Host) -> Result<Interpreter, String> {
    let real = fs::canonicalize(candidate).map_err(|error| error.to_string())?;
    if is_system(candidate) && is_system(&real) {
        return Ok(Interpreter::Found { program: candidate.to_owned(), homes: Vec::new() });
    }
    let unclear = || "it does not say where it lives".to_owned();
    let (program, mut homes) = match language {
        Language::Python => {
            let script = "import sys; print(sys.executable); print(sys.prefix); print(sys.base_prefix)";
            let lines = ask(candidate, &["-I", "-c", script])?;
            let [program, homes @ ..] = lines.as_slice() else { return Err(unclear()) };
            (PathBuf::from(program), homes.iter().map(PathBuf::from).collect())
        }
        Language::JavaScript => {
            let lines = ask(candidate, &["-p", "process.execPath"])?;
            let [program] = lines.as_slice() else { return Err(unclear()) };
            (PathBuf::from(program), Vec::new())
        }
        Language::Shell => (real, Vec::new()),
    };
    let real = fs::canonicalize(&program).map_err(|error| error.to_string())?;
    if !is_system(&real) && !homes.iter().any(|home| real.starts_with(home)) {
        // What is in some `bin` has the rest of its files beside that.
        homes.push(real.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned());
    }
    homes.retain(|home| !is_system(home));
    if homes.iter().all(|home| is_own(home, host)) {
        // A link from elsewhere, such as ~/.local/bin/python3, is not there inside; what it leads to is.
        let program = if homes.iter().any(|home| program.starts_with(home)) { program } else { real };
        return Ok(Interpreter::Found { program, homes });
    }
    // It shares its home with others: ~/.local, or an application's directory. Then only its own parts are shown.
    let mut parts = match language {
        Language::Python => python_parts(candidate)?,
        Language::JavaScript => homes.iter().map(|home| home.join("lib/node_modules")).collect(),
        Language::Shell => Vec::new(),
    };
    parts.push(real.clone());
    parts.retain(|part| part.exists() && !is_system(part));
    Ok(Interpreter::Found { program: real, homes: parts })
}

/// The library of a Python, its packages, and the shared library that some are built as.
fn python_parts(python: &Path) -> Result<Vec<PathBuf>, String> {
    let script = "import sysconfig as s, os, glob\n\
                  for name in ('stdlib', 'platstdlib', 'purelib', 'platlib'): print(s.get_path(name))\n\
                  for lib in glob.glob(os.path.join(s.get_config_var('LIBDIR') or '-', 'libpython*')): print(lib)";
    Ok(ask(python, &["-I", "-c", script])?.into_iter().map(PathBuf::from).collect())
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Whether a directory is an interpreter's own and nothing else, by what is in it, so that it can be shown whole.
fn is_own(home: &Path, host: &Host) -> bool {
    let Ok(real) = fs::canonicalize(home) else { return false };
    let is_shared = TOPS.iter().any(|top| real == Path::new(top))
        || real.parent() == Some(Path::new("/home"))
        || real.ends_with(".local")
        || host.home.as_ref().is_some_and(|own| own.starts_with(&real));
    let Ok(entries) = fs::read_dir(&real) else { return false };
    let is_usual = |name: &str| USUAL.contains(&name) || name.ends_with("-linux-gnu") || name.starts_with("LICENSE");
    !is_shared && entries.flatten().all(|entry| entry.file_name().to_str().is_some_and(is_usual))
}

/// Runs an interpreter of the host and returns the lines that it prints.
fn ask(program: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir("/")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn host(path: &Path, home: Option<&Path>) -> Host {
        Host { path: path.as_os_str().to_owned(), home: home.map(Path::to_owned) }
    }

    fn program(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn one_in_the_system_needs_nothing() {
        let found = look_for(Language::Shell, &host(Path::new("/usr/bin"), None));
        assert_eq!(found, Interpreter::Found { program: "/usr/bin/bash".into(), homes: vec![] });
    }

    #[test]
    fn none_is_told() {
        let empty = tempfile::tempdir().unwrap();
        let Interpreter::Missing { why } = look_for(Language::Python, &host(empty.path(), None)) else { panic!() };
        assert_eq!(why, "no python3 or python in PATH");
    }

    #[test]
    fn one_that_lives_elsewhere_is_asked_and_only_its_home_is_shown() {
        let home = tempfile::tempdir().unwrap();
        let versions = home.path().join(".pyenv/versions/3.12");
        program(&versions.join("bin/python3"), "#!/bin/sh\n");
        let answer = format!("#!/bin/sh\nprintf '%s\\n' {0}/bin/python3 {0} {0}\n", versions.display());
        program(&home.path().join("shims/python3"), &answer);
        let found = look_for(Language::Python, &host(&home.path().join("shims"), Some(home.path())));
        let program = versions.join("bin/python3");
        assert_eq!(found, Interpreter::Found { program, homes: vec![versions.clone(), versions] });
    }

    #[test]
    fn of_a_home_that_is_shared_only_the_interpreters_parts_are_shown() {
        for shared in ["", ".local", "app"] {
            let home = tempfile::tempdir().unwrap();
            let prefix = home.path().join(shared);
            let node = prefix.join("bin/node");
            program(&node, &format!("#!/bin/sh\necho {}\n", node.display()));
            fs::create_dir_all(prefix.join("lib/node_modules")).unwrap();
            fs::create_dir_all(prefix.join("share/keyrings")).unwrap();
            if shared == "app" {
                fs::write(prefix.join(".env"), "SECRET=1").unwrap();
            }
            let found = look_for(Language::JavaScript, &host(&prefix.join("bin"), Some(home.path())));
            let homes = vec![prefix.join("lib/node_modules"), node.clone()];
            assert_eq!(found, Interpreter::Found { program: node, homes }, "{shared:?}");
        }
    }

    #[test]
    fn a_broken_one_does_not_hide_a_good_one() {
        let broken = tempfile::tempdir().unwrap();
        program(&broken.path().join("python3"), "#!/bin/sh\nexit 127\n");
        let path = std::env::join_paths([broken.path(), Path::new("/usr/bin")]).unwrap();
        let found = look_for(Language::Python, &Host { path, home: None });
        assert_eq!(found, Interpreter::Found { program: "/usr/bin/python3".into(), homes: vec![] });
    }
}
