//! The escape battery: plays the cases of `battery/cases.jsonl` against a real server and judges answers and host.
//!
//! Blocking threads only, and no panics: whatever goes wrong in the driver is a failure of the case at hand. Which
//! sandbox it is that answers is a concern of `wall.rs` alone; the rest knows Belljar by its tools.

mod action;
mod audit;
mod calls;
mod case;
mod check;
mod client;
mod codemode;
mod containers;
mod expect;
mod gate;
mod host;
mod http;
mod judge;
mod proc;
mod scene;
mod server;
mod slowloris;
mod stdio;
mod steps;
mod tools;
mod upstream;
mod wall;
mod watch;
mod wire;
mod zones;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use case::{Body, Case, Tier};
use client::Halt;
use host::{Folder, Host, NOBODY, own_uid, random_hex};
use scene::{Failure, Scene};
use server::{Launch, Quota, Server, Transport, User, UserNamespaces};

pub use wall::Wall;

/// Who the server under test is on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    /// The user that runs the tests: root on a CI machine, a developer elsewhere.
    Root,
    /// uid and gid 65534 without any other group, an empty environment and no home. Only root can start one so; for
    /// anybody else it is the same as the other.
    Ordinary,
}

/// How the server under test is spoken to, where a case does not say it itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Stdio,
    Http,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// The `belljar` program.
    pub binary: PathBuf,
    pub server_as: As,
    pub over: Over,
    pub wall: Wall,
    /// Ids of cases, or names of areas; empty for all.
    pub only: Vec<String>,
    /// Also print what programs said.
    pub verbose: bool,
    /// What each line begins with, where several batteries are played at once.
    pub label: &'static str,
}

/// How many cases ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub passed: usize,
    /// Cases of tier `must` that failed.
    pub failed: usize,
    /// Cases of another tier that failed.
    pub warned: usize,
    pub skipped: usize,
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.warned += other.warned;
        self.skipped += other.skipped;
    }
}

/// Plays the battery once and prints a line for each case to stdout.
pub fn run(options: Options) -> Summary {
    let mut summary = Summary::default();
    match Battery::set_up(&options) {
        Ok(mut battery) => {
            for line in case::lines() {
                battery.play_line(line, &options, &mut summary);
            }
        }
        Err(reason) => {
            say(&format!("{}battery FAIL 0.0s could not set up: {reason}", options.label));
            summary.failed += 1;
        }
    }
    summary
}

/// Not `println!`, which panics when nobody reads any more.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Held by the case that is played.
static HOST: RwLock<()> = RwLock::new(());

enum Verdict {
    Pass,
    Fail(Vec<String>),
    Skip(String),
}

struct Battery {
    /// Before the host, so that it stops before the host is taken down.
    server: Option<Server>,
    launch: Launch,
    host: Host,
    _public: Folder,
    verbose: bool,
}

impl Battery {
    fn set_up(options: &Options) -> Result<Battery, String> {
        let host = Host::set_up()?;
        let public = Folder::create("/tmp", "secbat-bin-")?;
        let public_binary = public.0.join("belljar");
        let copied = fs::copy(&options.binary, &public_binary)
            .and_then(|_| fs::set_permissions(&public_binary, fs::Permissions::from_mode(0o755)));
        copied.map_err(|error| format!("{}: {error}", options.binary.display()))?;
        let launch = Launch {
            binary: options.binary.clone(),
            public_binary,
            user: match options.server_as {
                As::Ordinary if own_uid() == 0 => User::Uid(NOBODY),
                _ => User::Same,
            },
            transport: match options.over {
                Over::Stdio => Transport::Stdio,
                Over::Http => Transport::Http,
            },
            idle_seconds: None,
            quota: None,
            audit: None,
            open_files_max: None,
            env: host.planted_secrets(),
            user_namespaces: UserNamespaces::AsTheHostHasIt,
            wall: options.wall.at(&host.folder.0),
            network: zones::Zones::configuration(host.port),
            upstreams: host.mock.as_ref().map(|mock| mock.configuration(upstream::CALL_SECONDS)),
            folder: host.folder.0.clone(),
            tokens: host.tokens.clone(),
        };
        Ok(Battery { server: None, launch, host, _public: public, verbose: options.verbose })
    }

    fn play_line(&mut self, line: serde_json::Result<Value>, options: &Options, summary: &mut Summary) {
        let label = options.label;
        let parsed = line.and_then(|raw| Ok((serde_json::from_value::<Case>(raw.clone())?, raw)));
        let (case, raw) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                summary.failed += 1;
                return say(&format!("{label}?????? FAIL 0.0s a line that is no case: {error}"));
            }
        };
        if !options.only.is_empty() && !options.only.iter().any(|only| *only == case.id || *only == case.area) {
            return;
        }
        // What measures the host, or keeps all of it busy, is played while no other battery of this process plays.
        let alone = case.wants_the_host_alone();
        let _alone = alone.then(|| HOST.write().unwrap_or_else(PoisonError::into_inner));
        let _beside = (!alone).then(|| HOST.read().unwrap_or_else(PoisonError::into_inner));
        let started = Instant::now();
        let verdict = self.play(&case, &raw);
        let took = started.elapsed().as_secs_f64();
        match verdict {
            Verdict::Pass => {
                summary.passed += 1;
                say(&format!("{label}{} PASS {took:.1}s", case.id));
            }
            Verdict::Skip(reason) => {
                summary.skipped += 1;
                say(&format!("{label}{} SKIP {reason}", case.id));
            }
            Verdict::Fail(reasons) => {
                let word = if case.tier == Tier::Must { "FAIL" } else { "WARN" };
                match case.tier {
                    Tier::Must => summary.failed += 1,
                    Tier::Should | Tier::Info => summary.warned += 1,
                }
                let title = if self.verbose { format!(" ({})", case.title) } else { String::new() };
                let reasons = reasons.join("; ").replace('\n', " ");
                say(&format!("{label}{} {word} {took:.1}s {reasons}{title}", case.id));
            }
        }
    }

    fn play(&mut self, case: &Case, raw: &Value) -> Verdict {
        let missing = self.launch.wall.kind.has_hosts_programs().then(|| missing_language(case)).flatten();
        if let Some(reason) = gate::first_closed(case, &self.launch.wall, self.launch.transport)
            .or_else(|| gate::first_unknown(case))
            .or(missing)
        {
            return Verdict::Skip(reason);
        }
        let mut failures = match self.attempt(case, raw) {
            Ok(failures) => failures,
            Err(verdict) => return verdict,
        };
        // What was measured on the whole host may be a neighbour's doing; that will hardly happen twice.
        if !failures.is_empty() && failures.iter().all(|failure| failure.host_wide) {
            failures = match self.attempt(case, raw) {
                Ok(failures) => failures,
                Err(verdict) => return verdict,
            };
        }
        match failures.is_empty() {
            true => Verdict::Pass,
            false => Verdict::Fail(failures.into_iter().map(|failure| failure.reason).collect()),
        }
    }

    fn attempt(&mut self, case: &Case, raw: &Value) -> Result<Vec<Failure>, Verdict> {
        let failed = |reason: String| Verdict::Fail(vec![reason]);
        let launch = self.launch_for(case);
        let shared = launch.is_none();
        let launch = launch.unwrap_or_else(|| self.launch.clone());
        // One that cannot be used goes first: two servers side by side would be measured as one.
        if !shared || self.server.as_mut().is_some_and(|server| !server.is_usable()) {
            self.server = None;
        }
        let mut server = match self.server.take() {
            Some(server) => server,
            None => {
                let server = Server::start(&launch).map_err(|reason| failed(format!("server: {reason}")))?;
                let_warm_up(server.pid(), &launch.wall);
                server
            }
        };
        let mark = format!("mk{}", random_hex(5));
        let orphan_mark = orphan_mark();
        let port = server.link.http().map_or(1, |client| client.address().port());
        let mut filled = raw.clone();
        host::fill_in(&mut filled, &self.host.names(&mark, &orphan_mark, port)).map_err(failed)?;
        let mut case: Case = serde_json::from_value(filled).map_err(|error| failed(error.to_string()))?;
        case.limits.host_port = self.host.port;
        case.allow_time(launch.wall.slowness);

        let mut scene = match Scene::open(&mut self.host, &mut server, &launch, &case, &orphan_mark) {
            Ok(scene) => scene,
            Err(Halt::Skip(reason)) => return Err(Verdict::Skip(reason)),
            Err(Halt::Fail(reason)) => return Err(failed(reason)),
        };
        let skipped = match scene.play() {
            Ok(()) => None,
            Err(Halt::Skip(reason)) => Some(reason),
            Err(Halt::Fail(reason)) => {
                scene.note(reason);
                // Whatever stopped the case, the host must be whole.
                for check in [check::Check::CanaryUnchanged, check::Check::VictimAlive] {
                    let _ = scene.check_and_note(&check);
                }
                None
            }
        };
        if self.verbose {
            scene.saved.iter().for_each(|saved| show(&saved.name, &saved.answer.text()));
        }
        let mut stuck = scene.any_timeout();
        let restored = scene.restore_upstream();
        if let Err(Halt::Fail(reason) | Halt::Skip(reason)) = restored.and_then(|()| scene.destroy_all()) {
            scene.note(reason);
            stuck = true;
        }
        let failures = std::mem::take(&mut scene.failures);
        drop(scene);
        if shared && !stuck {
            self.server = Some(server);
        }
        match skipped {
            Some(reason) if failures.is_empty() => Err(Verdict::Skip(reason)),
            _ => Ok(failures),
        }
    }

    /// How to start the server that only this case wants; `None` if the one that all share will do.
    fn launch_for(&self, case: &Case) -> Option<Launch> {
        let requires = |what: &str| case.requires.iter().any(|requirement| requirement == what);
        let http = requires("transport:http") && self.launch.transport != Transport::Http;
        let idle = requires("config:idle_ttl_s=3");
        let short = requires(gate::UPSTREAM_TIMEOUT);
        let mock = self.host.mock.as_ref().filter(|_| short);
        let upstreams = mock.map(|mock| mock.configuration(upstream::SHORT_CALL_SECONDS));
        let (bounded, audited) = (requires(gate::QUOTA), requires(gate::AUDIT));
        (http || idle || short || bounded || audited).then(|| Launch {
            transport: if http { Transport::Http } else { self.launch.transport },
            idle_seconds: idle.then_some(gate::IDLE_SECONDS),
            quota: bounded.then_some(Quota::TIGHT),
            // One of its own, so that all that is in it is this case's.
            audit: audited.then(|| self.host.folder.0.join(format!("audit-{}", random_hex(4)))),
            upstreams: upstreams.or_else(|| self.launch.upstreams.clone()),
            ..self.launch.clone()
        })
    }
}

/// Programs in a language that the host does not have cannot be asked for.
fn missing_language(case: &Case) -> Option<String> {
    let Body::Program { language, .. } = &case.body else { return None };
    let program = match language.as_str() {
        "js" => "node",
        "python" => "python3",
        _ => "sh",
    };
    let folders = ["/usr/local/bin", "/usr/bin", "/bin"];
    let found = folders.iter().any(|folder| Path::new(folder).join(program).exists());
    (!found).then(|| format!("this host has no {program}"))
}

/// A number of seconds that is long, and unlike any other on the host.
fn orphan_mark() -> String {
    let random = u32::from_str_radix(&random_hex(4), 16).unwrap_or(0);
    format!("{}.{}", 70_000 + random % 20_000, 1_001 + random / 20_000 % 8_999)
}

/// A server may prepare sandboxes ahead. What it had before the first case must not count against that case.
fn let_warm_up(server: u32, wall: &Wall) {
    let look = || (wall.family(server).len(), wall.traces());
    let mut last = look();
    let mut steady = 0;
    for _ in 0..20 * wall.slowness {
        thread::sleep(Duration::from_millis(150));
        let now = look();
        steady = if now == last { steady + 1 } else { 0 };
        last = now;
        if steady == 3 {
            return;
        }
    }
}

fn show(name: &str, text: &str) {
    const LINES: usize = 20;
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        let short: String = line.chars().take(200).collect();
        say(&format!("    {name} | {short}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_add_up() {
        let mut sum = Summary { passed: 1, failed: 2, warned: 3, skipped: 4 };
        sum += sum;
        assert_eq!(sum, Summary { passed: 2, failed: 4, warned: 6, skipped: 8 });
    }

    #[test]
    fn a_missing_program_fails_the_run_without_a_panic() {
        let options = Options {
            binary: "/nonexistent/belljar".into(),
            server_as: As::Root,
            over: Over::Stdio,
            wall: Wall::native(),
            only: Vec::new(),
            verbose: false,
            label: "",
        };
        assert_eq!(run(options), Summary { failed: 1, ..Summary::default() });
    }
}
