//! Puts Belljar into the configuration files of MCP clients, and takes it out again.
//!
//! `clients` is the table of them, `document` decides how a text has to change, one file for each format does it
//! without touching what is not ours, and `file` reads and replaces files. What is said about it is the command's.

mod clients;
mod document;
mod file;
mod json;
mod lines;
mod toml;
mod yaml;

pub(crate) use clients::{CLIENTS, Client, Os, Places, Scope};
pub(crate) use document::{Change, Did, Slot, Trouble, Wanted, change, find};
pub(crate) use file::{Edited, Modes, Snapshot, edit};
