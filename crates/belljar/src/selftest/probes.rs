//! The probes: programs that try what must not work, and the judgement of what they say.

use std::time::Duration;
use std::{fmt, io};

use belljar_core::{BackendError, Event, Exit, Isolation, Language, Program, Sandbox, Source, Stdin, Stream};

use super::facts::Facts;

/// More than any probe says.
const SAID_MAX: usize = 16 * 1024;
const WORDS_MAX: usize = 200;
/// What the memory probe says when it has what it must not get.
const TOOK: &str = "took";

/// What the programs are written in.
pub(super) const LANGUAGES: [Language; 2] = [Language::Python, Language::Shell];

/// Each says one line: its name, how it went, and words.
const CHECKS: [&str; 4] = ["canary", "network", "processes", "seccomp"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Passed,
    /// What must not work does.
    Fired,
    /// There is nothing of this kind behind this wall.
    NotApplicable,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) probe: &'static str,
    pub(crate) state: State,
    pub(crate) words: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.probe, self.words)
    }
}

/// Two programs: one that looks around, and one that takes memory, of which nothing may be left to look with.
#[derive(Debug)]
pub(super) struct Programs {
    language: Language,
    checks: String,
    memory: String,
}

impl Programs {
    /// Of those languages that are there, the one that can look closest first.
    pub(super) fn of(languages: &[Language], facts: &Facts) -> io::Result<Vec<Programs>> {
        let port = facts.port()?;
        let is_there = |language: &Language| languages.contains(language);
        let of = |language| Programs::written(language, facts, port);
        Ok(LANGUAGES.into_iter().filter(is_there).map(of).collect())
    }

    fn written(language: Language, facts: &Facts, port: u16) -> Programs {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match language {
            Language::Python => {
                let lines: Vec<String> = facts.lines.iter().map(|line| hex(line)).collect();
                let given = format!(
                    "CANARY, SONG, PORT, LINES = {}, {}, {port}, {:?}\n",
                    quoted(&facts.path()),
                    quoted(&facts.song),
                    lines
                );
                Programs {
                    language,
                    checks: given + include_str!("checks.py"),
                    memory: include_str!("memory.py").to_owned(),
                }
            }
            _ => {
                // As tr(1) has them, without the end.
                let lines = facts.lines.iter().map(|line| text(line).trim_end_matches('\0').replace('\0', " "));
                let lines: Vec<String> = lines.collect();
                let line = |at: usize| single_quoted(lines.get(at).map_or("", String::as_str));
                let given = format!(
                    "CANARY={} SONG={} PORT={port} SERVER={} FIRST={}\n",
                    single_quoted(&facts.path()),
                    single_quoted(&facts.song),
                    line(0),
                    line(1)
                );
                Programs {
                    language,
                    checks: given + include_str!("checks.sh"),
                    memory: include_str!("memory.sh").to_owned(),
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn acted(checks: &str, memory: &str) -> Programs {
        Programs { language: Language::Python, checks: checks.to_owned(), memory: memory.to_owned() }
    }

    pub(super) fn checks(&self) -> Source {
        Source::Code { language: self.language, code: self.checks.clone() }
    }

    pub(super) fn memory(&self) -> Source {
        Source::Code { language: self.language, code: self.memory.clone() }
    }
}

/// As JSON has it, which Python reads alike.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a program of ours said, and what became of it.
#[derive(Debug)]
pub(super) struct Said {
    text: String,
    end: End,
}

#[derive(Debug)]
enum End {
    Exited(Exit),
    /// The sandbox went down under it.
    Fell,
    /// It was not waited for any longer, and may be at work still.
    Late,
}

pub(super) async fn run(sandbox: &dyn Sandbox, source: Source, time: Duration) -> Result<Said, BackendError> {
    let stdin = Stdin::empty();
    let program = Program { source, env: Vec::new(), cwd: None, stdin, wall: time, changed_max: 0 };
    let mut bytes = Vec::new();
    let to_its_end = async {
        // A sandbox that is lost before it has begun tells nothing of it.
        let mut running = sandbox.start(program).await?;
        loop {
            match running.next().await {
                Ok(Event::Output { stream: Stream::Stdout, bytes: piece }) => {
                    let room = SAID_MAX.saturating_sub(bytes.len());
                    bytes.extend_from_slice(&piece[..piece.len().min(room)]);
                }
                Ok(Event::Finished(finish)) => return Ok(End::Exited(finish.exit)),
                Ok(Event::Output { .. } | Event::Record(_) | Event::Changed(_)) => {}
                Err(BackendError::Lost { .. }) => return Ok(End::Fell),
                Err(error) => return Err(error),
            }
        }
    };
    let end = tokio::time::timeout(time, to_its_end).await.unwrap_or(Ok(End::Late))?;
    Ok(Said { text: String::from_utf8_lossy(&bytes).into_owned(), end })
}

/// `Err` where something is not known: a probe that says nothing, or not in time, has found nothing.
pub(super) fn judge(said: &Said, memory: &Said, isolation: &Isolation) -> Result<Vec<Verdict>, String> {
    let mut verdicts =
        CHECKS.into_iter().map(|probe| check(probe, &said.text, isolation)).collect::<Result<Vec<_>, _>>()?;
    let (state, words) = match memory.end {
        _ if memory.text.trim() == TOOK => (State::Fired, "a program had twice the memory that its sandbox may have"),
        End::Exited(Exit::OutOfMemory) => (State::Passed, "a program that took too much was ended"),
        End::Exited(Exit::Signal(_)) => (State::Passed, "a program that took too much was killed"),
        End::Exited(Exit::Code(_)) => (State::Passed, "a program that asked for too much was refused"),
        // One that goes down with its program has not given it what it asked for.
        End::Fell => (State::Passed, "the sandbox went down with the program"),
        End::Late => return Err("the program that takes memory did not come to its end in time".to_owned()),
    };
    verdicts.push(Verdict { probe: "memory", state, words: words.to_owned() });
    Ok(verdicts)
}

fn check(probe: &'static str, said: &str, isolation: &Isolation) -> Result<Verdict, String> {
    let line = said.lines().find_map(|line| line.strip_prefix(probe)?.strip_prefix(' '));
    let line = line.ok_or_else(|| format!("the probe {probe} said nothing"))?;
    let (state, words) = line.split_once(' ').unwrap_or((line, ""));
    let state = match state {
        "passed" => State::Passed,
        "fired" => State::Fired,
        "none" => State::NotApplicable,
        // No filter, where the wall says that it has one around each program.
        "unfiltered" if isolation.seccomp.starts_with("allow-list") => State::Fired,
        "unfiltered" => State::NotApplicable,
        _ => return Err(format!("the probe {probe} said something else")),
    };
    let words = words.chars().filter(|character| !character.is_control()).take(WORDS_MAX).collect();
    Ok(Verdict { probe, state, words })
}
