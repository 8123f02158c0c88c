//! The tools: each reads its arguments, makes one call of the engine, and answers.

mod arguments;
mod create_sandbox;
mod destroy;
mod exec;
mod files;
mod job;
mod run_code;
mod search_tools;
mod upload;

use std::time::Duration;

use belljar_core::{Program, Source, Stdin};
use belljar_engine::{Answer, Away, Departure, Engine, EngineError, JobView, Principal, Run, RunRequest, Stays};
use belljar_gateway::ledger;
use rmcp::model::{CallToolResponse, CallToolResult, JsonObject, MetaObject};
use serde_json::json;

use crate::answer::{self, Told};
use crate::approval::{self, Asking, Question, Unanswered};
use crate::logging::Log;
use crate::progress::Progress;
use crate::tasks::Tasks;
use arguments::{Arguments, BadArgument};

const WALL_DEFAULT: Duration = Duration::from_secs(30);

/// Changed files that a run tells of. The answer lists a few; a throw-away sandbox hands over these.
const CHANGED_MAX: u32 = 100;

/// Where the files of an archive would be written, and how long each is; for those who fuzz what reads it.
pub(crate) fn unpacked(archive: &[u8], directory: &str) -> Option<Vec<(String, usize)>> {
    Some(upload::unpacked(archive, directory).ok()?.iter().map(upload::File::place).collect())
}

/// What is said of arguments, each read as everything that one can be; for those who fuzz what reads them.
pub(crate) fn complaints(arguments: &JsonObject) -> Vec<String> {
    let unknown = Arguments::new(Some(arguments.clone()), &["code"]).map(drop);
    let mut answers = vec![unknown];
    for value in arguments.values().take(16) {
        let one = || Arguments::new(Some(JsonObject::from_iter([("one".to_owned(), value.clone())])), &["one"]);
        answers.extend([
            one().and_then(|mut one| one.text("one").map(|text| drop(arguments::base64_decode(&text)))),
            one().and_then(|mut one| one.choice("one", &["utf-8", "base64"]).map(drop)),
            one().and_then(|mut one| one.optional_seconds("one").map(drop)),
            one().and_then(|mut one| one.optional_flag("one").map(drop)),
            one().and_then(|mut one| one.optional_whole("one", 1, 16).map(drop)),
            one().and_then(|mut one| one.optional_milli("one").map(drop)),
            one().and_then(|mut one| one.strings("one").map(drop)),
            one().and_then(|mut one| one.list("one").map(drop)),
            one().and_then(|mut one| one.object("one", &["inner"]).map(drop)),
        ]);
    }
    answers.into_iter().filter_map(Result::err).map(|bad| bad.to_string()).collect()
}

/// One call of a tool, and on whose behalf.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) who: &'a Principal,
    pub(crate) progress: Progress,
    pub(crate) arguments: Option<JsonObject>,
    /// How long the caller waits for a run before that becomes a job.
    pub(crate) patience: Duration,
    pub(crate) departure: Departure,
    /// Where there are other servers: how somebody is asked.
    pub(crate) asking: Option<Asking<'a>>,
    /// Who hears what a run prints.
    pub(crate) log: Log,
    /// Where runs that take long become tasks, if the caller knows those.
    pub(crate) tasks: Option<&'a Tasks>,
}

/// Why a tool has no result: words for the agent.
#[derive(Debug, thiserror::Error)]
enum ToolError {
    #[error(transparent)]
    Argument(#[from] BadArgument),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Refused(String),
    /// A person has to say something first.
    #[error("a person is asked")]
    Asks(Question),
    /// It takes longer, and its caller knows what a task is.
    #[error("it goes on as a task")]
    Task(Box<JobView>),
}

impl From<Unanswered> for ToolError {
    fn from(unanswered: Unanswered) -> ToolError {
        match unanswered {
            Unanswered::Engine(error) => ToolError::Engine(error),
            Unanswered::Refused(sentence) => ToolError::Refused(sentence),
            Unanswered::Asks(question) => ToolError::Asks(question),
        }
    }
}

/// The answer of the tool called `name`; `None` when there is no such tool.
pub(crate) async fn call(name: &str, call: Call<'_>) -> Option<CallToolResponse> {
    let (tasks, who) = (call.tasks, call.who);
    let answered = match name {
        "run_code" => run_code::call(call).await,
        "create_sandbox" => create_sandbox::call(call).await,
        "exec" => exec::call(call).await,
        "job" => job::call(call).await,
        "write_file" => files::write(call).await,
        "read_file" => files::read(call).await,
        "list_files" => files::list(call).await,
        "destroy_sandbox" => destroy::call(call).await,
        "search_tools" if call.asking.is_some() => search_tools::call(call).await,
        _ => return None,
    };
    if let (Some(tasks), Err(ToolError::Task(job))) = (tasks, &answered) {
        return Some(CallToolResponse::Task(tasks.begin(who, job)));
    }
    Some(response(name, answered))
}

/// A call of another server's tool, as if it were one of ours; `None` when there is no such tool.
pub(crate) async fn call_directly(name: &str, call: Call<'_>) -> Option<CallToolResponse> {
    let answered = approval::direct(&call, name).await?;
    Some(response(name, answered.map_err(ToolError::from)))
}

/// How a call that is made elsewhere was permitted, or what is answered instead; `None` when there is no such tool.
pub(crate) async fn permit(
    server: &str,
    name: &str,
    call: &Call<'_>,
) -> Option<Result<&'static str, CallToolResponse>> {
    Some(match approval::permit(call, server, name).await? {
        Ok(Ok(decision)) => Ok(decision),
        Ok(Err(refused)) => Err((*refused).into()),
        Err(unanswered) => Err(response(name, Err(unanswered.into()))),
    })
}

fn response(name: &str, answered: Result<CallToolResult, ToolError>) -> CallToolResponse {
    match answered {
        Ok(result) => result.into(),
        Err(ToolError::Asks(question)) => CallToolResponse::InputRequired(*question),
        Err(error) => {
            tracing::debug!(tool = name, ?error, "a tool call was refused");
            answer::refused(&error.to_string()).into()
        }
    }
}

/// Whether the caller wants to stay for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Answer,
    Job,
}

fn wanted(arguments: &mut Arguments) -> Result<Wanted, BadArgument> {
    Ok(if arguments.optional_flag("background")?.unwrap_or(false) { Wanted::Job } else { Wanted::Answer })
}

/// What `run_code` and `exec` have in common: run the program, tell how far it is, answer with its report, or with the
/// job that it has become. `wall` is what the caller asked for.
async fn run(
    call: &Call<'_>,
    mut request: RunRequest,
    wall: Option<Duration>,
    wanted: Wanted,
) -> Result<CallToolResult, ToolError> {
    let stays = match (wanted, wall) {
        (Wanted::Answer, _) => Stays::For(call.patience),
        (Wanted::Job, Some(_)) => Stays::Away(Away::KeepsSandbox),
        (Wanted::Job, None) => Stays::Away(Away::LetsSandboxExpire),
    };
    request.program.wall = wall.unwrap_or(match wanted {
        Wanted::Answer => WALL_DEFAULT,
        Wanted::Job => call.engine.settings().wall_max.min(call.engine.tenure().age_max),
    });
    let wall = request.program.wall;
    match approval::attend(call, request, stays, wall.min(call.patience)).await? {
        Answer::Finished(run) => {
            let mut result = answer::ran(&whole(call, &run, wall));
            account(call, &run, &mut result);
            Ok(result)
        }
        // Who asked for a job is given one.
        Answer::Job(job) if call.tasks.is_some() && wanted == Wanted::Answer => Err(ToolError::Task(Box::new(job))),
        Answer::Job(job) => Ok(answer::still_running(&job)),
    }
}

/// All that came of a run that had become a task.
pub(crate) fn ended(engine: &Engine, who: &Principal, job: &JobView, run: &Run) -> CallToolResult {
    let kept = engine.kept(who, run.id.as_str()).is_some();
    let wall = run.report.duration;
    answer::ran(&Told { run, stdout: &job.stdout, stderr: &job.stderr, wall, kept })
}

fn whole<'a>(call: &Call<'_>, run: &'a Run, wall: Duration) -> Told<'a> {
    let kept = call.engine.kept(call.who, run.id.as_str()).is_some();
    Told { run, stdout: &run.report.stdout, stderr: &run.report.stderr, wall, kept }
}

/// Says in an answer what it costs in tokens, by its length, and what the run's calls would have cost without it.
pub(crate) fn account(call: &Call<'_>, run: &Run, result: &mut CallToolResult) {
    let Some(asking) = call.asking.as_ref().filter(|_| !run.calls.made.is_empty()) else { return };
    let texts = result.content.iter().filter_map(|block| block.as_text());
    let entered = ledger::estimate(texts.map(|text| text.text.len() as u64).sum());
    let direct = run.calls.direct_tokens;
    let calls = run.calls.made.len() as u64 + run.calls.more;
    asking.code_mode.account(call.who.as_str(), run.id.as_str(), calls, entered, direct);
    let meta = result.meta.get_or_insert_with(MetaObject::new);
    meta.0.insert("belljar/tokens".into(), json!({"entered": entered, "direct": direct}));
}

/// A job as its caller is told of it: what is new, and how it ended if it has.
fn looked_at(call: &Call<'_>, job: &JobView) -> CallToolResult {
    match &job.ended {
        None => answer::still_running(job),
        Some(run) => {
            let told = whole(call, run, run.report.duration);
            let mut result = answer::ran(&Told { stdout: &job.stdout, stderr: &job.stderr, ..told });
            account(call, run, &mut result);
            if let Some(structured) = &mut result.structured_content {
                structured["job_id"] = job.id.as_str().into();
                structured["next_offset"] = job.next_offset.into();
            }
            result
        }
    }
}

/// Its wall time is set when it is known how it is to be run.
fn program(source: Source, arguments: &mut Arguments) -> Result<Program, BadArgument> {
    Ok(Program {
        source,
        env: Vec::new(),
        cwd: None,
        stdin: Stdin::Whole(arguments.optional_text("stdin")?.unwrap_or_default().into_bytes()),
        wall: WALL_DEFAULT,
        changed_max: CHANGED_MAX,
    })
}

#[cfg(test)]
mod tests;
