//! How much an image may be. Whoever made it may have meant harm, and a small file can unpack to a full disk.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    pub layers_max: usize,
    /// Of a manifest and of an image's configuration, which are held in memory.
    pub document_bytes_max: u64,
    /// Of one layer as it is downloaded.
    pub blob_bytes_max: u64,
    /// Of all layers, unpacked.
    pub unpacked_bytes_max: u64,
    /// Of one file.
    pub file_bytes_max: u64,
    /// Of all layers.
    pub entries_max: u64,
    /// Directories of one layer that are only in the names of what is in them.
    pub implied_max: usize,
    pub depth_max: usize,
    /// Attempts at each thing that a registry is asked for.
    pub attempts: u32,
    /// Before the second attempt; twice as long before each further one.
    pub pause: Duration,
    /// Without a byte from a registry.
    pub silence: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Bounds {
            // Docker's own is 125.
            layers_max: 128,
            document_bytes_max: 4 << 20,
            blob_bytes_max: 16 * GIB,
            unpacked_bytes_max: 32 * GIB,
            file_bytes_max: 8 * GIB,
            entries_max: 2_000_000,
            implied_max: 200_000,
            depth_max: 128,
            attempts: 4,
            pause: Duration::from_millis(500),
            silence: Duration::from_secs(30),
        }
    }
}
