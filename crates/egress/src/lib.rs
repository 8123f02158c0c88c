//! The only way out of a sandbox: names answered with stand-ins, connections decided on by host, the host's address checked
//! and dialled, secrets put in behind the wall.
//!
//! Deliberately not here: how the doors get into a sandbox's network (the backend's), which hosts an agent may have (the
//! operator's ceiling, the engine's), and where settings come from (the binary's).

#![forbid(unsafe_code)]

mod audit;
mod dial;
mod doors;
mod egress;
mod error;
mod guard;
mod hosts;
mod http;
mod io;
mod names;
mod pipe;
mod policy;
mod refusal;
mod relay;
mod secret;
mod serving;
mod settings;
mod sniff;
mod socks;
mod tls;
mod tunnel;
mod upstream;

#[cfg(test)]
mod tests;

pub use audit::{Attempt, Audit, Decision, Ended, LogOnly, Via};
pub use egress::{Egress, Served};
pub use error::EgressError;
pub use guard::guard;
pub use secret::{Credential, Hidden, Over, Secret};
pub use settings::{Bounds, Roots, Settings, Subnet};
pub use upstream::UpstreamProxy;

/// The readers of bytes that are not ours, for those who fuzz them.
pub mod parse {
    pub use crate::http::{chunks, head};
    pub use crate::names::message;
    pub use crate::socks::words as socks;
    pub use crate::tls::hello;
}
