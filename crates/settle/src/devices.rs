//! What gVisor puts into /dev that a sandbox is not to have.

use rustix::fs::{AtFlags, CWD, unlinkat};

/// Terminals, FUSE and tunnels: nothing of the host's, but code of gVisor's that no program here has a use for.
const UNWANTED: [&str; 4] = ["/dev/fuse", "/dev/net/tun", "/dev/tty", "/dev/ptmx"];

/// Takes them away, where that can be done: in a container they are not there, or are the engine's to hold.
pub(crate) fn remove_unwanted() {
    for device in UNWANTED {
        let _ = unlinkat(CWD, device, AtFlags::empty());
    }
}
