//! The first program in a place that somebody else made: a container, a gVisor sandbox. It finishes the place from inside
//! and then becomes the guest.
//!
//! ```text
//! engine ── starts ──▶ settle: disk, doors, user, limits, landlock, seccomp ── exec ──▶ guest, process 1 of the place
//! ```
//!
//! Whoever starts it gives it a [`Plan`] as its one argument and the stream to the host as standard input and output, which
//! may be one and the same. What goes wrong is told there, in the guest's own words. What the place already has is not done
//! again: an engine that has dropped every right has also done what takes one.
//!
//! In a virtual machine it is the first process of all, and makes the place too: [`keeper`].

#![deny(unsafe_code)]

mod devices;
mod disk;
mod keeper;
mod survey;
mod user;

use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;

use belljar_core::wire::{self, FromGuest, GUEST, Plan, SETTLED, SURVEY};
use belljar_seal::{
    At, Failure, Filter, Landlock, Outcome, arrange_descriptors, bind_doors, drop_bounding_set, end, exec,
    landlock_abi, loopback_up, seal,
};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::stdio::{stdin, stdout};

/// As the jail has it: the one before refuses what git, npm and cargo do.
const LANDLOCK_ABI_MIN: u32 = 2;

/// Above what the guest's descriptors are put at.
const TOLD_TO_FD: i32 = 200;

fn main() {
    if keeper::is_first() {
        keeper::run();
    }
    // Standard output is another by the time that some of it fails.
    let told_to = rustix::io::fcntl_dupfd_cloexec(stdout(), TOLD_TO_FD);
    let mut arguments = std::env::args_os().skip(1).map(OsStringExt::into_vec);
    let argument = arguments.next().unwrap_or_default();
    if argument == SURVEY.as_bytes() {
        end(survey::tell(&arguments.next().unwrap_or_default()));
    }
    let settled = Plan::from_argument(&argument)
        .map_err(|_| Failure { step: "reading the plan".to_owned(), errno: libc::EINVAL })
        .and_then(|plan| settle(&plan, [stdin(), stdout()]));
    let Err(failure) = settled;
    if let Ok(told_to) = told_to {
        tell(told_to, failure);
    }
    end(1)
}

/// Tells the host why there is no guest.
fn tell(stream: impl AsFd, Failure { step, errno }: Failure) {
    let mut frame = Vec::new();
    if wire::encode(&FromGuest::Broken { step, errno }, &mut frame).is_ok() {
        let _ = rustix::io::write(stream, &frame);
    }
}

fn settle(plan: &Plan, stream: [BorrowedFd<'_>; 2]) -> Outcome<Infallible> {
    rustix::process::chdir("/").at("entering the root")?;
    let user = user::choose(plan.builds);
    if let Some(bytes) = plan.disk_bytes {
        disk::mount_over_places(bytes, user)?;
    }
    devices::remove_unwanted();
    bring_loopback_up()?;
    let doors = plan.ports.as_deref().map_or(Ok(Vec::new()), bind_doors)?;
    let filter = Filter::settled()?;
    // With the user go the rights, and this takes one.
    drop_bounding_set()?;
    user::take(user)?;

    arrange_descriptors(stream.into_iter().chain(doors.iter().map(AsFd::as_fd)))?;
    // Only now: those before it go to the lowest numbers, whatever was there.
    let guest = rustix::fs::open(GUEST, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at("looking for the guest")?;
    let landlock = match (landlock_abi() >= LANDLOCK_ABI_MIN, plan.builds) {
        (false, _) => Landlock::None,
        (true, false) => Landlock::Up,
        (true, true) => Landlock::UpForBuilding,
    };
    seal(&plan.bounds, landlock, &filter)?;
    let word = |text: &str| CString::new(text).unwrap_or_default();
    let arguments = [word("belljar-guest"), word(SETTLED), word(&doors.len().to_string())];
    let errno = exec(guest.as_fd(), &arguments, &[]);
    Err(Failure { step: "exec of the guest".to_owned(), errno: errno.raw_os_error() })
}

/// An engine that gives no right to do this has done it.
fn bring_loopback_up() -> Outcome<()> {
    let socket =
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).at("making a socket")?;
    match loopback_up(socket.as_fd()) {
        // gVisor has no such call, and its loopback is up.
        Ok(()) | Err(rustix::io::Errno::PERM | rustix::io::Errno::NOTTY) => Ok(()),
        Err(errno) => Err(errno).at("bringing loopback up"),
    }
}
