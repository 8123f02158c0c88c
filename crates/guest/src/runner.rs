//! The runner: a copy of the guest between process 1 and one program, so that all the program starts stays in its tree.
//!
//! It is the reaper of its descendants, so a daemon that forks twice still hangs below it; and when it is gone, for
//! whatever reason, what it leaves behind falls to process 1, which kills it. It therefore does nothing but start the
//! program, wait for it and end the same way: from the runner's end process 1 learns the program's.
//!
//! The program has the same user id and can kill or stop its runner. That gains it nothing: killing it is ending the
//! run, and process 1 wakes a stopped one. Other signals are blocked here, as process 1 blocked them.

use std::os::fd::OwnedFd;

use belljar_core::{Exit, FileErrorKind};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit};

use crate::files::kind_of;
use crate::kernels::CODE_FD;
use crate::launch::Launch;
use crate::sys::{self, Patience, Waited};

/// The exit code of a runner whose program did not start; its [`Failure`] then waits in the pipe. (A program that ends
/// with the same code leaves the pipe empty.)
pub(crate) const NOT_STARTED: Exit = Exit::Code(127);

/// The program's ends of its pipes.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) failure: OwnedFd,
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

impl Failure {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Failure> {
        let (step, errno) = bytes.split_first()?;
        let step = match step {
            0 => Step::Setup,
            1 => Step::Directory,
            _ => Step::Exec,
        };
        let errno = i32::from_le_bytes(errno.try_into().ok()?);
        Some(Failure { step, kind: kind_of(Errno::from_raw_os_error(errno)) })
    }
}

/// The whole life of a runner.
pub(crate) fn run(launch: &Launch, ends: &Ends) -> ! {
    let mut failed = None;
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let started = sys::vfork(&mut || failed = Some(become_program(launch, ends)));
    let failed = failed.or(started.err().map(|_| (Step::Setup, Errno::AGAIN)));
    if let Some((step, errno)) = failed {
        let mut bytes = vec![step as u8];
        bytes.extend_from_slice(&errno.raw_os_error().to_le_bytes());
        let _ = rustix::io::write(&ends.failure, &bytes);
        sys::end_as(NOT_STARTED);
    }
    // All of them: not even the stream or another program's pipe may be held open here.
    sys::close_from(0);
    let Ok(program) = started else { sys::end_as(NOT_STARTED) };
    sys::end_as(wait_for(program))
}

/// Runs in the new process. Comes back only with the reason why it did not become the program.
fn become_program(launch: &Launch, ends: &Ends) -> (Step, Errno) {
    let setup = || -> rustix::io::Result<()> {
        rustix::process::setsid()?;
        rustix::stdio::dup2_stdin(&ends.stdin)?;
        rustix::stdio::dup2_stdout(&ends.stdout)?;
        rustix::stdio::dup2_stderr(&ends.stderr)?;
        // A hard limit one above: the program may catch the first signal and say something, but not the second.
        let (soft, hard) = (launch.cpu_seconds, launch.cpu_seconds.saturating_add(1));
        let limit = Rlimit { current: Some(soft), maximum: Some(hard) };
        // Refused only where a lower limit stands already, which is as good.
        let _ = rustix::process::setrlimit(Resource::Cpu, limit);
        Ok(())
    };
    if let Err(errno) = setup() {
        return (Step::Setup, errno);
    }
    if let Err(errno) = rustix::process::chdir(&launch.cwd) {
        return (Step::Directory, errno);
    }
    match &launch.code {
        Some(code) => {
            if let Err(errno) = sys::keep_as(code, CODE_FD) {
                return (Step::Setup, errno);
            }
            sys::close_from(CODE_FD + 1);
        }
        None => sys::close_from(CODE_FD),
    }
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
