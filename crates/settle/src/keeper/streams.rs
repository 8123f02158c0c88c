//! The two streams to the host: ports of a virtio console, by their names, or connections of a socket to the host where the
//! VMM has no such console.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use belljar_core::wire::{GUEST_PORT, GUEST_VSOCK, KEEPER_PORT, KEEPER_VSOCK};
use belljar_seal::{At, Failure, Outcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};

use super::sys;

pub(super) struct Streams {
    pub(super) guest: OwnedFd,
    pub(super) keeper: OwnedFd,
    /// Whether they end with the machine that is copied, and a copy has to connect anew.
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Port,
    Connection,
}

/// A machine whose devices are not there by then has none.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is looked for devices, which come up by themselves once their drivers are there.
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub(super) fn open() -> Outcome<Streams> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let (Some(guest), Some(keeper)) = (port(GUEST_PORT), port(KEEPER_PORT)) {
            let streams = Streams { guest: open_port(&guest)?, keeper: open_port(&keeper)?, kind: Kind::Port };
            for stream in [&streams.guest, &streams.keeper] {
                wait_for_host(stream, until)?;
            }
            return Ok(streams);
        }
        if let Ok(keeper) = sys::connect_to_host(KEEPER_VSOCK) {
            let guest = sys::connect_to_host(GUEST_VSOCK).at("connecting to the host")?;
            return Ok(Streams { guest, keeper, kind: Kind::Connection });
        }
        if Instant::now() > until {
            return Err(Failure { step: "looking for the streams to the host".to_owned(), errno: libc::ENODEV });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The device of the port of this name.
fn port(name: &str) -> Option<String> {
    let ports = std::fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.filter_map(Result::ok).find_map(|port| {
        let found = std::fs::read_to_string(port.path().join("name")).ok()?;
        (found.trim_end() == name).then(|| format!("/dev/{}", port.file_name().to_string_lossy()))
    })
}

fn open_port(device: &str) -> Outcome<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(device, flags, Mode::empty()).at("opening a stream to the host")
}

/// A port is first told that somebody is at its other end; until then it looks as if nobody were.
fn wait_for_host(stream: &OwnedFd, until: Instant) -> Outcome<()> {
    loop {
        let mut watched = [PollFd::new(stream, PollFlags::OUT)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&now)).at("waiting for the host")?;
        if !watched[0].revents().contains(PollFlags::HUP) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(Failure { step: "waiting for the host".to_owned(), errno: libc::ENOTCONN });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
