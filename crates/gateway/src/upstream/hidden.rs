//! A value that may be a secret: shown nowhere, and wiped when it is dropped.

use std::fmt::{Debug, Formatter, Result};

use zeroize::Zeroizing;

/// Text that never appears in a log line, an error or a debug print.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(Zeroizing<String>);

impl Hidden {
    pub fn new(text: impl Into<String>) -> Hidden {
        Hidden(Zeroizing::new(text.into()))
    }

    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Debug for Hidden {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("[hidden]")
    }
}
