//! The escape battery against the real program. Not a libtest harness: the cases are data, and share one server.
//!
//! `cargo test -p belljar --test battery -- --only fs-001,server --as root|ordinary|both --over stdio|http --wall FILE -v`
//!
//! Over HTTP are played the parts on which the transport has a bearing: server, session and output.
//!
//! FILE is a configuration that names a backend and what that needs, as `scripts/walls start NAME` writes it to
//! target/walls/NAME.toml. Without it the wall is `native`, and where both users are played they are played at once.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use belljar_testkit::battery::{As, Options, Over, Summary, Wall, run};

/// What is played over HTTP too, and by itself if nothing else is asked for.
const OVER_HTTP: [&str; 3] = ["server", "session", "output"];

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    list: bool,
    ignored: bool,
    only: Vec<String>,
    users: Option<Vec<As>>,
    over: Option<Over>,
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
    // Over HTTP once, which is enough: that the walls are the same for both users is seen over stdio.
    let over_http = match (asked.over, &asked.wall, asked.only.is_empty()) {
        (Some(over), ..) => over == Over::Http,
        (None, wall, everything) => wall.is_none() && everything,
    };
    let mut plays: Vec<(As, Over)> = Vec::new();
    if asked.over != Some(Over::Http) {
        plays.extend(users.iter().map(|user| (*user, Over::Stdio)));
    }
    if over_http {
        plays.push((users[0], Over::Http));
    }
    let several = plays.len() > 1;
    let wall = asked.wall.unwrap_or_else(Wall::native);
    let play = |(server_as, over): (As, Over)| {
        let (told, label) = match (is_root, server_as, over) {
            (_, As::Root, Over::Http) => ("# http: the server is asked over HTTP", "http "),
            (_, As::Ordinary, Over::Http) => ("# http: as an ordinary user (65534), over HTTP", "http "),
            (true, As::Root, _) => ("# root: the server runs as root", "root "),
            (true, As::Ordinary, _) => ("# ordinary: the server runs as an ordinary user (65534)", "ordinary "),
            (false, ..) => ("# the server runs as the user of this test", ""),
        };
        let only = match over {
            Over::Http if asked.only.is_empty() => OVER_HTTP.map(str::to_owned).into(),
            _ => asked.only.clone(),
        };
        say(told);
        run(Options {
            binary: env!("CARGO_BIN_EXE_belljar").into(),
            server_as,
            over,
            wall: wall.clone(),
            only,
            verbose: asked.verbose,
            label: if several { label } else { "" },
        })
    };
    let mut total = Summary::default();
    std::thread::scope(|scope| {
        let battery = |which: (As, Over)| {
            scope.spawn({
                let play = &play;
                move || play(which)
            })
        };
        let batteries: Vec<_> = plays.into_iter().map(battery).collect();
        for battery in batteries {
            // One that panicked has failed.
            total += battery.join().unwrap_or(Summary { failed: 1, ..Summary::default() });
        }
    });
    if total.passed + total.failed + total.warned == 0 {
        say("nothing was played: no case is about this wall and what was asked for");
        return ExitCode::FAILURE;
    }
    say(&format!("{} warned (failed, but of tier should or info)", total.warned));
    say(&format!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped));
    if total.failed == 0 && total.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
            "--over" => {
                asked.over = Some(match value()?.as_str() {
                    "stdio" => Over::Stdio,
                    "http" => Over::Http,
                    other => return Err(format!("--over is stdio or http, not {other}")),
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
