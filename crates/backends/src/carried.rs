//! The programs of ours that live inside the walls, static and small, as the one binary carries them.

pub(crate) static JAIL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-jail"));
pub(crate) static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-guest"));
pub(crate) static SETTLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-settle"));
pub(crate) static TRANSPILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-transpile"));
pub(crate) static ZYGOTE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libbelljar_zygote.so"));
