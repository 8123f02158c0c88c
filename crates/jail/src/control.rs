//! The conversation with the native backend: one datagram in, one out.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::wire::{self, JailReply, JailRequest, Setup};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Signal, pidfd_send_signal};

use belljar_seal::{At, Failure, Outcome};

use crate::open::Jail;
use crate::sys::Cloned;
use crate::{root, store, sys};

/// The largest datagram: a `Setup` with some hundred binds. Larger files come as descriptors.
const DATAGRAM_MAX: usize = 128 * 1024;
/// The stream, a kernel's ends, the doors' socket, and a cgroup for each controller that has one of its own.
const FDS_MAX: usize = 16;

/// Serves until the backend hangs up.
pub(crate) fn serve() -> Outcome<()> {
    let inherited = sys::inherited();
    let control = inherited.control.as_fd();
    let mut buffer = vec![0; DATAGRAM_MAX];

    let Some((length, _)) = receive(control, &mut buffer)? else { return Ok(()) };
    let setup: Setup = wire::decode_body(&buffer[..length]).map_err(|_| malformed())?;
    // In two: only a child is in the new process namespace.
    let entered = root::enter_own_namespaces().and_then(|power| {
        let cloned = sys::clone_into(0, None, None).at("starting the jail's own process")?;
        Ok((power, cloned))
    });
    let power = match entered {
        Ok((power, Cloned::Child)) => power,
        Ok((_, Cloned::Parent { pid, .. })) => sys::stand_by(pid),
        Err(failure) => return send(control, &failed(failure), None),
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at("asking to die with the jail")?;
    let mut files = Vec::from(inherited.files);
    if setup.ask {
        files.push((wire::ASK, inherited.guest.try_clone().at("keeping the guest")?));
    }
    let root = root::build(&setup, power, files);
    let jail = match root.and_then(|root| Jail::new(root, inherited.guest, setup.zygote_id)) {
        Ok(jail) => {
            send(control, &JailReply::Ready { landlock_abi: jail.landlock_abi() }, None)?;
            jail
        }
        Err(failure) => return send(control, &failed(failure), None),
    };

    while let Some((length, fds)) = receive(control, &mut buffer)? {
        let made = match wire::decode_body(&buffer[..length]).map_err(|_| malformed())? {
            JailRequest::Open(open) => jail.open(&open, fds).map(Some),
            JailRequest::Zygote(zygote) => jail.start_zygote(&zygote, fds).map(Some),
            JailRequest::AddLayer(layer) => store::add(&layer, fds).map(|()| None),
        };
        let answered = match made {
            Ok(None) => send(control, &JailReply::Done, None),
            Ok(Some(pidfd)) => send(control, &JailReply::Opened, Some(&pidfd)).inspect_err(|_| {
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            }),
            Err(failure) => Err(failure),
        };
        // Descriptors cannot always be passed; that costs this one sandbox, not all that stand.
        if let Err(failure) = answered {
            send(control, &failed(failure), None)?;
        }
    }
    Ok(())
}

fn malformed() -> Failure {
    Failure { step: "reading a request".to_owned(), errno: libc::EPROTO }
}

fn failed(failure: Failure) -> JailReply {
    JailReply::Failed { step: failure.step, errno: failure.errno }
}

fn send(control: BorrowedFd<'_>, reply: &JailReply, fd: Option<&OwnedFd>) -> Outcome<()> {
    let body = wire::encode_body(reply).map_err(|_| malformed())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(control, &[IoSlice::new(&body)], &mut ancillary, SendFlags::NOSIGNAL).at("answering")?;
    Ok(())
}

fn receive(control: BorrowedFd<'_>, buffer: &mut [u8]) -> Outcome<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(control, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.at("receiving")?,
        }
    };
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(malformed());
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    // There was no room for some of them. A sandbox that misses a cgroup would be a weaker one, so it gets none at all,
    // and the request fails.
    if got.flags.contains(ReturnFlags::CTRUNC) {
        fds.clear();
    }
    Ok(Some((got.bytes, fds)))
}
