//! What is called `pip` and `uv` in a sandbox: asks process 1 for packages, which has them installed outside and put here.
//!
//! The rest of what those programs do is left to the real ones, where the host has them. Nothing is resolved or fetched
//! here.

mod json;
mod options;
mod others;
mod requirements;
mod talk;
mod wish;

use std::ffi::CString;
use std::path::Path;

use wish::{Parsed, Refusal, Wish};

/// The names that this executable is called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Pip,
    Uv,
}

impl Tool {
    pub(crate) fn called(name: &CString) -> Option<Tool> {
        match name.to_bytes().rsplit(|byte| *byte == b'/').next() {
            Some(b"pip" | b"pip3") => Some(Tool::Pip),
            Some(b"uv") => Some(Tool::Uv),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Tool::Pip => "pip",
            Tool::Uv => "uv",
        }
    }
}

/// Runs it, after its own name, and is its exit code.
pub(crate) fn main(tool: Tool, arguments: &[CString]) -> i32 {
    let mut words = Vec::new();
    for argument in arguments {
        let Ok(word) = argument.to_str() else {
            return failed(&format!("{}: an argument is not text", tool.name()));
        };
        words.push(word.to_owned());
    }
    let cwd = match std::env::current_dir() {
        Ok(cwd) => cwd,
        Err(error) => return failed(&format!("{}: the working directory: {error}", tool.name())),
    };
    match wish::parse(tool, &words, &cwd) {
        Ok(Parsed::Install(wish)) => install(tool, &wish, &cwd),
        Ok(Parsed::Other(others)) => others.become_real(tool),
        // A virtual environment of the sandbox's own, where the real pip can do what we cannot.
        Err(Refusal { others: Some(others), .. }) if others.has_place_of_its_own() => others.become_real(tool),
        Err(Refusal { why, .. }) => failed(&why),
    }
}

fn install(tool: Tool, wish: &Wish, cwd: &Path) -> i32 {
    for note in &wish.notes {
        talk::say(&format!("{}: {note}\n", tool.name()));
    }
    match talk::ask(wish, &cwd.to_string_lossy()) {
        Ok(code) => code,
        Err(why) => failed(&format!("{}: {why}", tool.name())),
    }
}

fn failed(why: &str) -> i32 {
    talk::say(&format!("{why}\n"));
    1
}
