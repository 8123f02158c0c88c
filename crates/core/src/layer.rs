//! Directories of the host's that a sandbox sees, and cannot change: packages, and what it can call.

use serde::{Deserialize, Serialize};

/// A directory, made once and shared by every sandbox that asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layer {
    pub kind: LayerKind,
    /// Its name in the store of layers, which is a directory that the backend was told of: lower-case hexadecimal digits.
    pub id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LayerKind {
    Packages(PackageKind),
    /// What programs can call of other servers, as files.
    Tools,
    /// Programs of the caller's own that were kept.
    Skills,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageKind {
    /// A prefix as `pip install --prefix` makes it: `lib/python3.x/site-packages`, `bin`.
    Python,
    /// What npm puts into `node_modules`.
    Node,
}

impl LayerKind {
    pub const ALL: [LayerKind; 4] = [
        LayerKind::Packages(PackageKind::Python),
        LayerKind::Packages(PackageKind::Node),
        LayerKind::Tools,
        LayerKind::Skills,
    ];

    /// Where a sandbox finds it. Always the same place, empty where there is none: a layer that comes later is put over the
    /// one before, and nothing has to be told where to look.
    pub fn inside(self) -> &'static str {
        match self {
            LayerKind::Packages(kind) => kind.inside(),
            LayerKind::Tools => "/tools",
            LayerKind::Skills => "/skills",
        }
    }
}

impl PackageKind {
    pub fn inside(self) -> &'static str {
        match self {
            PackageKind::Python => "/belljar/packages",
            // Where Node looks last, from wherever it looks.
            PackageKind::Node => "/node_modules",
        }
    }
}

/// Where a sandbox that builds a layer may write it: [`crate::Spec::build`].
pub const BUILD: &str = "/belljar/build";
