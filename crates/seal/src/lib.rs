//! The walls that a process puts around itself: limits, capabilities, landlock, seccomp. Whoever makes a process of a
//! sandbox uses these and no others: the jail for its first one, a zygote for each that it forks, and the program that settles into
//! a place which another made.

#![deny(unsafe_code)]

mod descriptors;
mod doors;
mod error;
mod seccomp;
mod sys;
mod walls;

pub use descriptors::arrange_descriptors;
pub use doors::bind_doors;
pub use error::{At, Failure, Outcome};
pub use seccomp::{Filter, allowed_names, namespace_flags, restrict_jail};
pub use sys::{end, exec, landlock_abi, loopback_up};
pub use walls::{Landlock, WRITABLE, drop_bounding_set, drop_capabilities, limits, seal};
