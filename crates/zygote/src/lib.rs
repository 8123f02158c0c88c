//! What an interpreter loads to become a zygote: it then forks itself into sandboxes.
//!
//! The kernel lets a process change its own namespaces only, and a process namespace takes effect in children. And the
//! guest, process 1 of the sandbox, must be able to wait for what was forked, through a runner, as for any other program;
//! but a child whose parent is outside is not handed to process 1 when that parent ends. Hence so many steps:
//!
//! ```text
//! zygote ─▶ enters the sandbox ─▶ passage, first inside ─▶ runner ─▶ kernel, a copy of the zygote
//!           ends                  ends: process 1           │
//!                                 inherits the runner       └─ becomes the guest's executable, and waits for the kernel
//! ```
//!
//! All but the kernel borrow the zygote's memory while it stands still, so that one copy is made, not four. The runner is
//! sealed before it forks the kernel: what is forked was never outside its walls.

#![deny(unsafe_code)]

mod fork;
mod python;
mod request;
mod sys;
