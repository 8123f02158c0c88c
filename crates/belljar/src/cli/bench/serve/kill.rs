//! The server killed, without a word, at many moments of its work: everything below it dies, and the next one clears away what
//! only a next one can.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Measured, Stage};
use crate::cli::bench::client::{Call, Client, Http};
use crate::cli::bench::measure::Tally;
use crate::cli::bench::processes::{self, Process};
use crate::cli::bench::report::{Column, Row};
use crate::cli::bench::server::{OnPort, ended_by};

/// Within which it is killed, from when its work began.
const WITHIN: Duration = Duration::from_millis(500);
const DEAD_MAX: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// After which nobody waits any longer for a process to die, or for the next server to clear away.
const PATIENCE: Duration = Duration::from_secs(10);
const CLEARED: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What is under way: programs that wait, that work, and that leave others behind.
const PROGRAMS: [&str; 4] = [
    "import time; time.sleep(60)",
    "import subprocess, time; subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)",
    "print(1)",
    "while True: pass",
];

pub(super) fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let (mut dead, mut again) = (Tally::default(), Tally::default());
    let (mut left, mut before): (Vec<String>, Option<u32>) = (Vec::new(), None);
    // What the next start has to clear away: without any of it, that nothing is left would say little.
    let mut to_clear = 0;
    let mut moments = Moments::new();
    for round in 0..stage.plan.kills {
        stage.progress.at("kill", round, stage.plan.kills);
        if ended_by().is_some() {
            break;
        }
        let (server, took) = start(stage)?;
        if let Some(before) = before {
            again.add(Ok(took));
            left.extend(left_of(before, &stage.home));
        }
        before = Some(server.pid());
        dead.add(killed(stage, server, moments.next())?);
        to_clear += before.map_or(0, processes::cgroups);
    }
    let (last, took) = start(stage)?;
    again.add(Ok(took));
    left.extend(before.into_iter().flat_map(|before| left_of(before, &stage.home)));
    let number = last.pid();
    drop(last);
    left.extend(left_of(number, &stage.home));

    let mut measured = Measured::default();
    for (name, tally) in [("until all is dead", &dead), ("until the next one answers", &again)] {
        let row = Row::new(name).with(Column::Runs, tally.runs() as f64).with(Column::Success, tally.success());
        measured.findings.rows.push(tally.spread().put(row));
    }
    measured.findings.rows.push(Row::new("cgroups after the kills").with(Column::Left, to_clear as f64));
    measured.findings.rows.push(Row::new("all kinds, after the next starts").with(Column::Left, left.len() as f64));
    measured.findings.notes.extend(dead.why.iter().cloned());
    measured.findings.notes.extend(left.first().map(|first| format!("the first that was left: {first}")));
    let seconds = |tally: &Tally| format!("at most {:.2} s", tally.longest().as_secs_f64());
    let what = format!("{} kills with {} runs in flight", dead.runs(), stage.plan.in_flight);
    let is_dead = dead.success() >= 100.0 && dead.longest() <= DEAD_MAX;
    measured.judge(format!("{what}, all dead"), format!("≤ {} s", DEAD_MAX.as_secs()), seconds(&dead), is_dead);
    measured.judge("left after the next start", "0", left.len().to_string(), left.is_empty());
    let found = format!("p50 {:.2} s, {}", again.spread().p50.as_secs_f64(), seconds(&again));
    let holds = again.spread().p99 <= AGAIN_MAX;
    measured.judge("started again, first answer, p99", format!("≤ {} s", AGAIN_MAX.as_secs()), found, holds);
    Ok(measured)
}

/// A server that has answered, and how long that took from its start.
fn start(stage: &Stage) -> anyhow::Result<(OnPort, Duration)> {
    let started = Instant::now();
    let server = stage.launch.http_at_once(&[])?;
    let answer = server.connect()?.call(&Call::fresh("python", "print(1)"))?;
    answer.printed("1\n").map_err(|why| anyhow::anyhow!("a server that was started again: {why}"))?;
    Ok((server, started.elapsed()))
}

/// How long it took until all was dead, or what is not.
fn killed(stage: &Stage, server: OnPort, moment: Duration) -> anyhow::Result<Result<Duration, String>> {
    let mut clients: Vec<Http> = Vec::new();
    let began = Instant::now();
    for (number, program) in (0..stage.plan.in_flight).zip(PROGRAMS.iter().cycle()) {
        let mut client = server.connect().with_context(|| format!("connection {number}"))?;
        client.send(&Call::fresh("python", program))?;
        clients.push(client);
    }
    std::thread::sleep(moment.saturating_sub(began.elapsed()));
    let pid = server.pid();
    let mut family = processes::family(pid);
    family.retain(|process| process.pid != pid);
    let killed = Instant::now();
    server.kill()?;
    // Whatever was started since we looked is in the server's cgroups, where there are any.
    family.extend(processes::confined(pid));
    Ok(match all_end(&family, killed) {
        Some(took) => Ok(took),
        None => {
            let living: Vec<String> =
                family.iter().filter(|one| processes::lives(one)).map(|one| processes::program(one.pid)).collect();
            Err(format!("still there {} s after the kill: {}", PATIENCE.as_secs(), living.join(", ")))
        }
    })
}

fn all_end(family: &[Process], since: Instant) -> Option<Duration> {
    while since.elapsed() < PATIENCE {
        if !family.iter().any(processes::lives) {
            return Some(since.elapsed());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    None
}

/// What is still there of a server that is no more: cgroups, mounts, files and sockets with its number in their names.
fn left_of(server: u32, home: &Path) -> Vec<String> {
    let look = || {
        let mut left = Vec::new();
        match processes::cgroups(server) {
            0 => {}
            count => left.push(format!("{count} cgroups of {server}")),
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        left.extend(mounts.lines().filter(|line| line.contains(&*home.to_string_lossy())).map(str::to_owned));
        files(home, &server.to_string(), 0, &mut left);
        left
    };
    // The next server clears away beside its work, and not before it.
    let deadline = Instant::now() + CLEARED;
    loop {
        let left = look();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(LOOK_EVERY * 10);
    }
}

/// Those whose names have the number as a word.
fn files(folder: &Path, number: &str, depth: usize, found: &mut Vec<String>) {
    /// No folder of ours is deeper, but for what packages hold.
    const DEPTH_MAX: usize = 6;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_of(&name, number) {
            found.push(entry.path().display().to_string());
        } else if depth < DEPTH_MAX && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(&entry.path(), number, depth + 1, found);
        }
    }
}

fn is_of(name: &str, number: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == number)
}

/// Moments that leave no part of the time out, and differ from one bench to the next.
#[derive(Debug)]
struct Moments(f64);

impl Moments {
    fn new() -> Moments {
        use std::hash::BuildHasher;
        Moments(std::hash::RandomState::new().hash_one(0) as f64 / u64::MAX as f64)
    }

    fn next(&mut self) -> Duration {
        // By the golden ratio each falls into the widest gap of those before it.
        self.0 = (self.0 + 0.618_033_988_749_895).fract();
        WITHIN.mul_f64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_word_of_a_name() {
        assert!(is_of("control-4711.sock", "4711") && is_of("4711", "4711") && is_of("a.4711.b", "4711"));
        assert!(!is_of("control-47110.sock", "4711") && !is_of("a4711", "4711"));
    }

    #[test]
    fn moments_are_everywhere_within_their_time() {
        let mut moments = Moments::new();
        let mut tenths = [0; 10];
        for _ in 0..100 {
            let moment = moments.next();
            assert!(moment < WITHIN);
            tenths[(moment.as_millis() / 50) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| *count >= 8), "{tenths:?}");
    }
}
