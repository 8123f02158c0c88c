//! Rust: compiled in a directory of its own, then run. What the compiler keeps for its next run stays in the sandbox.

/// What the shell does with the code on descriptor 3; its argument is rustc.
pub(super) const RUN: &str = include_str!("run.sh");
