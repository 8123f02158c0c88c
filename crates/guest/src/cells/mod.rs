//! Kernels and their cells: interpreters that live on and remember, and the code that is run in them, one piece at a time.
//!
//! ```text
//! a cell:  Gathering ──input is whole──▶ Running ──driver says done──▶ Done ──pipes empty, files looked at──▶ last frame
//!                └──────────────────────────┴─ kernel ends: swept, drained, and told to be lost
//! ```
//!
//! How a language's driver is made is in `kernels`. What it says is not trusted: code in the kernel can say the same.

mod control;
mod meter;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use belljar_core::wire::{CHUNK_MAX, FromGuest, Init};
use belljar_core::{Exit, FileError, FileErrorKind, Finish, Language, State, Stream as Output, Then, Usage};
use rustix::event::PollFd;
use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::changes::Look;
use crate::files::{kind_of, refusal};
use crate::launch::Launch;
use crate::process::{Channel, Means, Process, TELL_TAKEN};
use crate::stream::{Gone, Stream};
use crate::{sys, tree};
use control::{Broken, Control, Said};
use meter::Meter;

/// Input of one cell at most.
const INPUT_MAX: usize = 1024 * 1024;

/// Bytes of each stream that are kept of what a kernel writes between cells: the last ones.
const HELD_MAX: usize = 64 * 1024;

/// How long a kernel whose end of the control socket is closed may take to end: most have ended already, and how is about
/// to be told. The others can do nothing more for anyone.
const DEAF_MAX: Duration = Duration::from_millis(500);

/// How long an interrupted cell may take before what it has started is ended without being asked.
const INSIST: Duration = Duration::from_millis(250);

const INTERRUPT: i32 = 2;

#[derive(Debug)]
pub(crate) struct Kernel {
    language: Language,
    process: Process,
    control: Control,
    /// Its standard input, the same open file as its own.
    stdin: OwnedFd,
    meter: Option<Meter>,
    /// The driver has said that it stands.
    ready: bool,
    deaf_since: Option<Instant>,
    /// It has had, or has, its last cell.
    spent: bool,
    /// What the next cell is told, if the kernel outlives it.
    state: State,
    cell: Option<Cell>,
    /// Whether the record that comes is a cell's.
    records: Records,
    held_stdout: Vec<u8>,
    held_stderr: Vec<u8>,
}

#[derive(Debug)]
struct Cell {
    id: u32,
    phase: Phase,
    look: Look,
    /// What the kernel had used when it began.
    cpu_before: Duration,
    interrupt: Interrupt,
    /// When it began, as processes tell when they did.
    ticks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    None,
    /// It waits until the driver can take it.
    Asked,
    /// What the cell has started is ended with it, and if the cell goes on, at this time: it may wait for something that
    /// does not heed an interrupt, or that was not there yet when it came.
    Sent {
        insist: Option<Instant>,
    },
}

#[derive(Debug)]
enum Phase {
    Gathering { code: Code, input: Vec<u8>, taken: usize },
    Running,
    Done { code: i32 },
}

/// The code of a cell.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) language: Language,
    pub(crate) text: String,
    pub(crate) then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Records {
    PassOn,
    Skip,
}

/// Whether a kernel keeps to the protocol. One that does not is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    Proper,
    Broken,
}

/// Why listening to a driver ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Broken,
    Gone,
}

impl From<Broken> for Trouble {
    fn from(Broken: Broken) -> Self {
        Trouble::Broken
    }
}

impl From<Gone> for Trouble {
    fn from(Gone: Gone) -> Self {
        Trouble::Gone
    }
}

impl Kernel {
    /// Starts one. `state` is what its first cell is told.
    pub(crate) fn start(
        init: &Init,
        language: Language,
        env: &[(String, String)],
        state: State,
    ) -> Result<Kernel, FileError> {
        let failed = |errno| refusal(kind_of(errno), language.name());
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
        // Not a flag of `socketpair`: the driver's end is to block.
        rustix::io::ioctl_fionbio(&ours, true).map_err(failed)?;
        let stdin = rustix::fs::memfd_create(c"stdin", MemfdFlags::CLOEXEC).map_err(failed)?;
        let stdin_end = stdin.try_clone().map_err(|_| refusal(FileErrorKind::Failed, language.name()))?;
        let process = Process::start(Launch::kernel(init, language, env, theirs)?, stdin_end)?;
        Ok(Kernel {
            language,
            process,
            control: Control::new(ours),
            stdin,
            meter: None,
            ready: false,
            deaf_since: None,
            spent: false,
            state,
            cell: None,
            records: Records::Skip,
            held_stdout: Vec::new(),
            held_stderr: Vec::new(),
        })
    }

    pub(crate) fn language(&self) -> Language {
        self.language
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Whether it has a cell, and is to live.
    pub(crate) fn is_busy(&self) -> bool {
        self.cell.is_some() && self.process.standing_runner().is_some()
    }

    pub(crate) fn has_cell(&self, id: u32) -> bool {
        self.cell.as_ref().is_some_and(|cell| cell.id == id)
    }

    /// Whether a cell can be run in it.
    pub(crate) fn is_usable(&self) -> bool {
        self.process.standing_runner().is_some() && self.control.is_open() && !self.spent
    }

    /// Whether it has had its last cell, and is to be ended.
    pub(crate) fn is_superfluous(&self) -> bool {
        self.spent && self.cell.is_none() && self.process.standing_runner().is_some()
    }

    /// Whether there is something that its end loses.
    pub(crate) fn has_run(&self) -> bool {
        self.state == State::Preserved || self.cell.is_some()
    }

    /// Whether a cell is over but for what is still to be sent of it.
    pub(crate) fn is_draining(&self) -> bool {
        self.process.ended().is_some() || self.done().is_some()
    }

    /// How its cell went, by the driver's word.
    fn done(&self) -> Option<Exit> {
        match self.cell {
            Some(Cell { phase: Phase::Done { code }, .. }) => Some(Exit::Code(code)),
            _ => None,
        }
    }

    /// How long it may still be deaf, or its cell go on though it was interrupted.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.deaf_for().into_iter().chain(self.insists_in()).min()
    }

    fn deaf_for(&self) -> Option<Duration> {
        let since = self.deaf_since.filter(|_| self.process.standing_runner().is_some())?;
        Some(DEAF_MAX.saturating_sub(since.elapsed()))
    }

    /// Whether nothing more can be asked of it.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf_for() == Some(Duration::ZERO)
    }

    fn insists_in(&self) -> Option<Duration> {
        match &self.cell {
            Some(Cell { phase: Phase::Running, interrupt: Interrupt::Sent { insist: Some(at) }, .. }) => {
                Some(at.saturating_duration_since(Instant::now()))
            }
            _ => None,
        }
    }

    /// Ends what an interrupted cell has started, if it has gone on for too long.
    pub(crate) fn insist(&mut self) {
        if self.insists_in() != Some(Duration::ZERO) {
            return;
        }
        let (runner, program) = (self.process.runner(), self.process.program());
        if let (Some(cell), Some(runner), Some(program)) = (&mut self.cell, runner, program) {
            cell.interrupt = Interrupt::Sent { insist: None };
            tree::end_young(runner, program, cell.ticks);
        }
    }

    /// Takes on a cell, which begins when its input is whole. What was written since the last one is its first output:
    /// nobody else is there to be told.
    pub(crate) fn begin(&mut self, id: u32, code: Code, look: Look, stream: &mut Stream) -> Result<(), Gone> {
        for (name, held) in [(Output::Stdout, &mut self.held_stdout), (Output::Stderr, &mut self.held_stderr)] {
            if !held.is_empty() {
                stream.send(&FromGuest::Output { id, stream: name, bytes: std::mem::take(held) })?;
            }
        }
        self.spent = code.then == Then::End;
        let phase = Phase::Gathering { code, input: Vec::new(), taken: 0 };
        self.cell = Some(Cell { id, phase, look, cpu_before: Duration::ZERO, interrupt: Interrupt::None, ticks: 0 });
        Ok(())
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], stream: &mut Stream) -> Result<(), Gone> {
        let Some(Cell { id, phase: Phase::Gathering { input, taken, .. }, .. }) = &mut self.cell else { return Ok(()) };
        if input.len() + bytes.len() > INPUT_MAX {
            return self.refuse(refusal(FileErrorKind::NoSpace, "the input of a cell"), stream);
        }
        input.extend_from_slice(bytes);
        *taken += bytes.len();
        if *taken >= TELL_TAKEN {
            stream.send(&FromGuest::Taken { id: *id, bytes: std::mem::take(taken) as u32 })?;
        }
        Ok(())
    }

    /// The cell's input is whole: its code is handed to the driver, which need not stand yet.
    pub(crate) fn end_input(&mut self, stream: &mut Stream) -> Result<(), Gone> {
        let Some(cell) = &mut self.cell else { return Ok(()) };
        if !matches!(cell.phase, Phase::Gathering { .. }) {
            return Ok(());
        }
        let Phase::Gathering { code, input, .. } = std::mem::replace(&mut cell.phase, Phase::Running) else {
            return Ok(());
        };
        if let Err(errno) = put(&self.stdin, &input) {
            return self.refuse(refusal(kind_of(errno), "the input of a cell"), stream);
        }
        if self.state == State::Preserved {
            cell.cpu_before = self.meter.as_ref().and_then(Meter::cpu).unwrap_or_default();
        }
        cell.ticks = sys::boot_ticks();
        self.process.memory_suffices();
        let last = u8::from(code.then == Then::End);
        self.control.say(&format!("run {} {} {last}\n", code.text.len(), code.language), code.text.as_bytes());
        self.control.write();
        Ok(())
    }

    fn refuse(&mut self, error: FileError, stream: &mut Stream) -> Result<(), Gone> {
        let Some(Cell { id, .. }) = self.cell.take() else { return Ok(()) };
        stream.send(&FromGuest::Refused { id, error })
    }

    /// Whether an order to stop its cell is for it: not when the cell is over, and only the telling is not.
    pub(crate) fn can_be_stopped(&self) -> bool {
        self.done().is_none()
    }

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
    fn interrupt(&mut self) {
        let Some(cell) = self.cell.as_mut().filter(|cell| cell.interrupt == Interrupt::Asked) else { return };
        if !self.ready || !matches!(cell.phase, Phase::Running) || self.control.has_outgoing() {
            return;
        }
        cell.interrupt = Interrupt::Sent { insist: Some(Instant::now() + INSIST) };
        if self.language == Language::JavaScript {
            // A signal cannot stop JavaScript that never comes back to its event loop. Its driver's worker can, and a
            // signal on top of that would be in its way.
            self.control.say("interrupt 0\n", &[]);
            self.control.write();
        } else {
            self.process.signal(INTERRUPT);
        }
    }

    /// Names the descriptors that it waits for.
    pub(crate) fn interests<'a>(&'a self, room: bool, add: &mut impl FnMut(PollFd<'a>, Channel)) {
        if self.process.ended().is_some() {
            return;
        }
        let listens = self.listens(room);
        self.process.interests(listens, add);
        // What one that ends still has to say is heard when it has ended.
        if let Some(fd) = self.control.interest(listens).filter(|_| self.process.standing_runner().is_some()) {
            add(fd, Channel::Control);
        }
    }

    /// Between cells there is always room: what comes then is bounded, and not sent.
    fn listens(&self, room: bool) -> bool {
        self.cell.is_none() || (room && self.done().is_none())
    }

    /// Moves what a ready channel has or takes, one chunk at most.
    pub(crate) fn advance(
        &mut self,
        channel: Channel,
        stream: &mut Stream,
        chunk: &mut Vec<u8>,
    ) -> Result<Conduct, Gone> {
        match channel {
            Channel::Output(name) if self.listens(stream.has_room()) => {
                let output = self.process.output(name);
                match &self.cell {
                    Some(cell) => output.pass_on(cell.id, stream, chunk)?,
                    None => {
                        output.read(chunk);
                        self.hold(name, chunk);
                    }
                }
            }
            Channel::Control if self.process.standing_runner().is_some() => {
                self.control.write();
                if self.listens(stream.has_room()) {
                    let conduct = self.listen(stream, chunk)?;
                    self.interrupt();
                    return Ok(conduct);
                }
            }
            Channel::Word => self.process.hear_runner(),
            Channel::Stdin | Channel::Output(_) | Channel::Control => {}
        }
        Ok(Conduct::Proper)
    }

    fn hold(&mut self, name: Output, chunk: &mut Vec<u8>) {
        let held = match name {
            Output::Stdout => &mut self.held_stdout,
            Output::Stderr => &mut self.held_stderr,
        };
        held.append(chunk);
        held.drain(..held.len().saturating_sub(HELD_MAX));
    }

    /// Hears one chunk of what the driver says.
    fn listen(&mut self, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<Conduct, Gone> {
        let Kernel { process, control, ready, cell, records, .. } = self;
        let heard = control.read(chunk, |said| -> Result<(), Trouble> {
            let cell = cell.as_mut().filter(|cell| matches!(cell.phase, Phase::Running));
            match (said, cell) {
                (Said::Ready, _) if !*ready => *ready = true,
                // A thread that outlived its cell may have something to show. There is nobody to show it to.
                (Said::Record, cell) => *records = if cell.is_some() { Records::PassOn } else { Records::Skip },
                (Said::RecordPart { bytes, part }, Some(cell)) if *records == Records::PassOn => {
                    stream.send(&FromGuest::Record { id: cell.id, bytes: bytes.to_vec(), part })?;
                }
                (Said::RecordPart { .. }, _) => {}
                (Said::Done { code }, Some(cell)) => {
                    // As an exit code would be.
                    cell.phase = Phase::Done { code: code & 0xff };
                    if matches!(cell.interrupt, Interrupt::Sent { .. })
                        && let (Some(runner), Some(program)) = (process.runner(), process.program())
                    {
                        // Before its output is over: it would go on in that of the next cell.
                        tree::end_young(runner, program, cell.ticks);
                    }
                    process.mark_output();
                }
                // Out of step: what is asked next would be answered by what was said before.
                (Said::Ready | Said::Done { .. }, _) => return Err(Trouble::Broken),
            }
            Ok(())
        });
        if !self.control.is_open() {
            self.deaf_since.get_or_insert_with(Instant::now);
        }
        match heard {
            Ok(()) => Ok(Conduct::Proper),
            Err(Trouble::Broken) => {
                self.control.close();
                Ok(Conduct::Broken)
            }
            Err(Trouble::Gone) => Err(Gone),
        }
    }

    /// Nothing of it is alive.
    pub(crate) fn swept(&mut self) {
        if self.process.is_sweeping() {
            self.process.swept();
            self.control.mark();
        }
    }

    /// Sends what is left of a cell that is over, as far as there is room, and at the end its last frame. Returns whether
    /// the kernel itself is over.
    pub(crate) fn drain(&mut self, stream: &mut Stream, means: &mut Means) -> Result<bool, Gone> {
        let ended = self.process.ended();
        if self.cell.is_none() {
            return Ok(ended.is_some());
        }
        if ended.is_some() && !self.drain_control(stream, &mut means.chunk)? {
            return Ok(false);
        }
        let done = self.done();
        let (Some(cell), Some(exit)) = (&mut self.cell, done.or(ended)) else { return Ok(false) };
        if !self.process.drain(cell.id, stream, &mut means.chunk)? {
            return Ok(false);
        }
        if let Some(error) = self.process.refusal() {
            self.refuse(error, stream)?;
            return Ok(true);
        }
        if !cell.look.advance(cell.id, &mut means.known, stream)? {
            return Ok(false);
        }
        let (id, cpu_before) = (cell.id, cell.cpu_before);
        // One that ends when its cell was done ends between cells, unless it was ended.
        let is_lost = ended.is_some() && (done.is_none() || self.process.is_condemned());
        let kernel = if is_lost { State::Lost } else { self.state };
        let finish = Finish { exit: self.process.judge(exit), usage: self.usage(cpu_before), kernel: Some(kernel) };
        stream.send(&FromGuest::Finished { id, finish })?;
        self.cell = None;
        self.state = State::Preserved;
        Ok(ended.is_some())
    }

    /// What a kernel said before it ended is heard to the end, as far as there is room. Returns whether it was.
    fn drain_control(&mut self, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<bool, Gone> {
        while self.control.left() > 0 && self.done().is_none() {
            if !stream.has_room() {
                return Ok(false);
            }
            let before = self.control.left();
            if self.listen(stream, chunk)? == Conduct::Broken || self.control.left() == before {
                break;
            }
        }
        Ok(true)
    }

    /// What the cell has used: of a dead kernel, all that was reaped but for what was used before.
    fn usage(&mut self, cpu_before: Duration) -> Usage {
        let reaped = self.process.usage();
        if self.meter.is_none() {
            self.meter = self.process.program().and_then(Meter::new);
        }
        let cpu = |all_ms: u64| all_ms.saturating_sub(cpu_before.as_millis() as u64);
        match self.meter.as_ref().filter(|_| self.process.ended().is_none()) {
            Some(meter) => Usage {
                cpu_ms: cpu(meter.cpu().unwrap_or_default().as_millis() as u64),
                memory_peak_bytes: meter.memory_peak_bytes(),
            },
            None => Usage { cpu_ms: cpu(reaped.cpu_ms), ..reaped },
        }
    }
}

/// Makes `input` the whole content of a kernel's standard input, to be read from its beginning.
fn put(stdin: &OwnedFd, input: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::ftruncate(stdin, 0)?;
    let mut done = 0;
    while done < input.len() {
        let end = input.len().min(done + CHUNK_MAX);
        done += rustix::io::pwrite(stdin, &input[done..end], done as u64)?;
    }
    rustix::fs::seek(stdin, SeekFrom::Start(0))?;
    Ok(())
}
