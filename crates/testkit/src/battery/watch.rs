//! Looks at the host while a case runs: a limit that held only before and after the run did not hold.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::client::hold;
use super::proc;
use super::wall::Wall;

const EVERY: Duration = Duration::from_millis(100);
/// Asking for free space starts a process each time, so it is done on every tenth look only.
const SPACE_EVERY: u32 = 10;

/// The state of the host as far as it can be laid at the server's door.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Threads of all descendants. The server's own are its runtime's affair.
    pub(crate) tasks: usize,
    /// Private memory of the server and its descendants, and all of the host's file-backed shared memory. Not the
    /// host's free memory: a compiler that runs next door would fail the case.
    pub(crate) memory_kib: u64,
    pub(crate) server_kib: u64,
}

impl Sample {
    pub(crate) fn take(server: u32, wall: &Wall) -> Sample {
        let family = wall.family(server);
        let private: u64 = family.iter().map(|process| proc::anonymous_kib(process.pid)).sum();
        Sample {
            tasks: family.iter().skip(1).map(|process| process.threads).sum(),
            memory_kib: private + proc::shared_memory_kib(),
            server_kib: proc::resident_kib(server),
        }
    }

    fn at_least(self, other: Sample) -> Sample {
        Sample {
            tasks: self.tasks.max(other.tasks),
            memory_kib: self.memory_kib.max(other.memory_kib),
            server_kib: self.server_kib.max(other.server_kib),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) start: Sample,
    start_space: Option<(u64, u64)>,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    stop: AtomicBool,
    server: AtomicU32,
    wall: Wall,
    peak: Mutex<Sample>,
    least_space: Mutex<Option<(u64, u64)>>,
}

impl Watch {
    pub(crate) fn start(server: u32, wall: &Wall) -> Watch {
        let start = Sample::take(server, wall);
        let start_space = proc::free_space();
        let state = Arc::new(State {
            stop: AtomicBool::new(false),
            server: AtomicU32::new(server),
            wall: wall.clone(),
            peak: Mutex::new(start),
            least_space: Mutex::new(start_space),
        });
        let watched = Arc::clone(&state);
        let thread = Some(thread::spawn(move || watched.look()));
        Watch { start, start_space, state, thread }
    }

    /// After a restart it is another process that matters.
    pub(crate) fn follow(&self, server: u32) {
        self.state.server.store(server, Ordering::SeqCst);
    }

    pub(crate) fn peak(&self) -> Sample {
        *hold(&self.state.peak)
    }

    /// The most KiB and inodes that were taken since the start.
    pub(crate) fn space_taken(&self) -> Option<(u64, u64)> {
        let now = proc::free_space()?;
        let least = (*hold(&self.state.least_space))?;
        let (kib, inodes) = self.start_space?;
        Some((kib.saturating_sub(least.0.min(now.0)), inodes.saturating_sub(least.1.min(now.1))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A watcher that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

impl State {
    fn look(&self) {
        let mut looks: u32 = 0;
        while !self.stop.load(Ordering::SeqCst) {
            let sample = Sample::take(self.server.load(Ordering::SeqCst), &self.wall);
            {
                let mut peak = hold(&self.peak);
                *peak = peak.at_least(sample);
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(SPACE_EVERY)
                && let Some((kib, inodes)) = proc::free_space()
                && let Some(least) = &mut *hold(&self.least_space)
            {
                *least = (least.0.min(kib), least.1.min(inodes));
            }
            thread::sleep(EVERY);
        }
    }
}

/// Knocks on a port that only a sandbox listens on.
#[derive(Debug)]
pub(crate) struct Knock {
    stop: Arc<AtomicBool>,
    opened: Arc<Mutex<Option<SocketAddr>>>,
}

impl Knock {
    pub(crate) fn start(host: IpAddr, port: u16) -> Knock {
        let stop = Arc::new(AtomicBool::new(false));
        let opened = Arc::new(Mutex::new(None));
        let (stopped, note) = (Arc::clone(&stop), Arc::clone(&opened));
        let doors = [IpAddr::from([127, 0, 0, 1]), host, IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
        thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                for door in doors.map(|ip| SocketAddr::from((ip, port))) {
                    if TcpStream::connect_timeout(&door, Duration::from_millis(200)).is_ok() {
                        *hold(&note) = Some(door);
                    }
                }
                thread::sleep(EVERY);
            }
        });
        Knock { stop, opened }
    }

    pub(crate) fn opened(&self) -> Option<SocketAddr> {
        *hold(&self.opened)
    }
}

impl Drop for Knock {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::process::Command;

    #[test]
    fn a_peak_is_remembered() {
        let watch = Watch::start(std::process::id(), &Wall::native());
        let mut child = Command::new("sleep").arg("0.5").spawn().unwrap();
        child.wait().unwrap();
        assert!(watch.peak().tasks > 0);
        assert!(watch.peak().server_kib > 0);
    }

    #[test]
    fn an_open_port_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let knock = Knock::start(IpAddr::from([127, 0, 0, 1]), port);
        thread::sleep(Duration::from_millis(400));
        assert!(knock.opened().is_some());
        drop(listener);
        let knock = Knock::start(IpAddr::from([127, 0, 0, 1]), port);
        thread::sleep(Duration::from_millis(300));
        assert!(knock.opened().is_none());
    }
}
