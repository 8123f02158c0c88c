//! Which descriptors survive the exec of a sandbox's first program.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::error::{At, Outcome};
use crate::sys;

/// 0, 1 and 2 are /dev/null, those given follow, and nothing else survives the exec.
pub fn arrange_descriptors<'a>(given: impl Iterator<Item = BorrowedFd<'a>>) -> Outcome<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).at("opening /dev/null")?;
    // Away from the numbers they go to, so that neither putting one in place nor dropping one meets another.
    let aside = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 50).at("moving a descriptor");
    let nulls = aside(null.as_fd())?;
    drop(null);
    let given = given.map(aside).collect::<Outcome<Vec<OwnedFd>>>()?;
    let mut next = 0;
    for fd in std::iter::repeat_n(&nulls, 3).chain(&given) {
        sys::place(fd, next).at("placing a descriptor")?;
        next += 1;
    }
    sys::close_at_exec_from(next as u32).at("closing descriptors")
}
