//! Versions besides the default: in `PATH` by their longer names, and where version managers keep them. Only names of files
//! and directories are looked at, and only what lives in the system's directories or in one of its own is offered.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_core::Language;

use super::default::{PYTHON_MIN, directories, is_goroot, is_toolchain, rustup_homes};
use super::home::{is_executable, is_own, is_system};
use super::{Interpreter, Version};
use crate::host::Host;

/// How many entries of one directory are looked at.
const ENTRIES_MAX: usize = 256;

pub(super) fn find(language: Language, host: &Host, default: Option<&Interpreter>) -> Vec<Interpreter> {
    let candidates = match language {
        Language::Python => pythons(host),
        Language::JavaScript => nodes(host),
        Language::Go => gos(host),
        Language::Rust => rusts(host),
        Language::TypeScript | Language::Shell => Vec::new(),
    };
    let mut found: Vec<Interpreter> = Vec::new();
    for program in candidates {
        let is_known = |known: &Interpreter| known.program == program;
        if default.is_some_and(is_known) || found.iter().any(is_known) {
            continue;
        }
        found.extend(look_at(language, program, host));
    }
    found
}

/// What a program is, by what is around it; `None` for a shim, a broken link, and what would show too much.
fn look_at(language: Language, program: PathBuf, host: &Host) -> Option<Interpreter> {
    let real = fs::canonicalize(&program).ok().filter(|real| is_executable(real))?;
    let prefix = real.parent()?.parent()?;
    let version = match language {
        Language::Python => {
            let version = Version::of_python(&real)?.in_full_by(prefix);
            if !version.is_at_least(PYTHON_MIN) {
                return None;
            }
            let library = format!("python{}", version.short(language));
            let has_library = |lib: &str| prefix.join(lib).join(&library).join("os.py").is_file();
            ["lib", "lib64"].into_iter().any(has_library).then_some(version)?
        }
        Language::JavaScript => Version::of_node(prefix)?,
        Language::Go => Version::of_go(prefix).filter(|_| is_goroot(prefix))?,
        Language::Rust => Version::of_rust(prefix).filter(|_| is_toolchain(prefix))?,
        Language::TypeScript | Language::Shell => return None,
    };
    if is_system(&real) {
        let program = if is_system(&program) { program } else { real };
        return Some(Interpreter { language, version, program, homes: Vec::new() });
    }
    let homes = vec![prefix.to_owned()];
    is_own(prefix, host).then_some(Interpreter { language, version, program: real, homes })
}

fn pythons(host: &Host) -> Vec<PathBuf> {
    let mut programs: Vec<PathBuf> = Vec::new();
    for directory in directories(host) {
        programs.extend((8..=15).map(|minor| directory.join(format!("python3.{minor}"))));
        // pyenv's shims, wherever it is installed.
        if let Some(pyenv) = directory.parent().filter(|_| directory.ends_with("shims")) {
            programs.extend(below(&pyenv.join("versions"), "bin/python3"));
        }
    }
    if let Some(home) = &host.home {
        programs.extend(below(&home.join(".local/share/uv/python"), "bin/python3"));
    }
    programs.retain(|program| is_executable(program));
    programs
}

fn nodes(host: &Host) -> Vec<PathBuf> {
    let named = |directory: PathBuf| (16..=40).map(move |major| directory.join(format!("node{major}")));
    let mut programs: Vec<PathBuf> = directories(host).flat_map(named).collect();
    if let Some(home) = &host.home {
        programs.extend(below(&home.join(".nvm/versions/node"), "bin/node"));
    }
    programs.retain(|program| is_executable(program));
    programs
}

fn gos(host: &Host) -> Vec<PathBuf> {
    let mut programs = vec![PathBuf::from("/usr/local/go/bin/go")];
    // Debian's.
    programs.extend((18..=60).map(|minor| PathBuf::from(format!("/usr/lib/go-1.{minor}/bin/go"))));
    if let Some(home) = &host.home {
        programs.extend(below(&home.join("sdk"), "bin/go"));
    }
    programs.retain(|program| is_executable(program));
    programs
}

fn rusts(host: &Host) -> Vec<PathBuf> {
    rustup_homes(host).iter().flat_map(|home| below(&home.join("toolchains"), "bin/rustc")).collect()
}

/// The program at `rest` in each directory of `directory`.
fn below(directory: &Path, rest: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().take(ENTRIES_MAX).map(|entry| entry.path().join(rest)).collect()
}
