//! How much is asked of a server: what was promised, or what shows in a minute that all of it works.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Idle ones at once.
    pub(super) sandboxes: u32,
    /// At once, each on a connection of its own.
    pub(super) requests: u32,
    /// Calls over HTTP and on a pipe, in turn.
    pub(super) rounds: u32,
    pub(super) soak: Duration,
    /// Clients of the soak.
    pub(super) clients: usize,
    pub(super) kills: u32,
    /// Runs in flight when the server is killed.
    pub(super) in_flight: usize,
    /// Runs that a greedy caller has in flight.
    pub(super) flood: usize,
    /// Calls of the other one, alone and beside it.
    pub(super) calls: u32,
}

impl Plan {
    pub(super) fn whole() -> Plan {
        Plan {
            sandboxes: 1000,
            requests: 1000,
            rounds: 500,
            soak: Duration::from_secs(600),
            clients: 8,
            kills: 200,
            in_flight: 50,
            flood: 64,
            calls: 200,
        }
    }

    pub(super) fn quick() -> Plan {
        Plan {
            sandboxes: 10,
            requests: 40,
            rounds: 20,
            soak: Duration::from_secs(6),
            clients: 4,
            kills: 3,
            in_flight: 12,
            flood: 16,
            calls: 10,
        }
    }
}
