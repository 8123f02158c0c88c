//! HTTP/1 between a sandbox and a host: read strictly, decided on request by request, and written anew.

mod answer;
mod body;
pub mod chunks;
pub(crate) mod exchange;
pub mod head;

pub(crate) use exchange::{Exchange, Goal};
