//! All programs and kernels of the sandbox: starting, reaping, and making sure that a run leaves nothing alive but what it
//! may leave to its kernel.
//!
//! Every process of the sandbox is below a living runner, or is a stray: something a runner left when it ended. Strays
//! are children of process 1 or below one, so they cannot hide, and they are killed before the run they came from is
//! told to be over.

use std::time::Duration;

use belljar_core::wire::{FromGuest, Init, Start};
use belljar_core::{FileError, FileErrorKind, Language, Source, State, Usage};
use rustix::event::PollFd;
use rustix::process::{Pid, Signal};

use crate::cells::{Code, Conduct, Ends, Kernel};
use crate::changes::{Known, Look};
use crate::files::refusal;
use crate::kernels;
use crate::launch::Launch;
use crate::memory::Pace;
use crate::process::{Channel, Means, Process};
use crate::program::Program;
use crate::stream::{Gone, Stream};
use crate::sys::{self, Patience, Waited};
use crate::tree::{self, Strays};

/// Programs at once. Each costs four descriptors here.
const PROGRAMS_MAX: usize = 64;

/// Kernels at once: one for each language, and those that are on their way out.
const KERNELS_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Processes {
    programs: Vec<Program>,
    kernels: Vec<Kernel>,
    /// A kernel that is forked into the sandbox, until it is taken on.
    forked: Option<(Language, Ends)>,
    /// Languages that had a kernel which remembered something, and ended.
    ended: Vec<Language>,
    means: Means,
    turn: usize,
}

/// Whose descriptor it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Program(usize),
    Kernel(usize),
    /// A kernel that is on its way in.
    Forked,
}

/// Whether a kernel that was expected has come, or will not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    None,
    Forked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Children {
    None,
    Some,
}

impl Processes {
    /// From here on a kernel is expected that is forked from outside.
    pub(crate) fn wait_for_forked(&mut self, language: Language, ends: Ends) {
        self.forked = Some((language, ends));
    }

    pub(crate) fn expect_forked(&self) -> bool {
        self.forked.is_some()
    }

    /// Starts the kernel that is to wait for its first cell. Where that fails nobody is told: the cell then starts one by
    /// itself, and hears why it cannot.
    pub(crate) fn start_ahead(&mut self, init: &Init) {
        let started = init.waiting.and_then(|language| Kernel::start_ahead(init, language));
        self.kernels.extend(started.into_iter().flatten());
    }

    pub(crate) fn start(&mut self, init: &Init, id: u32, start: Start, stream: &mut Stream) -> Result<(), Gone> {
        let look = Look::new(start.changed_max, &self.means.known);
        let started = match start.source {
            Source::Cell { language, code, then }
                if kernels::has_kernel(language, then)
                    || (start.env.is_empty() && start.cwd.is_none() && self.has_waiting(language)) =>
            {
                let code = Code { language, text: code, then };
                return self.start_cell(init, id, code, &start.env, look, stream);
            }
            _ if self.programs.len() >= PROGRAMS_MAX => {
                Err(refusal(FileErrorKind::Failed, "too many programs at once"))
            }
            _ => Launch::program(init, start).and_then(|launch| Program::start(id, launch, look)),
        };
        match started {
            Ok(program) => {
                self.programs.push(program);
                Ok(())
            }
            Err(error) => stream.send(&FromGuest::Refused { id, error }),
        }
    }

    fn start_cell(
        &mut self,
        init: &Init,
        id: u32,
        code: Code,
        env: &[(String, String)],
        look: Look,
        stream: &mut Stream,
    ) -> Result<(), Gone> {
        match self.kernel(init, code.language, env) {
            Ok(kernel) => kernel.begin(id, code, look, stream),
            Err(error) => stream.send(&FromGuest::Refused { id, error }),
        }
    }

    fn has_waiting(&self, language: Language) -> bool {
        let is_of = |kernel: &Kernel| language.kernel() == Some(kernel.language());
        self.kernels.iter().any(|kernel| is_of(kernel) && kernel.is_waiting() && kernel.is_usable())
    }

    /// The kernel that runs cells of `language`, free, and started if there is none.
    fn kernel(&mut self, init: &Init, language: Language, env: &[(String, String)]) -> Result<&mut Kernel, FileError> {
        let language = language.kernel().unwrap_or(language);
        self.dismiss_waiting(language, env);
        let of_language = |kernel: &Kernel| kernel.language() == language;
        if self.kernels.iter().any(|kernel| of_language(kernel) && kernel.is_busy()) {
            return Err(refusal(FileErrorKind::Failed, "the kernel is busy"));
        }
        let found = self.kernels.iter().position(|kernel| of_language(kernel) && kernel.is_usable());
        let index = match found {
            Some(index) => index,
            None if self.kernels.len() >= KERNELS_MAX => {
                return Err(refusal(FileErrorKind::Failed, "too many kernels at once"));
            }
            None => {
                let lost = self.ended.contains(&language)
                    || self.kernels.iter().any(|kernel| of_language(kernel) && kernel.has_run());
                let state = if lost { State::Reset } else { State::Fresh };
                self.kernels.push(Kernel::start(init, language, env, state)?);
                self.kernels.len() - 1
            }
        };
        Ok(&mut self.kernels[index])
    }

    /// Ends a waiting kernel that is not what the cell wants: one that died while it waited, or was started without the
    /// cell's own environment. It remembers nothing, so that nobody misses it.
    fn dismiss_waiting(&mut self, language: Language, env: &[(String, String)]) {
        if !self.has_waiting(language) {
            return;
        }
        self.reap_children();
        let of_language = |kernel: &&mut Kernel| kernel.language() == language && kernel.is_waiting();
        let Some(kernel) = self.kernels.iter_mut().find(of_language) else { return };
        if !env.is_empty() || kernel.is_ending() {
            kernel.process_mut().condemn();
            self.end_strays();
        }
    }

    pub(crate) fn owns(&self, id: u32) -> bool {
        self.programs.iter().any(|program| program.id() == id) || self.kernels.iter().any(|kernel| kernel.has_cell(id))
    }

    /// The program or cell that a process belongs to: itself, or by its ancestors. `None` for what has outlived the cell
    /// that left it.
    pub(crate) fn owner_of(&mut self, pid: Pid) -> Option<u32> {
        self.owner_by(|process| process.program() == Some(pid)).or_else(|| {
            // Its runner, since that is the reaper of all that is below it.
            let runner = tree::topmost(pid)?;
            self.owner_by(|process| process.runner() == Some(runner))
        })?
    }

    /// The outer one says whether it was found.
    fn owner_by(&mut self, mut is_it: impl FnMut(&mut Process) -> bool) -> Option<Option<u32>> {
        let kernels = self.kernels.iter_mut();
        let kernel = kernels.filter_map(|kernel| is_it(kernel.process_mut()).then(|| kernel.running_cell())).next();
        let programs = self.programs.iter_mut();
        kernel
            .or_else(|| programs.filter_map(|program| is_it(program.process_mut()).then(|| Some(program.id()))).next())
    }

    fn program_mut(&mut self, id: u32) -> Option<&mut Program> {
        self.programs.iter_mut().find(|program| program.id() == id)
    }

    fn kernel_of_cell(&mut self, id: u32) -> Option<&mut Kernel> {
        self.kernels.iter_mut().find(|kernel| kernel.has_cell(id))
    }

    pub(crate) fn feed(&mut self, id: u32, bytes: &[u8], stream: &mut Stream) -> Result<(), Gone> {
        if let Some(program) = self.program_mut(id) {
            return program.feed(bytes, stream);
        }
        match self.kernel_of_cell(id) {
            Some(kernel) => kernel.feed(bytes, stream),
            None => Ok(()),
        }
    }

    pub(crate) fn end_input(&mut self, id: u32, stream: &mut Stream) -> Result<(), Gone> {
        if let Some(program) = self.program_mut(id) {
            program.end_input();
            return Ok(());
        }
        match self.kernels.iter_mut().find(|kernel| kernel.has_cell(id)) {
            Some(kernel) => kernel.end_input(&mut self.means.known, stream),
            None => Ok(()),
        }
    }

    /// Files that the host has changed by itself.
    pub(crate) fn known(&mut self) -> &mut Known {
        &mut self.means.known
    }

    fn all(&self) -> impl Iterator<Item = &Process> {
        self.programs.iter().map(Program::process).chain(self.kernels.iter().map(Kernel::process))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        let programs = self.programs.iter_mut().map(Program::process_mut);
        programs.chain(self.kernels.iter_mut().map(Kernel::process_mut))
    }

    /// How closely the memory is to be watched. Not for a kernel that waits: nobody's code is in it.
    pub(crate) fn pace(&self) -> Option<Pace> {
        let programs = self.programs.iter().map(|program| (program.process(), Pace::Close));
        let kernels = self.kernels.iter().filter(|kernel| !kernel.is_waiting()).map(|kernel| {
            let pace = if kernel.is_idle() { Pace::Loose } else { Pace::Close };
            (kernel.process(), pace)
        });
        programs.chain(kernels).filter(|(process, _)| process.runner().is_some()).map(|(_, pace)| pace).max()
    }

    /// Whether something has ended of which something may still be alive.
    pub(crate) fn are_sweeping(&self) -> bool {
        self.all().any(Process::is_sweeping)
    }

    /// Whether a run is over but for what is still to be sent of it.
    pub(crate) fn are_draining(&self) -> bool {
        self.programs.iter().any(Program::is_draining) || self.kernels.iter().any(Kernel::is_draining)
    }

    /// When to look again though nothing comes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.kernels.iter().filter_map(Kernel::patience).min()
    }

    /// Ends a program, or a cell with its kernel, with everything it started, and leaves the others.
    pub(crate) fn stop(&mut self, id: u32) {
        let process = match self.programs.iter_mut().find(|program| program.id() == id) {
            Some(program) => Some(program.process_mut()),
            None => self
                .kernels
                .iter_mut()
                .find(|kernel| kernel.has_cell(id) && kernel.can_be_stopped())
                .map(Kernel::process_mut),
        };
        if let Some(process) = process {
            process.condemn();
            self.end_strays();
        }
    }

    pub(crate) fn signal(&mut self, id: u32, signal: i32) {
        if let Some(program) = self.program_mut(id) {
            program.process_mut().signal(signal);
        } else if let Some(kernel) = self.kernel_of_cell(id) {
            kernel.signal(signal);
        }
    }

    /// Kills processes for their memory. Whose they are is not asked: a program that then ends by a kill was told why.
    pub(crate) fn kill_for_memory(&mut self, pids: &[i32]) {
        self.all_mut().for_each(|process| process.memory_ran_out(Some(pids)));
        pids.iter().for_each(|&pid| tree::signal(pid, Signal::KILL));
    }

    pub(crate) fn kill_all_for_memory(&mut self) {
        self.all_mut().for_each(|process| process.memory_ran_out(None));
        sys::kill_everyone();
    }

    /// Kills all that no standing runner answers for, the runners of condemned processes among them. Those are not killed
    /// first and the rest when they are gone: beside a few hundred busy processes that takes a while for each of them.
    fn end_strays(&self) -> Strays {
        let runners: Vec<Pid> = self.all().filter_map(Process::standing_runner).collect();
        if runners.is_empty() {
            sys::kill_everyone();
            return Strays::Killed;
        }
        tree::end_strays(&runners)
    }

    pub(crate) fn interests<'a>(&'a self, room: bool, polled: &mut Vec<PollFd<'a>>, ready: &mut Vec<(Owner, Channel)>) {
        for (index, program) in self.programs.iter().enumerate() {
            program.interests(room, &mut |fd, channel| {
                polled.push(fd);
                ready.push((Owner::Program(index), channel));
            });
        }
        if let Some((_, ends)) = &self.forked {
            polled.push(ends.interest());
            ready.push((Owner::Forked, Channel::Word));
        }
        for (index, kernel) in self.kernels.iter().enumerate() {
            kernel.interests(room, &mut |fd, channel| {
                polled.push(fd);
                ready.push((Owner::Kernel(index), channel));
            });
        }
    }

    pub(crate) fn advance(&mut self, ready: &[(Owner, Channel)], stream: &mut Stream) -> Result<Arrival, Gone> {
        // Another begins each time: the room that a slow host leaves would otherwise always go to the same few.
        self.turn = self.turn.wrapping_add(1);
        let (last, first) = ready.split_at(self.turn % ready.len().max(1));
        let (mut broken, mut arrival) = (false, Arrival::None);
        for &(owner, channel) in first.iter().chain(last) {
            match owner {
                Owner::Program(index) => {
                    if let Some(program) = self.programs.get_mut(index) {
                        program.advance(channel, stream, &mut self.means.chunk)?;
                    }
                }
                Owner::Forked => {
                    // One that has failed is none; a cell then starts its own.
                    let kernel = self.forked.take().and_then(|(language, ends)| Kernel::adopt(language, ends));
                    self.kernels.extend(kernel);
                    arrival = Arrival::Forked;
                }
                Owner::Kernel(index) => {
                    if let Some(kernel) = self.kernels.get_mut(index)
                        && kernel.advance(channel, stream, &mut self.means)? == Conduct::Broken
                    {
                        kernel.process_mut().condemn();
                        broken = true;
                    }
                }
            }
        }
        for kernel in &mut self.kernels {
            kernel.insist();
            if kernel.is_deaf() {
                kernel.process_mut().condemn();
                broken = true;
            }
        }
        if broken {
            self.end_strays();
        }
        Ok(arrival)
    }

    /// Reaps whoever has ended, and sees to it that what their runners left behind ends too.
    pub(crate) fn reap(&mut self) {
        let children = self.reap_children();
        if !self.are_sweeping() {
            return;
        }
        if children == Children::None || self.end_strays() == Strays::None {
            self.programs.iter_mut().for_each(Program::swept);
            self.kernels.iter_mut().for_each(Kernel::swept);
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
        if let Some(process) = self.all_mut().find(|process| process.is_sweeping()) {
            process.add_usage(strays);
        }
        children
    }

    fn of_runner(&mut self, pid: Pid) -> Option<&mut Process> {
        self.all_mut().find(|process| process.runner() == Some(pid))
    }

    /// Sends what is left of runs that are over, and their last frames.
    pub(crate) fn drain(&mut self, stream: &mut Stream) -> Result<(), Gone> {
        let mut index = 0;
        while index < self.programs.len() {
            if self.programs[index].drain(stream, &mut self.means)? {
                self.programs.swap_remove(index);
            } else {
                index += 1;
            }
        }
        let mut index = 0;
        while index < self.kernels.len() {
            if self.kernels[index].drain(stream, &mut self.means)? {
                let kernel = self.kernels.swap_remove(index);
                if kernel.has_run() && !self.ended.contains(&kernel.language()) {
                    self.ended.push(kernel.language());
                }
            } else {
                index += 1;
            }
        }
        let mut superfluous = self.kernels.iter_mut().filter(|kernel| kernel.is_superfluous()).peekable();
        if superfluous.peek().is_some() {
            // Whoever waits for the end of the last cell waits no longer than for that.
            stream.flush()?;
            superfluous.for_each(|kernel| kernel.process_mut().condemn());
            self.end_strays();
        }
        Ok(())
    }
}
