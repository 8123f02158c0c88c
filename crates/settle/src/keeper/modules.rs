//! The kernel's modules that the machine needs, in the order that the host found for them.

use std::fs::File;
use std::os::fd::AsFd;

use belljar_seal::{At, Outcome};
use rustix::io::Errno;

use super::sys;

pub(super) fn load() -> Outcome<()> {
    let order = std::fs::read_to_string("/modules/order").at("reading the list of modules")?;
    for name in order.lines() {
        let file = File::open(format!("/modules/{name}")).at("opening a module")?;
        match sys::load_module(file.as_fd()) {
            // Another one has brought it.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).at(&format!("loading the module {name}")),
        }
        // They are in memory twice otherwise.
        let _ = std::fs::remove_file(format!("/modules/{name}"));
    }
    Ok(())
}
