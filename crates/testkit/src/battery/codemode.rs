//! Steps and expectations about the upstream, the MCP server whose tools programs call.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::action::Action;
use super::case::Case;
use super::check::settle;
use super::client::{Caller, Halt, fail};
use super::host::{Host, random_hex};
use super::proc;
use super::scene::{Saved, Scene, clip};
use super::server::Server;
use super::tools;

/// How soon the server under test has to have seen another list.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// A case before this one may have made the upstream crash; the server may wait a little before it starts it again.
const READY_WITHIN: Duration = Duration::from_secs(15);
const RUN_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Now and then the server is asked for tools: it need not look at a list before somebody does.
const ASK_EVERY: Duration = Duration::from_millis(700);
const ZOMBIES_VANISH_WITHIN: Duration = Duration::from_secs(5);

/// Whether a case needs the upstream.
pub(crate) fn concerns(case: &Case) -> bool {
    case.requires.iter().any(|requirement| requirement == "fixture:upstream")
}

/// Sees to it that a program's call really gets there. Without this a server that refuses all of them would pass.
pub(crate) fn greet(host: &Host, server: &Server) -> Result<(), Halt> {
    let Some(mock) = &host.mock else {
        return Err(Halt::Skip("this host has no python3 for the upstream".into()));
    };
    let word = format!("READY-{}", random_hex(4));
    let code = format!("print(call_tool('mock', 'echo', {{'x': '{word}'}}))");
    let params = json!({"name": tools::RUN, "arguments": {"language": "python", "code": code}});
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let place = mock.log_length();
        let answer = server.link.ask(Caller::Good, "tools/call", params.clone(), RUN_WITHIN)?;
        let text = answer.text();
        if text.contains(&word) && mock.log_since(place).map_err(fail)?.text.contains(&word) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(fail(format!("a program cannot call the upstream at all: {}", clip(&text))));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Which other list the upstream is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// Tools that can be told apart from the others: the list must be found afterwards.
    MustArrive,
    /// One that may well be refused as a whole.
    MayBeRefused,
}

impl Scene<'_> {
    /// Gives the upstream another list of tools and waits until the server has seen it.
    pub(crate) fn change_upstream(&mut self, to: Value, listing: Listing) -> Result<(), Halt> {
        let mock = self.host.mock.as_mut().ok_or_else(|| Halt::Skip("there is no upstream".into()))?;
        let place = mock.log_length();
        let serial = mock.change(to).map_err(fail)?;
        if !self.wait_until_listed(place, serial)? {
            return Err(fail(format!(
                "the server did not ask for the changed tools within {}s",
                SEEN_WITHIN.as_secs()
            )));
        }
        let name = format!("arrived_{serial}");
        let deadline = Instant::now() + SEEN_WITHIN;
        // A refused list leaves nothing to wait for but a moment in which the server could go wrong.
        let deadline = if listing == Listing::MayBeRefused { deadline - SEEN_WITHIN / 2 } else { deadline };
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(LOOK_EVERY);
            let answer = self.server.link.ask(self.who, "tools/call", search(&name), left)?;
            if answer.text().contains(&name) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return match listing {
                    Listing::MayBeRefused => Ok(()),
                    Listing::MustArrive => {
                        Err(fail(format!("the changed tools were not found: {}", clip(&answer.text()))))
                    }
                };
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Puts the plain list back, so that the next case finds it.
    pub(crate) fn restore_upstream(&mut self) -> Result<(), Halt> {
        let Some(mock) = self.host.mock.as_mut() else { return Ok(()) };
        let place = mock.log_length();
        if mock.reset().map_err(fail)? && self.server.is_usable() {
            // One that has not seen it by now will when it is asked next; that is the next case's to judge.
            self.wait_until_listed(place, 0)?;
        }
        Ok(())
    }

    fn wait_until_listed(&mut self, place: u64, serial: u64) -> Result<bool, Halt> {
        let deadline = Instant::now() + SEEN_WITHIN;
        let mut asked = Instant::now();
        loop {
            let log = self.host.mock.as_ref().map(|mock| mock.log_since(place));
            if log.transpose().map_err(fail)?.is_some_and(|log| log.was_listed(serial)) {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            if asked.elapsed() > ASK_EVERY {
                let left = deadline.saturating_duration_since(Instant::now()).max(LOOK_EVERY);
                self.server.link.ask(self.who, "tools/call", search("echo"), left)?;
                asked = Instant::now();
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    pub(crate) fn judge_upstream(&self) -> Result<Vec<String>, Halt> {
        let Some(rule) = &self.case.expect.upstream else { return Ok(Vec::new()) };
        let mock = self.host.mock.as_ref().ok_or_else(|| Halt::Skip("there is no upstream".into()))?;
        let log = mock.log_since(self.before.upstream_log).map_err(fail)?;
        let run = |saved: &&Saved| matches!(saved.step.action, Action::Exec { .. });
        let last = self.saved.iter().rev().find(run).map(|saved| saved.answer.arrived);
        let ended = last.and_then(|arrived| SystemTime::now().checked_sub(arrived.elapsed()));
        let mut reasons = log.judge(rule, ended);
        if let Some(wanted) = rule.saw_client_token {
            // From its start, which may have been before the case: what it is told then it knows for good.
            let all = mock.log_since(0).map_err(fail)?.text;
            let tokens = &self.host.tokens;
            let saw = [&tokens.good, &tokens.a, &tokens.b].into_iter().any(|token| all.contains(token.as_str()));
            if saw != wanted {
                reasons.push(format!("upstream: saw a client's token is {saw}, not {wanted}"));
            }
        }
        Ok(reasons)
    }

    /// What crashed is reaped, and what was started in its place is one.
    pub(crate) fn check_upstream_processes(&self) -> Result<(), Halt> {
        let mock = self.host.mock.as_ref().ok_or_else(|| Halt::Skip("there is no upstream".into()))?;
        match settle(|| strays(self.server.pid(), &mock.mark()), ZOMBIES_VANISH_WITHIN) {
            None => Ok(()),
            Some(reason) => Err(fail(reason)),
        }
    }
}

/// Children that nobody reaped, or more of the upstream than one.
fn strays(server: u32, mark: &str) -> Option<String> {
    let children = proc::processes().into_iter().filter(|process| process.parent == server);
    let zombies: Vec<u32> = children.filter(|child| child.state == 'Z').map(|child| child.pid).collect();
    let alive = proc::marked(mark);
    (!zombies.is_empty() || alive.len() > 1).then(|| format!("upstream: zombies {zombies:?}, alive {alive:?}"))
}

fn search(query: &str) -> Value {
    json!({"name": tools::SEARCH, "arguments": {"query": query}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_second_upstream_and_one_that_nobody_reaped_are_found() {
        let mark = format!("stray-{}", random_hex(4));
        let start =
            || Command::new("/bin/sh").args(["-c", "read forever", &mark]).stdin(std::process::Stdio::piped()).spawn();
        let mut one = start().unwrap();
        // No process has this one as its child.
        assert_eq!(strays(u32::MAX, &mark), None);
        let mut other = start().unwrap();
        assert!(settle(|| strays(u32::MAX, &mark).is_none().then_some(()), Duration::from_secs(5)).is_none());
        for child in [&mut one, &mut other] {
            child.kill().unwrap();
        }
        let named = || strays(std::process::id(), &mark).is_some_and(|reason| reason.contains(&one.id().to_string()));
        assert!(settle(|| (!named()).then_some(()), Duration::from_secs(5)).is_none());
        for child in [&mut one, &mut other] {
            child.wait().unwrap();
        }
        assert_eq!(strays(u32::MAX, &mark), None);
    }
}
