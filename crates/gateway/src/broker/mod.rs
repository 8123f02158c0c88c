//! One run's desk: every call is looked up, paid for, checked, decided on, made, and written down.
//!
//! ```text
//! question ─▶ which tool ─▶ budget ─▶ arguments fit? ─▶ policy ──▶ upstream ─▶ value ─▶ answer
//!                                                         └─ ask: waits for a person
//! ```
//!
//! The same path serves the calls that a model makes directly, so that no way around the policy exists.

mod budget;
mod lookup;
mod passing;
mod question;
mod value;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::{Caller, Calls, Desk, Made, Soon, Spool};
use rmcp::model::CallToolResult;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::budget::Budget;
use self::budget::Purse;
pub(crate) use self::lookup::tool;
pub use self::passing::Passing;
pub(crate) use self::question::SearchQuestion;
use self::question::{CallQuestion, Question};
use self::value::Keeps;
use crate::approval::{Subject, Verdict};
use crate::audit::{self, Decided, Line};
use crate::catalogue::Tool;
use crate::error::{CallError, ErrorKind};
use crate::gateway::Inner;
use crate::ledger;
use crate::policy::Decision;
use crate::stubs;

/// Calls that a report lists one by one.
const MADE_MAX: usize = 200;

/// An upstream's own words on why it failed.
const MESSAGE_CHARS_MAX: usize = 16 * 1024;

/// What an error can have besides.
const DATA_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct RunDesk {
    gateway: Arc<Inner>,
    caller: Caller,
    purse: Purse,
    turns: Semaphore,
    state: Mutex<State>,
    files: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    made: Vec<Made>,
    more: u64,
    /// What direct calls would have put into the context.
    direct_bytes: u64,
    /// Tools whose definitions are in that.
    defined: HashSet<String>,
    /// Tools that a person approved for this run, by server and name.
    granted: HashSet<(String, String)>,
}

/// A call's story, for those who read it later.
#[derive(Debug)]
struct Story {
    decision: &'static str,
    bytes_out: usize,
    bytes_in: usize,
    arguments: String,
    result: Option<String>,
    traceparent: Option<String>,
}

/// Sees to it that a call is written down, also when whoever made it hangs up or is killed meanwhile.
struct Telling<'a> {
    desk: &'a RunDesk,
    tool: &'a Tool,
    story: Story,
    begun: Instant,
    is_told: bool,
}

impl Telling<'_> {
    fn tell(&mut self, outcome: &'static str) {
        self.is_told = true;
        self.desk.write_down(self.tool, &self.story, outcome, self.begun.elapsed());
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.desk.purse.spent(0, self.begun.elapsed());
            self.tell(ErrorKind::Cancelled.name());
        }
    }
}

impl RunDesk {
    pub(crate) fn new(gateway: Arc<Inner>, caller: Caller) -> RunDesk {
        let budget = gateway.settings.budget;
        RunDesk {
            gateway,
            caller,
            purse: Purse::new(budget),
            turns: Semaphore::new(budget.in_flight),
            state: Mutex::default(),
            files: AtomicU64::new(0),
        }
    }

    async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, CallError> {
        self.turns.acquire().await.map_err(|_| CallError::new(ErrorKind::Cancelled, "the run has ended"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer as JSON. One that is long is never in memory more often than it has to be.
    async fn answer(&self, question: &[u8], spool: &dyn Spool) -> Result<String, CallError> {
        let answer = match Question::parse(question)? {
            Question::Call(call) => return self.call(call, spool).await,
            Question::Search(wanted) => {
                let _turn = self.turn().await?;
                self.purse.call(0)?;
                self.gateway.find(&self.caller.owner, &wanted).await
            }
            Question::Describe(wanted) => {
                let tool = self.gateway.tool(None, &wanted.name).await?;
                Ok(json!({"text": stubs::stub(&tool, wanted.language.dialect())}))
            }
            Question::List => Ok(self.gateway.servers().await),
            Question::Skills(skills) => self.skills(skills).await,
        };
        answer.map(|answer| answer.to_string())
    }

    async fn call(&self, call: CallQuestion, spool: &dyn Spool) -> Result<String, CallError> {
        let (server, name) =
            (call.server.as_deref(), call.tool.as_deref().or(call.name.as_deref()).unwrap_or_default());
        let tool = match self.gateway.tool(server, name).await {
            Ok(tool) => tool,
            Err(error) => return Err(self.not_called(server, name, &call.arguments, error)),
        };
        let settings = self.gateway.server(&tool.server);
        let result = self.made(&tool, call.arguments, call.timeout).await?;
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{}-{number}", tool.ident.chars().take(40).collect::<String>());
        let parses = settings.is_none_or(|server| server.parses);
        if call.raw {
            let (structured, meta, text) =
                (result.structured_content.clone(), result.meta.clone(), value::words(&result));
            let told = value::told(&tool, parses, result, Keeps::Blocks, &prefix, spool).await?;
            let whole = json!({"value": told.value, "text": text, "content": told.content, "structured": structured,
                "is_error": false, "meta": meta, "files": told.files});
            return spooled("raw", whole.to_string(), "", &prefix, spool).await;
        }
        let told = value::told(&tool, parses, result, Keeps::Value, &prefix, spool).await?;
        let more = if told.parsed { ",\"parsed\":true" } else { ",\"parsed\":false" };
        spooled("value", told.value.to_string(), more, &prefix, spool).await
    }

    /// A call, all the way to the result that is no error; written down whatever came of it.
    pub(crate) async fn made(
        &self,
        tool: &Arc<Tool>,
        arguments: Map<String, Value>,
        timeout: Option<f64>,
    ) -> Result<CallToolResult, CallError> {
        let mut arguments = Value::Object(arguments);
        self.gateway.settings.privacy.reveal(&self.caller.owner, &mut arguments);
        let text = arguments.to_string();
        let story = Story {
            decision: "refused",
            bytes_out: text.len(),
            bytes_in: 0,
            arguments: audit::sha256(text.as_bytes()),
            result: None,
            traceparent: None,
        };
        let Value::Object(arguments) = arguments else { return Err(question::no_question("arguments are no object")) };
        let mut telling = Telling { desk: self, tool, story, begun: Instant::now(), is_told: false };
        let made = self.attempt(tool, arguments, timeout, &mut telling.story).await.map_err(|mut error| {
            error.server.clone_from(&tool.server);
            error.tool.clone_from(&tool.name);
            error
        });
        telling.tell(made.as_ref().map_or_else(|error| error.kind.name(), |_| "ok"));
        made
    }

    async fn attempt(
        &self,
        tool: &Arc<Tool>,
        arguments: Map<String, Value>,
        timeout: Option<f64>,
        story: &mut Story,
    ) -> Result<CallToolResult, CallError> {
        self.purse.call(story.bytes_out)?;
        let problems = self.gateway.validator(tool).problems(&arguments);
        if !problems.is_empty() {
            let signature = stubs::signature(tool, stubs::Dialect::Python);
            let message = format!("{} was not called: {}", tool.path(), problems.join("; "));
            let mut error = CallError::new(ErrorKind::InvalidArguments, message);
            (error.problems, error.signature) = (problems, Some(signature));
            return Err(error);
        }
        story.decision = self.permitted(tool, &arguments).await.inspect_err(|_| story.decision = "denied")?;
        // After the person, who takes longer than any tool.
        let _turn =
            self.turns.acquire().await.map_err(|_| CallError::new(ErrorKind::Cancelled, "the run has ended"))?;
        let limit = self.limit(&tool.server, timeout);
        let begun = Instant::now();
        story.traceparent = self.gateway.settings.audit.calling(&self.caller.run);
        let traceparent = story.traceparent.as_deref();
        let (upstreams, never) = (&self.gateway.upstreams, CancellationToken::new());
        let result = upstreams.call_in_trace(&tool.server, &tool.name, arguments, limit, &never, traceparent).await;
        let result = result.inspect_err(|_| self.purse.spent(0, begun.elapsed()))?;
        let (bytes, digest) = audit::measured(&result);
        story.bytes_in = bytes;
        story.result = Some(digest);
        self.purse.spent(story.bytes_in, begun.elapsed());
        if result.is_error == Some(true) {
            let words: String = value::words(&result).chars().take(MESSAGE_CHARS_MAX).collect();
            let words = if words.trim().is_empty() { "the tool failed and did not say why".to_owned() } else { words };
            let data = result.structured_content.filter(|_| story.bytes_in <= DATA_BYTES_MAX);
            return Err(CallError { data, ..CallError::new(ErrorKind::ToolError, words) });
        }
        Ok(result)
    }

    /// A call of what there is not, or of what is not for programs: it is paid for and written down as any other.
    fn not_called(
        &self,
        server: Option<&str>,
        name: &str,
        arguments: &Map<String, Value>,
        error: CallError,
    ) -> CallError {
        let (bytes_out, arguments) = audit::measured(arguments);
        if let Err(over) = self.purse.call(bytes_out) {
            return over;
        }
        let short = |text: &str| text.chars().take(200).collect::<String>();
        let (server, tool) = match error.tool.is_empty() {
            true => (short(server.unwrap_or_default()), short(name)),
            false => (error.server.clone(), error.tool.clone()),
        };
        let decision = if error.kind == ErrorKind::PolicyDenied { "denied" } else { "refused" };
        let story = Story { decision, bytes_out, bytes_in: 0, arguments, result: None, traceparent: None };
        self.note(server, tool, &story, error.kind.name(), Duration::ZERO);
        error
    }

    fn limit(&self, server: &str, wanted: Option<f64>) -> Duration {
        let usual = self.gateway.server(server).map_or(crate::gateway::CALL_DEFAULT, |server| server.timeout);
        let wanted = wanted.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        // A program can wait for less than the operator allows, not for more.
        wanted.filter(|limit| !limit.is_zero()).unwrap_or(usual).min(usual)
    }

    /// How it was permitted.
    async fn permitted(&self, tool: &Tool, arguments: &Map<String, Value>) -> Result<&'static str, CallError> {
        let gateway = &self.gateway;
        let key = (tool.server.clone(), tool.name.clone());
        match gateway.decide(tool, arguments) {
            Decision::Allow => return Ok("allowed"),
            Decision::Deny => {
                let message =
                    format!("{} is denied by this server's policy; use another tool, or ask the operator", tool.path());
                return Err(CallError::new(ErrorKind::PolicyDenied, message));
            }
            Decision::Ask if self.state().granted.contains(&key) => return Ok("approved"),
            Decision::Ask if gateway.is_remembered(&self.caller.owner, tool, arguments) => return Ok("approved"),
            Decision::Ask => {}
        }
        let subject = Subject::Call { server: key.0.clone(), tool: key.1.clone(), arguments: arguments.clone() };
        self.approved(subject, &tool.path(), Some(&key.1)).await.map(|verdict| {
            match verdict {
                Verdict::Run => {
                    self.state().granted.insert(key);
                }
                Verdict::Same => gateway.remember(&self.caller.owner, tool, arguments),
                Verdict::Once | Verdict::Deny => {}
            }
            "approved"
        })
    }

    /// What a person said to it, if that was no refusal.
    async fn approved(&self, subject: Subject, what: &str, rule: Option<&str>) -> Result<Verdict, CallError> {
        let verdict = match self.caller.occasion {
            Some(occasion) => self.gateway.approvals.request(occasion, subject.clone()).await,
            None => None,
        };
        let decided = Decided::new(&self.caller.owner, Some(&self.caller.run), &subject, verdict);
        self.gateway.settings.audit.decided(&decided);
        match verdict {
            Some(Verdict::Deny) => {
                let message = format!("a person refused {what}; do not try it again, and say so");
                Err(CallError::new(ErrorKind::ApprovalDenied, message))
            }
            Some(verdict) => Ok(verdict),
            None => {
                let hint = rule.map(|rule| format!(" it with \"allow\": [{rule:?}] for its server, or everything"));
                let message = format!(
                    "{what} needs a person's approval, and nobody can be asked here: the client offers no elicitation, or the run \
                     is in the background. The operator can allow{} with --approve never",
                    hint.unwrap_or_default()
                );
                Err(CallError::new(ErrorKind::ApprovalDenied, message))
            }
        }
    }

    fn write_down(&self, tool: &Tool, story: &Story, outcome: &'static str, took: Duration) {
        {
            let mut state = self.state();
            if state.defined.insert(tool.digest.clone()) {
                state.direct_bytes += tool.definition.to_string().len() as u64;
            }
            state.direct_bytes += (story.bytes_out + story.bytes_in) as u64;
        }
        self.note(tool.server.clone(), tool.name.clone(), story, outcome, took);
    }

    /// One line of the audit, and one of the report.
    fn note(&self, server: String, tool: String, story: &Story, outcome: &'static str, took: Duration) {
        let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let name = format!("{server}.{tool}");
        self.gateway.settings.audit.called(&Line {
            owner: self.caller.owner.clone(),
            run: self.caller.run.clone(),
            sandbox: self.caller.sandbox.clone(),
            server,
            tool,
            decision: story.decision,
            outcome,
            milliseconds,
            bytes_out: story.bytes_out as u64,
            bytes_in: story.bytes_in as u64,
            arguments_sha256: story.arguments.clone(),
            result_sha256: story.result.clone(),
            traceparent: story.traceparent.clone(),
        });
        let mut state = self.state();
        if state.made.len() < MADE_MAX {
            state.made.push(Made { tool: name, outcome: outcome.to_owned(), milliseconds });
        } else {
            state.more += 1;
        }
    }

    async fn skills(&self, question: question::SkillsQuestion) -> Result<Value, CallError> {
        use question::SkillsQuestion as Q;
        let (gateway, owner) = (&self.gateway, self.caller.owner.as_str());
        let snapshot = gateway.snapshot().await;
        let skills = &gateway.settings.skills;
        match question {
            Q::Save(wanted) => {
                let skill = skills.check(wanted, &snapshot.offered)?;
                let key = ("skills".to_owned(), "save".to_owned());
                let is_free = gateway.settings.approve == crate::policy::Approve::Never;
                if !is_free && !self.state().granted.contains(&key) {
                    let arguments = serde_json::to_value(&skill).unwrap_or_default();
                    let arguments = arguments.as_object().cloned().unwrap_or_default();
                    let subject = Subject::Call { server: key.0.clone(), tool: key.1.clone(), arguments };
                    let what = format!("keeping the skill {}", skill.name);
                    if self.approved(subject, &what, None).await? == Verdict::Run {
                        self.state().granted.insert(key);
                    }
                }
                skills.keep(owner, &skill)?;
                gateway.forget_skills(owner);
                let note = json!({"name": skill.name, "tools": skill.tools.keys().collect::<Vec<_>>()});
                Ok(json!({"saved": note}))
            }
            Q::Get { name } => {
                let skill = skills.get(owner, &name, &snapshot.offered)?;
                // What is offered may be known from the last time, and the server be another one by now.
                for server in crate::skills::servers(&skill, &snapshot.offered) {
                    let listed = gateway.upstreams.list_now(&server).await?;
                    let now = stubs::catalogue(vec![(server.clone(), Ok(listed))]);
                    crate::skills::current(&skill.of(&server, &snapshot.offered), &now)?;
                }
                Ok(json!({"skill": {"name": skill.name, "description": skill.description, "language": skill.language,
                    "code": skill.code}}))
            }
            Q::List {} => {
                let all = skills.list(owner).into_iter().map(|skill| {
                    json!({"name": skill.name, "description": skill.description, "language": skill.language,
                        "tools": skill.tools.keys().collect::<Vec<_>>(),
                        "stale": crate::skills::stale(&skill, &snapshot.offered)})
                });
                Ok(json!({"skills": all.collect::<Vec<_>>()}))
            }
            Q::Remove { name } => {
                skills.remove(owner, &name)?;
                gateway.forget_skills(owner);
                Ok(json!({"removed": name}))
            }
        }
    }
}

/// The answer `{"key": text, more}`, or where the text is if it is long.
async fn spooled(key: &str, text: String, more: &str, prefix: &str, spool: &dyn Spool) -> Result<String, CallError> {
    if text.len() <= value::INLINE_MAX {
        return Ok(format!("{{\"{key}\":{text}{more}}}"));
    }
    let size = text.len();
    let kept = spool.keep(&format!("{prefix}.json"), text.into_bytes()).await;
    let path = kept.map_err(|error| value::no_room(&error))?;
    Ok(json!({"spooled": path, "bytes": size}).to_string())
}

impl Desk for RunDesk {
    fn ask<'a>(&'a self, question: &'a [u8], spool: &'a dyn Spool) -> Soon<'a, Vec<u8>> {
        Box::pin(async move {
            let answer = self.answer(question, spool).await;
            let mut line = answer.unwrap_or_else(|error| json!({"error": error}).to_string());
            line.push('\n');
            line.into_bytes()
        })
    }

    fn calls(&self) -> Calls {
        let state = self.state();
        let direct_tokens = ledger::estimate(state.direct_bytes);
        Calls { made: state.made.clone(), more: state.more, direct_tokens }
    }
}

/// For what a search says besides the tools.
pub(crate) fn skill_lines(gateway: &Inner, owner: &str, query: &str) -> Vec<String> {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let skills = gateway.settings.skills.list(owner).into_iter();
    let fits = |skill: &crate::skills::Skill| {
        let text = format!("{} {}", skill.name, skill.description).to_lowercase();
        words.is_empty() || words.iter().any(|word| word.len() > 2 && text.contains(word.as_str()))
    };
    skills
        .filter(fits)
        .take(10)
        .map(|skill| format!("skills.{} — {}", skill.name.replace('-', "_"), skill.description))
        .collect()
}

/// Compiled checks of arguments, by the digest of the tool.
pub(crate) type Validators = Mutex<HashMap<String, Arc<stubs::Validator>>>;
