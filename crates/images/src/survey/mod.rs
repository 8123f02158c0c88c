//! Which interpreters and compilers a root file system has, by its files alone: nothing of it is run.
//!
//! Needs nothing but files, so that whoever has a root of another making can ask too.

mod packages;
#[cfg(test)]
mod tests;
mod version;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use belljar_core::Language;
use serde::{Deserialize, Serialize};

use crate::inside::resolve;

/// One that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub language: Language,
    /// Such as `python-3.12`, `node-20`, `go-1.22`, `rust-1.95`; of a shell `bash` or `sh`.
    pub name: String,
    /// As a program in the root starts it.
    pub path: String,
}

/// Where programs are if the image does not say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const DIRECTORIES_MAX: usize = 64;

/// Before it there is no module that the kernel of a sandbox needs.
const PYTHON_MIN: [u32; 2] = [3, 8];

/// What is in the directories of `PATH`, as `env` has it: of each language what its plain name leads to first, then the others
/// in the order of their directories. JavaScript's runs TypeScript too, and is told once.
pub fn survey(root: &Path, env: &[(String, String)]) -> Vec<Found> {
    let path = env.iter().find(|(name, _)| name == "PATH").map_or(USUAL_PATH, |(_, value)| value.as_str());
    let directories: Vec<&Path> =
        path.split(':').map(Path::new).filter(|directory| directory.is_absolute()).take(DIRECTORIES_MAX).collect();
    let look = Look { root, env, directories };
    let mut found = look.pythons();
    found.extend(look.node());
    found.extend(look.shell());
    found.extend(look.go());
    found.extend(look.rust());
    found
}

struct Look<'a> {
    root: &'a Path,
    env: &'a [(String, String)],
    directories: Vec<&'a Path>,
}

/// A program of the root.
struct Program {
    /// By the name that it was looked for.
    path: PathBuf,
    /// Without links, relative to the root.
    real: PathBuf,
}

impl Look<'_> {
    /// The first program of one of these names.
    fn first(&self, names: &[&str]) -> Option<Program> {
        let mut candidates = names.iter().flat_map(|name| self.directories.iter().map(move |place| place.join(name)));
        candidates.find_map(|path| self.program(path))
    }

    fn program(&self, path: PathBuf) -> Option<Program> {
        let real = resolve(self.root, &path)?;
        let metadata = fs::symlink_metadata(self.root.join(&real)).ok()?;
        (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0).then_some(Program { path, real })
    }

    fn pythons(&self) -> Vec<Found> {
        let mut found = Vec::new();
        let plain = self.first(&["python3", "python"]);
        let versioned = self.directories.iter().flat_map(|directory| self.versioned_pythons(directory));
        for program in plain.into_iter().chain(versioned) {
            let version = version::of_python(self.root, &program.real);
            if let Some(version) = version.filter(|version| version.as_slice() >= PYTHON_MIN.as_slice()) {
                push(&mut found, Language::Python, format!("python-{}", version::short(&version, 2)), &program.path);
            }
        }
        found
    }

    /// `python3.12` and the like, in one directory.
    fn versioned_pythons(&self, directory: &Path) -> Vec<Program> {
        let Some(real) = resolve(self.root, directory) else { return Vec::new() };
        let Ok(entries) = fs::read_dir(self.root.join(real)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| {
                name.strip_prefix("python3.").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
            })
            .collect();
        names.sort();
        names.into_iter().filter_map(|name| self.program(directory.join(name))).collect()
    }

    fn node(&self) -> Option<Found> {
        let program = self.first(&["node", "nodejs"])?;
        let prefix = program.real.parent()?.parent()?;
        let version = version::of_node(self.root, prefix)
            .or_else(|| packages::version_of(self.root, &["nodejs", "nodejs-current"]))
            .or_else(|| version::parse(self.variable("NODE_VERSION")?))?;
        Found::at(Language::JavaScript, format!("node-{}", version::short(&version, 1)), &program.path)
    }

    fn go(&self) -> Option<Found> {
        let program = self.first(&["go"])?;
        let version = version::of_go(self.root, program.real.parent()?.parent()?)
            .or_else(|| packages::version_of(self.root, &["golang-go", "go"]))
            .or_else(|| version::parse(self.variable("GOLANG_VERSION")?))?;
        Found::at(Language::Go, format!("go-{}", version::short(&version, 2)), &program.path)
    }

    fn rust(&self) -> Option<Found> {
        let program = self.first(&["rustc"])?;
        // It links with a C compiler, or not at all.
        self.first(&["cc", "gcc", "clang"])?;
        let version = self
            .variable("RUSTUP_HOME")
            .and_then(|home| version::of_rustup(self.root, Path::new(home)))
            .or_else(|| version::of_rust_library(self.root, program.real.parent()?.parent()?))
            .or_else(|| packages::version_of(self.root, &["rustc", "rust"]))
            .or_else(|| version::parse(self.variable("RUST_VERSION")?))?;
        Found::at(Language::Rust, format!("rust-{}", version::short(&version, 2)), &program.path)
    }

    fn shell(&self) -> Option<Found> {
        let bash = self.first(&["bash"]).map(|program| ("bash", program));
        let (name, program) = bash.or_else(|| Some(("sh", self.first(&["sh"])?)))?;
        Found::at(Language::Shell, name.to_owned(), &program.path)
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Found {
    /// One whose path is not UTF-8 cannot be told to anybody.
    fn at(language: Language, name: String, path: &Path) -> Option<Found> {
        Some(Found { language, name, path: path.to_str()?.to_owned() })
    }
}

fn push(found: &mut Vec<Found>, language: Language, name: String, path: &Path) {
    if !found.iter().any(|known| known.name == name) {
        found.extend(Found::at(language, name, path));
    }
}
