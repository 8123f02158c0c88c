//! All operating-system calls that need `unsafe` or a hand-made descriptor. One file per system.

mod linux;

pub(crate) use linux::{is_admin, memory_file, receive, receive_all, send, start_jail, watch};
