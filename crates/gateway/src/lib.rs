//! Code mode: the tools of other MCP servers, as programs in a sandbox find and call them.
//!
//! ```text
//! program ─▶ core::HostCalls ─▶ broker ─▶ policy ─▶ upstream        one call
//! upstream ─▶ catalogue ─▶ stubs (files) · search (index)           what there is to call
//! ```
//!
//! Deliberately not here: sandboxes, backends, and how the model is answered. Whatever an upstream says, names and schemas
//! and descriptions included, is somebody else's text.

#![forbid(unsafe_code)]
#![expect(clippy::result_large_err, reason = "it is made once, where a call fails, and holds what the program is told")]

pub mod approval;
pub mod audit;
mod broker;
pub mod catalogue;
pub mod error;
mod gateway;
mod layers;
pub mod ledger;
pub mod policy;
pub mod privacy;
pub mod search;
pub mod skills;
mod snapshot;
pub mod stubs;
pub mod tokens;
pub mod upstream;

pub use broker::{Budget, Passing};
pub use gateway::{Gateway, Search, ServerSettings, Settings, direct_name};
