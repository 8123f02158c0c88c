//! A sandbox's ways out, as whoever serves them gets them.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use crate::Later;

/// Addresses that names are answered with inside a sandbox, instead of their own: 198.18.0.0/15, which RFC 2544 keeps free.
/// The sandbox's own network takes whatever is sent there.
pub const STAND_INS: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);

/// The same where nobody could add a route to the sandbox's network: all of 127.0.0.0/8 is its own anyway.
pub const LOCAL_STAND_INS: (Ipv4Addr, u8) = (Ipv4Addr::new(127, 64, 0, 0), 10);

/// A sandbox's ways out.
#[derive(Debug)]
pub enum Doors {
    /// Sockets that are in its network, and are served from outside of it. All non-blocking.
    Sockets {
        /// TCP listeners for each granted port, on every address. Who connects to a stand-in is found here; anybody else
        /// who comes is not to be served.
        transparent: Vec<OwnedFd>,
        /// A TCP listener at [`crate::PROXY_PORT`] of the loopback address.
        proxy: OwnedFd,
        /// A UDP socket at port 53 of the loopback address, where the sandbox's resolver asks.
        names: OwnedFd,
    },
    /// Somebody inside takes whoever comes, and passes them on.
    Relayed(Box<dyn Relay>),
}

impl Doors {
    /// Where the stand-ins of this network begin.
    pub fn stand_ins(&self) -> Ipv4Addr {
        match self {
            Doors::Sockets { .. } => STAND_INS.0,
            Doors::Relayed(_) => LOCAL_STAND_INS.0,
        }
    }
}

/// Those who come to the doors of a sandbox, one after the other.
pub trait Relay: fmt::Debug + Send {
    /// The next one. `Lost` when the place is gone. Dropping the future loses nobody.
    fn next(&mut self) -> Later<'_, Knock>;
}

/// One who came to a door.
pub enum Knock {
    /// A connection, by the address that it was made to, as a stream socket of its own: non-blocking, of whatever family.
    Connection { to: SocketAddrV4, stream: OwnedFd },
    /// A question to the resolver, which takes one answer or none.
    Name { question: Vec<u8>, answer: Box<dyn FnOnce(Vec<u8>) + Send> },
}

impl fmt::Debug for Knock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knock::Connection { to, .. } => f.debug_struct("Connection").field("to", to).finish_non_exhaustive(),
            Knock::Name { .. } => f.debug_struct("Name").finish_non_exhaustive(),
        }
    }
}
