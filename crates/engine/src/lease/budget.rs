//! How many sandboxes may be prepared, of each kind and of all together.

use belljar_core::Language;

use super::memory::Memory;
use crate::PoolSettings;

const MIB: u64 = 1024 * 1024;

/// Where the operator says nothing: enough for some dozens of Python's, and never much of a small machine.
const MEMORY_BYTES: u64 = 256 * MIB;
const MEMORY_PART: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) memory_bytes: u64,
    pub(super) max: usize,
}

impl Budget {
    pub(super) fn new(settings: &PoolSettings, bounds: &[Memory]) -> Budget {
        let smallest = bounds.iter().map(|memory| memory.total_bytes).min().unwrap_or(u64::MAX);
        let usual = MEMORY_BYTES.min(smallest / MEMORY_PART);
        Budget { memory_bytes: settings.memory_bytes.unwrap_or(usual), max: settings.max }
    }

    /// How many each may have, of how many it wants. One for each in turn, so that the first of a kind goes before the
    /// second of another; in the order they are given, which must not change, or sandboxes would be closed for each
    /// other's sake.
    pub(super) fn share(&self, wants: &[(usize, Option<Language>)]) -> Vec<usize> {
        let mut shares = vec![0; wants.len()];
        let (mut count, mut bytes) = (0, 0);
        loop {
            let before = count;
            for (share, (want, waiting)) in shares.iter_mut().zip(wants) {
                let cost = cost_bytes(*waiting);
                if *share < *want && count < self.max && bytes + cost <= self.memory_bytes {
                    *share += 1;
                    count += 1;
                    bytes += cost;
                }
            }
            if count == before {
                return shares;
            }
        }
    }
}

/// What one that waits takes of the machine's memory, in round numbers. An estimate, and not a look at each: what it
/// shares with others changes with every one that comes or goes, and reading a process's share costs as much as opening
/// half a sandbox. The guest with its page tables is 1 MiB; CPython forked from a preloaded one, or bash, adds what it
/// has written to; node's heap is its own.
fn cost_bytes(waiting: Option<Language>) -> u64 {
    MIB * match waiting.and_then(Language::kernel) {
        None => 1,
        Some(Language::Shell) => 2,
        Some(Language::Python) => 3,
        // Node, and whatever comes without having been measured.
        Some(_) => 40,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYTHON: Option<Language> = Some(Language::Python);
    const NODE: Option<Language> = Some(Language::JavaScript);

    fn share(memory_mib: u64, max: usize, wants: &[(usize, Option<Language>)]) -> Vec<usize> {
        Budget { memory_bytes: memory_mib * MIB, max }.share(wants)
    }

    #[test]
    fn what_fits_is_granted() {
        assert_eq!(share(256, 32, &[(5, PYTHON), (0, None), (2, NODE)]), [5, 0, 2]);
        assert!(share(256, 32, &[]).is_empty());
    }

    #[test]
    fn number_and_memory_are_bounds() {
        assert_eq!(share(256, 32, &[(100, PYTHON)]), [32]);
        assert_eq!(share(10, 32, &[(100, PYTHON)]), [3], "nine of the ten MiB");
        assert_eq!(share(256, 32, &[(100, NODE)]), [6]);
        assert_eq!(share(2, 32, &[(9, PYTHON)]), [0]);
        assert_eq!(share(256, 0, &[(9, PYTHON)]), [0]);
    }

    #[test]
    fn none_takes_all_from_the_others() {
        assert_eq!(share(256, 8, &[(100, PYTHON), (1, NODE), (100, None)]), [4, 1, 3]);
        assert_eq!(share(100, 32, &[(100, NODE), (6, PYTHON)]), [2, 6]);
        assert_eq!(share(50, 32, &[(6, PYTHON), (100, NODE), (1, None)]), [3, 1, 1], "in turn, until no more fits");
    }

    #[test]
    fn a_small_machine_prepares_less() {
        let of = |total_bytes| [Memory { total_bytes, available_bytes: 0 }];
        let settings = PoolSettings { memory_bytes: None, max: 7 };
        assert_eq!(Budget::new(&settings, &of(16 << 30)), Budget { memory_bytes: 256 * MIB, max: 7 });
        assert_eq!(Budget::new(&settings, &of(1 << 30)).memory_bytes, 128 * MIB);
        assert_eq!(Budget::new(&settings, &[]).memory_bytes, 256 * MIB);
        let told = PoolSettings { memory_bytes: Some(5), max: 7 };
        assert_eq!(Budget::new(&told, &of(1 << 30)).memory_bytes, 5);
    }
}
