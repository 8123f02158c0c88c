//! What the bench is doing, for whoever waits: one line that is redrawn on a terminal, a line for each step elsewhere.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const REDRAW_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Progress {
    is_terminal: bool,
    started: Instant,
    drawn: Cell<Option<Instant>>,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress { is_terminal: std::io::stderr().is_terminal(), started: Instant::now(), drawn: Cell::new(None) }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The next thing to be measured.
    pub(super) fn step(&self, what: &str) {
        if self.is_terminal {
            self.draw(what);
        } else {
            // Nobody needs this line to go on.
            let _ = writeln!(std::io::stderr(), "{:>4} s  {what}", self.elapsed().as_secs());
        }
    }

    /// How far it is. Called between measurements, never within one.
    pub(super) fn at(&self, what: &str, done: u32, of: u32) {
        let is_due = self.drawn.get().is_none_or(|drawn| drawn.elapsed() >= REDRAW_EVERY);
        if self.is_terminal && is_due {
            self.draw(&format!("{what}  {done}/{of}"));
        }
    }

    fn draw(&self, text: &str) {
        self.drawn.set(Some(Instant::now()));
        let mut stderr = std::io::stderr().lock();
        // Carriage return and "erase the line", which every terminal of today knows.
        let _ = write!(stderr, "\r\x1b[2K{:>4} s  {text}", self.elapsed().as_secs());
        let _ = stderr.flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}
