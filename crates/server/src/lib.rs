//! Belljar's face to agents: the Model Context Protocol over standard input and output, and over HTTP.
//!
//! The way of a request: `transport` frames and authenticates, `tools` parses it into one call of the engine, `answer`
//! turns what came back into words. Nothing here starts a process, opens a file, reads the environment, or knows which
//! backend confines the code.

#![forbid(unsafe_code)]

mod address;
mod answer;
mod approval;
mod auth;
mod cancelled;
mod clean;
mod error;
mod gateway;
mod handler;
mod hide;
mod mime;
mod profiles;
mod progress;
mod resources;
mod schema;
mod subscriptions;
mod tools;
mod transport;

pub use auth::{TokenError, Tokens};
pub use error::ServeError;
pub use gateway::{CodeMode, Detail, DirectCall, Search};
pub use handler::Surface;
pub use profiles::NAMES as PROFILES;
pub use transport::http::{HttpSettings, serve_http};
pub use transport::stdio::serve_stdio;
