//! The thread that starts every runsc. Linux ends a child together with the *thread* that started it, if the child asked for
//! that, and the threads of an async runtime come and go. This one is there as long as the backend.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::sys;

#[derive(Debug)]
pub(super) struct Starter {
    wishes: mpsc::Sender<Wish>,
}

#[derive(Debug)]
struct Wish {
    command: Command,
    /// What the new process writes itself into.
    cgroups: Vec<OwnedFd>,
    answer: oneshot::Sender<io::Result<Child>>,
}

impl Starter {
    pub(super) fn new() -> io::Result<Starter> {
        let (wishes, to_do) = mpsc::channel::<Wish>();
        std::thread::Builder::new().name("belljar-gvisor".to_owned()).spawn(move || {
            for Wish { command, cgroups, answer } in to_do {
                let started = sys::start_bound_to_this_thread(command, &cgroups);
                // Whoever asked went away.
                if let Err(Ok(mut child)) = answer.send(started) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        })?;
        Ok(Starter { wishes })
    }

    /// Starts it in its cgroups. It dies with this.
    pub(super) async fn start(&self, command: Command, cgroups: Vec<OwnedFd>) -> io::Result<Child> {
        let (answer, started) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts them has ended");
        self.wishes.send(Wish { command, cgroups, answer }).map_err(|_| gone())?;
        started.await.map_err(|_| gone())?
    }
}
