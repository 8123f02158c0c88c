//! Many clients at once, each with a connection and a thread. What goes wrong is counted, and stops nobody.

use std::io;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cli::bench::client::{Call, Client, Http};
use crate::cli::bench::measure::Tally;

/// A client needs little, and there may be thousands.
const STACK_BYTES: usize = 256 * 1024;
/// Before a client whose connection failed tries another.
const AGAIN: Duration = Duration::from_millis(50);

/// One call on each connection, all begun at the same moment. How long all of them took together, and each.
pub(super) fn at_once(clients: Vec<Http>, call: &Call, expected: &str) -> anyhow::Result<(Duration, Tally)> {
    // All wait to read while we hold it to write.
    let (gate, given_up) = (RwLock::new(()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let held = gate.write();
        let one = |mut client: Http| {
            let (gate, given_up) = (&gate, &given_up);
            spawn(scope, move || {
                drop(gate.read());
                if given_up.load(Ordering::Relaxed) {
                    return Err("given up".to_owned());
                }
                let answer = client.call(call).map_err(|error| format!("{error:#}"))?;
                answer.printed(expected)
            })
        };
        let threads: io::Result<Vec<_>> = clients.into_iter().map(one).collect();
        given_up.store(threads.is_err(), Ordering::Relaxed);
        let started = Instant::now();
        drop(held);
        let mut tally = Tally::default();
        for thread in threads.context("a thread for each client")? {
            tally.add(thread.join().unwrap_or_else(|_| Err("a client failed".to_owned())));
        }
        Ok((started.elapsed(), tally))
    })
}

/// Who calls, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) address: SocketAddr,
    pub(super) token: Option<&'a str>,
    pub(super) call: &'a Call,
    pub(super) expected: &'a str,
}

impl Caller<'_> {
    fn connect(&self) -> anyhow::Result<Http> {
        let client = Http::connect(self.address)?;
        Ok(match self.token {
            Some(token) => client.with_token(token),
            None => client,
        })
    }

    /// The same call again and again until it is told to stop.
    fn again_and_again(&self, stop: &AtomicBool) -> Tally {
        let (mut tally, mut kept) = (Tally::default(), None);
        while !stop.load(Ordering::Relaxed) {
            let called = match kept.take().map_or_else(|| self.connect(), Ok) {
                Ok(mut client) => client.call(self.call).inspect(|_| kept = Some(client)),
                Err(error) => Err(error),
            };
            match called {
                Ok(answer) => tally.add(answer.printed(self.expected)),
                Err(error) => {
                    tally.add(Err(format!("{error:#}")));
                    std::thread::sleep(AGAIN);
                }
            }
        }
        tally
    }
}

/// So many of the same caller, for as long as something else is done.
pub(super) fn beside<T>(
    count: usize,
    caller: Caller<'_>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Tally)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: io::Result<Vec<_>> = (0..count).map(|_| spawn(scope, || caller.again_and_again(&stop))).collect();
        let done = threads.as_ref().is_ok().then(work);
        stop.store(true, Ordering::Relaxed);
        let mut tally = Tally::default();
        for thread in threads? {
            tally.merge(thread.join().unwrap_or_default());
        }
        match done {
            Some(done) => Ok((done?, tally)),
            None => anyhow::bail!("no thread for another client"),
        }
    })
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)
}
