//! One cell, from the order to run it to its last frame.

use std::time::Duration;

use belljar_core::{Language, Then};

use super::interrupt::Interrupt;
use crate::changes::Look;

#[derive(Debug)]
pub(super) struct Cell {
    pub(super) id: u32,
    pub(super) phase: Phase,
    pub(super) look: Look,
    /// What the kernel had used when it began.
    pub(super) cpu_before: Duration,
    /// The most memory that its kernel had had.
    pub(super) memory_before: u64,
    pub(super) interrupt: Interrupt,
    /// When it began, as processes tell when they did.
    pub(super) ticks: u64,
}

#[derive(Debug)]
pub(super) enum Phase {
    Gathering {
        code: Code,
        input: Vec<u8>,
        taken: usize,
    },
    /// All of it is here, and the kernel, which was started ahead of it, is not.
    Held {
        code: Code,
        input: Vec<u8>,
    },
    Running,
    Done {
        code: i32,
    },
}

/// The code of a cell.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) language: Language,
    pub(crate) text: String,
    pub(crate) then: Then,
}

impl Cell {
    pub(super) fn new(id: u32, code: Code, look: Look) -> Cell {
        let phase = Phase::Gathering { code, input: Vec::new(), taken: 0 };
        Cell { id, phase, look, cpu_before: Duration::ZERO, memory_before: 0, interrupt: Interrupt::None, ticks: 0 }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }
}
