//! A program to run, and what it does while it runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Language, Usage};

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Source text, given to the language's interpreter.
    Code { language: Language, code: String },
    /// One line for the sandbox's own shell.
    Command(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub source: Source,
    /// Added to the sandbox's own environment.
    pub env: Vec<(String, String)>,
    /// Relative to the workspace, or absolute inside the sandbox.
    pub cwd: Option<String>,
    pub stdin: Stdin,
    pub wall: Duration,
}

/// What a program reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    Whole(Vec<u8>),
    /// It comes while the program runs, by [`crate::Running::stdin`].
    Live,
}

impl Stdin {
    pub fn empty() -> Stdin {
        Stdin::Whole(Vec::new())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The next thing a running program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Output {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// The last event. By now nothing that the program started is alive.
    Finished(Finish),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    pub exit: Exit,
    pub usage: Usage,
}

/// How the program's first process went, as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// The kernel, or the guest where there is no memory cgroup, killed it for memory.
    OutOfMemory,
}
