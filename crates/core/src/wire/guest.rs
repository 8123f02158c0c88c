//! Frames between the host and the guest agent. Every operation has an id that the host chose and that both use until
//! the operation's last frame.

use serde::{Deserialize, Serialize};

use crate::{Changes, Entry, FileError, Finish, Language, Range, Source, Stream};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuest {
    /// The first frame: what holds for every program.
    Init(Init),
    Start {
        id: u32,
        start: Start,
    },
    /// Standard input of a program, or content for a `Write`.
    Input {
        id: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    InputEnd {
        id: u32,
    },
    /// End an operation early. A program ends with everything it started, and its `Finished` still comes; a read,
    /// write or listing is given up, its temporary file removed, and no more frames of it come.
    Stop {
        id: u32,
    },
    /// For a program's process group, or a cell's kernel.
    Signal {
        id: u32,
        signal: i32,
    },
    /// Content follows as `Input`, ended by `InputEnd`; then `Done` or `Refused`.
    Write {
        id: u32,
        path: String,
    },
    /// Answered by `Content` frames and `Read`.
    Read {
        id: u32,
        path: String,
        range: Range,
    },
    /// A part of the answer to a question, or of what comes back on a connection; the last one ends it. No more of it than [`super::INPUT_WINDOW`] comes before
    /// `Taken` makes room.
    Answer {
        id: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        part: Part,
    },
    /// The host has handed on so much of what a connection said: room for more.
    Taken {
        id: u32,
        bytes: u32,
    },
    /// Answered by `Entries` frames and `Listed`.
    List {
        id: u32,
        path: String,
        depth: u32,
        entries_max: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Init {
    /// Where each language's interpreter is. Not by the environment's `PATH`, which belongs to the programs.
    pub interpreters: Vec<(Language, String)>,
    /// The whole environment of a program, before its own additions.
    pub env: Vec<(String, String)>,
    /// Watch the memory of all programs together and stop them past this: only where no cgroup does it.
    pub watch_memory_bytes: Option<u64>,
    /// As [`crate::Spec::waiting`], where the guest is to start it.
    pub waiting: Option<Language>,
    /// That kernel is copied with its machine before anybody uses it: it loads first what its environment has.
    pub copied: bool,
    /// A language whose kernel is forked into the sandbox from outside. The guest has its ends (`KERNEL_ENDS`).
    pub forked: Option<Language>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub source: Source,
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    /// CPU seconds of each process, a backstop should the host fail to stop it in time.
    pub cpu_seconds: u64,
    /// As [`crate::Program::changed_max`].
    pub changed_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    MoreComes,
    Last,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuest {
    /// The first frame of a guest that stands.
    Hello {
        version: u16,
    },
    /// Instead of `Hello`: the place could not be made.
    Broken {
        step: String,
        errno: i32,
    },
    Output {
        id: u32,
        stream: Stream,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A part of a question that a program asks; the parts of one follow each other. Its number is from
    /// [`super::ASKED_FIRST`] on.
    Asked {
        id: u32,
        /// The program or cell that whoever asks belongs to, by the number it was started with; none if that has ended.
        by: Option<u32>,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        part: Part,
    },
    /// A program came to a door of the sandbox's. Its number is from [`super::KNOCKS_FIRST`] on; what it says follows as
    /// `Said`, what it hears comes as `Answer`. Either side ends it whole: `Withdrawn` from here, `Stop` from there.
    Knock {
        id: u32,
        /// The address that it meant.
        to: std::net::Ipv4Addr,
        port: u16,
    },
    /// A part of what a connection says; after the last it only listens. No more of it than [`super::INPUT_WINDOW`] comes
    /// before `Taken` makes room.
    Said {
        id: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        part: Part,
    },
    /// A datagram to the sandbox's resolver, numbered as a knock. Answered by one `Answer`, or not at all.
    Name {
        id: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Nobody waits for the answer any more.
    Withdrawn {
        id: u32,
    },
    /// So many bytes of a program's `Input`, or of an `Answer`, were handed to it, or dropped because it no longer reads: room for more.
    Taken {
        id: u32,
        bytes: u32,
    },
    /// A part of a record of a cell's; the record is whole with the part that says so.
    Record {
        id: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        part: Part,
    },
    /// Once, before `Finished`, if the start asked for it.
    Changed {
        id: u32,
        changes: Changes,
    },
    /// A program's last frame: nothing that it started is alive, but for what a cell left to its kernel.
    Finished {
        id: u32,
        finish: Finish,
    },
    Content {
        id: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Read {
        id: u32,
        size: u64,
    },
    Entries {
        id: u32,
        entries: Vec<Entry>,
    },
    Listed {
        id: u32,
        truncated: bool,
    },
    Done {
        id: u32,
    },
    /// The operation's last frame, in place of its answer. For a `Start`: the program could not be started.
    Refused {
        id: u32,
        error: FileError,
    },
}
