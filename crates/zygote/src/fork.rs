//! From the zygote to a kernel in a sandbox, step by step. What runs here before the kernel does so in the zygote's own
//! memory, in processes that borrow it: nothing may be left changed in it but the outcome.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};

use belljar_core::wire::{RUNNER_NAME, word_of_forked};
use belljar_seal::{At, Failure, Filter, Landlock, Outcome, seal};
use rustix::process::{Gid, Uid, chdir, getpid, set_child_subreaper, setsid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::request::Request;
use crate::sys::{self, Forked, Steps};

/// The user that programs are, inside.
const INSIDE_ID: u32 = 1000;

const WORKSPACE: &str = "/workspace";

/// Forks a kernel. In the zygote, how that went; in the kernel, nothing.
pub(crate) fn fork(request: &Request, filter: &Filter, guest: BorrowedFd<'_>) -> Forked {
    sys::fork_by_steps(&mut Steps {
        enter: &mut || enter(request),
        confine: &mut || confine(request, filter),
        settle: &mut || settle(request),
        run: &mut |kernel| become_runner(request, guest, kernel),
    })
}

/// Goes into the sandbox: its cgroups, then its namespaces, then its user.
fn enter(request: &Request) -> Outcome<()> {
    for group in &request.cgroups {
        // "0" is whoever writes it.
        rustix::io::write(group, b"0").at("joining a cgroup")?;
    }
    sys::enter_namespaces(request.sandbox.as_fd()).at("entering the sandbox")?;
    let (uid, gid) = (Uid::from_raw(INSIDE_ID), Gid::from_raw(INSIDE_ID));
    set_thread_res_gid(gid, gid, gid).at("setting the group")?;
    set_thread_res_uid(uid, uid, uid).at("setting the user")
}

/// The walls, for the runner and the kernel that it then forks.
fn confine(request: &Request, filter: &Filter) -> Outcome<()> {
    set_child_subreaper(Some(getpid())).at("becoming a reaper")?;
    let landlock = if request.fork.landlock { Landlock::Up } else { Landlock::None };
    seal(&request.fork.bounds, landlock, filter)
}

/// The kernel's own first steps: what an exec would have found.
fn settle(request: &Request) -> Outcome<()> {
    setsid().at("making a session")?;
    chdir(WORKSPACE).at("entering the workspace")?;
    sys::arrange_descriptors(&request.streams).at("placing a descriptor")?;
    // Lost when the user changed; without it, one may not look at oneself in /proc.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).at("being dumpable")
}

/// Tells process 1 who we are, and becomes what waits for the kernel.
fn become_runner(request: &Request, guest: BorrowedFd<'_>, kernel: i32) -> Failure {
    let word = word_of_forked(getpid().as_raw_nonzero().get(), kernel);
    if let Err(failure) = rustix::io::write(&request.word, &word).at("telling process 1") {
        return failure;
    }
    let arguments = [RUNNER_NAME.to_owned(), kernel.to_string()].map(|text| CString::new(text).unwrap_or_default());
    let errno = sys::exec_alone(guest, &arguments);
    Failure { step: "becoming a runner".to_owned(), errno: errno.raw_os_error() }
}
