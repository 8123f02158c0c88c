//! Text that is shown to nobody.

use std::fmt;

use zeroize::Zeroizing;

/// A secret's value. It is not printed, not compared, not written anywhere, and wiped when it is dropped.
#[derive(Clone)]
pub struct Hidden(Zeroizing<String>);

impl Hidden {
    pub fn new(value: String) -> Hidden {
        Hidden(Zeroizing::new(value))
    }

    /// For those who put it on the wire.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
