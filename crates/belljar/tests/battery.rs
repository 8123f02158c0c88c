//! The escape battery against the real program. Not a libtest harness: the cases are data, and share one server.
//!
//! `cargo test -p belljar --test battery -- --only fs-001,server --as root|ordinary|both --wall FILE -v`
//!
//! FILE is a configuration that names a backend and what that needs, as `scripts/walls start NAME` writes it to
//! target/walls/NAME.toml. Without it the wall is `native`, and where both users are played they are played at once.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use belljar_testkit::battery::{As, Options, Summary, Wall, run};

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    list: bool,
    ignored: bool,
    only: Vec<String>,
    users: Option<Vec<As>>,
    wall: Option<Wall>,
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
    // What an engine or a machine needs an ordinary user may not have; whoever wants it says so.
    let usual = if is_root && asked.wall.is_none() { vec![As::Root, As::Ordinary] } else { vec![As::Root] };
    let users = asked.users.unwrap_or(usual);
    let several = users.len() > 1;
    let wall = asked.wall.unwrap_or_else(Wall::native);
    let play = |server_as: As| {
        let (told, label) = match (is_root, server_as) {
            (true, As::Root) => ("# root: the server runs as root", "root "),
            (true, As::Ordinary) => ("# ordinary: the server runs as an ordinary user (65534)", "ordinary "),
            (false, _) => ("# the server runs as the user of this test", ""),
        };
        say(told);
        run(Options {
            binary: env!("CARGO_BIN_EXE_belljar").into(),
            server_as,
            wall: wall.clone(),
            only: asked.only.clone(),
            verbose: asked.verbose,
            label: if several { label } else { "" },
        })
    };
    let mut total = Summary::default();
    std::thread::scope(|scope| {
        let battery = |server_as: As| {
            scope.spawn({
                let play = &play;
                move || play(server_as)
            })
        };
        let batteries: Vec<_> = users.iter().copied().map(battery).collect();
        for battery in batteries {
            // One that panicked has failed.
            total += battery.join().unwrap_or(Summary { failed: 1, ..Summary::default() });
        }
    });
    if total.passed == 0 {
        say("nothing was played: no case is about this wall and what was asked for");
        return ExitCode::FAILURE;
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
            "--wall" => {
                let file = value()?;
                let text = std::fs::read_to_string(&file).map_err(|error| {
                    format!("{file}: {error}; `scripts/walls start NAME` writes target/walls/NAME.toml")
                })?;
                asked.wall = Some(Wall::configured(&text)?);
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
