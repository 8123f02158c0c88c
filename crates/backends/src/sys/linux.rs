//! Linux: memory files, descriptors over sockets, and starting the jail.
#![expect(unsafe_code, reason = "descriptors are arranged between fork and exec; the block says what it relies on")]

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use belljar_core::wire::PORTS_MAX;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An executable that exists only in memory and that nobody can change, ourselves included.
pub(crate) fn memory_file(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag that says "to be executed", and need none.
    let file = match memfd_create(name, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        other => other?,
    };
    let mut file = fs::File::from(file);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}

/// Starts the jail with its descriptors, each with the number it is to have, an empty environment and no standard streams.
pub(crate) fn start_jail<const N: usize>(jail: &OwnedFd, given: [(&OwnedFd, i32); N]) -> io::Result<Child> {
    // Away from the numbers they go to, so that putting one in place cannot overwrite another.
    let mut sources = Vec::with_capacity(N);
    for (fd, _) in given {
        sources.push(fcntl_dupfd_cloexec(fd, 200)?);
    }
    let mut moves = [(0, 0); N];
    for (to, (from, (_, number))) in moves.iter_mut().zip(sources.iter().zip(given)) {
        *to = (from.as_raw_fd(), number);
    }
    let mut command = Command::new(format!("/proc/self/fd/{}", jail.as_raw_fd()));
    command
        .arg0("belljar-jail")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A Ctrl-C in the terminal is for the server to handle; the jail follows when the server goes.
        .process_group(0);
    let arrange = move || {
        // SAFETY: dup2 is async-signal-safe and touches no memory; the sources stay open in the parent until the child
        // has started, and the targets are numbers that nothing else uses.
        let placed = moves.iter().all(|&(from, to)| unsafe { libc::dup2(from, to) } >= 0);
        if placed { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only makes the calls above, which are allowed between fork and exec.
    unsafe { command.pre_exec(arrange) };
    command.spawn()
}

/// Starts a program in cgroups, each by the file that a process writes itself into, in a process group of its own. It is killed
/// when the calling thread ends.
pub(crate) fn start_bound_to_this_thread(mut command: Command, cgroups: &[OwnedFd]) -> io::Result<Child> {
    let files: Vec<i32> = cgroups.iter().map(AsRawFd::as_raw_fd).collect();
    let arrange = move || {
        for &file in &files {
            // SAFETY: write is async-signal-safe, and reads one byte that is static. The file is open in the parent until the
            // child has started.
            if unsafe { libc::write(file, c"0".as_ptr().cast(), 1) } != 1 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: a plain number for this process alone.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    command.process_group(0);
    // SAFETY: the closure only makes the calls above, which are allowed between fork and exec, and allocates nothing.
    unsafe { command.pre_exec(arrange) };
    command.spawn()
}

/// Sends one datagram with descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, body: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from(Errno::TOOBIG));
    }
    sendmsg(socket, &[IoSlice::new(body)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one datagram and at most one descriptor. An empty datagram means that the other side is gone.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut fd = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = message {
            fd = rights.next();
        }
    }
    Ok((got.bytes, fd))
}

/// Receives the descriptors of one datagram that is there already, at most as many as a sandbox has doors.
pub(crate) fn receive_all(socket: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PORTS_MAX + 2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, flags)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(fds)
}

/// Lets the runtime watch a descriptor for readiness to be read.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` refers to the same open file from here until it is dropped, which is what the runtime needs.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(io::Error::from)
}

/// Whether this process is root in more than name.
pub(crate) fn is_admin() -> bool {
    let admin = rustix::thread::CapabilitySet::SYS_ADMIN;
    rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(admin))
}
