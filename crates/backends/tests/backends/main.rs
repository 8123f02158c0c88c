//! Backends with the real thing behind them: the contract that each keeps, and what is one's own.
//!
//! One program of them all, since each is as large as the program itself. Docker's own tests stop the engine, and have another.

mod calls;
mod compilers;
mod contract;
mod gvisor;
mod images;
mod layers;
mod microvm;
mod network;
mod questions;
mod registry;
#[cfg(feature = "wasm")]
mod wasm;
mod zygote;
