//! The life of a zygote, from the clone to the exec of its interpreter.
//!
//! It has mounts, a network without interfaces and queues of its own, no capabilities, and a user that nobody else on the
//! host has; it is in the jail's process and user namespaces, since from anywhere else it could not enter a sandbox. What
//! lets it do that is who it is: the user namespaces of sandboxes belong to its user.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::wire::{Bounds, Zygote};
use belljar_seal::{At, Failure, Filter, Outcome, arrange_descriptors, drop_capabilities, end, exec, limits};
use rustix::process::{Gid, Signal, Uid, set_parent_process_death_signal};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::root::Late;
use crate::store::Tree;
use crate::{place, sys};

/// For what libraries write while they are loaded, such as font lists.
const DISK_BYTES: u64 = 64 * 1024 * 1024;

/// What it has at most is what its forks can have, which have bounds of their own.
const BOUNDS: Bounds = Bounds { processes: u32::MAX, open_files: u32::MAX, data_bytes: None };

/// What a zygote is made from.
pub(crate) struct Given<'a> {
    pub(crate) zygote: &'a Zygote,
    pub(crate) socket: &'a OwnedFd,
    /// `tasks` files of version 1.
    pub(crate) cgroups: &'a [OwnedFd],
    pub(crate) late: &'a [Late],
    pub(crate) trees: &'a [Tree],
    pub(crate) filter: &'a Filter,
    /// The executable that starts its interpreter, and that runners are made of.
    pub(crate) guest: BorrowedFd<'a>,
    /// The host user that it is; `None` for the jail's own.
    pub(crate) id: Option<u32>,
}

/// Confines this process and becomes the interpreter. Whoever waits for its first word sees the socket's end otherwise.
pub(crate) fn become_zygote(given: &Given<'_>) -> ! {
    let _ = confine(given);
    end(1)
}

fn confine(given: &Given<'_>) -> Outcome<std::convert::Infallible> {
    for tasks in given.cgroups {
        rustix::io::write(tasks, b"0").at("joining a cgroup")?;
    }
    sys::default_signals();
    place::mount_own(DISK_BYTES, given.late, given.trees)?;
    place::enter_root()?;
    rustix::system::sethostname(b"belljar").at("setting the host name")?;
    if let Some(id) = given.id {
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        set_thread_groups(&[]).at("dropping groups")?;
        set_thread_res_gid(gid, gid, gid).at("setting the group")?;
        set_thread_res_uid(uid, uid, uid).at("setting the user")?;
    }
    set_parent_process_death_signal(Some(Signal::KILL)).at("asking to die with the jail")?;
    arrange_descriptors([given.socket.as_fd(), given.guest].into_iter())?;
    limits(&BOUNDS)?;
    drop_capabilities()?;
    set_no_new_privs(true).at("no_new_privs")?;
    given.filter.install()?;

    let argv = ["belljar-zygote", &given.zygote.interpreter].map(c_string);
    let envp: Vec<CString> =
        given.zygote.env.iter().map(|(name, value)| c_string(&format!("{name}={value}"))).collect();
    let errno = exec(given.guest, &argv, &envp);
    Err(Failure { step: "exec of the interpreter".to_owned(), errno: errno.raw_os_error() })
}

/// What holds a NUL is left out: it cannot be passed on.
fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}
