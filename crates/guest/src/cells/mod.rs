//! Kernels and their cells: interpreters that live on and remember, and the code that is run in them, one piece at a time.
//!
//! ```text
//! a cell:  Gathering ──input is whole──▶ Held ──▶ Running ──driver says done──▶ Done ──pipes empty──▶ last frame
//!                └─────────────────────────┴─────────┴─ kernel ends: swept, drained, and told to be lost
//! ```
//!
//! A kernel may be started ahead of its first cell, which is then held until the driver stands: what the start used and
//! wrote is not the cell's.
//!
//! How a language's driver is made is in `kernels`. What it says is not trusted: code in the kernel can say the same.

mod cell;
mod control;
mod forked;
mod interrupt;
mod meter;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use belljar_core::wire::{CHUNK_MAX, FromGuest, Init};
use belljar_core::{Exit, FileError, FileErrorKind, Finish, Language, State, Stream as Output, Then, Usage};
use rustix::event::PollFd;
use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::changes::{Known, Look};
use crate::files::{kind_of, refusal};
use crate::launch::Launch;
use crate::process::{Channel, Means, Process, TELL_TAKEN};
use crate::stream::{Gone, Stream};
use crate::{sys, tree};
use cell::{Cell, Phase};
use control::{Broken, Control, Said};
use interrupt::Interrupt;
use meter::Meter;

pub(crate) use cell::Code;
pub(crate) use forked::Ends;

/// Input of one cell at most.
const INPUT_MAX: usize = 1024 * 1024;

/// Bytes of each stream that are kept of what a kernel writes between cells: the last ones.
const HELD_MAX: usize = 64 * 1024;

/// How long a kernel whose end of the control socket is closed may take to end: most have ended already, and how is about
/// to be told. The others can do nothing more for anyone.
const DEAF_MAX: Duration = Duration::from_millis(500);

/// So long after a kernel has started, what it wrote then is older than the clock of files tells now: that goes in ticks of
/// up to a hundredth of a second.
const SETTLED: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Kernel {
    language: Language,
    process: Process,
    control: Control,
    /// Its standard input, the same open file as its own.
    stdin: OwnedFd,
    meter: Option<Meter>,
    /// When the driver has said that it stands.
    ready: Option<Instant>,
    /// It was started ahead of any cell, and has run none.
    waits: bool,
    /// As in [`Init`], until it says that it stands where it was copied to.
    is_copied: bool,
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
        Kernel::launch(language, state, |control| Launch::kernel(init, language, env, control, false))
    }

    fn launch(
        language: Language,
        state: State,
        launch: impl FnOnce(OwnedFd) -> Result<Launch, FileError>,
    ) -> Result<Kernel, FileError> {
        let failed = |errno| refusal(kind_of(errno), language.name());
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
        // Not a flag of `socketpair`: the driver's end is to block.
        rustix::io::ioctl_fionbio(&ours, true).map_err(failed)?;
        let stdin = rustix::fs::memfd_create(c"stdin", MemfdFlags::CLOEXEC).map_err(failed)?;
        let stdin_end = stdin.try_clone().map_err(|_| refusal(FileErrorKind::Failed, language.name()))?;
        let process = Process::start(launch(theirs)?, stdin_end)?;
        Ok(Kernel::new(language, process, ours, stdin, state))
    }

    fn new(language: Language, process: Process, control: OwnedFd, stdin: OwnedFd, state: State) -> Kernel {
        Kernel {
            language,
            process,
            control: Control::new(control),
            stdin,
            meter: None,
            ready: None,
            waits: false,
            is_copied: false,
            deaf_since: None,
            spent: false,
            state,
            cell: None,
            records: Records::Skip,
            held_stdout: Vec::new(),
            held_stderr: Vec::new(),
        }
    }

    /// Starts one that waits for its first cell, most likely of `language`; `None` where that has no kernel.
    pub(crate) fn start_ahead(init: &Init, language: Language) -> Option<Result<Kernel, FileError>> {
        let kernel = language.kernel()?;
        let launch = |control| Launch::kernel(init, kernel, &[], control, init.copied);
        Some(Kernel::launch(kernel, State::Fresh, launch).map(|mut kernel| {
            kernel.waits = true;
            kernel.is_copied = init.copied;
            if kernel.language == Language::JavaScript {
                // What it then does in advance would be in the way of a cell that is there already.
                kernel.control.say(&format!("wait 0 {language}\n"), &[]);
                kernel.control.write();
            }
            kernel
        }))
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

    /// The cell whose code it runs.
    pub(crate) fn running_cell(&self) -> Option<u32> {
        self.cell.as_ref().filter(|cell| cell.is_running()).map(|cell| cell.id)
    }

    /// Whether a cell can be run in it.
    pub(crate) fn is_usable(&self) -> bool {
        let stands = self.process.standing_runner().is_some() && !self.process.is_felled();
        stands && self.control.is_open() && !self.spent
    }

    /// Whether it waits for its first cell.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits && self.cell.is_none()
    }

    /// Whether nothing is done in it but what its cells have left behind.
    pub(crate) fn is_idle(&self) -> bool {
        self.cell.is_none()
    }

    /// Whether it is gone or about to be, though that was not told yet.
    pub(crate) fn is_ending(&mut self) -> bool {
        // One that only starts may not be known yet, but its runner is.
        let runner = self.process.runner();
        self.control.has_hung_up() || self.metered().map_or_else(|| runner.is_none_or(meter::ends), Meter::is_ending)
    }

    /// Whether it has had its last cell, and is to be ended.
    pub(crate) fn is_superfluous(&self) -> bool {
        self.spent && self.cell.is_none() && self.process.standing_runner().is_some()
    }

    /// Whether there is something that its end loses. A first cell that is the last leaves nothing to anyone.
    pub(crate) fn has_run(&self) -> bool {
        self.state == State::Preserved || (self.cell.is_some() && !self.spent)
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
        // In its last cell a driver may become the script, and have nothing more to say: its end tells.
        let is_script = self.spent && self.cell.is_some();
        let since = self.deaf_since.filter(|_| self.process.standing_runner().is_some() && !is_script)?;
        Some(DEAF_MAX.saturating_sub(since.elapsed()))
    }

    /// Whether nothing more can be asked of it.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf_for() == Some(Duration::ZERO)
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
        self.cell = Some(Cell::new(id, code, look));
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

    /// The cell's input is whole.
    pub(crate) fn end_input(&mut self, known: &mut Known, stream: &mut Stream) -> Result<(), Gone> {
        let Some(cell) = &mut self.cell else { return Ok(()) };
        cell.phase = match std::mem::replace(&mut cell.phase, Phase::Running) {
            Phase::Gathering { code, input, .. } => Phase::Held { code, input },
            other => other,
        };
        self.run(known, stream)
    }

    /// Hands the code of a cell that is whole to the driver. One that was started with its cell need not stand yet.
    fn run(&mut self, known: &mut Known, stream: &mut Stream) -> Result<(), Gone> {
        let Some(cell) = self.cell.as_mut().filter(|_| !self.waits || self.ready.is_some()) else { return Ok(()) };
        let (code, input) = match std::mem::replace(&mut cell.phase, Phase::Running) {
            Phase::Held { code, input } => (code, input),
            other => {
                cell.phase = other;
                return Ok(());
            }
        };
        if let Err(errno) = put(&self.stdin, &input) {
            return self.refuse(refusal(kind_of(errno), "the input of a cell"), stream);
        }
        if self.waits && self.ready.is_some_and(|ready| ready.elapsed() < SETTLED) {
            cell.look.begin_again(known);
        }
        cell.ticks = sys::boot_ticks();
        if self.waits || self.state == State::Preserved {
            let before = self.metered().and_then(Meter::cpu).unwrap_or_default();
            let memory = self.metered().map(Meter::memory_peak_bytes).unwrap_or_default();
            self.cell.iter_mut().for_each(|cell| (cell.cpu_before, cell.memory_before) = (before, memory));
        }
        self.waits = false;
        self.process.memory_suffices();
        let last = u8::from(code.then == Then::End);
        self.control.say(&format!("run {} {} {last}\n", code.text.len(), code.language), code.text.as_bytes());
        self.control.write();
        Ok(())
    }

    fn metered(&mut self) -> Option<&Meter> {
        if self.meter.is_none() {
            self.meter = self.process.program().and_then(Meter::new);
        }
        self.meter.as_ref()
    }

    fn refuse(&mut self, error: FileError, stream: &mut Stream) -> Result<(), Gone> {
        let Some(Cell { id, .. }) = self.cell.take() else { return Ok(()) };
        stream.send(&FromGuest::Refused { id, error })
    }

    /// Whether an order to stop its cell is for it: not when the cell is over, and only the telling is not.
    pub(crate) fn can_be_stopped(&self) -> bool {
        self.done().is_none()
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
        Means { chunk, known }: &mut Means,
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
                    self.run(known, stream)?;
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
        let Kernel { process, control, ready, is_copied, cell, records, .. } = self;
        let is_script = self.spent && self.language == Language::Shell;
        let heard = control.read(chunk, |said| -> Result<(), Trouble> {
            let cell = cell.as_mut().filter(|cell| cell.is_running());
            match (said, cell) {
                (Said::Ready, _) if ready.is_none() => *ready = Some(Instant::now()),
                // One that was copied with its machine says so again, when it has come to itself.
                (Said::Ready, _) if *is_copied => *is_copied = false,
                // A thread that outlived its cell may have something to show. There is nobody to show it to.
                (Said::Record, cell) => *records = if cell.is_some() { Records::PassOn } else { Records::Skip },
                (Said::RecordPart { bytes, part }, Some(cell)) if *records == Records::PassOn => {
                    stream.send(&FromGuest::Record { id: cell.id, bytes: bytes.to_vec(), part })?;
                }
                (Said::RecordPart { .. }, _) => {}
                (Said::Done { code }, Some(cell)) => {
                    let is_interrupted = matches!(cell.interrupt, Interrupt::Sent { .. });
                    let pair = (is_script || is_interrupted).then(|| process.runner().zip(process.program())).flatten();
                    // A script's end is the end of what it has left in the background, so that its own is waited for.
                    if is_script && !pair.is_some_and(|(runner, program)| tree::are_alone(&[runner, program])) {
                        return Ok(());
                    }
                    // As an exit code would be.
                    cell.phase = Phase::Done { code: code & 0xff };
                    if let Some((runner, program)) = pair.filter(|_| is_interrupted) {
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
        if self.waits && self.ready.is_some() {
            // Ahead of its cell, which is then not held up by it.
            self.metered();
        }
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
        let (id, cpu_before, memory_before) = (cell.id, cell.cpu_before, cell.memory_before);
        // One that ends when its cell was done ends between cells, unless it was ended. In the last cell there is nothing
        // to lose.
        let is_lost = ended.is_some() && (done.is_none() || self.process.is_condemned()) && !self.spent;
        let kernel = if is_lost { State::Lost } else { self.state };
        let finish = Finish {
            exit: self.process.judge(exit),
            usage: self.usage(cpu_before, memory_before),
            kernel: Some(kernel),
        };
        stream.send(&FromGuest::Finished { id, finish })?;
        self.cell = None;
        if !self.spent {
            self.state = State::Preserved;
        }
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
    fn usage(&mut self, cpu_before: Duration, memory_before: u64) -> Usage {
        let reaped = self.process.usage();
        let is_over = self.process.ended().is_some();
        let cpu = |all_ms: u64| all_ms.saturating_sub(cpu_before.as_millis() as u64);
        match self.metered().filter(|_| !is_over) {
            Some(meter) => Usage {
                cpu_ms: cpu(meter.cpu().unwrap_or_default().as_millis() as u64),
                // One that is just ending has none left to tell of.
                memory_peak_bytes: meter.memory_peak_bytes().max(memory_before),
            },
            None => {
                Usage { cpu_ms: cpu(reaped.cpu_ms), memory_peak_bytes: reaped.memory_peak_bytes.max(memory_before) }
            }
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
