//! Code mode through the built program: the tools of public MCP servers, called from programs in sandboxes.
//!
//! The servers are those of `scripts/upstreams`, which `scripts/test` has run; where they are missing, what needs them is
//! skipped and says so. Each test has a place of its own, with the servers' files in it.

mod catalogue;
mod command_line;
mod eras;
mod faults;
mod kept;
mod place;
mod programs;
mod results;
