//! Go: compiled in a directory of its own, then run. Packages that were compiled once stay in Go's cache.

/// What the shell does with the code on descriptor 3; its argument is the go command.
pub(super) const RUN: &str = include_str!("run.sh");
