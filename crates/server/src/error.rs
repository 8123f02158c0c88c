//! Why the server could not serve. What a request meets is an answer, never one of these.

use std::io;
use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anyone who can reach the address could run code.
    #[error("{0} can be reached by other machines, and there is no token to ask them for")]
    NeedsToken(SocketAddr),
    /// Something worked from inside a sandbox that must not; in words.
    #[error("the walls do not hold here, and nothing is run behind them: {0}")]
    WallsDoNotHold(String),
    /// Figures are told to whoever asks there.
    #[error("{0} can be reached by other machines, and figures there are for everyone")]
    FiguresOffLoopback(SocketAddr),
    #[error("could not listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

impl ServeError {
    /// What the operator can do about it.
    pub fn next_step(&self) -> &'static str {
        match self {
            ServeError::NeedsToken(_) => {
                "make one with `belljar token add NAME`, give --token-file FILE, or listen on 127.0.0.1"
            }
            ServeError::WallsDoNotHold(_) => {
                "`belljar doctor` shows each probe; choose another wall with --backend meanwhile"
            }
            ServeError::FiguresOffLoopback(_) => {
                "name an address of loopback with --metrics, or ask --http's own /metrics with a token"
            }
            ServeError::Listen { .. } => "choose another port, or 0 for any free one, and an address of this machine",
        }
    }
}
