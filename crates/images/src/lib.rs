//! Images without an engine: an OCI image, a tar or a directory becomes a root file system in a store of ours, by a name.
//!
//! ```text
//! registry ─▶ blob (digest checked) ─┐
//! tar ───────────────────────────────┼─▶ unpack ─▶ layers/<diff-id>/ ─▶ assemble ─▶ roots/<chain>/root/ ◀─ names/<name>.json
//! directory ─▶ a tar of it ──────────┘   each entry   once for all        by hard       what a sandbox
//!                                        checked      images              links         is opened on
//! ```
//!
//! All that comes in is somebody else's: the registry, the tar, each entry of it. Nothing of it is run, and no link of it is
//! ever followed out of the directory it is unpacked into. Not here: how a sandbox is opened on a root, and who may ask for one.

#![forbid(unsafe_code)]

mod assemble;
mod bounds;
mod building;
mod decode;
mod directory;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod inside;
mod names;
mod registry;
mod store;
mod survey;
mod sweep;
mod tree;
mod unpack;
mod work;

pub use self::bounds::Bounds;
pub use self::error::{ImageError, ImageErrorKind};
pub use self::registry::Registries;
pub use self::store::{Built, Listed, Progress, Root, Source, Store, Tell};
pub use self::survey::{Found, survey};
