//! The language of the fake's programs: one act a line, whatever language the program says it is in.
//!
//! | line              | act                                                                     |
//! |-------------------|-------------------------------------------------------------------------|
//! | `print X`, `err X`| a line on stdout, stderr                                                |
//! | `flood N`, `flood`| N bytes of `x` on stdout, or without end                                |
//! | `stdin`           | prints what it is given, as it comes                                    |
//! | `env NAME`        | prints a variable                                                       |
//! | `place`           | prints the number of its sandbox: how many were opened before it        |
//! | `ask X`           | asks X of those outside, and prints the answer                          |
//! | `move N`          | N bytes go over the network                                             |
//! | `move-later MS N` | the same after a while, the program being gone or not                   |
//! | `write PATH X`, `cat PATH` | a file of the sandbox                                          |
//! | `sleep MS`        | waits, by tokio's clock; a SIGINT ends a cell or program there with 130 |
//! | `doze MS`         | waits, and no signal is heeded                                          |
//! | `record JSON`     | a record of the driver's                                                |
//! | `exit N`, `signal N`, `oom` | ends so                                                       |
//! | `hang`            | from here on it neither ends nor heeds a stop; only its sandbox's end does it |
//! | `linger MS`       | ends so long after it is stopped, and not before                        |
//! | `deaf-flood`      | floods without end and does not heed a stop either                      |
//! | `crash`           | the sandbox falls under it                                              |
//! | `collapse`        | it exits with 0, and the sandbox falls in the same moment               |
//! | `refuse`, `lose`, `panic`, `stuck-start` | as the first line: `start` fails; says that the place is gone; panics; starts a program that hangs and never answers |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_core::{Changes, Entry, Event, Exit, FileKind, Finish, Metadata, State, Stream, Usage};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::place::{Counted, Files, KernelTurn};
use super::questions::Questions;

/// A path that `read` never answers for.
pub const STUCK: &str = "/stuck";

/// What every program of the fake is said to have used.
pub const USAGE: Usage = Usage { cpu_ms: 3, memory_peak_bytes: 5 << 20 };

const CHUNK: usize = 4096;

pub(super) struct Stage {
    pub(super) place: usize,
    /// Which of the place's acts it is.
    pub(super) number: u32,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) stop: CancellationToken,
    pub(super) fell: CancellationToken,
    pub(super) files: Files,
    pub(super) env: Vec<(String, String)>,
    /// Ends with the input.
    pub(super) stdin: tokio::sync::Mutex<mpsc::UnboundedReceiver<Vec<u8>>>,
    pub(super) counted: Counted,
    pub(super) interrupted: Arc<Notify>,
    pub(super) kernel: Option<KernelTurn>,
    pub(super) changed_max: u32,
    pub(super) questions: Arc<Questions>,
    pub(super) moved: Arc<AtomicU64>,
    pub(super) burnt_ms: Arc<AtomicU64>,
}

enum End {
    Exit(Exit),
    Collapse,
    Hang,
    Linger(Duration),
    DeafFlood,
    Crash,
}

pub(super) async fn play(text: String, stage: Stage) {
    let end = tokio::select! {
        biased;
        () = stage.fell.cancelled() => return,
        () = stage.stop.cancelled() => End::Exit(Exit::Signal(9)),
        end = acts(&text, &stage) => end,
    };
    let changed = changed(&text, stage.changed_max);
    let Stage { events, stop, fell, counted, kernel, .. } = stage;
    let exit = match end {
        End::Hang => return fell.cancelled().await,
        End::Linger(time) => {
            stop.cancelled().await;
            tokio::time::sleep(time).await;
            Exit::Signal(9)
        }
        End::DeafFlood => {
            let flood = async {
                while events.send(Event::Output { stream: Stream::Stdout, bytes: vec![b'x'; CHUNK] }).await.is_ok() {}
                std::future::pending().await
            };
            return tokio::select! { () = fell.cancelled() => {}, () = flood => {} };
        }
        End::Crash => return fell.cancel(),
        End::Collapse => {
            fell.cancel();
            Exit::Code(0)
        }
        End::Exit(exit) => exit,
    };
    // By the time a caller hears of it, it is gone.
    drop(counted);
    let kernel = kernel.map(|turn| match exit {
        Exit::Code(_) => turn.survives(),
        Exit::Signal(_) | Exit::OutOfMemory => State::Lost,
    });
    if let Some(changes) = changed {
        let _ = events.send(Event::Changed(changes)).await;
    }
    let _ = events.send(Event::Finished(Finish { exit, usage: USAGE, kernel })).await;
}

/// What the script writes, as if it had all been written.
fn changed(text: &str, max: u32) -> Option<Changes> {
    let entry = |line: &str| {
        let (path, content) = line.trim().strip_prefix("write ")?.split_once(' ')?;
        let metadata = Metadata { kind: FileKind::File, size: content.len() as u64, modified: 0 };
        Some(Entry { path: path.to_owned(), metadata })
    };
    let mut entries: Vec<Entry> = text.lines().filter_map(entry).collect();
    let more = entries.len().saturating_sub(max as usize) as u32;
    entries.truncate(max as usize);
    (max > 0).then_some(Changes { entries, more })
}

async fn acts(text: &str, stage: &Stage) -> End {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = rest.parse::<i32>().unwrap_or(0);
        match verb {
            "print" => stage.say(Stream::Stdout, format!("{rest}\n")).await,
            "err" => stage.say(Stream::Stderr, format!("{rest}\n")).await,
            "flood" => {
                let mut left = rest.parse::<usize>().unwrap_or(usize::MAX);
                while left > 0 {
                    let chunk = left.min(CHUNK);
                    stage.say(Stream::Stdout, "x".repeat(chunk)).await;
                    left -= chunk;
                }
            }
            "stdin" => {
                while let Some(piece) = stage.stdin.lock().await.recv().await {
                    stage.say(Stream::Stdout, String::from_utf8_lossy(&piece).into_owned()).await;
                }
            }
            "env" => {
                let value = stage.env.iter().rev().find(|(name, _)| name == rest).map_or("", |(_, value)| value);
                stage.say(Stream::Stdout, format!("{value}\n")).await;
            }
            "place" => stage.say(Stream::Stdout, format!("{}\n", stage.place)).await,
            "ask" => {
                let answer = stage.questions.ask(stage.number, format!("{rest}\n").into_bytes()).await;
                stage.say(Stream::Stdout, format!("{}\n", String::from_utf8_lossy(&answer))).await;
            }
            "move" => {
                stage.moved.fetch_add(rest.parse().unwrap_or(0), Ordering::SeqCst);
            }
            "burn" => {
                stage.burnt_ms.fetch_add(rest.parse().unwrap_or(0), Ordering::SeqCst);
            }
            "move-later" => {
                let (wait, count) = rest.split_once(' ').unwrap_or((rest, ""));
                let (wait, count) = (wait.parse().unwrap_or(0), count.parse().unwrap_or(0));
                let moved = stage.moved.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    moved.fetch_add(count, Ordering::SeqCst);
                });
            }
            "write" => {
                let (path, content) = rest.split_once(' ').unwrap_or((rest, ""));
                stage.files.put(path, content.into());
            }
            "cat" => match stage.files.get(rest) {
                Ok(bytes) => stage.say(Stream::Stdout, String::from_utf8_lossy(&bytes).into_owned()).await,
                Err(error) => {
                    stage.say(Stream::Stderr, format!("{error}\n")).await;
                    return End::Exit(Exit::Code(1));
                }
            },
            "sleep" => tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(rest.parse().unwrap_or(0))) => {}
                () = stage.interrupted.notified() => return End::Exit(Exit::Code(130)),
            },
            "doze" => tokio::time::sleep(Duration::from_millis(rest.parse().unwrap_or(0))).await,
            "record" => drop(stage.events.send(Event::Record(rest.as_bytes().to_vec())).await),
            "exit" => return End::Exit(Exit::Code(number)),
            "signal" => return End::Exit(Exit::Signal(number)),
            "oom" => return End::Exit(Exit::OutOfMemory),
            "hang" | "stuck-start" => return End::Hang,
            "linger" => return End::Linger(Duration::from_millis(rest.parse().unwrap_or(0))),
            "deaf-flood" => return End::DeafFlood,
            "crash" => return End::Crash,
            "collapse" => return End::Collapse,
            _ => {
                stage.say(Stream::Stderr, format!("{verb}: not an act\n")).await;
                return End::Exit(Exit::Code(127));
            }
        }
    }
    End::Exit(Exit::Code(0))
}

impl Stage {
    async fn say(&self, stream: Stream, text: String) {
        // A caller that no longer listens has stopped the program too.
        let _ = self.events.send(Event::Output { stream, bytes: text.into_bytes() }).await;
    }
}
