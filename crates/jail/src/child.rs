//! The life of a sandbox's first process, from the clone to the exec of the guest.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::wire::{self, FromGuest, Open};
use belljar_seal::{At, Failure, Filter, Landlock, Outcome, arrange_descriptors, end, exec, loopback_up, seal};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Gid, Signal, Uid, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitiesSecureBits, UnshareFlags, set_capabilities_secure_bits, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::place::{self, INSIDE_ID};
use crate::root::Late;
use crate::store::Tree;
use crate::{doors, sys};

/// What a new sandbox is made from.
pub(crate) struct Given<'a> {
    pub(crate) open: &'a Open,
    /// Its stream, and a kernel's ends if there are any.
    pub(crate) guests: &'a [OwnedFd],
    /// Gets one byte when the jail has mapped our user.
    pub(crate) wait: OwnedFd,
    /// `tasks` files of version 1.
    pub(crate) cgroups: &'a [OwnedFd],
    /// Where its doors go, if it has any.
    pub(crate) doors: Option<&'a OwnedFd>,
    pub(crate) late: &'a [Late],
    pub(crate) trees: &'a [Tree],
    pub(crate) landlock: Landlock,
    pub(crate) filter: &'a Filter,
    /// The executable that it becomes.
    pub(crate) guest: BorrowedFd<'a>,
}

/// Confines this process and becomes the guest. What goes wrong is told on the stream.
pub(crate) fn become_guest(given: Given<'_>) -> ! {
    let guests = given.guests;
    let Err(failure) = confine(given);
    let mut frame = Vec::new();
    if let Some(stream) = guests.first()
        && wire::encode(&FromGuest::Broken { step: failure.step, errno: failure.errno }, &mut frame).is_ok()
    {
        let _ = rustix::io::write(stream, &frame);
    }
    end(1)
}

fn confine(given: Given<'_>) -> Outcome<std::convert::Infallible> {
    for tasks in given.cgroups {
        // "0" is whoever writes it: the one form for which the kernel does not stop all forks of the machine.
        rustix::io::write(tasks, b"0").at("joining a cgroup")?;
    }
    // Until the jail has mapped our user there is nothing else that we may do.
    let mut byte = [0];
    if rustix::io::read(&given.wait, &mut byte).at("waiting for the jail")? == 0 {
        end(1);
    }
    take_own_user(given.open.host_id)?;
    // After the change of user, which would clear it.
    set_parent_process_death_signal(Some(Signal::KILL)).at("asking to die with the jail")?;
    sys::default_children().at("resetting SIGCHLD")?;
    sys::unshare(UnshareFlags::NEWCGROUP).at("unshare of cgroups")?;

    place::mount_own(given.open.disk_bytes, given.late, given.trees)?;
    place::mount_proc()?;
    place::enter_root()?;

    rustix::system::sethostname(b"belljar").at("setting the host name")?;
    let socket =
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).at("making a socket")?;
    loopback_up(socket.as_fd()).at("bringing loopback up")?;
    drop(socket);
    if let (Some(ports), Some(to)) = (&given.open.ports, given.doors) {
        doors::make(ports, to)?;
    }

    arrange_descriptors(given.guests.iter().map(AsFd::as_fd))?;
    seal(&given.open.bounds, given.landlock, given.filter)?;
    let errno = exec(given.guest, &[c"belljar-guest".to_owned()], &[]);
    Err(Failure { step: "exec of the guest".to_owned(), errno: errno.raw_os_error() })
}

/// Lets the user namespaces that this process makes belong to `id`, which is then all that it takes to enter one. The
/// process itself stays who it is, and keeps its capabilities.
pub(crate) fn own_namespaces_as(id: u32) -> Outcome<()> {
    set_capabilities_secure_bits(SECURE_BITS).at("setting secure bits")?;
    let (none, id) = (Uid::from_raw(u32::MAX), Uid::from_raw(id));
    set_thread_res_uid(none, id, none).at("setting the owner of namespaces")
}

/// Nothing is given or taken because of a user id being 0.
const SECURE_BITS: CapabilitiesSecureBits =
    CapabilitiesSecureBits::NO_SETUID_FIXUP.union(CapabilitiesSecureBits::NO_ROOT);

/// Becomes the sandbox's user, keeping for now the capabilities that the new namespaces gave us.
fn take_own_user(host_id: Option<u32>) -> Outcome<()> {
    set_capabilities_secure_bits(SECURE_BITS).at("setting secure bits")?;
    // Root must drop its groups. An ordinary user cannot: setgroups is denied in its namespaces.
    if host_id.is_some() {
        set_thread_groups(&[]).at("dropping groups")?;
    }
    let (uid, gid) = (Uid::from_raw(INSIDE_ID), Gid::from_raw(INSIDE_ID));
    set_thread_res_gid(gid, gid, gid).at("setting the group")?;
    set_thread_res_uid(uid, uid, uid).at("setting the user")
}
