//! A step that failed, and the kernel's word for it.

use rustix::io::Errno;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub step: String,
    pub errno: i32,
}

pub type Outcome<T> = Result<T, Failure>;

/// Names the step that a kernel call belongs to.
pub trait At<T> {
    fn at(self, step: &str) -> Outcome<T>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: &str) -> Outcome<T> {
        self.map_err(|errno| Failure { step: step.to_owned(), errno: errno.raw_os_error() })
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, step: &str) -> Outcome<T> {
        self.map_err(|error| Failure { step: step.to_owned(), errno: error.raw_os_error().unwrap_or(libc::EIO) })
    }
}
