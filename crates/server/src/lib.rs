//! Belljar's face to agents: the Model Context Protocol over standard input and output, and over HTTP.
//!
//! The way of a request: `transport` frames and authenticates, `tools` parses it into one call of the engine, `answer`
//! turns what came back into words. Nothing here starts a process, opens a file, reads the environment, or knows which
//! backend confines the code.

#![forbid(unsafe_code)]

mod address;
mod answer;
mod approval;
mod cancelled;
mod clean;
mod completion;
mod error;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod handler;
mod hide;
mod logging;
mod mime;
mod profiles;
mod progress;
mod prompts;
mod resources;
mod schema;
mod scopes;
mod shares;
mod subscriptions;
mod tasks;
mod tools;
mod transport;
mod watch;

pub use clean::clean;
pub use error::ServeError;
pub use gateway::{Aim, CodeMode, Detail, DirectCall, Search};
pub use handler::Surface;
pub use profiles::NAMES as PROFILES;
pub use transport::http::{HttpSettings, serve_http};
pub use transport::patience::Waits;
pub use transport::stdio::serve_stdio;
pub use transport::unix::{UnixSettings, serve_unix};
pub use transport::watch::serve_figures;
pub use watch::{Readiness, Watch};
