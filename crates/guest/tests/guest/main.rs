//! The built guest, as process 1 of a pid namespace, driven over its stream as a host would.
//!
//! Each test has a namespace of its own with a `/workspace`. Where the machine lets nobody make one, the tests say so
//! and pass.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "as in a test, so in its tools")]

mod asks;
mod cells;
mod changes;
mod ends;
mod files;
mod harness;
mod languages;
mod streams;
mod waiting;
