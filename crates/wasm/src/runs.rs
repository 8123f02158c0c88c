//! Programs and cells, from their start to their last frame, and the kernels that cells are run in.

use std::time::{Duration, Instant};

use belljar_core::wire::{CHUNK_MAX, FromGuest, Init, Part, Start};
use belljar_core::{Exit, FileError, FileErrorKind, Finish, Language, Source, State, Stream as Output, Then, Usage};

use crate::changes::{Known, Look};
use crate::kernels::{INSTANCES_MAX, Instance, Kernels};
use crate::line::{Input, Message, Said};
use crate::questions::Questions;
use crate::stream::{Gone, Stream};
use crate::{javascript, python};

/// Input of one cell at most.
const INPUT_MAX: usize = 1024 * 1024;

/// Bytes of each stream that are kept of what a kernel writes between cells: the last ones.
const HELD_MAX: usize = 64 * 1024;

/// When code that was interrupted and goes on is interrupted again: most of the second that a caller gives it is its own, to
/// clean up.
const AGAIN_AFTER: Duration = Duration::from_millis(600);
const AGAIN_EVERY: Duration = Duration::from_millis(20);
const AGAIN_MAX: u32 = 20;

const NO_PROCESSES: &str = "the wasm wall has no processes, and so no shell and no commands: use run_code with python or \
                            javascript, which read and write the same files\n";

/// One run.
#[derive(Debug)]
struct Run {
    id: u32,
    instance: Instance,
    form: Form,
    look: Look,
    cpu_before: Duration,
    cpu: Duration,
    memory_peak_bytes: u64,
    /// How it went, once it is over.
    exit: Option<Exit>,
    state: Option<State>,
    /// When it is interrupted again, and how often it was.
    again: Option<(Instant, u32)>,
}

#[derive(Debug)]
enum Form {
    Program,
    /// The input still comes.
    Gathering {
        header: String,
        text: String,
        input: Vec<u8>,
    },
    Running,
}

#[derive(Debug)]
struct Kernel {
    language: Language,
    instance: Instance,
    /// What the next cell is told, if the kernel outlives it.
    state: State,
    /// It was started ahead of any cell, and has run none.
    waits: bool,
    /// It has had, or has, its last cell.
    spent: bool,
    is_over: bool,
    cpu: Duration,
    held: [Vec<u8>; 2],
}

#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    kernels: Vec<Kernel>,
    /// Languages whose kernel ended, and with it what it remembered.
    ended: Vec<Language>,
    questions: Questions,
    known: Known,
}

impl Runs {
    pub(crate) fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    pub(crate) fn owns(&self, id: u32) -> bool {
        self.runs.iter().any(|run| run.id == id)
    }

    /// Starts the kernel that is to wait for its first cell. Where that fails nobody is told: the cell then starts one.
    pub(crate) fn start_ahead(&mut self, init: &Init, kernels: &mut Kernels) {
        let Some(language) = init.waiting.and_then(Language::kernel).filter(|language| kernels.has(*language)) else {
            return;
        };
        if let Ok(kernel) = Kernel::start(language, init.env.clone(), State::Fresh, kernels) {
            self.kernels.push(Kernel { waits: true, ..kernel });
        }
    }

    pub(crate) fn start(
        &mut self,
        init: &Init,
        id: u32,
        start: Start,
        kernels: &mut Kernels,
        stream: &mut Stream,
    ) -> Result<(), Gone> {
        let look = Look::new(start.changed_max, &self.known);
        let language = match &start.source {
            Source::Code { language, .. } | Source::Cell { language, .. } => Some(*language),
            Source::Command(_) => None,
        };
        let Some(language) = language.filter(|language| kernels.has(*language)) else {
            return refuse_to_run(id, language, stream);
        };
        let started = if self.instances() >= INSTANCES_MAX {
            Err(failure("too many programs at once"))
        } else {
            match start.source {
                Source::Code { code, .. } => self.start_program(init, language, code, start.env, start.cwd, kernels),
                Source::Cell { code, then, .. } => self.start_cell(init, language, code, then, start.env, kernels),
                Source::Command(_) => Err(failure("no processes")),
            }
        };
        match started {
            Ok((instance, form, cpu_before, state)) => {
                if let Some(kernel) = self.kernels.iter_mut().find(|kernel| kernel.instance.number == instance.number) {
                    for (stream_name, held) in [Output::Stdout, Output::Stderr].into_iter().zip(&mut kernel.held) {
                        if !held.is_empty() {
                            let bytes = std::mem::take(held);
                            stream.send(&FromGuest::Output { id, stream: stream_name, bytes })?;
                        }
                    }
                }
                self.runs.push(Run {
                    id,
                    instance,
                    form,
                    look,
                    cpu_before,
                    cpu: cpu_before,
                    memory_peak_bytes: 0,
                    exit: None,
                    state,
                    again: None,
                });
                Ok(())
            }
            Err(error) => stream.send(&FromGuest::Refused { id, error }),
        }
    }

    fn instances(&self) -> usize {
        let programs = self.runs.iter().filter(|run| matches!(run.form, Form::Program)).count();
        programs + self.kernels.len()
    }

    fn start_program(
        &mut self,
        init: &Init,
        language: Language,
        code: String,
        added: Vec<(String, String)>,
        cwd: Option<String>,
        kernels: &mut Kernels,
    ) -> Result<(Instance, Form, Duration, Option<State>), FileError> {
        let env = with(&init.env, added);
        let directory = format!("{}/{}", belljar_core::WORKSPACE, cwd.as_deref().unwrap_or_default());
        let directory = cwd.filter(|cwd| cwd.starts_with('/')).unwrap_or(directory);
        let launch = match language {
            Language::Python => python::program(code, env, &directory),
            _ => javascript::program(language, &code, env),
        };
        let instance = kernels.start(language, launch)?;
        Ok((instance, Form::Program, Duration::ZERO, None))
    }

    fn start_cell(
        &mut self,
        init: &Init,
        language: Language,
        text: String,
        then: Then,
        added: Vec<(String, String)>,
        kernels: &mut Kernels,
    ) -> Result<(Instance, Form, Duration, Option<State>), FileError> {
        let of = language.kernel().unwrap_or(language);
        self.dismiss_waiting(of, !added.is_empty(), kernels);
        let is_busy = |kernel: &Kernel| {
            self.runs.iter().any(|run| run.instance.number == kernel.instance.number && run.exit.is_none())
        };
        if self.kernels.iter().any(|kernel| kernel.language == of && !kernel.is_over && is_busy(kernel)) {
            return Err(failure("the kernel is busy"));
        }
        let found = self.kernels.iter().position(|kernel| kernel.language == of && !kernel.is_over && !kernel.spent);
        let index = match found {
            Some(index) => index,
            None => {
                let state = if self.ended.contains(&of) { State::Reset } else { State::Fresh };
                self.kernels.push(Kernel::start(of, with(&init.env, added), state, kernels)?);
                self.kernels.len() - 1
            }
        };
        let kernel = &mut self.kernels[index];
        kernel.waits = false;
        kernel.spent = then == Then::End;
        let header = format!("run {} {language} {}\n", text.len(), u8::from(kernel.spent));
        let form = Form::Gathering { header, text, input: Vec::new() };
        Ok((kernel.instance.clone(), form, kernel.cpu, Some(kernel.state)))
    }

    /// Ends a waiting kernel that was started without the cell's own environment. Nobody misses it.
    fn dismiss_waiting(&mut self, language: Language, has_own_env: bool, kernels: &Kernels) {
        let waiting = |kernel: &&mut Kernel| kernel.language == language && kernel.waits && has_own_env;
        if let Some(kernel) = self.kernels.iter_mut().find(waiting) {
            kernel.is_over = true;
            kernel.instance.line.stop(Exit::Signal(9));
            kernels.nudge();
        }
    }

    pub(crate) fn feed(&mut self, id: u32, bytes: &[u8], stream: &mut Stream) -> Result<(), Gone> {
        let Some(index) = self.runs.iter().position(|run| run.id == id) else { return Ok(()) };
        let run = &mut self.runs[index];
        match &mut run.form {
            Form::Program => run.instance.line.put(|inbox| inbox.stdin.add(bytes)),
            Form::Running => {}
            Form::Gathering { input, .. } if input.len() + bytes.len() > INPUT_MAX => {
                self.runs.swap_remove(index);
                let path = "the input of a cell".to_owned();
                let error = FileError { kind: FileErrorKind::NoSpace, path };
                return stream.send(&FromGuest::Refused { id, error });
            }
            Form::Gathering { input, .. } => {
                input.extend_from_slice(bytes);
                return stream.send(&FromGuest::Taken { id, bytes: bytes.len() as u32 });
            }
        }
        Ok(())
    }

    pub(crate) fn end_input(&mut self, id: u32) {
        let Some(run) = self.runs.iter_mut().find(|run| run.id == id) else { return };
        match std::mem::replace(&mut run.form, Form::Running) {
            Form::Program => {
                run.form = Form::Program;
                run.instance.line.put(|inbox| inbox.stdin.end());
            }
            Form::Gathering { header, text, input } => {
                // What came for a cell that is over is not this one's.
                run.instance.line.take_interrupt();
                run.instance.line.put(|inbox| {
                    inbox.stdin = Input::whole(input);
                    inbox.control.extend_from_slice(header.as_bytes());
                    inbox.control.extend_from_slice(text.as_bytes());
                });
            }
            Form::Running => {}
        }
    }

    pub(crate) fn stop(&mut self, id: u32, exit: Exit, kernels: &Kernels) {
        if let Some(run) = self.runs.iter().find(|run| run.id == id && run.exit.is_none()) {
            run.instance.line.stop(exit);
            kernels.nudge();
        }
    }

    pub(crate) fn signal(&mut self, id: u32, signal: i32, kernels: &Kernels) {
        if signal != 2 {
            self.stop(id, Exit::Signal(signal), kernels);
            return;
        }
        let runs = self.runs.iter_mut().filter(|run| run.id == id && run.exit.is_none());
        for run in runs.filter(|run| matches!(run.form, Form::Running | Form::Program)) {
            run.instance.line.interrupt();
            run.again.get_or_insert((Instant::now() + AGAIN_AFTER, 0));
        }
        kernels.nudge();
    }

    /// When something is to be done though nobody says anything.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.runs.iter().any(|run| run.exit.is_some()) {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        self.runs.iter().filter_map(|run| run.again).map(|(at, _)| at.saturating_duration_since(now)).min()
    }

    /// Interrupts again what was interrupted and goes on.
    pub(crate) fn insist(&mut self, kernels: &Kernels) {
        let now = Instant::now();
        for run in self.runs.iter_mut().filter(|run| run.exit.is_none()) {
            let Some((at, times)) = run.again.filter(|(at, _)| *at <= now) else { continue };
            // On a busy host its thread may not have run since: what it has not heard it cannot have ignored.
            if run.instance.line.is_interrupted() {
                run.again = Some((now + if times == 0 { AGAIN_AFTER } else { AGAIN_EVERY }, times));
                continue;
            }
            run.again = (times < AGAIN_MAX).then_some((at + AGAIN_EVERY, times + 1));
            run.instance.line.interrupt();
            kernels.nudge();
        }
    }

    pub(crate) fn answer(&mut self, id: u32, bytes: &[u8], part: Part, stream: &mut Stream) -> Result<(), Gone> {
        self.questions.answer(id, bytes, part, stream)
    }

    /// What an interpreter said.
    pub(crate) fn hear(&mut self, message: Message, kernels: &Kernels, stream: &mut Stream) -> Result<(), Gone> {
        let Message { instance, said, cpu, memory_peak_bytes } = message;
        let kernel = self.kernels.iter_mut().find(|kernel| kernel.instance.number == instance);
        let run = self.runs.iter_mut().find(|run| {
            run.instance.number == instance && run.exit.is_none() && !matches!(run.form, Form::Gathering { .. })
        });
        let mut kernel = kernel;
        if let Some(kernel) = &mut kernel {
            kernel.cpu = cpu;
        }
        let Some(run) = run else {
            let gathering = self.runs.iter_mut().find(|run| run.instance.number == instance && run.exit.is_none());
            match (said, kernel) {
                (Said::Output { stream, bytes }, Some(kernel)) => kernel.hold(stream, &bytes),
                (Said::Ended(exit), kernel) => {
                    if let Some(run) = gathering {
                        run.exit = Some(exit);
                        run.state = Some(State::Lost);
                    }
                    if let Some(kernel) = kernel {
                        kernel.is_over = true;
                    }
                    self.bury(instance);
                    return self.questions.withdraw(instance, stream);
                }
                // Nobody runs who could be answered.
                (Said::Asked(line), Some(kernel)) => {
                    let line_of = kernel.instance.line.clone();
                    return self.questions.ask(instance, line_of, None, &line, stream);
                }
                _ => {}
            }
            return Ok(());
        };
        (run.cpu, run.memory_peak_bytes) = (cpu, run.memory_peak_bytes.max(memory_peak_bytes));
        let id = run.id;
        match said {
            Said::Output { stream: name, bytes } => stream.send(&FromGuest::Output { id, stream: name, bytes }),
            Said::Record(bytes) => send_record(id, &bytes, stream),
            Said::Taken(bytes) if bytes > 0 && matches!(run.form, Form::Program) => {
                stream.send(&FromGuest::Taken { id, bytes })
            }
            Said::Taken(_) | Said::Ready => Ok(()),
            Said::Asked(line) => self.questions.ask(instance, run.instance.line.clone(), Some(id), &line, stream),
            Said::Withdrawn => self.questions.withdraw(instance, stream),
            Said::Done { code } => {
                run.exit = Some(Exit::Code(code & 0xff));
                if kernel.is_some_and(|kernel| kernel.spent) || matches!(run.form, Form::Program) {
                    run.instance.line.stop(Exit::Code(code & 0xff));
                    kernels.nudge();
                }
                self.questions.withdraw(instance, stream)
            }
            Said::Ended(exit) => {
                run.exit = Some(exit);
                if let Some(kernel) = kernel {
                    kernel.is_over = true;
                    if !kernel.spent {
                        run.state = Some(State::Lost);
                    }
                }
                self.bury(instance);
                self.questions.withdraw(instance, stream)
            }
        }
    }

    /// Forgets a kernel that is over.
    fn bury(&mut self, instance: u64) {
        let Some(index) = self.kernels.iter().position(|kernel| kernel.instance.number == instance) else { return };
        let kernel = self.kernels.swap_remove(index);
        let has_run = kernel.state == State::Preserved || (!kernel.waits && !kernel.spent);
        if has_run && !self.ended.contains(&kernel.language) {
            self.ended.push(kernel.language);
        }
    }

    /// Sends what is left of runs that are over, as far as there is room.
    pub(crate) fn finish(&mut self, stream: &mut Stream) -> Result<(), Gone> {
        let mut index = 0;
        while index < self.runs.len() && stream.has_room() {
            let run = &mut self.runs[index];
            let Some(exit) = run.exit else {
                index += 1;
                continue;
            };
            if !run.look.advance(run.id, &mut self.known, stream)? {
                index += 1;
                continue;
            }
            let cpu = run.cpu.saturating_sub(run.cpu_before);
            let usage = Usage { cpu_ms: cpu.as_millis() as u64, memory_peak_bytes: run.memory_peak_bytes };
            let finish = Finish { exit, usage, kernel: run.state };
            stream.send(&FromGuest::Finished { id: run.id, finish })?;
            let number = run.instance.number;
            self.runs.swap_remove(index);
            if let Some(kernel) =
                self.kernels.iter_mut().find(|kernel| kernel.instance.number == number && !kernel.spent)
            {
                kernel.state = State::Preserved;
            }
        }
        Ok(())
    }
}

impl Kernel {
    fn start(
        language: Language,
        env: Vec<(String, String)>,
        state: State,
        kernels: &mut Kernels,
    ) -> Result<Kernel, FileError> {
        let launch = match language {
            Language::Python => python::kernel(env, kernels.driver(language)),
            _ => javascript::kernel(env),
        };
        let instance = kernels.start(language, launch)?;
        let held = Default::default();
        Ok(Kernel { language, instance, state, waits: false, spent: false, is_over: false, cpu: Duration::ZERO, held })
    }

    fn hold(&mut self, name: Output, bytes: &[u8]) {
        let held = &mut self.held[usize::from(name == Output::Stderr)];
        held.extend_from_slice(bytes);
        held.drain(..held.len().saturating_sub(HELD_MAX));
    }
}

fn send_record(id: u32, bytes: &[u8], stream: &mut Stream) -> Result<(), Gone> {
    let mut parts = bytes.chunks(CHUNK_MAX).peekable();
    loop {
        let bytes = parts.next().unwrap_or_default().to_vec();
        let part = if parts.peek().is_some() { Part::MoreComes } else { Part::Last };
        stream.send(&FromGuest::Record { id, bytes, part })?;
        if part == Part::Last {
            return Ok(());
        }
    }
}

/// What cannot be run here is told as a shell would: a message and 127.
fn refuse_to_run(id: u32, language: Option<Language>, stream: &mut Stream) -> Result<(), Gone> {
    let why = match language {
        None | Some(Language::Shell) => NO_PROCESSES.to_owned(),
        Some(language) => format!("the wasm wall has no {language} here: use another language, or another wall\n"),
    };
    stream.send(&FromGuest::Output { id, stream: Output::Stderr, bytes: why.into_bytes() })?;
    let finish = Finish { exit: Exit::Code(127), usage: Usage::default(), kernel: None };
    stream.send(&FromGuest::Finished { id, finish })
}

fn with(env: &[(String, String)], added: Vec<(String, String)>) -> Vec<(String, String)> {
    let kept = env.iter().filter(|(name, _)| !added.iter().any(|(other, _)| other == name));
    kept.cloned().chain(added.iter().cloned()).collect()
}

fn failure(path: &str) -> FileError {
    FileError { kind: FileErrorKind::Failed, path: path.to_owned() }
}
