//! What each operation of a step case does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::action::{Action, Step};
use super::check::{Check, settle};
use super::client::{Answer, Caller, Halt, Link, fail};
use super::codemode::Listing;
use super::gate::IDLE_SECONDS;
use super::host::{NOBODY, own_uid};
use super::proc;
use super::scene::{Saved, Scene, Unnamed, clip, grace, seconds};
use super::server::{Launch, Server, User, ban_user_namespaces};
use super::slowloris::Slowloris;
use super::tools;

/// For steps that say nothing themselves.
const WITHIN: Duration = Duration::from_secs(60);
/// For cases that do not say; a server may refuse to take hundreds of requests at once.
const CREATE_AT_ONCE: usize = 32;
const CREATE_ALL_WITHIN: Duration = Duration::from_secs(240);
/// After the idle time itself: the server may only look every few seconds.
const IDLE_SLACK: Duration = Duration::from_secs(5);
const CHUNK_BYTES: usize = 1 << 20;

impl Scene<'_> {
    pub(crate) fn step(&mut self, step: &Step, name: String) -> Result<(), Halt> {
        match &step.action {
            Action::Exec { .. }
            | Action::ReadFile { .. }
            | Action::ListFiles { .. }
            | Action::WriteFile { .. }
            | Action::Destroy { .. }
            | Action::ListSessions {}
            | Action::ResourceRead { .. }
            | Action::SearchTools { .. }
            | Action::Call { .. } => self.one_request(step, name),
            Action::As { token, step: inner } => self.as_caller(token, step, inner, name),
            Action::Http(http) => {
                let within = self.within(step);
                let answer = self.server.link.http()?.odd(http, grace(within)).map_err(fail)?;
                self.keep(step, name, answer);
                Ok(())
            }
            Action::HttpSlowloris { conns, s, .. } => {
                let target = self.server.link.http()?.address();
                let attack = Slowloris::start(target, *conns, seconds(*s));
                if attack.opened == 0 {
                    return Err(Halt::Skip("no connection could be opened for the attack".into()));
                }
                self.slowloris = Some(attack);
                Ok(())
            }
            Action::Repeat { n, step: inner, must_not_contain } => self.repeat(*n, inner, must_not_contain),
            Action::Parallel { n, step: inner } => self.parallel(*n, inner, step.within.unwrap_or(WITHIN)),
            Action::ParallelStart { n, step: inner } => self.parallel_start(*n, inner),
            Action::StartExec { name: as_name, .. } => {
                let pending = self.start(step, None, Unnamed::DefaultSandbox)?;
                match as_name {
                    Some(as_name) => drop(self.running.insert(as_name.clone(), pending)),
                    None => self.running_unnamed.push(pending),
                }
                Ok(())
            }
            Action::Await { of } => {
                let pending = self.running.remove(of).ok_or_else(|| fail(format!("nothing runs as {of}")))?;
                let answer = pending.wait(step.within.unwrap_or(WITHIN));
                self.keep(step, name, answer);
                Ok(())
            }
            Action::Cancel { of } => {
                let pending = self.running.get(of).ok_or_else(|| fail(format!("nothing runs as {of}")))?;
                self.server.link.cancel(pending)
            }
            Action::CreateSessions { n, parallel } => self.create_sessions(*n, parallel.unwrap_or(CREATE_AT_ONCE)),
            Action::Sleep { s } => {
                thread::sleep(seconds(*s));
                Ok(())
            }
            Action::SleepUntilIdleTtl {} => {
                thread::sleep(Duration::from_secs(IDLE_SECONDS.into()) + IDLE_SLACK);
                Ok(())
            }
            Action::ReadAuditLog {} => {
                let text = self.launch.audited().map_err(fail)?;
                let bytes = text.len();
                self.keep(step, name, Answer::new(json!({"result": {"contents": [{"text": text}]}}), bytes));
                Ok(())
            }
            Action::AssertHost { check } => match Check::parse(check) {
                Some(check) => self.check(&check),
                None => Err(Halt::Skip(format!("driver does not know host check {check}"))),
            },
            Action::AssertRpc { check } => self.assert_rpc(check),
            Action::UpstreamTools { names } => self.change_upstream(json!({"names": names}), Listing::MustArrive),
            Action::UpstreamToolsDesc { descriptions } => {
                self.change_upstream(json!({"descriptions": descriptions}), Listing::MustArrive)
            }
            Action::UpstreamMode { mode } => self.change_upstream(json!({"mode": mode}), Listing::MayBeRefused),
            Action::SnapshotHost { name } => self.snapshot_host(name),
            Action::CompareHost { to, max } => self.compare_host(to, max),
            _ => self.step_on_server(step),
        }
    }

    /// Steps that are about the server itself rather than about its tools.
    fn step_on_server(&mut self, step: &Step) -> Result<(), Halt> {
        match &step.action {
            Action::RawStdio { data } => self.raw(format!("{data}\n").into_bytes()),
            Action::RawStdioB64 { data } => self.raw(unbase64(data).map_err(fail)?),
            Action::RawStdioRepeat { pre, unit, n, post, newline, allow_close } => {
                let sent = self.raw_repeat(pre, unit, *n, &format!("{post}{}", if *newline { "\n" } else { "" }));
                thread::sleep(Duration::from_secs(1));
                match sent {
                    Err(Halt::Fail(reason)) if *allow_close && reason.contains("closed") => Ok(()),
                    other => other,
                }
            }
            Action::StopReading { s } => {
                self.server.link.stdio()?.pause_reading(true);
                thread::sleep(seconds(*s));
                Ok(())
            }
            Action::ResumeReading {} => {
                self.server.link.stdio()?.pause_reading(false);
                Ok(())
            }
            Action::CloseStdin {} => {
                self.remember_family();
                self.server.link.stdio()?.close_input();
                Ok(())
            }
            Action::DropConnection {} => {
                match &self.server.link {
                    Link::Stdio(client) => client.close_input(),
                    Link::Http(_) => {
                        self.running.values().chain(&self.running_unnamed).for_each(|pending| pending.hang_up());
                    }
                }
                Ok(())
            }
            Action::KillServer { signal } => {
                self.remember_family();
                self.server.signal(*signal).map_err(fail)
            }
            Action::WaitServerExit {} => {
                let within = step.within.unwrap_or(WITHIN);
                match self.server.wait_exit(within) {
                    true => Ok(()),
                    false => Err(fail(format!("server did not exit within {}s", within.as_secs()))),
                }
            }
            Action::ReconnectIfClosed {} => match self.server.is_usable() {
                true => Ok(()),
                false => self.restart(&self.launch.clone()),
            },
            Action::RestartServer { env, ulimit_nofile, as_user, without } => {
                self.restart_changed(env, *ulimit_nofile, as_user.as_deref(), without)
            }
            _ => Err(Halt::Skip(format!("driver does not know op {}", step.op))),
        }
    }

    fn one_request(&mut self, step: &Step, name: String) -> Result<(), Halt> {
        let answer = self.invoke(step, None, Unnamed::DefaultSandbox)?;
        if let Action::Destroy { session } = &step.action {
            let session = session.as_deref().unwrap_or("default");
            if let Some(session) = self.sessions.get_mut(session)
                && !answer.is_error()
            {
                session.alive = false;
            }
        }
        self.keep(step, name, answer);
        Ok(())
    }

    fn keep(&mut self, step: &Step, name: String, answer: Answer) {
        let within = self.within(step).max(if step.op == "await" { WITHIN } else { Duration::ZERO });
        self.saved.push(Saved { name, step: step.clone(), who: self.who, answer, within });
    }

    fn as_caller(&mut self, token: &str, outer: &Step, inner: &Step, name: String) -> Result<(), Halt> {
        self.who = self.caller_with(token)?;
        let mut inner = inner.clone();
        inner.allow_error |= outer.allow_error;
        inner.within = inner.within.or(outer.within);
        let done = self.step(&inner, name);
        self.who = Caller::Good;
        done
    }

    fn repeat(&mut self, times: usize, step: &Step, must_not_contain: &[String]) -> Result<(), Halt> {
        let case = self.case;
        for index in 0..times {
            let answer = self.invoke(step, Some(index), Unnamed::ThrowAway)?;
            let text = answer.text();
            let mut forbidden = must_not_contain.iter().chain(&case.expect.must_not_contain);
            if let Some(word) = forbidden.find(|word| text.contains(word.as_str())) {
                return Err(fail(format!("repeat #{index}: found {word}")));
            }
            if !step.allow_error && !answer.ran() {
                return Err(fail(format!("repeat #{index} did not run: {}", clip(&text))));
            }
        }
        Ok(())
    }

    fn parallel(&mut self, times: usize, step: &Step, within: Duration) -> Result<(), Halt> {
        let deadline = Instant::now() + within;
        let mut pending = Vec::new();
        for index in 0..times {
            pending.push(self.start(step, Some(index), Unnamed::ThrowAway)?);
        }
        let wait = |one: super::client::Pending| one.wait(deadline.saturating_duration_since(Instant::now()));
        let answers = pending.into_iter().map(wait).collect();
        self.lists.push(answers);
        Ok(())
    }

    /// Each in a sandbox of its own.
    fn parallel_start(&mut self, times: usize, step: &Step) -> Result<(), Halt> {
        for index in 0..times {
            let mut one = step.clone();
            match &mut one.action {
                Action::StartExec { session, .. } => *session = Some(format!("new:P{index}")),
                _ => return Err(Halt::Skip(format!("driver cannot start op {} in parallel", step.op))),
            }
            let pending = self.start(&one, Some(index), Unnamed::DefaultSandbox)?;
            self.running_unnamed.push(pending);
        }
        Ok(())
    }

    fn create_sessions(&mut self, times: usize, at_once: usize) -> Result<(), Halt> {
        let deadline = Instant::now() + CREATE_ALL_WITHIN;
        let mut left = times;
        while left > 0 {
            let now = left.min(at_once.max(1));
            left -= now;
            let mut pending = Vec::new();
            for _ in 0..now {
                let params = json!({"name": tools::CREATE, "arguments": {}});
                pending.push(self.server.link.start(self.who, "tools/call", params)?);
            }
            for one in pending {
                let answer = one.wait(deadline.saturating_duration_since(Instant::now()).min(WITHIN));
                match answer.field(tools::SANDBOX_POINTER).and_then(|id| id.as_str()) {
                    Some(id) => self.made.push(id.to_owned()),
                    None if answer.lost.is_some() => return Err(fail("create: no answer")),
                    None => self.creations_refused += 1,
                }
            }
        }
        Ok(())
    }

    fn assert_rpc(&mut self, check: &str) -> Result<(), Halt> {
        let name = check.strip_prefix("no_message_for:");
        let name = name.ok_or_else(|| Halt::Skip(format!("driver does not know rpc check {check}")))?;
        let pending = self.running.get(name).ok_or_else(|| fail(format!("nothing runs as {name}")))?;
        match pending.answer.try_recv() {
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Ok(()),
            // An error that says "cancelled" is tolerated: some clients would otherwise wait for ever.
            Ok(answer) if answer.message.get("error").is_some() => Ok(()),
            Ok(_) => Err(fail("a result came for a cancelled request")),
        }
    }

    fn raw(&self, bytes: Vec<u8>) -> Result<(), Halt> {
        self.server.link.stdio()?.raw(bytes).map_err(fail)
    }

    fn raw_repeat(&self, pre: &str, unit: &str, times: usize, post: &str) -> Result<(), Halt> {
        self.raw(pre.as_bytes().to_vec())?;
        let per_chunk = (CHUNK_BYTES / unit.len().max(1)).max(1);
        let mut left = times;
        while left > 0 {
            let now = left.min(per_chunk);
            self.raw(unit.repeat(now).into_bytes())?;
            left -= now;
        }
        self.raw(post.as_bytes().to_vec())
    }

    fn restart(&mut self, launch: &Launch) -> Result<(), Halt> {
        self.server.shut_down();
        self.crippled = false;
        let server = Server::start(launch).map_err(fail)?;
        self.replace_server(server);
        Ok(())
    }

    fn restart_changed(
        &mut self,
        env: &BTreeMap<String, String>,
        open_files_max: Option<u64>,
        as_user: Option<&str>,
        without: &[String],
    ) -> Result<(), Halt> {
        let mut launch = self.launch.clone();
        launch.env.extend(env.iter().map(|(name, value)| (name.clone(), value.clone())));
        launch.open_files_max = open_files_max;
        if as_user.is_some() {
            launch.user = if own_uid() == 0 { User::Uid(NOBODY) } else { User::Same };
        }
        if without.is_empty() {
            return self.restart(&launch);
        }
        if !without.iter().any(|feature| feature == "userns") {
            return Err(Halt::Skip(format!("driver cannot take away {}", without.join(", "))));
        }
        // Without user namespaces an unprivileged server can build no wall at all; cgroups go with the user, and
        // landlock alone would not be a sandbox.
        launch.user_namespaces = ban_user_namespaces(launch.user).map_err(Halt::Skip)?;
        self.server.shut_down();
        let server = Server::start_crippled(&launch).map_err(fail)?;
        self.replace_server(server);
        self.crippled = true;
        Ok(())
    }

    fn snapshot_host(&mut self, name: &str) -> Result<(), Halt> {
        // One run first: what the server keeps from then on, such as a warm interpreter, is not left behind by the case.
        let params = json!({"name": tools::RUN, "arguments": {"language": "shell", "code": "true"}});
        let answer = self.server.link.ask(self.who, "tools/call", params, WITHIN)?;
        if !answer.ran() {
            return Err(fail(format!("warm-up run: {}", clip(&answer.text()))));
        }
        thread::sleep(Duration::from_secs(1));
        let snapshot = self.snapshot()?;
        self.snapshots.insert(name.to_owned(), snapshot);
        Ok(())
    }

    fn snapshot(&self) -> Result<BTreeMap<&'static str, f64>, Halt> {
        let server = self.server.pid();
        let family = self.launch.wall.family(server);
        let files = proc::open_files(server);
        let files = files.ok_or_else(|| Halt::Skip("the server's open files are hidden from this user".into()))?;
        Ok(BTreeMap::from([
            ("cgroups", self.launch.wall.traces().values().map(BTreeSet::len).sum::<usize>() as f64),
            ("session_dirs", proc::strewn_entries().len() as f64),
            ("mounts", self.launch.wall.mounts() as f64),
            ("processes", family.len() as f64),
            ("zombies", family.iter().filter(|process| process.state == 'Z').count() as f64),
            ("netns", proc::network_namespaces(&family) as f64),
            ("server_fds", files as f64),
            ("server_rss_mb", proc::resident_kib(server) as f64 / 1024.0),
        ]))
    }

    fn compare_host(&mut self, to: &str, max: &BTreeMap<String, f64>) -> Result<(), Halt> {
        let before = self.snapshots.get(to).ok_or_else(|| fail(format!("no snapshot {to}")))?;
        if let Some(unknown) = max.keys().find(|key| !before.contains_key(key.as_str())) {
            return Err(Halt::Skip(format!("driver does not know measure {unknown}")));
        }
        let over = || {
            let now = match self.snapshot() {
                Ok(now) => now,
                Err(_) => return Some("the host cannot be measured".to_owned()),
            };
            let grown = max.iter().find(|(key, most)| now[key.as_str()] - before[key.as_str()] > **most);
            grown.map(|(key, _)| format!("left behind {key}: {} -> {}", before[key.as_str()], now[key.as_str()]))
        };
        match settle(over, Duration::from_secs(5)) {
            None => Ok(()),
            Some(reason) => Err(fail(reason)),
        }
    }
}

fn unbase64(text: &str) -> Result<Vec<u8>, String> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter);
        bits = bits << 6 | value.ok_or("driver: bad base64 in the case")? as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        assert_eq!(unbase64("aGVsbG8=").unwrap(), b"hello");
        assert_eq!(unbase64("//79").unwrap(), [0xff, 0xfe, 0xfd]);
        assert_eq!(unbase64("").unwrap(), b"");
        assert!(unbase64("a b").is_err());
    }
}
