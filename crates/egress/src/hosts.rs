//! What went to each host that a sandbox reached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::Reached;

/// So many are counted by name; what goes to more is counted as one.
const NAMED_MAX: usize = 64;
const OTHERS: &str = "(others)";

#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<Vec<Arc<Tally>>>);

/// Of all connections to one host.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    host: String,
    connections: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
}

impl Hosts {
    /// There is one more connection to a host. It is counted on for as long as the tally is held.
    pub(crate) fn connected(&self, host: String) -> Arc<Tally> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |all: &[Arc<Tally>], host: &str| all.iter().find(|tally| tally.host == host).cloned();
        let is_full = all.len() >= NAMED_MAX;
        let known = find(&all, &host).or_else(|| if is_full { find(&all, OTHERS) } else { None });
        let tally = known.unwrap_or_else(|| {
            let host = if is_full { OTHERS.to_owned() } else { host };
            let tally = Arc::new(Tally { host, ..Tally::default() });
            all.push(tally.clone());
            tally
        });
        tally.connections.fetch_add(1, Ordering::Relaxed);
        tally
    }

    /// What came since this was last asked.
    pub(crate) fn take(&self) -> Vec<Reached> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = all.iter().map(|tally| tally.take()).filter(|reached| !reached.is_nothing()).collect();
        all.retain(|tally| Arc::strong_count(tally) > 1);
        taken
    }
}

impl Tally {
    pub(crate) fn sent(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take(&self) -> Reached {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let (connections, bytes_out) = (take(&self.connections), take(&self.bytes_out));
        Reached { host: self.host.clone(), connections, bytes_out, bytes_in: take(&self.bytes_in) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(host: &str, connections: u64, bytes_out: u64, bytes_in: u64) -> Reached {
        Reached { host: host.to_owned(), connections, bytes_out, bytes_in }
    }

    #[test]
    fn what_is_still_open_is_counted_on_and_the_rest_forgotten() {
        let hosts = Hosts::default();
        let (open, closed) = (hosts.connected("a:1".into()), hosts.connected("b:2".into()));
        open.sent(3);
        closed.received(5);
        drop(closed);
        assert_eq!(hosts.take(), [reached("a:1", 1, 3, 0), reached("b:2", 1, 0, 5)]);
        assert_eq!(hosts.take(), []);
        open.received(7);
        drop(open);
        hosts.connected("a:1".into());
        assert_eq!(hosts.take(), [reached("a:1", 1, 0, 7)]);
        assert!(hosts.0.lock().unwrap().is_empty());
    }

    #[test]
    fn more_hosts_than_are_named_are_counted_as_one() {
        let hosts = Hosts::default();
        for host in 0..NAMED_MAX * 3 {
            hosts.connected(format!("{host}.test:443")).sent(1);
        }
        hosts.connected("0.test:443".into()).sent(1);
        let taken = hosts.take();
        assert_eq!(taken.len(), NAMED_MAX + 1);
        assert_eq!(taken[0], reached("0.test:443", 2, 2, 0));
        let others = NAMED_MAX as u64 * 2;
        assert_eq!(taken[NAMED_MAX], reached(OTHERS, others, others, 0));
    }
}
