//! The ways of confining code, one folder each, behind the contract of `belljar-core`.
//!
//! Each backend provides a confined place and a byte stream to the guest agent in it; [`link`] does the talking for
//! all of them. Who owns a sandbox, MCP and configuration files are not known here.

#![deny(unsafe_code)]

mod host;
mod link;
mod native;
mod questions;
mod registry;
mod sys;

pub use host::{Host, OpenFiles, raise_open_files};
pub use native::{NotWarm, Preload};
pub use registry::{Choice, UnknownBackend, choose, warm_up};
