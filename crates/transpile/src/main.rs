//! Turns a cell of TypeScript, or of JavaScript with `import` and `export`, into JavaScript that a REPL evaluates.
//!
//! `belljar-transpile LANGUAGE [OPTION...] < code > javascript`, and `belljar-transpile imports LANGUAGE < code > json`,
//! which tells what a program needs (see [`imports`]). It runs inside the walls, since it reads hostile text.
//! Lines stay where they are: types become spaces, and what must become code takes the lines it had, so that a stack
//! trace needs no map. Not here: checking types, and anything that depends on another file.

mod blank;
mod declare;
mod edits;
mod import;
mod imports;
mod names;
mod scan;
#[cfg(test)]
mod tests;
mod transpile;

use std::io::{Read, Write};
use std::process::ExitCode;
use std::thread;

use transpile::{Options, transpile};

/// A cell's code is at most this long.
const SOURCE_MAX: u64 = 1 << 20;

/// The parser descends into what it reads. Code that is nested so deeply that this does not hold it ends the process
/// by a signal, which the driver takes for what it is.
const STACK_BYTES: usize = 64 << 20;

fn main() -> ExitCode {
    let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    let outcome = match worker.map(thread::JoinHandle::join) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err("the code cannot be read".to_owned()),
        Err(error) => Err(format!("no thread to read the code with: {error}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "{message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1).peekable();
    let asks_imports = arguments.next_if(|first| first == "imports").is_some();
    let language = arguments.peek().cloned();
    let options = if asks_imports { None } else { Some(Options::parse(arguments)?) };
    let mut source = String::new();
    std::io::stdin()
        .take(SOURCE_MAX + 1)
        .read_to_string(&mut source)
        .map_err(|error| format!("reading the code: {error}"))?;
    if source.len() as u64 > SOURCE_MAX {
        return Err(
            "SyntaxError: the code is longer than 1 MiB; put parts of it into files and import them (1:1)".to_owned()
        );
    }
    let answer = match options {
        Some(options) => transpile(&source, &options).map_err(|error| error.to_string())?,
        None => imports::imports(language.as_deref(), &source)?,
    };
    std::io::stdout().write_all(answer.as_bytes()).map_err(|error| format!("writing the answer: {error}"))
}
