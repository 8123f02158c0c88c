//! The first process of a virtual machine. It makes the place out of drives, starts the guest in it, and stays beside it,
//! as root and out of its sight, for what only the machine's owner may do: after the machine was copied it makes the copy
//! differ, and it mounts what comes later.
//!
//! ```text
//! kernel ─▶ keeper: modules, drives, mounts ══ Ready ══▶ (a snapshot is taken here) ══ Enter ══▶ settle ─▶ guest
//!             └── stays: clock, entropy, identity, layers, kills for memory
//! ```
//!
//! When the guest ends, or the host hangs up, it switches the machine off.

mod build;
mod control;
mod drives;
mod fresh;
mod memory;
mod modules;
mod place;
mod streams;
mod sys;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use belljar_core::wire::{FromKeeper, ToKeeper, VERSION};
use belljar_seal::{At, Failure, Outcome};
use rustix::event::{PollFd, PollFlags, poll};

use self::control::Control;
use self::memory::Memory;
use self::streams::{Kind, Streams};

/// Whether this process is the first of a machine, started by its kernel.
pub(crate) fn is_first() -> bool {
    rustix::process::getpid().is_init() && std::env::args_os().next().is_some_and(|name| name == "/init")
}

/// Does not return: the end of the first process is the end of the machine.
pub(crate) fn run() -> ! {
    if let Err(Failure { step, errno }) = keep() {
        say(&format!("belljar: {step}: error {errno}"));
    }
    sys::switch_off()
}

/// To whoever reads the machine's console.
fn say(line: &str) {
    if let Ok(mut console) = std::fs::File::options().write(true).open("/dev/console") {
        let _ = writeln!(console, "{line}");
    }
}

fn keep() -> Outcome<()> {
    place::mount_kernels()?;
    let settings = Settings::read()?;
    if settings.file_system == "floor" {
        // Only to see how long a machine takes to come up by itself.
        say("2");
        return Ok(());
    }
    modules::load()?;
    let Streams { guest, keeper, kind } = streams::open()?;
    let mut control = Control::new(keeper);
    let built = match settings.file_system.as_str() {
        // Only to see whether a machine comes up here.
        "none" => Ok(()),
        _ => place::build(&settings),
    };
    match built {
        Ok(()) => control.send(&FromKeeper::Ready { version: VERSION })?,
        Err(failure) => {
            let Failure { step, errno } = failure.clone();
            control.send(&FromKeeper::Failed { step, errno })?;
            return Err(failure);
        }
    }
    Keeper { guest: Some(guest), control, child: None, memory: None, builds: false, kind }.serve(&settings)
}

/// What the host has written on the kernel's command line.
struct Settings {
    /// Of the images in the drives.
    file_system: String,
}

impl Settings {
    fn read() -> Outcome<Settings> {
        let line = std::fs::read_to_string("/proc/cmdline").at("reading the command line")?;
        let value = line.split_whitespace().find_map(|word| word.strip_prefix("belljar.fs="));
        let file_system = value.unwrap_or("erofs").to_owned();
        Ok(Settings { file_system })
    }
}

struct Keeper {
    /// Until the guest has it.
    guest: Option<OwnedFd>,
    control: Control,
    /// The guest, once it runs.
    child: Option<OwnedFd>,
    memory: Option<Memory>,
    /// Whether there is something to collect when the guest has ended.
    builds: bool,
    kind: Kind,
}

impl Keeper {
    fn serve(mut self, settings: &Settings) -> Outcome<()> {
        loop {
            let (mut child_ended, mut killed) = (false, false);
            {
                let mut watched = vec![PollFd::new(self.control.fd(), PollFlags::IN)];
                if let (Some(child), Some(memory)) = (&self.child, &self.memory) {
                    watched.push(PollFd::new(child, PollFlags::IN));
                    watched.push(PollFd::from_borrowed_fd(memory.events().as_fd(), PollFlags::PRI));
                }
                match poll(&mut watched, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno).at("waiting"),
                }
                let happened = |at: usize, flags: PollFlags| {
                    watched.get(at).is_some_and(|watched| watched.revents().intersects(flags))
                };
                child_ended |= happened(1, PollFlags::IN);
                killed |= happened(2, PollFlags::PRI);
            }
            if child_ended {
                self.child = None;
                if !self.builds {
                    return Ok(());
                }
            }
            if killed
                && let Some(memory) = &mut self.memory
                && let Some(count) = memory.newly_killed()
            {
                self.control.send(&FromKeeper::Killed { count })?;
            }
            while let Some(request) = self.next()? {
                let answer = match self.answer(request, settings) {
                    Ok(()) => FromKeeper::Done,
                    Err(Failure { step, errno }) => FromKeeper::Failed { step, errno },
                };
                self.control.send(&answer)?;
            }
        }
    }

    /// The host's next request. A copy whose connections ended with its model makes new ones, as long as no guest has one.
    fn next(&mut self) -> Outcome<Option<ToKeeper>> {
        match self.control.next() {
            Err(_) if self.kind == Kind::Connection && self.guest.is_some() => {
                let Streams { guest, keeper, .. } = streams::open()?;
                self.guest = Some(guest);
                self.control = Control::new(keeper);
                Ok(None)
            }
            other => other,
        }
    }

    fn answer(&mut self, request: ToKeeper, settings: &Settings) -> Outcome<()> {
        match request {
            ToKeeper::Refresh { clock_ns, entropy, identity } => fresh::refresh(clock_ns, &entropy, identity),
            ToKeeper::Build { bytes, drive } => {
                self.builds = true;
                build::prepare(bytes, drive, &settings.file_system)
            }
            ToKeeper::Collect => {
                if let Some(child) = self.child.take() {
                    place::end(&child)?;
                }
                build::collect(&mut self.control)
            }
            ToKeeper::Layer { drive, at } => drives::show_layer(drive, &at, &settings.file_system),
            ToKeeper::Enter { plan, memory_bytes, trust } => {
                let again = || Failure { step: "starting a second guest".to_owned(), errno: libc::EALREADY };
                let stream = self.guest.take().ok_or_else(again)?;
                let memory = Memory::hold(memory_bytes)?;
                self.child = Some(place::enter(&plan, stream, &memory, trust.as_deref())?);
                self.memory = Some(memory);
                Ok(())
            }
        }
    }
}
