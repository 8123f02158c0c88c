//! The escape battery against the real program. Not a libtest harness: the cases are data, and share one server.
//!
//! `cargo test -p belljar --test battery -- --only fs-001,server --as root|ordinary|both -v`

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use belljar_testkit::battery::{As, Options, Summary, run};

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    list: bool,
    ignored: bool,
    only: Vec<String>,
    users: Option<Vec<As>>,
    verbose: bool,
}

fn main() -> ExitCode {
    let asked = match parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(reason) => {
            say(&format!("battery: {reason}"));
            return ExitCode::from(2);
        }
    };
    if asked.list {
        if !asked.ignored {
            say("battery: test");
        }
        return ExitCode::SUCCESS;
    }
    if asked.ignored {
        return ExitCode::SUCCESS;
    }
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let users = asked.users.unwrap_or(if is_root { vec![As::Root, As::Ordinary] } else { vec![As::Root] });
    let mut total = Summary::default();
    for server_as in users {
        say(match (is_root, server_as) {
            (true, As::Root) => "# the server runs as root",
            (true, As::Ordinary) => "# the server runs as an ordinary user (65534)",
            (false, _) => "# the server runs as the user of this test",
        });
        total += run(Options {
            binary: env!("CARGO_BIN_EXE_belljar").into(),
            server_as,
            only: asked.only.clone(),
            verbose: asked.verbose,
        });
    }
    say(&format!("{} warned (failed, but of tier should or info)", total.warned));
    say(&format!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped));
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Takes our own words and lets those of libtest and nextest pass.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked::default();
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        let mut value = || value.clone().or_else(|| words.next()).ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--only" => asked.only.extend(value()?.split(',').map(str::to_owned)),
            "--as" => {
                asked.users = Some(match value()?.as_str() {
                    "root" => vec![As::Root],
                    "ordinary" => vec![As::Ordinary],
                    "both" => vec![As::Root, As::Ordinary],
                    other => return Err(format!("--as is root, ordinary or both, not {other}")),
                });
            }
            "-v" | "--verbose" => asked.verbose = true,
            "--list" => asked.list = true,
            "--ignored" => asked.ignored = true,
            // Of libtest, with a value that must not be taken for a name.
            "--format" | "--color" | "--test-threads" | "--logfile" | "--skip" | "-Z" | "--shuffle-seed" => {
                value()?;
            }
            // A name to filter by, or a switch of libtest: neither changes what there is to run.
            _ => {}
        }
    }
    Ok(asked)
}

/// Not `println!`, which panics when nobody reads any more.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
