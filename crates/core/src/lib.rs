//! The words and the contract that every other room speaks: programs, limits, sandboxes, backends, reports.
//!
//! Nothing here touches a file, a clock, the environment or a network, and nothing here knows MCP. What crosses the
//! wall (`wire`) is plain data with a pure codec, so that it can be fuzzed without a sandbox.

#![forbid(unsafe_code)]

mod backend;
mod calls;
mod doors;
mod error;
mod files;
mod language;
mod layer;
mod limits;
mod network;
mod program;
mod report;
pub mod wire;

pub use backend::{
    Asked, Backend, Capabilities, Ground, Later, Probe, Reached, Running, Sandbox, Spec, StdinWriter, Wall, WallState,
};
pub use calls::{Caller, Calls, Desk, HostCalls, Made, Soon, Spool};
pub use doors::{Doors, Knock, LOCAL_STAND_INS, Relay, STAND_INS};
pub use error::{BackendError, FileError, FileErrorKind};
pub use files::{Content, Entry, FileKind, Listing, Metadata, Range};
pub use language::{Language, UnknownLanguage};
pub use layer::{BUILD, Layer, LayerKind, PackageKind};
pub use limits::{Limit, Limits};
pub use network::{
    BadGrant, Grant, Host, Network, PACKAGES, PROXY_PORT, Pattern, Reach, USUAL_PORTS, is_never_meant, is_public,
};
pub use program::{Changes, Event, Exit, Finish, Program, Source, Stdin, Stream, Then};
pub use report::{Ending, Isolation, Report, State, Usage};

/// Where a sandbox's files live, as its own programs see it; relative paths start here.
pub const WORKSPACE: &str = "/workspace";
