//! One case in progress: its sandboxes, its answers, and the host as it was before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::action::{Action, Step};
use super::case::{Body, Case, Limits};
use super::check::Check;
use super::client::{Answer, Caller, Halt, Link, Lost, Pending, fail};
use super::codemode;
use super::host::{Host, SANDBOX_PORT};
use super::proc;
use super::server::{Launch, Server};
use super::slowloris::Slowloris;
use super::tools;
use super::wall::Traces;
use super::watch::{Knock, Watch};

const CREATE_WITHIN: Duration = Duration::from_secs(30);
const DESTROY_WITHIN: Duration = Duration::from_secs(20);
const DESTROY_AT_ONCE: usize = 32;

pub(crate) struct Scene<'a> {
    pub(crate) host: &'a mut Host,
    pub(crate) server: &'a mut Server,
    pub(crate) launch: &'a Launch,
    pub(crate) case: &'a Case,
    /// A number of seconds that no other process sleeps for.
    pub(crate) orphan_mark: &'a str,
    pub(crate) who: Caller,
    pub(crate) sessions: BTreeMap<String, Session>,
    /// Sandboxes without a name, from `create_sessions`.
    pub(crate) made: Vec<String>,
    pub(crate) creations_refused: usize,
    pub(crate) saved: Vec<Saved>,
    pub(crate) lists: Vec<Vec<Answer>>,
    pub(crate) running: HashMap<String, Pending>,
    pub(crate) running_unnamed: Vec<Pending>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) snapshots: HashMap<String, BTreeMap<&'static str, f64>>,
    pub(crate) before: Before,
    pub(crate) watch: Option<Watch>,
    pub(crate) knock: Option<Knock>,
    pub(crate) slowloris: Option<Slowloris>,
    /// What was below a server when the case ended it. A program in a live interpreter has no command line to be
    /// found by, so these are remembered by themselves.
    pub(crate) doomed: Vec<proc::Process>,
    /// The server was started without what it needs; refusing everything is then the right answer.
    pub(crate) crippled: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) who: Caller,
    pub(crate) alive: bool,
}

/// An answer, and what it answers.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) name: String,
    pub(crate) step: Step,
    pub(crate) who: Caller,
    pub(crate) answer: Answer,
    pub(crate) within: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    /// Measured on the whole host, where other programs run too; worth a second look.
    pub(crate) host_wide: bool,
}

/// The host when the case began.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) connections: usize,
    pub(crate) datagrams: usize,
    pub(crate) denied_hits: usize,
    pub(crate) traces: Traces,
    pub(crate) mounts: usize,
    pub(crate) strewn: BTreeSet<PathBuf>,
    pub(crate) stderr_length: u64,
    pub(crate) upstream_log: u64,
    pub(crate) server_files: Option<usize>,
    pub(crate) interpreters: Option<u64>,
}

/// Where a run goes that names no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unnamed {
    DefaultSandbox,
    ThrowAway,
}

impl<'a> Scene<'a> {
    pub(crate) fn open(
        host: &'a mut Host,
        server: &'a mut Server,
        launch: &'a Launch,
        case: &'a Case,
        orphan_mark: &'a str,
    ) -> Result<Scene<'a>, Halt> {
        if let Link::Stdio(client) = &server.link {
            client.turn_page();
        }
        if codemode::concerns(case) {
            codemode::greet(host, server)?;
        }
        let checks: Vec<Check> = case.expect.host.iter().filter_map(|check| Check::parse(check)).collect();
        let before = Before {
            connections: host.connections(),
            datagrams: host.datagrams(),
            denied_hits: host.zones.denied_hits(),
            traces: launch.wall.traces(),
            mounts: launch.wall.mounts(),
            strewn: proc::strewn_entries(),
            stderr_length: server.stderr_length(),
            upstream_log: host.mock.as_ref().map_or(0, |mock| mock.log_length()),
            server_files: proc::open_files(server.pid()),
            interpreters: checks.contains(&Check::InterpretersUnchanged).then(|| proc::interpreters(&launch.binary)),
        };
        let watch = checks.iter().any(Check::needs_watch).then(|| Watch::start(server.pid(), &launch.wall));
        let knock = match checks.contains(&Check::SandboxPortClosed) {
            true => Some(knock_on_closed_port(host)?),
            false => None,
        };
        Ok(Scene {
            host,
            server,
            launch,
            case,
            orphan_mark,
            who: Caller::Good,
            sessions: BTreeMap::new(),
            made: Vec::new(),
            creations_refused: 0,
            saved: Vec::new(),
            lists: Vec::new(),
            running: HashMap::new(),
            running_unnamed: Vec::new(),
            failures: Vec::new(),
            snapshots: HashMap::new(),
            before,
            watch,
            knock,
            slowloris: None,
            doomed: Vec::new(),
            crippled: false,
        })
    }

    /// Plays the case and judges it. A `Halt` is kept for what makes any further judgement pointless.
    pub(crate) fn play(&mut self) -> Result<(), Halt> {
        let case = self.case;
        match &case.body {
            Body::Program { language, code } => self.play_program(language, code)?,
            Body::Steps(steps) => {
                for (number, step) in steps.iter().enumerate() {
                    let name = step.save.clone().unwrap_or_else(|| format!("step {}", number + 1));
                    self.step(step, name)?;
                }
            }
        }
        self.judge()
    }

    fn play_program(&mut self, language: &str, code: &str) -> Result<(), Halt> {
        let within = seconds(self.case.expect.finish_within_s);
        // A sandbox of its own where it needs limits; else one that is thrown away, of which nothing may be left. (In one
        // that stays, what a cell starts in the background lives on with its kernel.)
        let session = self.case.limits.are_a_sandboxs().then(|| "new:X".to_owned());
        let step = Step {
            op: "exec".into(),
            action: Action::Exec {
                session,
                language: language.into(),
                code: code.into(),
                limits: self.case.limits.clone(),
                mode: None,
            },
            save: None,
            // What counts as carried out is judged apart for programs.
            allow_error: true,
            within: Some(within),
        };
        let pending = self.start(&step, None, Unnamed::ThrowAway)?;
        self.check_neighbour_meanwhile()?;
        let answer = pending.wait(grace(within));
        self.saved.push(Saved { name: "program".into(), step, who: self.who, answer, within });
        Ok(())
    }

    /// A case that bounds how soon another sandbox answers means: while this one keeps the host busy.
    fn check_neighbour_meanwhile(&mut self) -> Result<(), Halt> {
        let checks = self.case.expect.host.iter().filter_map(|check| Check::parse(check));
        let wanted = checks.filter(|check| matches!(check, Check::OtherSessionOk { within: Some(_) }));
        for check in wanted.collect::<Vec<_>>() {
            thread::sleep(Duration::from_secs(2));
            self.check_and_note(&check)?;
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, reason: impl Into<String>) {
        self.failures.push(Failure { reason: reason.into(), host_wide: false });
    }

    /// The id of a session by its name in the case, which is opened if it is not there yet.
    pub(crate) fn sandbox(&mut self, name: Option<&str>, limits: &Limits) -> Result<String, Halt> {
        let name = name.unwrap_or("default");
        if let Some(literal) = name.strip_prefix("literal:") {
            return Ok(literal.to_owned());
        }
        let name = name.strip_prefix("new:").unwrap_or(name);
        if let Some(session) = self.sessions.get(name) {
            return Ok(session.id.clone());
        }
        let params = json!({"name": tools::CREATE, "arguments": tools::create_arguments(limits)});
        let answer = self.server.link.ask(self.who, "tools/call", params, CREATE_WITHIN * self.launch.wall.slowness)?;
        let id = answer.field(tools::SANDBOX_POINTER).and_then(Value::as_str);
        let id = id.ok_or_else(|| fail(format!("no sandbox: {}", clip(&answer.text()))))?.to_owned();
        self.sessions.insert(name.to_owned(), Session { id: id.clone(), who: self.who, alive: true });
        Ok(id)
    }

    pub(crate) fn live_sandboxes(&self) -> usize {
        self.made.len() + self.sessions.values().filter(|session| session.alive).count()
    }

    /// Whose token it is, in the cases' words.
    pub(crate) fn caller_with(&self, token: &str) -> Result<Caller, Halt> {
        // Over stdio there are none.
        self.server.link.http()?;
        match token {
            "A" => Ok(Caller::A),
            "B" => Ok(Caller::B),
            other => Err(Halt::Skip(format!("driver does not know token {other}"))),
        }
    }

    pub(crate) fn start(&mut self, step: &Step, index: Option<usize>, unnamed: Unnamed) -> Result<Pending, Halt> {
        if let Action::As { token, step } = &step.action {
            self.who = self.caller_with(token)?;
            let started = self.start(step, index, unnamed);
            self.who = Caller::Good;
            return started;
        }
        let (method, mut params) = self.request(step, unnamed)?;
        if let Some(index) = index {
            tools::number_off(&mut params, index);
        }
        self.server.link.start(self.who, method, params)
    }

    /// Carries out one request and waits for its answer, a little beyond the time it may take.
    pub(crate) fn invoke(&mut self, step: &Step, index: Option<usize>, unnamed: Unnamed) -> Result<Answer, Halt> {
        let within = self.within(step);
        match self.start(step, index, unnamed) {
            Ok(pending) => Ok(pending.wait(grace(within))),
            Err(Halt::Fail(reason)) if self.crippled && step.allow_error => {
                Ok(Answer::new(json!({"error": {"message": reason}}), 0))
            }
            Err(halt) => Err(halt),
        }
    }

    pub(crate) fn within(&self, step: &Step) -> Duration {
        step.within.unwrap_or(seconds(self.case.expect.finish_within_s))
    }

    fn request(&mut self, step: &Step, unnamed: Unnamed) -> Result<(&'static str, Value), Halt> {
        let none = Limits::default();
        let (tool, arguments) = match &step.action {
            Action::Exec { session, language, code, limits, .. }
            | Action::StartExec { session, language, code, limits, .. } => {
                let sandbox = match (session, unnamed) {
                    (None, Unnamed::ThrowAway) => None,
                    (session, _) => Some(self.sandbox(session.as_deref(), limits)?),
                };
                (tools::RUN.to_owned(), tools::run_arguments(sandbox.as_deref(), language, code, limits))
            }
            Action::ReadFile { session, path, offset, length } => {
                let sandbox = self.sandbox(session.as_deref(), &none)?;
                let mut arguments = json!({"path": path, (tools::SANDBOX): sandbox});
                for (name, value) in [("offset", offset), ("length", length)] {
                    if let Some(value) = value {
                        arguments[name] = (*value).into();
                    }
                }
                ("read_file".to_owned(), arguments)
            }
            Action::ListFiles { session, path } => {
                let sandbox = self.sandbox(session.as_deref(), &none)?;
                ("list_files".to_owned(), json!({"path": path, (tools::SANDBOX): sandbox}))
            }
            Action::WriteFile { session, path, content, content_repeat, encoding, mode } => {
                let sandbox = self.sandbox(session.as_deref(), &none)?;
                let content = match (content, content_repeat) {
                    (_, Some((unit, times))) => unit.repeat(*times),
                    (content, None) => content.clone().unwrap_or_default(),
                };
                let mut arguments = json!({"path": path, "content": content, (tools::SANDBOX): sandbox});
                for (name, value) in [("encoding", encoding), ("mode", mode)] {
                    if let Some(value) = value {
                        arguments[name] = value.as_str().into();
                    }
                }
                ("write_file".to_owned(), arguments)
            }
            Action::Destroy { session } => {
                let sandbox = self.sandbox(session.as_deref(), &none)?;
                (tools::DESTROY.to_owned(), json!({(tools::SANDBOX): sandbox}))
            }
            // There is no such tool; a server that has one after all must not show a stranger's sandboxes.
            Action::ListSessions {} => ("list_sandboxes".to_owned(), json!({})),
            Action::SearchTools { query } => (tools::SEARCH.to_owned(), json!({"query": query})),
            Action::Call { tool, args } => (tools::tool_for(tool).to_owned(), self.call_arguments(tool, args)?),
            Action::ResourceRead { uri } => {
                let sandbox = self.sandbox(None, &none)?;
                return Ok(("resources/read", json!({"uri": uri.replace("@@SESSION@@", &sandbox)})));
            }
            _ => return Err(Halt::Skip(format!("driver cannot send op {} here", step.op))),
        };
        Ok(("tools/call", json!({"name": tool, "arguments": arguments})))
    }

    fn call_arguments(&mut self, tool: &str, args: &serde_json::Map<String, Value>) -> Result<Value, Halt> {
        let mut arguments = serde_json::Map::new();
        for (name, value) in args {
            let value = match (name.as_str(), value.as_str()) {
                ("language", Some(language)) => tools::language_for(language).into(),
                _ => value.clone(),
            };
            arguments.insert(tools::argument_for(name).to_owned(), value);
        }
        if tool == "exec" && !arguments.contains_key(tools::SANDBOX) {
            arguments.insert(tools::SANDBOX.to_owned(), self.sandbox(None, &Limits::default())?.into());
        }
        Ok(Value::Object(arguments))
    }

    /// Called before the server is made to go: nothing of it may stay.
    pub(crate) fn remember_family(&mut self) {
        self.doomed.extend(self.launch.wall.family(self.server.pid()).into_iter().skip(1));
    }

    /// Goes on with another server.
    pub(crate) fn replace_server(&mut self, with: Server) {
        *self.server = with;
        self.sessions.clear();
        self.made.clear();
        if let Some(watch) = &self.watch {
            watch.follow(self.server.pid());
        }
    }

    pub(crate) fn any_timeout(&self) -> bool {
        let saved = self.saved.iter().map(|saved| &saved.answer);
        saved.chain(self.lists.iter().flatten()).any(|answer| answer.lost == Some(Lost::Timeout))
    }

    /// Takes down every sandbox of the case, so that the next one finds the host as this one did.
    pub(crate) fn destroy_all(&mut self) -> Result<(), Halt> {
        self.running.clear();
        self.running_unnamed.clear();
        let named = self.sessions.values_mut().filter(|session| session.alive).map(|session| {
            session.alive = false;
            (session.who, session.id.clone())
        });
        let made = self.made.drain(..).map(|id| (Caller::Good, id));
        let all: Vec<(Caller, String)> = named.chain(made).collect();
        if !self.server.is_usable() {
            return Ok(());
        }
        for some in all.chunks(DESTROY_AT_ONCE) {
            let mut pending = Vec::new();
            for (who, id) in some {
                let params = json!({"name": tools::DESTROY, "arguments": {(tools::SANDBOX): id}});
                pending.push(self.server.link.start(*who, "tools/call", params)?);
            }
            let deadline = Instant::now() + DESTROY_WITHIN * self.launch.wall.slowness;
            for one in pending {
                let left = deadline.saturating_duration_since(Instant::now());
                // An error is fine: the case may have killed or outlived it.
                if one.wait(left).lost == Some(Lost::Timeout) {
                    return Err(fail("a sandbox was not destroyed in time"));
                }
            }
        }
        Ok(())
    }
}

fn knock_on_closed_port(host: &Host) -> Result<Knock, Halt> {
    let knock = Knock::start(host.ip, SANDBOX_PORT);
    thread::sleep(Duration::from_millis(300));
    match knock.opened() {
        None => Ok(knock),
        Some(door) => Err(Halt::Skip(format!("{door} is in use on this host"))),
    }
}

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(60))
}

/// How long to wait for an answer that should come within a time: long enough to tell late from never.
pub(crate) fn grace(within: Duration) -> Duration {
    within.max(Duration::from_secs(5)) + Duration::from_secs(5)
}

pub(crate) fn clip(text: &str) -> String {
    let flat: String = text.chars().take(200).collect();
    flat.replace('\n', " ")
}
