//! All programs of the sandbox: starting, reaping, and making sure that a run leaves nothing alive.
//!
//! Every process of the sandbox is below a living runner, or is a stray: something a runner left when it ended. Strays
//! are children of process 1 or below one, so they cannot hide, and they are killed before the run they came from is
//! told to be over.

use belljar_core::wire::{FromGuest, Init, Start};
use belljar_core::{FileErrorKind, Usage};
use rustix::event::PollFd;
use rustix::process::{Pid, Signal};

use crate::files::refusal;
use crate::launch::Launch;
use crate::process::{Channel, Process};
use crate::stream::{Gone, Stream};
use crate::sys::{self, Patience, Waited};
use crate::tree::{self, Strays};

/// Programs at once. Each costs four descriptors here.
const PROGRAMS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Programs {
    processes: Vec<Process>,
    /// Empty between uses: the memory of one chunk of output.
    chunk: Vec<u8>,
    turn: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Children {
    None,
    Some,
}

impl Programs {
    pub(crate) fn start(&mut self, init: &Init, id: u32, start: Start, stream: &mut Stream) -> Result<(), Gone> {
        let started = if self.processes.len() < PROGRAMS_MAX {
            Launch::new(init, start).and_then(|launch| Process::start(id, launch))
        } else {
            Err(refusal(FileErrorKind::Failed, "too many programs at once"))
        };
        match started {
            Ok(process) => {
                self.processes.push(process);
                Ok(())
            }
            Err(error) => stream.send(&FromGuest::Refused { id, error }),
        }
    }

    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.id() == id)
    }

    pub(crate) fn are_running(&self) -> bool {
        self.processes.iter().any(|process| process.runner().is_some())
    }

    /// Whether a run has ended and something of it may still be alive.
    pub(crate) fn are_sweeping(&self) -> bool {
        self.processes.iter().any(Process::is_sweeping)
    }

    /// Whether a run is over but for what is in its pipes.
    pub(crate) fn are_draining(&self) -> bool {
        self.processes.iter().any(Process::is_draining)
    }

    /// Ends a program, with everything it started, and leaves the others.
    pub(crate) fn stop(&mut self, id: u32) {
        if let Some(process) = self.get(id) {
            process.condemn();
            self.end_strays();
        }
    }

    /// Kills processes for their memory. Whose they are is not asked: a program that then ends by a kill was told why.
    pub(crate) fn kill_for_memory(&mut self, pids: &[i32]) {
        self.processes.iter_mut().for_each(Process::memory_ran_out);
        pids.iter().for_each(|&pid| tree::signal(pid, Signal::KILL));
    }

    pub(crate) fn kill_all_for_memory(&mut self) {
        self.processes.iter_mut().for_each(Process::memory_ran_out);
        sys::kill_everyone();
    }

    /// Kills all that no standing runner answers for, the runners of condemned programs among them. Those are not killed
    /// first and the rest when they are gone: beside a few hundred busy processes that takes a while for each of them.
    fn end_strays(&self) -> Strays {
        let runners: Vec<Pid> = self.processes.iter().filter_map(Process::standing_runner).collect();
        if runners.is_empty() {
            sys::kill_everyone();
            return Strays::Killed;
        }
        tree::end_strays(&runners)
    }

    pub(crate) fn interests<'a>(&'a self, room: bool, polled: &mut Vec<PollFd<'a>>, ready: &mut Vec<(usize, Channel)>) {
        for (index, process) in self.processes.iter().enumerate() {
            process.interests(room, |fd, channel| {
                polled.push(fd);
                ready.push((index, channel));
            });
        }
    }

    pub(crate) fn advance(&mut self, ready: &[(usize, Channel)], stream: &mut Stream) -> Result<(), Gone> {
        // Another begins each time: the room that a slow host leaves would otherwise always go to the same few.
        self.turn = self.turn.wrapping_add(1);
        let (last, first) = ready.split_at(self.turn % ready.len().max(1));
        for &(index, channel) in first.iter().chain(last) {
            if matches!(channel, Channel::Output(_)) && !stream.has_room() {
                continue;
            }
            if let Some(process) = self.processes.get_mut(index) {
                process.advance(channel, stream, &mut self.chunk)?;
            }
        }
        Ok(())
    }

    /// Reaps whoever has ended, and sees to it that what their runners left behind ends too.
    pub(crate) fn reap(&mut self) {
        let children = self.reap_children();
        if !self.are_sweeping() {
            return;
        }
        if children == Children::None || self.end_strays() == Strays::None {
            self.processes.iter_mut().for_each(Process::swept);
        }
    }

    fn reap_children(&mut self) -> Children {
        let mut strays = Usage::default();
        let children = loop {
            match sys::wait_any(Patience::Look) {
                Waited::Childless => break Children::None,
                Waited::Nothing => break Children::Some,
                Waited::Stopped(pid) => {
                    // A program that stops its own runner would otherwise outlive its own end.
                    if self.of_runner(pid).is_some() {
                        let _ = rustix::process::kill_process(pid, Signal::CONT);
                    }
                }
                Waited::Ended { pid, exit, usage } => match self.of_runner(pid) {
                    Some(process) => process.runner_ended(exit, usage),
                    None => {
                        strays.cpu_ms += usage.cpu_ms;
                        strays.memory_peak_bytes = strays.memory_peak_bytes.max(usage.memory_peak_bytes);
                    }
                },
            }
        };
        // Whose they were is not known if two runs end at once; nearly always there is one.
        if let Some(process) = self.processes.iter_mut().find(|process| process.is_sweeping()) {
            process.add_usage(strays);
        }
        children
    }

    fn of_runner(&mut self, pid: Pid) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.runner() == Some(pid))
    }

    /// Sends what ended programs have left, and their last frames.
    pub(crate) fn drain(&mut self, stream: &mut Stream) -> Result<(), Gone> {
        let mut index = 0;
        while index < self.processes.len() {
            if self.processes[index].drain(stream, &mut self.chunk)? {
                self.processes.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }
}
