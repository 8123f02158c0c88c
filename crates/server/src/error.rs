//! Why the server could not serve. What a request meets is an answer, never one of these.

use std::io;
use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anyone who can reach the address could run code.
    #[error(
        "{0} can be reached by other machines, and there is no token to ask them for; use --token-file, or listen on 127.0.0.1"
    )]
    NeedsToken(SocketAddr),
    #[error("could not listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}
