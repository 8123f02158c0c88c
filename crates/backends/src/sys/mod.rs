//! All operating-system calls that need `unsafe` or a hand-made descriptor. One file per system, and one for machines.

mod linux;
mod machine;

pub(crate) use linux::{
    is_admin, memory_file, receive, receive_all, send, start_bound_to_this_thread, start_jail, watch,
};
pub(crate) use machine::{Held, start_machine, ticks};
