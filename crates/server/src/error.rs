//! Why the server could not serve. What a request meets is an answer, never one of these.

use std::io;
use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anyone who can reach the address could run code.
    #[error("{0} can be reached by other machines, and there is no token to ask them for")]
    NeedsToken(SocketAddr),
    #[error("could not listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

impl ServeError {
    /// What the operator can do about it.
    pub fn next_step(&self) -> &'static str {
        match self {
            ServeError::NeedsToken(_) => "give --token-file FILE, or listen on 127.0.0.1",
            ServeError::Listen { .. } => "choose another port, or 0 for any free one, and an address of this machine",
        }
    }
}
