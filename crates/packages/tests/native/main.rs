//! The real thing: layers built behind the native backend's walls, from the registry that this host uses, and from an index
//! of our own that means ill.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]
#![expect(clippy::disallowed_methods, reason = "a test has no one to pass the environment in")]

mod ground;
mod hostile;
mod index;
mod registry;
