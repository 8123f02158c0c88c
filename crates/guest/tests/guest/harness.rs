//! A guest in a place of its own, and the host's side of the conversation.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use belljar_core::wire::{self, CHUNK_MAX, FromGuest, INPUT_WINDOW, Init, Part, Start, ToGuest, VERSION};
use belljar_core::{Changes, Exit, FileError, Finish, Language, Source, State, Stream, Then};

/// No conversation of these tests takes longer, on however slow a machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// Makes the place and becomes the guest: arguments are the directory to use, the guest, and the workspace's size.
const PLACE: &str = r#"
set -e
root=$1
mount -t tmpfs -o mode=755 none "$root"
cp "$2" "$root/belljar-guest"
for name in bin sbin lib lib32 lib64 libx32 usr etc dev opt; do
  if [ -L "/$name" ]; then cp -P "/$name" "$root/$name"
  elif [ -d "/$name" ]; then mkdir "$root/$name"; mount --rbind "/$name" "$root/$name"; fi
done
mkdir -p "$root/home/agent" "$root/workspace" "$root/tmp" "$root/proc" "$root/sealed"
mount -t tmpfs -o "size=$3" none "$root/workspace"
mount -t tmpfs -o ro none "$root/sealed"
mount -t proc proc "$root/proc"
exec env -i "$(command -v chroot)" "$root" /belljar-guest
"#;

pub(crate) struct Guest {
    host: UnixStream,
    incoming: Vec<u8>,
    deadline: Instant,
    next_id: u32,
    kept: VecDeque<FromGuest>,
    child: Child,
    _root: tempfile::TempDir,
}

/// What a program did, as far as it was listened to.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    records: Vec<String>,
    /// The parts of a record that have come.
    record: Vec<u8>,
    changed: Option<Changes>,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit: Exit,
    pub(crate) finish: Finish,
    pub(crate) records: Vec<String>,
    pub(crate) changed: Option<Changes>,
}

impl Run {
    /// How a cell ended, and what its kernel remembers.
    #[track_caller]
    pub(crate) fn end(&self) -> (Exit, State) {
        (self.exit, self.finish.kernel.expect("a cell's end"))
    }

    pub(crate) fn changed_paths(&self) -> Vec<&str> {
        self.changed.iter().flat_map(|changes| &changes.entries).map(|entry| entry.path.as_str()).collect()
    }
}

/// How a place differs from the ordinary one.
pub(crate) struct Place {
    pub(crate) workspace: &'static str,
    pub(crate) processes: Option<u64>,
    pub(crate) init: Init,
}

impl Default for Place {
    fn default() -> Self {
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Place {
            workspace: "64m",
            processes: None,
            init: Init {
                interpreters: interpreters("/usr/local/bin:/usr/bin:/bin"),
                env,
                watch_memory_bytes: None,
                waiting: None,
                copied: false,
                forked: None,
            },
        }
    }
}

/// A guest in the ordinary place, or `None` with a word about why there is none.
pub(crate) fn guest() -> Option<Guest> {
    Guest::start(Place::default())
}

/// Those that are in these directories, of each language the first.
fn interpreters(path: &str) -> Vec<(Language, String)> {
    let of = |language: Language| {
        let names = language.interpreters().iter();
        let candidates = names.flat_map(|name| path.split(':').map(move |directory| format!("{directory}/{name}")));
        candidates.filter(|path| std::path::Path::new(path).exists()).map(move |path| (language, path)).next()
    };
    Language::ALL.into_iter().filter_map(of).collect()
}

/// One whose Python is here, as the sandbox sees it.
pub(crate) fn guest_with_python(path: &str) -> Option<Guest> {
    let mut place = Place::default();
    place.init.interpreters.retain(|(language, _)| *language != Language::Python);
    place.init.interpreters.push((Language::Python, path.to_owned()));
    Guest::start(place)
}

/// One that knows no interpreter at all.
pub(crate) fn guest_without_interpreters() -> Option<Guest> {
    let place = Place::default();
    Guest::start(Place { init: Init { interpreters: Vec::new(), ..place.init }, ..place })
}

impl Told {
    fn record(&mut self, bytes: Vec<u8>, part: Part) {
        assert!(bytes.len() <= CHUNK_MAX);
        self.record.extend(bytes);
        if part == Part::Last {
            self.records.push(String::from_utf8(std::mem::take(&mut self.record)).unwrap());
        }
    }
}

impl Guest {
    pub(crate) fn start(place: Place) -> Option<Guest> {
        if let Err(why) = can_make_places() {
            println!("skipped: no namespaces for the guest: {why}");
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        let (host, theirs) = UnixStream::pair().unwrap();
        let child = unshare(&root, OwnedFd::from(theirs), &place).spawn().unwrap();
        host.set_write_timeout(Some(PATIENCE)).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let (incoming, kept) = (Vec::new(), VecDeque::new());
        let mut guest = Guest { host, incoming, deadline, next_id: 1, kept, child, _root: root };
        guest.send(&ToGuest::Init(place.init));
        assert_eq!(guest.receive(), Some(FromGuest::Hello { version: VERSION }));
        Some(guest)
    }

    pub(crate) fn send(&mut self, frame: &ToGuest) {
        let mut bytes = Vec::new();
        wire::encode(frame, &mut bytes).unwrap();
        self.send_raw(&bytes);
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.host.write_all(bytes).unwrap();
    }

    /// The next frame; `None` when the guest is gone.
    pub(crate) fn receive(&mut self) -> Option<FromGuest> {
        loop {
            if let Some((frame, length)) = wire::decode::<FromGuest>(&self.incoming).unwrap() {
                self.incoming.drain(..length);
                return Some(frame);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the guest says nothing");
            self.host.set_read_timeout(Some(left)).unwrap();
            let mut bytes = [0; 64 * 1024];
            match self.host.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.incoming.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => panic!("the stream broke: {error}"),
            }
        }
    }

    /// The next frame of one operation; frames of others are kept for those who ask for them.
    pub(crate) fn receive_of(&mut self, id: u32) -> FromGuest {
        if let Some(index) = self.kept.iter().position(|frame| id_of(frame) == id) {
            return self.kept.remove(index).unwrap();
        }
        loop {
            let frame = self.receive().expect("the guest is gone");
            if id_of(&frame) == id {
                return frame;
            }
            self.kept.push_back(frame);
        }
    }

    /// The next question that a program asks, and whose it is.
    pub(crate) fn asked(&mut self) -> (u32, Option<u32>, Vec<u8>) {
        let is_question = |frame: &FromGuest| matches!(frame, FromGuest::Asked { .. });
        let kept = self.kept.iter().position(is_question).and_then(|index| self.kept.remove(index));
        let mut frame = kept;
        loop {
            match frame.take().unwrap_or_else(|| self.receive().expect("the guest is gone")) {
                FromGuest::Asked { id, by, bytes, part: Part::Last } => return (id, by, bytes),
                other => self.kept.push_back(other),
            }
        }
    }

    pub(crate) fn fresh_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn begin(&mut self, source: Source) -> u32 {
        self.begin_in(source, None, &[])
    }

    /// Starts a program; its input is still open.
    pub(crate) fn begin_in(&mut self, source: Source, cwd: Option<&str>, env: &[(&str, &str)]) -> u32 {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.begin_with(Start { source, env, cwd: cwd.map(str::to_owned), cpu_seconds: 30, changed_max: 0 })
    }

    fn begin_with(&mut self, start: Start) -> u32 {
        let id = self.fresh_id();
        self.send(&ToGuest::Start { id, start });
        id
    }

    /// Starts a cell, without input.
    pub(crate) fn begin_cell(&mut self, language: Language, code: &str) -> u32 {
        let id = self.begin(cell(language, code));
        self.send(&ToGuest::InputEnd { id });
        id
    }

    /// Runs a cell to its end.
    pub(crate) fn cell(&mut self, language: Language, code: &str) -> Run {
        let id = self.begin_cell(language, code);
        self.finish(id, Told::default()).unwrap()
    }

    /// Runs something to its end, and has it told what changed.
    pub(crate) fn run_looking(&mut self, source: Source, changed_max: u32) -> Run {
        let id = self.begin_with(Start { source, env: Vec::new(), cwd: None, cpu_seconds: 30, changed_max });
        self.send(&ToGuest::InputEnd { id });
        self.finish(id, Told::default()).unwrap()
    }

    /// Gives a program input as a host does: chunk by chunk, and no more than the window lets it.
    pub(crate) fn feed(&mut self, id: u32, told: &mut Told, bytes: &[u8]) {
        let mut room = INPUT_WINDOW;
        for chunk in bytes.chunks(CHUNK_MAX) {
            while room < chunk.len() {
                match self.receive_of(id) {
                    FromGuest::Taken { bytes, .. } => room += bytes as usize,
                    FromGuest::Output { bytes, .. } => told.stdout.extend(bytes),
                    other => panic!("{other:?} while it is fed"),
                }
            }
            self.send(&ToGuest::Input { id, bytes: chunk.to_vec() });
            room -= chunk.len();
        }
    }

    /// Waits until a program has said `text` on its standard output.
    pub(crate) fn hear(&mut self, id: u32, told: &mut Told, text: &str) {
        while !String::from_utf8_lossy(&told.stdout).contains(text) {
            match self.receive_of(id) {
                FromGuest::Output { stream: Stream::Stdout, bytes, .. } => told.stdout.extend(bytes),
                FromGuest::Output { stream: Stream::Stderr, bytes, .. } => told.stderr.extend(bytes),
                FromGuest::Record { bytes, part, .. } => told.record(bytes, part),
                FromGuest::Taken { .. } => {}
                other => panic!("{other:?} before {text:?}; {}", String::from_utf8_lossy(&told.stderr)),
            }
        }
    }

    /// Listens to a program until its last frame.
    pub(crate) fn finish(&mut self, id: u32, mut told: Told) -> Result<Run, FileError> {
        loop {
            match self.receive_of(id) {
                FromGuest::Output { stream: Stream::Stdout, bytes, .. } => told.stdout.extend(bytes),
                FromGuest::Output { stream: Stream::Stderr, bytes, .. } => told.stderr.extend(bytes),
                FromGuest::Record { bytes, part, .. } => told.record(bytes, part),
                FromGuest::Changed { changes, .. } => assert_eq!(told.changed.replace(changes), None),
                FromGuest::Finished { finish, .. } => {
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    let (stdout, stderr) = (text(told.stdout), text(told.stderr));
                    let Told { records, changed, .. } = told;
                    return Ok(Run { stdout, stderr, exit: finish.exit, finish, records, changed });
                }
                FromGuest::Refused { error, .. } => return Err(error),
                FromGuest::Taken { .. } => {}
                other => panic!("not of a program: {other:?}"),
            }
        }
    }

    /// Runs a program to its end.
    pub(crate) fn run(&mut self, source: Source, stdin: &[u8]) -> Run {
        let id = self.begin(source);
        if !stdin.is_empty() {
            self.send(&ToGuest::Input { id, bytes: stdin.to_vec() });
        }
        self.send(&ToGuest::InputEnd { id });
        self.finish(id, Told::default()).unwrap()
    }

    pub(crate) fn shell(&mut self, line: &str) -> Run {
        self.run(Source::Command(line.to_owned()), b"")
    }

    pub(crate) fn python(&mut self, code: &str) -> Run {
        self.run(python(code), b"")
    }

    /// The processes that are there, apart from the guest itself and the one that looks.
    pub(crate) fn others(&mut self) -> String {
        // `read` and globbing are the shell's own, so that it starts no process that it would then see. A runner cannot
        // be told from its program by name, so what is left must be exactly these two.
        let run = self.shell(
            r#"for d in /proc/[0-9]*; do p=${d#/proc/}
               if [ "$p" != 1 ] && [ "$p" != $$ ] && [ "$p" != $PPID ]; then read -r l <"$d/stat" && echo "$l"; fi
               done"#,
        );
        run.stdout
    }

    /// Waits for the guest's own end.
    pub(crate) fn gone(&mut self) {
        while self.receive().is_some() {}
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < self.deadline, "the guest does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The guest ends with its stream, and `unshare` reaps it. Killed first, `unshare` would leave that to the
        // machine's own first process, which in a container may never do it.
        let _ = self.host.shutdown(std::net::Shutdown::Both);
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn python(code: &str) -> Source {
    Source::Code { language: Language::Python, code: code.to_owned() }
}

pub(crate) fn cell(language: Language, code: &str) -> Source {
    Source::Cell { language, code: code.to_owned(), then: Then::More }
}

pub(crate) fn javascript(code: &str) -> Source {
    Source::Code { language: Language::JavaScript, code: code.to_owned() }
}

pub(crate) fn shell(code: &str) -> Source {
    Source::Code { language: Language::Shell, code: code.to_owned() }
}

pub(crate) fn id_of(frame: &FromGuest) -> u32 {
    match frame {
        FromGuest::Hello { .. } | FromGuest::Broken { .. } => 0,
        FromGuest::Output { id, .. }
        | FromGuest::Taken { id, .. }
        | FromGuest::Record { id, .. }
        | FromGuest::Changed { id, .. }
        | FromGuest::Finished { id, .. }
        | FromGuest::Content { id, .. }
        | FromGuest::Read { id, .. }
        | FromGuest::Entries { id, .. }
        | FromGuest::Listed { id, .. }
        | FromGuest::Done { id }
        | FromGuest::Asked { id, .. }
        | FromGuest::Knock { id, .. }
        | FromGuest::Said { id, .. }
        | FromGuest::Name { id, .. }
        | FromGuest::Withdrawn { id }
        | FromGuest::Refused { id, .. } => *id,
    }
}

fn unshare(root: &tempfile::TempDir, stream: OwnedFd, place: &Place) -> Command {
    static NEXT_USER: AtomicU32 = AtomicU32::new(0);
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL"])
        .args(["sh", "-c", PLACE, "sh"])
        .args([root.path(), &built_guest(), &PathBuf::from(place.workspace)])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // A user of its own for each place: the kernel counts processes by user, and does not count root's.
    let user = 50_000 + std::process::id() % 1000 * 10 + NEXT_USER.fetch_add(1, Ordering::Relaxed);
    let processes = place.processes;
    // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
    unsafe {
        command.pre_exec(move || {
            if libc::getuid() == 0 {
                libc::setgroups(0, std::ptr::null());
                libc::setgid(user);
                libc::setuid(user);
            }
            if let Some(limit) = processes {
                let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit);
            }
            // Never the same number: 3 was taken when `stream` was made, or `dup2` clears close-on-exec.
            if stream.as_raw_fd() == 3 {
                libc::fcntl(3, libc::F_SETFD, 0)
            } else {
                libc::dup2(stream.as_raw_fd(), 3)
            };
            Ok(())
        });
    }
    command
}

/// The guest where every user can read it.
fn built_guest() -> PathBuf {
    static COPY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let directory = COPY.get_or_init(|| {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_belljar-guest"), directory.path().join("guest")).unwrap();
        directory
    });
    directory.path().join("guest")
}

fn can_make_places() -> Result<(), String> {
    static ANSWER: OnceLock<Result<(), String>> = OnceLock::new();
    let ask = || {
        let tried = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "--net", "--pid", "--fork"])
            .args(["mount", "-t", "tmpfs", "none", "/tmp"])
            .output();
        match tried {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(format!("unshare: {error}")),
        }
    };
    ANSWER.get_or_init(ask).clone()
}
