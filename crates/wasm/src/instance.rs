//! One interpreter: a thread, a store, and what the code in it may use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_core::Exit;
use wasmtime::{AsContextMut, Engine, Global, InstancePre, ResourceLimiter, Store, TypedFunc, UpdateDeadline, Val};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{FsPerms, HostMonotonicClock, WasiCtxBuilder};

use crate::engine::STACK_BYTES;
use crate::line::{Line, Said};
use crate::{javascript, rewrite, wasi};

/// What our own frames take below those of the code.
const THREAD_STACK_BYTES: usize = STACK_BYTES + 2 * 1024 * 1024;

/// More than the worker ever nudges within a call of ours.
const FAR: u64 = 1 << 32;

/// Left free below the stack of the C code that is interrupted: what it has there without saying so.
const RED_ZONE: i32 = 256;

/// What the code sees of the place, and whether it may write there.
const DIRECTORIES: [(&str, FsPerms); 9] = [
    (wasi::LINES, FsPerms::ReadOnly),
    ("/workspace", FsPerms::ReadWrite),
    ("/tmp", FsPerms::ReadWrite),
    ("/var/tmp", FsPerms::ReadWrite),
    ("/home/agent", FsPerms::ReadWrite),
    ("/tools", FsPerms::ReadOnly),
    ("/skills", FsPerms::ReadOnly),
    ("/belljar/packages", FsPerms::ReadOnly),
    ("/belljar/lib", FsPerms::ReadOnly),
];

/// Why the code does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    Exited(i32),
    /// The worker wants it so, and knows what it is told as.
    Stopped,
    /// It was interrupted, and there is no way to let it know.
    Interrupted,
    OutOfMemory,
    /// Its driver does not keep to the form.
    Broken,
}

impl std::fmt::Display for Halt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Halt {}

/// The memory that all interpreters of a sandbox have together.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(most: u64) -> Budget {
        Budget { most, used: AtomicU64::new(0) }
    }
}

/// One interpreter's part of it.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    /// Of linear memory; never shrinks.
    bytes: u64,
}

impl ResourceLimiter for Share {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let more = desired.saturating_sub(current) as u64;
        let used = self.budget.used.fetch_add(more, Ordering::Relaxed) + more;
        self.bytes += more;
        // Its files are in memory too.
        if used + disk_used() > self.budget.most {
            return Err(Halt::OutOfMemory.into());
        }
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= 1 << 20)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn disk_used() -> u64 {
    rustix::fs::statvfs(belljar_core::WORKSPACE).map_or(0, |disk| (disk.f_blocks - disk.f_bfree) * disk.f_frsize)
}

/// The clock that never goes back, from an interpreter's start: what it reads, and what its waits are told by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steady(Instant);

impl Steady {
    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

impl HostMonotonicClock for Steady {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        u64::try_from(Steady::now(*self).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What host functions work with.
pub(crate) struct Host {
    pub(crate) wasi: WasiP1Ctx,
    pub(crate) line: Line,
    pub(crate) steady: Steady,
    share: Share,
    /// What the driver is made of, and how much of it was read.
    pub(crate) library: Arc<[u8]>,
    pub(crate) library_read: usize,
    /// What the driver said, as far as it has come.
    pub(crate) driver: Vec<u8>,
    pub(crate) question: Vec<u8>,
    /// What QuickJS is told of, which asks for it: the one that is interrupted by a function is CPython.
    pub(crate) arguments: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) was_interrupted: bool,
    pub(crate) cells: u64,
    kind: Kind,
    interrupt: Option<(TypedFunc<i32, ()>, Global)>,
}

impl Host {
    pub(crate) fn say(&self, said: Said) {
        self.line.say(said, self.share.bytes);
    }
}

/// What an interpreter is started with.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) arguments: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) library: Arc<[u8]>,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A program with a `_start`, whose driver is inside.
    Command,
    /// QuickJS, which is called from outside.
    QuickJs,
}

/// A module that can be started.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) engine: Engine,
    pub(crate) module: InstancePre<Host>,
}

/// Starts the thread; what becomes of it is said on the line.
pub(crate) fn start(prepared: Prepared, launch: Launch, line: Line, budget: Arc<Budget>) -> std::io::Result<()> {
    let run = move || {
        let mut last = LastWord { line: &line, exit: Exit::Signal(6), memory_peak_bytes: 0 };
        (last.exit, last.memory_peak_bytes) = run(&prepared, launch, &line, budget);
    };
    thread(run).map(drop)
}

/// A thread that an interpreter can run on.
pub(crate) fn thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> std::io::Result<JoinHandle<T>> {
    let run = move || {
        // WASI's calls are futures that are ready at once; without this they would start threads for all processors.
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let _guard = runtime.as_ref().ok().map(tokio::runtime::Runtime::enter);
        run()
    };
    std::thread::Builder::new().stack_size(THREAD_STACK_BYTES).spawn(run)
}

/// Says how it ended, also where that is by a panic of ours.
struct LastWord<'a> {
    line: &'a Line,
    exit: Exit,
    memory_peak_bytes: u64,
}

impl Drop for LastWord<'_> {
    fn drop(&mut self) {
        self.line.say(Said::Ended(self.exit), self.memory_peak_bytes);
    }
}

fn run(prepared: &Prepared, launch: Launch, line: &Line, budget: Arc<Budget>) -> (Exit, u64) {
    let mut peak = 0;
    let outcome = run_store(prepared, launch, line, budget, &mut peak);
    let exit = match outcome {
        Ok(code) => Exit::Code(code),
        Err(error) => match (line.stopped(), error.downcast_ref::<Halt>()) {
            (_, Some(Halt::Exited(code))) => Exit::Code(*code),
            (_, Some(Halt::OutOfMemory)) => Exit::OutOfMemory,
            (Some(exit), _) => exit,
            (None, Some(Halt::Interrupted)) => Exit::Signal(2),
            (None, Some(Halt::Broken)) => Exit::Signal(9),
            // A trap: an abort of the interpreter's own, or its stack.
            (None, Some(Halt::Stopped) | None) => {
                let text = format!("the interpreter failed: {}\n", error.root_cause());
                line.say(Said::Output { stream: belljar_core::Stream::Stderr, bytes: text.into_bytes() }, peak);
                Exit::Signal(6)
            }
        },
    };
    (exit, peak)
}

fn run_store(
    prepared: &Prepared,
    launch: Launch,
    line: &Line,
    budget: Arc<Budget>,
    peak: &mut u64,
) -> wasmtime::Result<i32> {
    let steady = Steady(Instant::now());
    let host = Host {
        wasi: wasi_of(&launch, steady)?,
        line: line.clone(),
        steady,
        share: Share { budget, bytes: 0 },
        library: launch.library,
        library_read: 0,
        driver: Vec::new(),
        question: Vec::new(),
        arguments: launch.arguments,
        env: launch.env,
        was_interrupted: false,
        cells: 0,
        kind: launch.kind,
        interrupt: None,
    };
    let mut store = Store::new(&prepared.engine, host);
    store.limiter(|host| &mut host.share);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        let line = store.data().line.clone();
        if line.stopped().is_some() {
            return Err(Halt::Stopped.into());
        }
        // What is called from here has no deadline that could pass: nobody would be asked about it.
        store.set_epoch_deadline(FAR);
        if store.data().kind == Kind::Command && line.take_interrupt() && !interrupt(&mut store)? {
            return Err(Halt::Interrupted.into());
        }
        Ok(UpdateDeadline::Continue(1))
    });
    let outcome = match launch.kind {
        Kind::Command => command(prepared, &mut store),
        Kind::QuickJs => javascript::serve(prepared, &mut store),
    };
    *peak = store.data().share.bytes;
    outcome
}

fn command(prepared: &Prepared, store: &mut Store<Host>) -> wasmtime::Result<i32> {
    let instance = prepared.module.instantiate(&mut *store)?;
    let function = instance.get_typed_func::<i32, ()>(&mut *store, rewrite::FUNCTION).ok();
    let stack_pointer = instance.get_global(&mut *store, rewrite::STACK_POINTER);
    store.data_mut().interrupt = function.zip(stack_pointer);
    let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
    start.call(&mut *store, ())?;
    Ok(0)
}

/// Lets the interpreter know that it was interrupted. Returns whether it can be told.
pub(crate) fn interrupt(store: &mut impl AsContextMut<Data = Host>) -> wasmtime::Result<bool> {
    let Some((function, stack_pointer)) = store.as_context_mut().data().interrupt.clone() else { return Ok(false) };
    let Val::I32(before) = stack_pointer.get(&mut *store) else { return Ok(false) };
    stack_pointer.set(&mut *store, Val::I32((before - RED_ZONE) & !15))?;
    let outcome = function.call(&mut *store, 2);
    stack_pointer.set(&mut *store, Val::I32(before))?;
    outcome.map(|()| true)
}

fn wasi_of(launch: &Launch, steady: Steady) -> wasmtime::Result<WasiP1Ctx> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.monotonic_clock(steady);
    // Each interpreter has a thread of its own, which may as well wait for the disk itself.
    wasi.allow_blocking_current_thread(true).args(&launch.arguments).envs(&launch.env);
    for (path, access) in DIRECTORIES {
        wasi.preopened_dir(path, path, access)?;
    }
    Ok(wasi.build_p1())
}
