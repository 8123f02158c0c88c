//! The runner: a copy of the guest between process 1 and one program, so that all the program starts stays in its tree.
//!
//! It is the reaper of its descendants, so a daemon that forks twice still hangs below it; and when it is gone, for
//! whatever reason, what it leaves behind falls to process 1, which kills it. It therefore does nothing but start the
//! program, wait for it and end the same way: from the runner's end process 1 learns the program's.
//!
//! The program has the same user id and can kill or stop its runner. That gains it nothing: killing it is ending the
//! run, and process 1 wakes a stopped one. Other signals are blocked here, as process 1 blocked them.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use belljar_core::wire::{WORD_PROGRAM, WORD_RUNNER};
use belljar_core::{Exit, FileErrorKind};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit};

use crate::files::kind_of;
use crate::kernels::FIRST_FD;
use crate::launch::Launch;
use crate::sys::{self, Patience, Waited};

/// The exit code of a runner whose program did not start; its word then says why. (A program that ends with the same code
/// has started.)
pub(crate) const NOT_STARTED: Exit = Exit::Code(127);

/// The program's ends of its pipes.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// For the runner's own [`Word`]. The program never holds it.
    pub(crate) word: OwnedFd,
}

/// What a runner tells process 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// The program runs, with this number.
    Program(Pid),
    /// The runner itself, where process 1 has not forked it.
    Runner(Pid),
    Failed(Failure),
}

impl Word {
    pub(crate) const BYTES: usize = 5;

    fn to_bytes(tag: u8, number: i32) -> [u8; Word::BYTES] {
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    pub(crate) fn from_bytes(bytes: &[u8; Word::BYTES]) -> Option<Word> {
        let [tag, number @ ..] = *bytes;
        let number = i32::from_le_bytes(number);
        let step = match tag {
            0 => Step::Setup,
            1 => Step::Directory,
            2 => Step::Exec,
            // Never process 1, and never what stands for several.
            _ => {
                let pid = Pid::from_raw(number).filter(|pid| !pid.is_init() && number > 1)?;
                return Some(if tag == WORD_RUNNER { Word::Runner(pid) } else { Word::Program(pid) });
            }
        };
        Some(Word::Failed(Failure { step, kind: kind_of(Errno::from_raw_os_error(number)) }))
    }
}

/// Why a program did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) kind: FileErrorKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Setup,
    Directory,
    Exec,
}

/// The whole life of a runner.
pub(crate) fn run(launch: &Launch, ends: &Ends) -> ! {
    let mut failed = None;
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let started = sys::vfork(&mut || failed = Some(become_program(launch, ends)));
    let failed = failed.or(started.err().map(|_| (Step::Setup, Errno::AGAIN)));
    let word = match (failed, &started) {
        (Some((step, errno)), _) => Word::to_bytes(step as u8, errno.raw_os_error()),
        (None, Ok(program)) => Word::to_bytes(WORD_PROGRAM, program.as_raw_nonzero().get()),
        (None, Err(errno)) => Word::to_bytes(Step::Setup as u8, errno.raw_os_error()),
    };
    let _ = rustix::io::write(&ends.word, &word);
    if failed.is_some() {
        sys::end_as(NOT_STARTED);
    }
    // All of them: not even the stream or another program's pipe may be held open here.
    sys::close_from(0);
    let Ok(program) = started else { sys::end_as(NOT_STARTED) };
    sys::end_as(wait_for(program))
}

/// The life of a runner that a zygote has made, from where its kernel is forked; the name of that is its number.
pub(crate) fn run_forked(kernel: &CStr) -> i32 {
    // As process 1 is, and those that it forks.
    if rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return 1;
    }
    sys::seal_signals();
    sys::close_from(0);
    match kernel.to_str().ok().and_then(|number| number.parse().ok()).and_then(Pid::from_raw) {
        Some(kernel) => sys::end_as(wait_for(kernel)),
        None => 1,
    }
}

/// Runs in the new process. Comes back only with the reason why it did not become the program.
fn become_program(launch: &Launch, ends: &Ends) -> (Step, Errno) {
    let setup = || -> rustix::io::Result<()> {
        rustix::process::setsid()?;
        rustix::stdio::dup2_stdin(&ends.stdin)?;
        rustix::stdio::dup2_stdout(&ends.stdout)?;
        rustix::stdio::dup2_stderr(&ends.stderr)?;
        if let Some(seconds) = launch.cpu_seconds {
            // A hard limit one above: the program may catch the first signal and say something, but not the second.
            let limit = Rlimit { current: Some(seconds), maximum: Some(seconds.saturating_add(1)) };
            // Refused only where a lower limit stands already, which is as good.
            let _ = rustix::process::setrlimit(Resource::Cpu, limit);
        }
        Ok(())
    };
    if let Err(errno) = setup() {
        return (Step::Setup, errno);
    }
    if let Err(errno) = rustix::process::chdir(&launch.cwd) {
        return (Step::Directory, errno);
    }
    let mut next = FIRST_FD;
    for descriptor in &launch.descriptors {
        if let Err(errno) = sys::keep_as(descriptor, next) {
            return (Step::Setup, errno);
        }
        next += 1;
    }
    sys::close_from(next);
    sys::unblock_signals();
    (Step::Exec, sys::exec(&launch.program, &launch.argv, &launch.envp))
}

/// Reaps until the program itself has ended.
fn wait_for(program: Pid) -> Exit {
    loop {
        match sys::wait_any(Patience::Wait) {
            Waited::Ended { pid, exit, .. } if pid == program => return exit,
            Waited::Childless => return NOT_STARTED,
            _ => {}
        }
    }
}
