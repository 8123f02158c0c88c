//! What is not for us: the real uv, the interpreter's own pip, or what can be told without either.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::{Tool, failed};
use crate::sys::{self, Strings};

/// Where we are found ourselves.
const OWN: &str = "/belljar/bin";

/// Runs the interpreter's own pip, or tells what it would.
const PIP: &str = include_str!("others.py");

/// A command for the real program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Others {
    pub(super) python: Option<String>,
    pub(super) words: Vec<String>,
}

impl Others {
    /// Becomes it; is the exit code where that cannot be.
    pub(super) fn become_real(self, tool: Tool) -> i32 {
        if tool == Tool::Uv
            && let Some(real) = find("uv")
        {
            return run(&real, &["uv".to_owned()], &self.words);
        }
        let words = match (tool, self.words.as_slice()) {
            (Tool::Pip, words) => words,
            (Tool::Uv, [pip, words @ ..]) if pip == "pip" => words,
            (Tool::Uv, words) => {
                let command = words.first().map_or("uv", String::as_str);
                return failed(&format!(
                    "uv {command}: there is no uv in this sandbox, but for `uv pip install`, `uv add`, `uv pip list` and `uv \
                     pip show`; run programs with python3"
                ));
            }
        };
        let Some(python) = self.python.map(PathBuf::from).or_else(|| find("python3")).or_else(|| find("python")) else {
            return failed("pip: there is no Python in this sandbox");
        };
        let name = python.to_string_lossy().into_owned();
        run(&python, &[name, "-c".to_owned(), PIP.to_owned()], words)
    }

    /// Whether it is about a virtual environment that was made in this sandbox, and takes packages.
    pub(super) fn has_place_of_its_own(&self) -> bool {
        self.python.as_deref().is_some_and(is_of_this_sandbox)
    }
}

/// Whether an interpreter is that of a virtual environment which can be written to.
pub(super) fn is_of_this_sandbox(python: &str) -> bool {
    let prefix = Path::new(python).parent().and_then(Path::parent);
    prefix.is_some_and(|prefix| prefix.join("pyvenv.cfg").exists() && access(prefix, Access::WRITE_OK).is_ok())
}

/// The first program of that name in PATH that is not ours.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    path.as_bytes()
        .split(|byte| *byte == b':')
        .filter(|folder| !folder.is_empty() && *folder != OWN.as_bytes())
        .map(|folder| Path::new(OsStr::from_bytes(folder)).join(name))
        .find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
}

fn run(program: &Path, first: &[String], words: &[String]) -> i32 {
    let argv = first.iter().chain(words).map(|word| CString::new(word.as_str())).collect::<Result<Vec<_>, _>>();
    if let (Ok(program), Ok(argv)) = (CString::new(program.as_os_str().as_bytes()), argv) {
        sys::exec_in_own_environment(&program, &Strings::new(argv));
    }
    failed(&format!("{} cannot be run", program.display()))
}
