//! The real program from outside, over pipes and sockets that this crate writes itself.
//!
//! Nothing here knows how Belljar works; what it leaves on the host is looked for on the host.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

mod access;
mod bad_input;
mod bench;
mod cli;
mod client;
mod codemode;
mod config;
mod endings;
mod events;
mod fair;
mod host;
mod http;
mod index;
mod install;
mod languages;
mod leftovers;
mod network;
mod packages;
mod protocol;
mod records;
mod server;
mod sockets;
mod templates;
mod walls;
mod watching;

#[test]
fn no_file_is_left_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut modules: Vec<String> =
        names.filter(|name| name != "main.rs").map(|name| format!("mod {};", name.trim_end_matches(".rs"))).collect();
    modules.sort();
    let listed: Vec<&str> = include_str!("main.rs").lines().filter(|line| line.starts_with("mod ")).collect();
    assert_eq!(listed, modules);
}
