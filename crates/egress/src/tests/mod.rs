//! The whole of it, with real sockets: origins on loopback addresses stand in for the internet, and a network namespace
//! for a sandbox's.

mod battery;
mod bounds;
mod clients;
mod grants;
mod guarded;
mod origin;
mod passing;
mod requests;
mod room;
mod secrets;
mod speed;
mod world;
