//! How much is measured: enough for a figure in about two minutes, or for a glance in some seconds.

use std::time::Duration;

/// ComputeSDK's gap between two that are staggered.
pub(super) const STAGGER: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Rounds before them, since servers and caches are cold at first.
    pub(super) uncounted: u32,
    /// What takes longer than this is told of with the rounds that it has had.
    pub(super) budget: Duration,
    /// Of each kind that takes milliseconds.
    pub(super) runs: u32,
    /// Of what starts Node.js, which takes four times as long as Python.
    pub(super) node_runs: u32,
    /// Of what imports pandas or prints much.
    pub(super) slow_runs: u32,
    /// Of what is compiled. The first of them may fill a compiler's cache for half a minute.
    pub(super) compiled_runs: u32,
    /// Of what an engine starts.
    pub(super) wall_runs: u32,
    pub(super) staggered: u32,
    pub(super) burst: u32,
    pub(super) clients: &'static [usize],
    /// How long a throughput is measured at a time, and how many times.
    pub(super) window: Duration,
    pub(super) windows: u32,
    /// Idle sandboxes, fewer to more.
    pub(super) sandboxes: &'static [usize],
    /// Fresh runs of the soak.
    pub(super) soak: u32,
}

impl Plan {
    pub(super) fn whole(runs: u32, soak: u32) -> Plan {
        Plan {
            uncounted: 3,
            budget: Duration::from_secs(15),
            runs,
            node_runs: (runs / 4).max(5),
            slow_runs: (runs / 20).clamp(3, 50),
            compiled_runs: (runs / 40).clamp(3, 50),
            wall_runs: (runs / 10).clamp(5, 50),
            staggered: 20,
            burst: 100,
            clients: &[1, 4, 16, 64],
            window: Duration::from_millis(750),
            windows: 2,
            sandboxes: &[10, 50, 200],
            soak,
        }
    }

    pub(super) fn quick(runs: u32, soak: u32) -> Plan {
        Plan {
            uncounted: 1,
            budget: Duration::from_secs(3),
            runs,
            node_runs: runs.min(2),
            slow_runs: 1,
            compiled_runs: 0,
            wall_runs: 2,
            staggered: 2,
            burst: 8,
            clients: &[1, 4],
            window: Duration::from_millis(100),
            windows: 1,
            sandboxes: &[2],
            soak,
        }
    }
}
