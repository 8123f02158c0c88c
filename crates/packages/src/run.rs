//! One program in a sandbox of ours, to its end, bounded.

use std::time::Duration;

use belljar_core::{BackendError, Event, Exit, Program, Running, Sandbox, Source, Stdin, Stream};

/// What is kept of the standard output, which has our own programs' answers.
const STDOUT_MAX: usize = 4 << 20;
/// What is kept of the end of standard error, which has the resolver's words.
const STDERR_MAX: usize = 32 << 10;
const LINE_MAX: usize = 300;

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("it took longer than {0:?}")]
    Timeout(Duration),
    #[error("it wrote more than it may")]
    TooMuch,
}

pub(crate) fn program(source: Source, stdin: Vec<u8>, wall: Duration) -> Program {
    Program { source, env: Vec::new(), cwd: None, stdin: Stdin::Whole(stdin), wall, changed_max: 0 }
}

/// Runs it; each line of its standard error is told as it comes. Dropping this stops it.
pub(crate) async fn run(
    sandbox: &dyn Sandbox,
    program: Program,
    line: &(dyn Fn(&str) + Send + Sync),
) -> Result<Ran, RunError> {
    let wall = program.wall;
    let mut running = sandbox.start(program).await?;
    match tokio::time::timeout(wall, to_the_end(running.as_mut(), line)).await {
        Ok(ran) => ran,
        Err(_) => Err(RunError::Timeout(wall)),
    }
}

async fn to_the_end(running: &mut dyn Running, line: &(dyn Fn(&str) + Send + Sync)) -> Result<Ran, RunError> {
    let mut stdout = Vec::new();
    let mut stderr = Vec::new();
    let mut unfinished = Vec::new();
    loop {
        match running.next().await? {
            Event::Output { stream: Stream::Stdout, bytes } => {
                if stdout.len() + bytes.len() > STDOUT_MAX {
                    return Err(RunError::TooMuch);
                }
                stdout.extend(bytes);
            }
            Event::Output { stream: Stream::Stderr, bytes } => {
                for byte in &bytes {
                    match byte {
                        b'\n' | b'\r' => line(&String::from_utf8_lossy(&std::mem::take(&mut unfinished))),
                        _ if unfinished.len() < LINE_MAX => unfinished.push(*byte),
                        _ => {}
                    }
                }
                stderr.extend(bytes);
                if stderr.len() > 2 * STDERR_MAX {
                    stderr.drain(..stderr.len() - STDERR_MAX);
                }
            }
            Event::Record(_) | Event::Changed(_) => {}
            Event::Finished(finish) => {
                let stderr = String::from_utf8_lossy(&stderr).into_owned();
                return Ok(Ran { exit: finish.exit, stdout, stderr });
            }
        }
    }
}
