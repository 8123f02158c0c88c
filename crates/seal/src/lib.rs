//! The walls that a process puts around itself: limits, capabilities, landlock, seccomp. Whoever makes a process of a
//! sandbox uses these and no others: the jail for its first one, and a zygote for each that it forks.

#![deny(unsafe_code)]

mod error;
mod seccomp;
mod sys;
mod walls;

pub use error::{At, Failure, Outcome};
pub use seccomp::{Filter, restrict_jail};
pub use sys::landlock_abi;
pub use walls::{Landlock, WRITABLE, drop_capabilities, limits, seal};
