//! A sandbox's ways out: sockets in its network namespace that are served from outside of it.
//!
//! Its network has no way to anywhere. What is sent to a stand-in address stays in it, and is met by a listener of ours.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use belljar_core::STAND_INS;
use belljar_core::wire::PORTS_MAX;
use belljar_seal::{At, Failure, Outcome, bind_doors};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    send, sendmsg, socket_with,
};

/// The index of the loopback interface, which is the first that a network namespace has.
const LOOPBACK: u32 = 1;

/// Makes them, with the loopback interface up, and sends them to whoever asked for the sandbox.
pub(crate) fn make(ports: &[u16], to: &OwnedFd) -> Outcome<()> {
    route_stand_ins()?;
    let doors = bind_doors(ports)?;
    let fds: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PORTS_MAX + 2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(to, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::NOSIGNAL).at("handing out the doors")?;
    Ok(())
}

/// Lets this network namespace take every stand-in address for one of its own, as `ip route add local ... dev lo` does.
fn route_stand_ins() -> Outcome<()> {
    let step = "routing the stand-in addresses";
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).at("making a socket")?;
    send(&socket, &new_route(), SendFlags::empty()).at(step)?;
    let mut reply = [0; 256];
    let (length, _) = recv(&socket, &mut reply[..], RecvFlags::empty()).at(step)?;
    // A header of 16 bytes, and then the error as a negative number, 0 for none.
    match reply[..length].get(16..20).and_then(|bytes| bytes.first_chunk::<4>()) {
        Some(bytes) => match i32::from_ne_bytes(*bytes) {
            0 => Ok(()),
            errno => Err(Failure { step: step.to_owned(), errno: errno.wrapping_neg() }),
        },
        None => Err(Failure { step: step.to_owned(), errno: libc::EPROTO }),
    }
}

/// `nlmsghdr`, `rtmsg`, and two attributes, each with a header of its own.
fn new_route() -> Vec<u8> {
    let (address, prefix) = STAND_INS;
    let mut body = vec![
        libc::AF_INET as u8,
        prefix,
        0,
        0,
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ];
    body.extend(0u32.to_ne_bytes());
    for (kind, value) in [(libc::RTA_DST, address.octets()), (libc::RTA_OIF, LOOPBACK.to_ne_bytes())] {
        body.extend(8u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    }
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let mut message = Vec::with_capacity(16 + body.len());
    message.extend((16 + body.len() as u32).to_ne_bytes());
    message.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Its number, and who sends it: neither matters to one who asks once.
    message.extend([0; 8]);
    message.extend(body);
    message
}
