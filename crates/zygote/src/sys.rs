//! The kernel calls and the steps from stack to stack. All `unsafe` of the zygote but for Python's own interface.
#![expect(unsafe_code, reason = "processes that borrow memory; each block says what it relies on")]

use std::cell::UnsafeCell;
use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use belljar_seal::{Failure, Outcome};
use rustix::io::Errno;

/// Takes over a descriptor that whoever started the zygote put there.
pub(crate) fn inherited(fd: i32) -> OwnedFd {
    // SAFETY: called once for each number; nothing else in this process knows them.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// In which process [`fork_by_steps`] has returned.
#[derive(Debug)]
pub(crate) enum Forked {
    Zygote(Outcome<()>),
    Kernel,
}

/// What is done on the way, each in the process that the module's first page shows.
pub(crate) struct Steps<'a> {
    /// In the one that goes in.
    pub(crate) enter: &'a mut dyn FnMut() -> Outcome<()>,
    /// In the runner, before it forks.
    pub(crate) confine: &'a mut dyn FnMut() -> Outcome<()>,
    /// In the kernel.
    pub(crate) settle: &'a mut dyn FnMut() -> Outcome<()>,
    /// In the runner, which has forked the kernel with this number. Comes back only with why it failed.
    pub(crate) run: &'a mut dyn FnMut(i32) -> Failure,
}

struct Journey<'a, 'b> {
    steps: &'b mut Steps<'a>,
    outcome: Outcome<()>,
    forked: bool,
    /// Where the zygote's own thread goes on, and the kernel's.
    home: MaybeUninit<libc::ucontext_t>,
}

const STACK_BYTES: usize = 128 * 1024;

/// Stacks for those who borrow the memory: of the first step, of who goes in, of the passage, of the runner. Used by one
/// journey at a time, in this order, each while the ones before it stand still.
#[repr(C, align(16))]
struct Stacks([UnsafeCell<MaybeUninit<[u8; STACK_BYTES]>>; 4]);

// SAFETY: a zygote has one thread; processes that share its memory run while it stands still.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks([const { UnsafeCell::new(MaybeUninit::uninit()) }; 4]);

/// The journey under way: a context's entry takes no pointer.
static JOURNEY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Carries the steps out. The calling thread must be the only one of its process.
pub(crate) fn fork_by_steps(steps: &mut Steps<'_>) -> Forked {
    let mut journey = Journey { steps, outcome: Ok(()), forked: false, home: MaybeUninit::uninit() };
    let mut away = MaybeUninit::<libc::ucontext_t>::uninit();
    JOURNEY.store((&raw mut journey).cast(), Ordering::Relaxed);
    // SAFETY: `getcontext` makes the context whole before the rest is set; the stack is ours, and nobody is on it. The
    // entry comes home by `uc_link` in this process, or by `setcontext` in the copy of it that is the kernel: in both
    // `swapcontext` returns once, with the stack below it as it was. No lock is held over it, and there is one thread.
    unsafe {
        if libc::getcontext(away.as_mut_ptr()) != 0 {
            return Forked::Zygote(Err(last_failure("saving the context")));
        }
        let context = &mut *away.as_mut_ptr();
        context.uc_stack.ss_sp = STACKS.0[0].get().cast();
        context.uc_stack.ss_size = STACK_BYTES;
        context.uc_link = journey.home.as_mut_ptr();
        libc::makecontext(context, set_out, 0);
        if libc::swapcontext(journey.home.as_mut_ptr(), context) != 0 {
            return Forked::Zygote(Err(last_failure("leaving the stack")));
        }
    }
    if journey.forked { Forked::Kernel } else { Forked::Zygote(journey.outcome) }
}

/// The first step, still the zygote's own process, on a stack apart: its own stays as it was for the kernel to find.
extern "C" fn set_out() {
    let journey = JOURNEY.load(Ordering::Relaxed);
    borrow_memory(1, goes_in, journey);
}

extern "C" fn goes_in(journey: *mut c_void) -> c_int {
    take_step(journey, |steps| (steps.enter)(), || borrow_memory(2, passes, journey));
    0
}

extern "C" fn passes(journey: *mut c_void) -> c_int {
    take_step(journey, |_| Ok(()), || borrow_memory(3, runs, journey));
    0
}

extern "C" fn runs(journey: *mut c_void) -> c_int {
    take_step(
        journey,
        |steps| (steps.confine)(),
        || {
            // SAFETY: the C library's own fork, with what libraries have asked to be done around it. This process shares its
            // memory with others that stand still until it is gone, so there is one thread as far as the library knows.
            let pid = unsafe { libc::fork() };
            // SAFETY: the pointer is to the zygote's journey, or in the kernel to its copy; its owner stands still.
            let travel = unsafe { &mut *journey.cast::<Journey<'_, '_>>() };
            match pid {
                -1 => travel.outcome = Err(last_failure("forking")),
                0 => {
                    if (travel.steps.settle)().is_err() {
                        // SAFETY: nothing of the copy is of any use.
                        unsafe { libc::_exit(127) }
                    }
                    travel.forked = true;
                    // SAFETY: the context was saved by `swapcontext` on a stack of which this process has a copy.
                    unsafe { libc::setcontext(travel.home.as_ptr()) };
                    // SAFETY: it does not return; if it did, nothing could go on from here.
                    unsafe { libc::_exit(127) }
                }
                kernel => travel.outcome = Err((travel.steps.run)(kernel)),
            }
        },
    );
    // The runner could not become one. Process 1 reaps it, and ends the kernel as what it left behind.
    1
}

/// Does `step`, and what follows if that went well; tells the outcome otherwise.
fn take_step(journey: *mut c_void, step: impl FnOnce(&mut Steps<'_>) -> Outcome<()>, then: impl FnOnce()) {
    // SAFETY: the pointer is to the zygote's journey, whose owner stands still while this runs.
    let travel = unsafe { &mut *journey.cast::<Journey<'_, '_>>() };
    match step(travel.steps) {
        Ok(()) => then(),
        Err(failure) => travel.outcome = Err(failure),
    }
}

/// Runs `child` in a new process that has this one's memory until it becomes another program or ends, and waits for it.
fn borrow_memory(stack: usize, child: extern "C" fn(*mut c_void) -> c_int, journey: *mut c_void) {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: this process stands still until the child has left the memory, so what is shared outlives its use; each
    // child has a stack of its own, whose end is 16-aligned.
    let pid = unsafe {
        let end = STACKS.0[stack].get().add(1).cast::<c_void>();
        libc::clone(child, end, flags, journey)
    };
    if pid < 0 {
        // SAFETY: as in `take_step`.
        unsafe { (*journey.cast::<Journey<'_, '_>>()).outcome = Err(last_failure("cloning")) };
        return;
    }
    // The runner is not waited for: its parent ends, and process 1 inherits it.
    if stack < 3 {
        // SAFETY: no memory is passed.
        unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
    }
}

/// All namespaces of a sandbox but time, which is the jail's for everybody. The one of processes is for children.
pub(crate) fn enter_namespaces(first_process: BorrowedFd<'_>) -> Result<(), Errno> {
    const ALL: c_int = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWPID;
    // SAFETY: no memory is involved.
    if unsafe { libc::setns(first_process.as_raw_fd(), ALL) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// Makes `streams` the descriptors from 0 on, and closes all others.
pub(crate) fn arrange_descriptors(streams: &[OwnedFd; 4]) -> Result<(), Errno> {
    for (number, fd) in streams.iter().enumerate() {
        // SAFETY: no memory is involved. In this process nobody else uses the lowest numbers again; what was received is
        // above them, since the zygote has them all open.
        if unsafe { libc::dup2(fd.as_raw_fd(), number as c_int) } < 0 {
            return Err(last_error());
        }
    }
    // SAFETY: owners of what is closed are never dropped here: the request is leaked in the kernel.
    unsafe { libc::syscall(libc::SYS_close_range, streams.len(), u32::MAX, 0) };
    Ok(())
}

/// Becomes the program in `file` with no descriptor and no environment. Returns only on failure.
pub(crate) fn exec_alone(file: BorrowedFd<'_>, arguments: &[CString; 2]) -> Errno {
    let arguments = [arguments[0].as_ptr(), arguments[1].as_ptr(), ptr::null()];
    let environment = [ptr::null::<libc::c_char>()];
    // SAFETY: the first touches no memory. For the second, both lists end in null, and their strings outlive the call.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    last_error()
}

/// Ends this process at once.
pub(crate) fn end() -> ! {
    // SAFETY: does not return, and runs nothing.
    unsafe { libc::_exit(0) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn last_failure(step: &str) -> Failure {
    Failure { step: step.to_owned(), errno: last_error().raw_os_error() }
}
