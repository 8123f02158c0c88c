//! From "this program needs pandas" to "here is a read-only layer that has it".
//!
//! ```text
//! code ─ needs ─▶ names ─ environment ─▶ known? ─yes─▶ Environment (a layer, held while used)
//!                                          │no
//!                                          └─ build: a sandbox that sees the registries and one empty directory ─ rename ─▶ store
//! ```
//!
//! Nothing of a package is run, unpacked or opened on the host: resolving, downloading and building happen in sandboxes
//! of the backend that was given, and what they leave is only counted, renamed and removed. Not here: who asks, the
//! environment of this process, and the network (a grant is a wish that the backend's guard fulfils).

#![forbid(unsafe_code)]

mod attended;
mod base;
mod build;
mod environment;
mod error;
mod facts;
mod key;
mod known;
mod names;
mod needs;
mod packages;
mod registries;
mod run;
mod settings;
mod store;
mod wanted;

pub use environment::Environment;
pub use error::{InstallError, InstallErrorKind};
pub use packages::Packages;
pub use registries::{Credential, HostSettings, Over, Registries, Secret};
pub use settings::{Reachable, Settings};
pub use wanted::{Installed, Needs, Phase, Progress, Wanted};
