//! The host checks: what must be true of the machine, whatever the answers say.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::action::{Action, Step};
use super::case::Limits;
use super::client::{Halt, fail};
use super::host::random_hex;
use super::proc;
use super::scene::{Failure, Scene, Unnamed, clip};
use super::server::PREPARED_MAX;
use super::watch::Sample;

/// How long a trace may take to vanish after the answer that says it is gone.
const VANISH_WITHIN: Duration = Duration::from_secs(5);
const ORPHANS_VANISH_WITHIN: Duration = Duration::from_secs(2);
/// Tasks beyond a sandbox's own limit: its first process, the next sandbox of the pool, a neighbour that is asked.
const TASKS_SLACK: usize = 64;
/// Tasks that a server may have below it when the case sets no limit; a CI guard would sit here too.
const TASKS_MAX: usize = 4096;
/// Less than either of the two blocks that the memory case leaves behind.
const MEMORY_SLACK_KIB: u64 = 36 << 10;
const FILES_SLACK: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Check {
    ServerAlive,
    CanaryUnchanged,
    CanaryOwnerModeUnchanged,
    NoOrphan,
    VictimAlive,
    NoListenerHit,
    NoDnsHit,
    NoDeniedZoneHit,
    PathAbsent(String),
    PathPresent(String),
    ServerRssDeltaLtMb(u64),
    MemDeltaLtMb(u64),
    MemBackWithinS(u64),
    DiskDeltaLtMb(u64),
    InodesDeltaLt(u64),
    NoLeftoverCgroup,
    NoLeftoverMount,
    NoLeftoverSessionDir,
    OtherSessionOk { within: Option<u64> },
    PidsBounded,
    InterpretersUnchanged,
    SandboxPortClosed,
    ServerStderrLacks(String),
    ServerFdsBounded,
    NoZombieUpstream,
}

impl Check {
    /// `None` for a check that the driver does not know.
    pub(crate) fn parse(text: &str) -> Option<Check> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let number = || value?.parse::<u64>().ok();
        let words = || value.map(str::to_owned);
        Some(match name {
            "path_absent" => Check::PathAbsent(words()?),
            "path_present" => Check::PathPresent(words()?),
            "server_stderr_lacks" => Check::ServerStderrLacks(words()?),
            "server_rss_delta_lt_mb" => Check::ServerRssDeltaLtMb(number()?),
            "mem_delta_lt_mb" => Check::MemDeltaLtMb(number()?),
            "mem_back_within_s" => Check::MemBackWithinS(number()?),
            "disk_delta_lt_mb" => Check::DiskDeltaLtMb(number()?),
            "inodes_delta_lt" => Check::InodesDeltaLt(number()?),
            "other_session_ok_within_s" => Check::OtherSessionOk { within: Some(number()?) },
            _ if value.is_some() => return None,
            "other_session_ok" => Check::OtherSessionOk { within: None },
            "server_alive" => Check::ServerAlive,
            "canary_unchanged" => Check::CanaryUnchanged,
            "canary_owner_mode_unchanged" => Check::CanaryOwnerModeUnchanged,
            "no_orphan" => Check::NoOrphan,
            "victim_alive" => Check::VictimAlive,
            "no_listener_hit" => Check::NoListenerHit,
            "no_dns_hit" => Check::NoDnsHit,
            "no_denied_zone_hit" => Check::NoDeniedZoneHit,
            "no_leftover_cgroup" => Check::NoLeftoverCgroup,
            "no_leftover_mount" => Check::NoLeftoverMount,
            "no_leftover_session_dir" => Check::NoLeftoverSessionDir,
            "pids_bounded" => Check::PidsBounded,
            "interpreters_unchanged" => Check::InterpretersUnchanged,
            "sandbox_port_closed" => Check::SandboxPortClosed,
            "server_fds_bounded" => Check::ServerFdsBounded,
            "no_zombie_upstream" => Check::NoZombieUpstream,
            _ => return None,
        })
    }

    pub(crate) fn needs_watch(&self) -> bool {
        matches!(
            self,
            Check::ServerRssDeltaLtMb(_)
                | Check::MemDeltaLtMb(_)
                | Check::MemBackWithinS(_)
                | Check::DiskDeltaLtMb(_)
                | Check::InodesDeltaLt(_)
                | Check::PidsBounded
        )
    }

    fn is_host_wide(&self) -> bool {
        matches!(self, Check::DiskDeltaLtMb(_) | Check::InodesDeltaLt(_) | Check::MemDeltaLtMb(_))
    }
}

impl Scene<'_> {
    pub(crate) fn check_and_note(&mut self, check: &Check) -> Result<(), Halt> {
        match self.check(check) {
            Err(Halt::Fail(reason)) => {
                self.failures.push(Failure { reason, host_wide: check.is_host_wide() });
                Ok(())
            }
            other => other,
        }
    }

    pub(crate) fn check(&mut self, check: &Check) -> Result<(), Halt> {
        match check {
            Check::ServerAlive => ok_if(!self.server.has_exited(), || "server died".into()),
            Check::CanaryUnchanged => self.check_canary(),
            Check::CanaryOwnerModeUnchanged => self.check_canary_owner(),
            Check::NoOrphan => self.check_orphans(),
            Check::VictimAlive => self.check_victim(),
            Check::NoListenerHit => {
                let hits = self.host.connections() - self.before.connections;
                ok_if(hits == 0, || format!("host listeners were reached {hits} times"))
            }
            Check::NoDnsHit => {
                let hits = self.host.datagrams() - self.before.datagrams;
                ok_if(hits == 0, || format!("{hits} datagrams reached the host"))
            }
            Check::NoDeniedZoneHit => {
                let hits = self.host.zones.denied_hits() - self.before.denied_hits;
                ok_if(hits == 0, || format!("what is not allowed was reached {hits} times"))
            }
            Check::PathAbsent(path) => ok_if(fs::symlink_metadata(path).is_err(), || format!("path appeared: {path}")),
            Check::PathPresent(path) => ok_if(Path::new(path).exists(), || format!("path is gone: {path}")),
            Check::ServerRssDeltaLtMb(_)
            | Check::MemDeltaLtMb(_)
            | Check::DiskDeltaLtMb(_)
            | Check::InodesDeltaLt(_)
            | Check::PidsBounded => self.check_watched(check),
            Check::MemBackWithinS(seconds) => self.check_memory_back(*seconds),
            Check::NoLeftoverCgroup => self.check_traces(),
            Check::NoLeftoverMount => {
                let before = self.before.mounts;
                let now = settle(|| Some(self.launch.wall.mounts()).filter(|now| *now > before), VANISH_WITHIN);
                ok_if(now.is_none(), || format!("mounts: {before} before, {} now", now.unwrap_or(0)))
            }
            Check::NoLeftoverSessionDir => {
                let before = &self.before.strewn;
                let left = settle(|| proc::strewn_entries().difference(before).next().cloned(), VANISH_WITHIN);
                ok_if(left.is_none(), || format!("left behind: {}", left.unwrap_or_default().display()))
            }
            Check::OtherSessionOk { within } => {
                self.check_neighbour(within.unwrap_or(10) * u64::from(self.launch.wall.slowness))
            }
            Check::InterpretersUnchanged => {
                let now = Some(proc::interpreters(&self.launch.binary));
                ok_if(now == self.before.interpreters, || "a program of the host was changed".into())
            }
            Check::SandboxPortClosed => {
                let opened = self.knock.as_ref().and_then(|knock| knock.opened());
                ok_if(opened.is_none(), || format!("the host reached the sandbox at {opened:?}"))
            }
            Check::ServerStderrLacks(words) => {
                let said = self.server.stderr_since(self.before.stderr_length).map_err(fail)?;
                ok_if(!said.contains(words.as_str()), || format!("server's stderr holds {words}"))
            }
            Check::ServerFdsBounded => self.check_open_files(),
            Check::NoZombieUpstream => self.check_upstream_processes(),
        }
    }

    fn check_canary(&mut self) -> Result<(), Halt> {
        let text = fs::read_to_string(&self.host.canary).unwrap_or_default();
        if text == format!("{}\n", self.host.secret) {
            return Ok(());
        }
        self.host.restore_canary().map_err(|error| fail(format!("CANARY CHANGED, and lost: {error}")))?;
        Err(fail("CANARY CHANGED"))
    }

    fn check_canary_owner(&mut self) -> Result<(), Halt> {
        let metadata = fs::metadata(&self.host.canary).map_err(|error| fail(format!("canary: {error}")))?;
        let now = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        let (uid, gid) = self.host.owner;
        if now == (uid, gid, 0o600) {
            return Ok(());
        }
        self.host.restore_canary().map_err(|error| fail(format!("canary: {error}")))?;
        Err(fail(format!("canary now belongs to {}:{}, mode {:o}", now.0, now.1, now.2)))
    }

    fn check_orphans(&self) -> Result<(), Halt> {
        let left = || {
            let mut orphans = proc::marked(self.orphan_mark);
            orphans.extend(proc::survivors(&self.doomed));
            Some(orphans).filter(|orphans| !orphans.is_empty())
        };
        let orphans = settle(left, ORPHANS_VANISH_WITHIN * self.launch.wall.slowness);
        ok_if(orphans.is_none(), || format!("orphans: {:?}", orphans.unwrap_or_default()))
    }

    fn check_victim(&mut self) -> Result<(), Halt> {
        if self.host.victim_lives() {
            return Ok(());
        }
        self.host.replace_victim().map_err(fail)?;
        Err(fail("the bystander process was killed"))
    }

    fn check_watched(&self, check: &Check) -> Result<(), Halt> {
        let watch = self.watch.as_ref().ok_or_else(|| Halt::Skip("the host was not watched".into()))?;
        let (start, peak) = (watch.start, watch.peak());
        let space = || watch.space_taken().ok_or_else(|| Halt::Skip("free space cannot be measured here".into()));
        match check {
            Check::ServerRssDeltaLtMb(most) => {
                let grew = peak.server_kib.saturating_sub(start.server_kib) >> 10;
                ok_if(grew < *most, || format!("server grew by {grew} MiB, {most} allowed"))
            }
            Check::MemDeltaLtMb(most) => {
                let grew = peak.memory_kib.saturating_sub(start.memory_kib) >> 10;
                ok_if(grew < *most, || format!("{grew} MiB of memory taken, {most} allowed"))
            }
            Check::DiskDeltaLtMb(most) => {
                let taken = space()?.0 >> 10;
                ok_if(taken < *most, || format!("{taken} MiB of disk taken, {most} allowed"))
            }
            Check::InodesDeltaLt(most) => {
                let taken = space()?.1;
                ok_if(taken < *most, || format!("{taken} inodes taken, {most} allowed"))
            }
            _ => {
                let most = match self.case.limits.pids {
                    Some(pids) => start.tasks + (pids as usize + TASKS_SLACK) * self.launch.wall.tasks_per_process(),
                    None => TASKS_MAX,
                };
                ok_if(peak.tasks <= most, || format!("{} tasks below the server, {most} allowed", peak.tasks))
            }
        }
    }

    /// The sandbox may keep its memory for as long as it lives, so it is destroyed first.
    fn check_memory_back(&mut self, seconds: u64) -> Result<(), Halt> {
        let watch = self.watch.as_ref().ok_or_else(|| Halt::Skip("the host was not watched".into()))?;
        let allowed = watch.start.memory_kib + MEMORY_SLACK_KIB;
        self.destroy_all()?;
        let (server, wall) = (self.server.pid(), &self.launch.wall);
        let over = || Some(Sample::take(server, wall).memory_kib).filter(|now| *now > allowed);
        let kept = settle(over, Duration::from_secs(seconds));
        ok_if(kept.is_none(), || {
            let kept = (kept.unwrap_or(0) - allowed + MEMORY_SLACK_KIB) >> 10;
            format!("{kept} MiB of memory were not given back")
        })
    }

    /// Cgroups, and whatever else the sandboxes of this wall are on the host.
    fn check_traces(&self) -> Result<(), Halt> {
        // What is prepared may have been in use when the case began, and is there again.
        let spare = self.live_sandboxes() + PREPARED_MAX;
        let most = |kind: &str| self.before.traces.get(kind).map_or(0, BTreeSet::len) + spare;
        let over = || self.launch.wall.traces().into_iter().find(|(kind, now)| now.len() > most(kind));
        let left = settle(over, VANISH_WITHIN * self.launch.wall.slowness);
        ok_if(left.is_none(), || {
            let (kind, left) = left.unwrap_or_default();
            format!("{} {kind}, {} expected: {left:?}", left.len(), most(kind))
        })
    }

    fn check_neighbour(&mut self, within: u64) -> Result<(), Halt> {
        let within = Duration::from_secs(within);
        let step = Step {
            op: "exec".into(),
            action: Action::Exec {
                session: Some(format!("new:neighbour-{}", random_hex(3))),
                language: "python".into(),
                code: "print('OTHER-'+'OK')".into(),
                limits: Limits::default(),
                mode: None,
            },
            save: None,
            allow_error: false,
            within: Some(within),
        };
        let answer = self.invoke(&step, None, Unnamed::DefaultSandbox)?;
        let text = answer.text();
        ok_if(text.contains("OTHER-OK"), || format!("another sandbox failed: {}", clip(&text)))?;
        let took = answer.took;
        ok_if(took <= within, || format!("another sandbox took {:.1}s", took.as_secs_f64()))
    }

    /// During an attack the server must stay well clear of its limit, and afterwards let go of what it held.
    fn check_open_files(&mut self) -> Result<(), Halt> {
        let hidden = || Halt::Skip("the server's open files are hidden from this user".into());
        let server = self.server.pid();
        let during = proc::open_files(server).ok_or_else(hidden)?;
        let most = proc::open_files_max(server).ok_or_else(hidden)? / 10 * 9;
        let before = self.before.server_files.ok_or_else(hidden)?;
        ok_if(during < most, || format!("server holds {during} open files, {most} is too close to its limit"))?;
        if let Some(mut attack) = self.slowloris.take() {
            attack.end();
        }
        let over = || proc::open_files(server).filter(|now| *now > before + FILES_SLACK);
        let held = settle(over, VANISH_WITHIN);
        ok_if(held.is_none(), || format!("server held {before} open files and now holds {}", held.unwrap_or(0)))
    }
}

fn ok_if(holds: bool, reason: impl FnOnce() -> String) -> Result<(), Halt> {
    if holds { Ok(()) } else { Err(fail(reason())) }
}

/// Looks again until the trace is gone; what is still there when time is up is returned.
pub(crate) fn settle<T>(mut trace: impl FnMut() -> Option<T>, at_most: Duration) -> Option<T> {
    let deadline = Instant::now() + at_most;
    loop {
        let found = trace()?;
        if Instant::now() > deadline {
            return Some(found);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_with_their_values() {
        assert_eq!(Check::parse("server_alive"), Some(Check::ServerAlive));
        assert_eq!(Check::parse("path_absent:/tmp/a:b"), Some(Check::PathAbsent("/tmp/a:b".into())));
        assert_eq!(Check::parse("mem_delta_lt_mb:512"), Some(Check::MemDeltaLtMb(512)));
        let within = Check::parse("other_session_ok_within_s:3");
        assert_eq!(within, Some(Check::OtherSessionOk { within: Some(3) }));
    }

    #[test]
    fn a_check_that_is_not_understood_is_not_guessed() {
        for text in ["moon_is_full", "mem_delta_lt_mb", "mem_delta_lt_mb:x", "server_alive:5", "path_absent"] {
            assert_eq!(Check::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_trace_that_vanishes_is_forgiven_and_one_that_stays_is_not() {
        let mut looks = 0;
        let vanishing = || {
            looks += 1;
            (looks < 3).then_some(())
        };
        assert!(settle(vanishing, Duration::from_secs(5)).is_none());
        assert_eq!(settle(|| Some(7), Duration::from_millis(150)), Some(7));
    }
}
