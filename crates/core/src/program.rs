//! A program to run, and what it does while it runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Entry, Language, State, Usage};

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Source text, given to an interpreter of its own.
    Code { language: Language, code: String },
    /// Source text, given to the language's kernel: the one interpreter of that language that lives in the sandbox and
    /// remembers. A language without a kernel runs it as [`Source::Code`].
    Cell { language: Language, code: String, then: Then },
    /// One line for the sandbox's own shell.
    Command(String),
}

/// What may follow a cell in its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    More,
    /// Nothing: it ends as a script does, with its threads and timers waited for.
    End,
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
    /// How many of the files that it made or changed in the workspace are told; for none it is not even looked.
    pub changed_max: u32,
}

/// What a program reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    Whole(Vec<u8>),
    /// It comes while the program runs, by [`crate::Running::stdin`]. Not for a cell, whose input is whole.
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
    /// What a kernel's driver tells of the cell: JSON, by its own word. The code beside it could have sent it too.
    Record(Vec<u8>),
    /// Once, just before the last event, if it was asked for.
    Changed(Changes),
    /// The last event. By now nothing that the program started is alive, but for what a cell left to its kernel.
    Finished(Finish),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    pub exit: Exit,
    pub usage: Usage,
    /// For a cell: what its kernel remembered and remembers. [`State::Lost`] when the kernel ended.
    pub kernel: Option<State>,
}

/// Files below the workspace that a program made or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Paths relative to the workspace, in order; regular files only.
    pub entries: Vec<Entry>,
    /// How many there were besides these.
    pub more: u32,
}

/// How the program's first process went, as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// The kernel, or the guest where there is no memory cgroup, killed it for memory.
    OutOfMemory,
}
