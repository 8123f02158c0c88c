//! Packages as a sandbox gets them: directories of the host's that it sees, and cannot change.

use serde::{Deserialize, Serialize};

/// An environment of packages, built once and shared by every sandbox that asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layer {
    pub kind: LayerKind,
    /// Its name in the store of layers, which is a directory that the backend was told of: lower-case hexadecimal digits.
    pub id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LayerKind {
    /// A prefix as `pip install --prefix` makes it: `lib/python3.x/site-packages`, `bin`.
    Python,
    /// What npm puts into `node_modules`.
    Node,
}

impl LayerKind {
    /// Where a sandbox finds it. Always the same place, empty where there is none: a layer that comes later is put over the
    /// one before, and nothing has to be told where to look.
    pub fn inside(self) -> &'static str {
        match self {
            LayerKind::Python => "/belljar/packages",
            // Where Node looks last, from wherever it looks.
            LayerKind::Node => "/node_modules",
        }
    }
}

/// Where a sandbox that builds a layer may write it: [`crate::Spec::build`].
pub const BUILD: &str = "/belljar/build";
