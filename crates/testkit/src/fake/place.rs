//! The fake's sandbox and its running programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_core::wire::Part;
use belljar_core::{
    Asked, BackendError, Content, Entry, Event, FileError, FileErrorKind, FileKind, Isolation, Language, Later, Layer,
    Limits, Listing, Metadata, Program, Range, Running, Sandbox, Source, Spec, State, Stdin, StdinWriter, WORKSPACE,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::questions::Questions;
use super::script::{self, STUCK};
use super::{Ground, Manners};

pub(super) struct Place {
    /// Which of all that were opened.
    pub(super) number: usize,
    closed: bool,
    ground: Arc<Ground>,
    isolation: Isolation,
    limits: Limits,
    env: Vec<(String, String)>,
    files: Files,
    kernels: Kernels,
    questions: Arc<Questions>,
    fell: CancellationToken,
    programs: TaskTracker,
    start_takes: Duration,
    close_takes: Duration,
    acts: AtomicU32,
    moved: Arc<AtomicU64>,
    measures_cpu: bool,
    burnt_ms: Arc<AtomicU64>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

/// Absolute paths and what is in them; directories are those that have something below them.
#[derive(Clone, Default)]
pub(super) struct Files(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Files {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, path: &str, bytes: Vec<u8>) {
        self.all().insert(absolute(path), bytes);
    }

    pub(super) fn get(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let files = self.all();
        let full = absolute(path);
        files.get(&full).cloned().ok_or_else(|| match is_directory(&files, &full) {
            true => refuse(FileErrorKind::IsDirectory, path),
            false => refuse(FileErrorKind::NotFound, path),
        })
    }
}

fn absolute(path: &str) -> String {
    let path = path.trim_end_matches('/');
    match path {
        "" => "/".into(),
        "." => WORKSPACE.into(),
        _ if path.starts_with('/') => path.into(),
        _ => format!("{WORKSPACE}/{path}"),
    }
}

fn is_directory(files: &BTreeMap<String, Vec<u8>>, full: &str) -> bool {
    let below = format!("{}/", full.trim_end_matches('/'));
    full == "/" || full == WORKSPACE || files.keys().any(|name| name.starts_with(&below))
}

fn refuse(kind: FileErrorKind, path: &str) -> FileError {
    FileError { kind, path: path.into() }
}

impl Place {
    pub(super) fn new(ground: Arc<Ground>, manners: &Manners, spec: &Spec) -> Place {
        ground.sandboxes.fetch_add(1, Ordering::SeqCst);
        let fell = CancellationToken::new();
        ground.fell.lock().unwrap_or_else(PoisonError::into_inner).push(fell.clone());
        let wall = || "none: a fake for tests".to_owned();
        Place {
            number: 0,
            closed: false,
            ground,
            isolation: Isolation {
                backend: "fake".into(),
                namespaces: wall(),
                seccomp: wall(),
                landlock: wall(),
                cgroup: wall(),
                network: wall(),
                user: wall(),
            },
            limits: spec.limits,
            env: spec.env.clone(),
            files: Files::default(),
            kernels: Kernels::default(),
            questions: Arc::default(),
            fell,
            programs: TaskTracker::new(),
            start_takes: manners.start_takes,
            close_takes: manners.close_takes,
            acts: AtomicU32::new(0),
            moved: Arc::default(),
            measures_cpu: manners.measures_cpu,
            burnt_ms: Arc::default(),
        }
    }

    fn standing(&self) -> Result<(), BackendError> {
        if self.is_alive() { Ok(()) } else { Err(lost()) }
    }

    /// Begins to act; the answer is what a caller holds.
    fn act(&self, text: &str, program: &Program) -> Act {
        let (events, heard) = mpsc::channel(8);
        let (write, read) = mpsc::unbounded_channel();
        let stdin = match &program.stdin {
            Stdin::Live => Some(Typist(write)),
            Stdin::Whole(bytes) => {
                let _ = write.send(bytes.clone());
                None
            }
        };
        let stop = CancellationToken::new();
        let interrupted = Arc::new(Notify::new());
        let kernel = match &program.source {
            Source::Cell { language, .. } => language.kernel().map(|language| self.kernels.turn(language)),
            _ => None,
        };
        let mut env = self.env.clone();
        env.extend(program.env.iter().cloned());
        let number = self.acts.fetch_add(1, Ordering::SeqCst) + 1;
        let stage = script::Stage {
            place: self.number,
            number,
            events,
            stop: stop.clone(),
            fell: self.fell.clone(),
            files: self.files.clone(),
            env,
            stdin: tokio::sync::Mutex::new(read),
            counted: Counted::new(self.ground.clone()),
            interrupted: interrupted.clone(),
            kernel,
            changed_max: program.changed_max,
            questions: self.questions.clone(),
            moved: self.moved.clone(),
            burnt_ms: self.burnt_ms.clone(),
        };
        self.programs.spawn(script::play(text.to_owned(), stage));
        Act { number, heard, stop, interrupted, stdin }
    }
}

fn lost() -> BackendError {
    BackendError::Lost { why: "the fake fell".into() }
}

impl Sandbox for Place {
    fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    fn start(&self, program: Program) -> Later<'_, Box<dyn Running>> {
        Box::pin(async move {
            self.standing()?;
            tokio::time::sleep(self.start_takes).await;
            self.standing()?;
            if let Some(cwd) = &program.cwd
                && !is_directory(&self.files.all(), &absolute(cwd))
            {
                return Err(BackendError::File(refuse(FileErrorKind::NotFound, cwd)));
            }
            let text = match &program.source {
                Source::Code { code, .. } | Source::Cell { code, .. } => code,
                Source::Command(line) => line,
            };
            match text.lines().next() {
                Some("refuse") => {
                    Err(BackendError::Setup { step: "start".into(), why: "told to, in /host/path".into() })
                }
                Some("lose") => Err(lost()),
                Some("panic") => panic!("the script told the fake to panic"),
                Some("stuck-start") => {
                    let _started = std::mem::ManuallyDrop::new(self.act(text, &program));
                    std::future::pending().await
                }
                _ => Ok(Box::new(self.act(text, &program)) as Box<dyn Running>),
            }
        })
    }

    fn read<'a>(&'a self, path: &'a str, range: Range) -> Later<'a, Content> {
        Box::pin(async move {
            self.standing()?;
            if path == STUCK {
                return std::future::pending().await;
            }
            let bytes = self.files.get(path)?;
            let from = bytes.len().min(usize::try_from(range.offset).unwrap_or(usize::MAX));
            let length = usize::try_from(range.length).unwrap_or(usize::MAX).min(bytes.len() - from);
            Ok(Content { size: bytes.len() as u64, bytes: bytes[from..from + length].to_vec() })
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Later<'a, ()> {
        Box::pin(async move {
            self.standing()?;
            if is_directory(&self.files.all(), &absolute(path)) {
                return Err(refuse(FileErrorKind::IsDirectory, path).into());
            }
            let others: usize =
                self.files.all().iter().filter(|(name, _)| **name != absolute(path)).map(|(_, file)| file.len()).sum();
            if (others + bytes.len()) as u64 > self.limits.disk_bytes {
                return Err(refuse(FileErrorKind::NoSpace, path).into());
            }
            self.files.put(path, bytes);
            Ok(())
        })
    }

    fn list<'a>(&'a self, path: &'a str, depth: u32, entries_max: u32) -> Later<'a, Listing> {
        Box::pin(async move {
            self.standing()?;
            let files = self.files.all();
            let full = absolute(path);
            if files.contains_key(&full) {
                return Err(refuse(FileErrorKind::NotDirectory, path).into());
            }
            if !is_directory(&files, &full) {
                return Err(refuse(FileErrorKind::NotFound, path).into());
            }
            Ok(listing(&files, &full, depth as usize, entries_max as usize))
        })
    }

    fn add_layer<'a>(&'a self, layer: &'a Layer) -> Later<'a, ()> {
        Box::pin(async move {
            self.standing()?;
            self.ground.added.lock().unwrap_or_else(PoisonError::into_inner).push((self.number, layer.clone()));
            Ok(())
        })
    }

    fn asked(&self) -> Later<'_, Asked> {
        Box::pin(async move {
            tokio::select! {
                () = self.fell.cancelled() => Err(lost()),
                asked = self.questions.next() => asked.ok_or_else(lost),
            }
        })
    }

    fn answer(&self, id: u32, bytes: Vec<u8>, part: Part) {
        self.questions.answer(id, bytes, part);
    }

    fn moved_bytes(&self) -> u64 {
        self.moved.load(Ordering::SeqCst)
    }

    fn cpu_used(&self) -> Option<Duration> {
        self.measures_cpu.then(|| Duration::from_millis(self.burnt_ms.load(Ordering::SeqCst)))
    }

    fn is_alive(&self) -> bool {
        !self.fell.is_cancelled()
    }

    fn close(mut self: Box<Self>) -> Later<'static, ()> {
        Box::pin(async move {
            self.closed = true;
            self.fell.cancel();
            self.programs.close();
            self.programs.wait().await;
            tokio::time::sleep(self.close_takes).await;
            Ok(())
        })
    }
}

fn listing(files: &BTreeMap<String, Vec<u8>>, full: &str, depth: usize, entries_max: usize) -> Listing {
    let below = format!("{}/", full.trim_end_matches('/'));
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for (name, bytes) in files {
        let Some(rest) = name.strip_prefix(&below) else { continue };
        let parts: Vec<&str> = rest.split('/').collect();
        for level in 1..=parts.len().min(depth) {
            let path = parts[..level].join("/");
            if !seen.insert(path.clone()) {
                continue;
            }
            let (kind, size) =
                if level == parts.len() { (FileKind::File, bytes.len() as u64) } else { (FileKind::Directory, 0) };
            entries.push(Entry { path, metadata: Metadata { kind, size, modified: 0 } });
        }
    }
    let truncated = entries.len() > entries_max;
    entries.truncate(entries_max);
    Listing { entries, truncated }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.fell.cancel();
        self.ground.sandboxes.fetch_sub(1, Ordering::SeqCst);
        if !self.closed {
            self.ground.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A program on stage, as its caller holds it.
#[derive(Debug)]
struct Act {
    number: u32,
    heard: mpsc::Receiver<Event>,
    stop: CancellationToken,
    interrupted: Arc<Notify>,
    stdin: Option<Typist>,
}

#[derive(Debug)]
struct Typist(mpsc::UnboundedSender<Vec<u8>>);

impl StdinWriter for Typist {
    fn write(&mut self, bytes: Vec<u8>) -> Later<'_, ()> {
        // A program that has ended takes everything.
        let _ = self.0.send(bytes);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Running for Act {
    fn number(&self) -> u32 {
        self.number
    }

    fn next(&mut self) -> Later<'_, Event> {
        Box::pin(async { self.heard.recv().await.ok_or_else(lost) })
    }

    fn stop(&mut self) {
        self.stop.cancel();
    }

    fn signal(&mut self, signal: i32) {
        match signal {
            2 => self.interrupted.notify_one(),
            _ => self.stop.cancel(),
        }
    }

    fn stdin(&mut self) -> Option<Box<dyn StdinWriter>> {
        self.stdin.take().map(|typist| Box::new(typist) as Box<dyn StdinWriter>)
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// For each language whether its kernel lives; a language that is not there never had one.
#[derive(Clone, Default)]
struct Kernels(Arc<Mutex<BTreeMap<Language, bool>>>);

impl Kernels {
    /// Begins a cell. Should nobody say that the kernel survived it, it did not.
    fn turn(&self, language: Language) -> KernelTurn {
        let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match kernels.insert(language, false) {
            None => State::Fresh,
            Some(true) => State::Preserved,
            Some(false) => State::Reset,
        };
        KernelTurn { kernels: self.clone(), language, found }
    }
}

pub(super) struct KernelTurn {
    kernels: Kernels,
    language: Language,
    found: State,
}

impl KernelTurn {
    pub(super) fn survives(self) -> State {
        self.kernels.0.lock().unwrap_or_else(PoisonError::into_inner).insert(self.language, true);
        self.found
    }
}

/// One program that is alive.
pub(super) struct Counted(Arc<Ground>);

impl Counted {
    fn new(ground: Arc<Ground>) -> Counted {
        ground.started.fetch_add(1, Ordering::SeqCst);
        let now = ground.programs.fetch_add(1, Ordering::SeqCst) + 1;
        ground.most_programs.fetch_max(now, Ordering::SeqCst);
        Counted(ground)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.programs.fetch_sub(1, Ordering::SeqCst);
    }
}
