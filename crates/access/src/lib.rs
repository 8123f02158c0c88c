//! Who may call over HTTP, and what: bearer tokens of our own, tokens of an OAuth authorization server, scopes, and how many
//! requests a second.
//!
//! What comes out of [`Access::admit`] is a [`Pass`]: on whose behalf a request is made, and what it may do. Nothing here knows
//! the protocol's methods or our tools; the server says which scope a request needs.

#![forbid(unsafe_code)]

mod access;
mod book;
mod file;
mod lines;
mod moment;
mod oauth;
mod rate;
mod scope;
mod tokens;

pub use access::{Access, Pass, Refusal};
pub use book::{Book, BookError, Issued, Terms};
pub use file::{FileError, TokenFile};
pub use lines::LineError;
pub use moment::Moment;
pub use oauth::{Oauth, OauthError, OauthSettings};
pub use scope::{Scope, Scopes, UnknownScope};
pub use tokens::{Entry, Tokens};
