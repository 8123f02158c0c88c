//! The sockets at which a sandbox's ways out begin, in its own network.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use belljar_core::PROXY_PORT;
use belljar_core::wire::PORTS_MAX;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::error::{At, Failure, Outcome};

const NAMES_PORT: u16 = 53;
const BACKLOG: i32 = 128;

/// Makes them, with the loopback interface up: a listener for each port, the proxy's, and the socket for names. What they
/// hold, nothing in the sandbox can bind: not one of these sockets agrees to share.
pub fn bind_doors(ports: &[u16]) -> Outcome<Vec<OwnedFd>> {
    if ports.len() > PORTS_MAX {
        return Err(Failure { step: "counting ports".to_owned(), errno: libc::E2BIG });
    }
    let mut doors = Vec::with_capacity(ports.len() + 2);
    for port in ports {
        doors.push(listener(Ipv4Addr::UNSPECIFIED, *port)?);
    }
    doors.push(listener(Ipv4Addr::LOCALHOST, PROXY_PORT)?);
    doors.push(bound(SocketType::DGRAM, Ipv4Addr::LOCALHOST, NAMES_PORT)?);
    Ok(doors)
}

fn listener(address: Ipv4Addr, port: u16) -> Outcome<OwnedFd> {
    let socket = bound(SocketType::STREAM, address, port)?;
    listen(&socket, BACKLOG).at("listening at a door")?;
    Ok(socket)
}

fn bound(kind: SocketType, address: Ipv4Addr, port: u16) -> Outcome<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, kind, flags, None).at("making a door")?;
    bind(&socket, &SocketAddrV4::new(address, port)).at("binding a door")?;
    Ok(socket)
}
