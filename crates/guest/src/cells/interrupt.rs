//! Interrupting a cell: when its driver can take it, and what follows if it goes on all the same.

use std::time::{Duration, Instant};

use belljar_core::Language;

use super::Kernel;
use crate::tree;

const INTERRUPT: i32 = 2;

/// How long an interrupted cell may take before what it has started is ended without being asked.
const INSIST: Duration = Duration::from_millis(250);

/// How long until it is interrupted once more. On a machine that is slow enough the first can come to a driver that has
/// just not begun with the cell, or has just not finished.
const AGAIN: Duration = Duration::from_millis(400);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    None,
    /// It waits until the driver can take it.
    Asked,
    /// What the cell has started is ended with it, and if the cell goes on, at one of these times: it may wait for
    /// something that does not heed an interrupt, or that was not there yet when it came. At the other it is sent again.
    Sent {
        insist: Option<Instant>,
        again: Option<Instant>,
    },
}

/// What is to be done with a cell that was interrupted and goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urge {
    Nothing,
    EndWhatItStarted,
    SendAgain,
}

impl Interrupt {
    pub(super) fn sent(language: Language) -> Interrupt {
        let now = Instant::now();
        let (insist, again) = match language {
            // It drops none, and a second could hit what the first made it do.
            Language::Python => (INSIST, None),
            // A command that bash was about to start loses the first. If the second does not end it, nothing that it heeds
            // will; and killed ahead of that, it would be told as killed.
            Language::Shell => (2 * INSIST, Some(INSIST)),
            _ => (INSIST, Some(AGAIN)),
        };
        Interrupt::Sent { insist: Some(now + insist), again: again.map(|again| now + again) }
    }

    /// When to look at it again.
    pub(super) fn next(self) -> Option<Instant> {
        match self {
            Interrupt::Sent { insist, again } => insist.into_iter().chain(again).min(),
            _ => None,
        }
    }

    /// What it is time for; each once.
    pub(super) fn urge(&mut self, now: Instant) -> Urge {
        let Interrupt::Sent { insist, again } = self else { return Urge::Nothing };
        if insist.take_if(|at| *at <= now).is_some() {
            Urge::EndWhatItStarted
        } else if again.take_if(|at| *at <= now).is_some() {
            Urge::SendAgain
        } else {
            Urge::Nothing
        }
    }
}

impl Kernel {
    pub(crate) fn signal(&mut self, signal: i32) {
        match &mut self.cell {
            Some(cell) if signal == INTERRUPT => {
                cell.interrupt = Interrupt::Asked;
                self.interrupt();
            }
            _ => self.process.signal(signal),
        }
    }

    /// Interrupts the cell, if that was asked for and its driver is there to take it: an interpreter that only starts
    /// would be killed by it.
    pub(super) fn interrupt(&mut self) {
        let Some(cell) = self.cell.as_mut().filter(|cell| cell.interrupt == Interrupt::Asked) else { return };
        if self.ready.is_none() || !cell.is_running() || self.control.has_outgoing() {
            return;
        }
        cell.interrupt = Interrupt::sent(self.language);
        self.send_interrupt();
    }

    fn send_interrupt(&mut self) {
        if self.language == Language::JavaScript {
            // A signal cannot stop JavaScript that never comes back to its event loop. Its driver's worker can, and a
            // signal on top of that would be in its way.
            self.control.say("interrupt 0\n", &[]);
            self.control.write();
        } else {
            self.process.signal(INTERRUPT);
        }
    }

    pub(super) fn insists_in(&self) -> Option<Duration> {
        let cell = self.cell.as_ref().filter(|cell| cell.is_running())?;
        Some(cell.interrupt.next()?.saturating_duration_since(Instant::now()))
    }

    /// Does what it is time for with an interrupted cell that goes on.
    pub(crate) fn insist(&mut self) {
        let Some(cell) = self.cell.as_mut().filter(|cell| cell.is_running()) else { return };
        let ticks = cell.ticks;
        match cell.interrupt.urge(Instant::now()) {
            Urge::Nothing => {}
            Urge::EndWhatItStarted => {
                if let (Some(runner), Some(program)) = (self.process.runner(), self.process.program()) {
                    tree::end_young(runner, program, ticks);
                }
            }
            Urge::SendAgain => self.send_interrupt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_urge_comes_once_and_in_its_time() {
        let begun = Instant::now();
        let mut interrupt = Interrupt::sent(Language::Shell);
        assert_eq!(interrupt.urge(begun), Urge::Nothing);
        let again = interrupt.next().unwrap();
        assert_eq!(interrupt.urge(again), Urge::SendAgain, "a shell's is first sent again");
        assert_eq!(interrupt.urge(begun + Duration::from_secs(1)), Urge::EndWhatItStarted);
        let mut interrupt = Interrupt::sent(Language::JavaScript);
        let later = begun + Duration::from_secs(1);
        assert_eq!([(); 3].map(|()| interrupt.urge(later)), [Urge::EndWhatItStarted, Urge::SendAgain, Urge::Nothing]);
        assert_eq!(interrupt.next(), None);
        let mut interrupt = Interrupt::sent(Language::Python);
        assert_eq!([(); 2].map(|()| interrupt.urge(later)), [Urge::EndWhatItStarted, Urge::Nothing]);
        assert_eq!((Interrupt::Asked.next(), Interrupt::None.urge(later)), (None, Urge::Nothing));
    }
}
