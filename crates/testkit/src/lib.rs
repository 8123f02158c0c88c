//! What Belljar's tests share: nothing here ships.

#![forbid(unsafe_code)]

pub mod battery;
pub mod contract;
pub mod fake;
