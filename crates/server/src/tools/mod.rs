//! The tools: each reads its arguments, makes one call of the engine, and answers.

mod arguments;
mod create_sandbox;
mod destroy;
mod exec;
mod files;
mod job;
mod run_code;
mod upload;

use std::time::Duration;

use belljar_core::{Program, Source, Stdin};
use belljar_engine::{
    Answer, Attendance, Away, Departure, Engine, EngineError, JobView, Phase, Principal, Run, RunRequest, Stays,
};
use rmcp::model::{CallToolResult, JsonObject};

use crate::answer::{self, Told};
use crate::progress::Progress;
use arguments::{Arguments, BadArgument};

const WALL_DEFAULT: Duration = Duration::from_secs(30);

/// Changed files that a run tells of. The answer lists a few; a throw-away sandbox hands over these.
const CHANGED_MAX: u32 = 100;

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
}

/// Why a tool has no result: words for the agent.
#[derive(Debug, thiserror::Error)]
enum ToolError {
    #[error(transparent)]
    Argument(#[from] BadArgument),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The answer of the tool called `name`; `None` when there is no such tool.
pub(crate) async fn call(name: &str, call: Call<'_>) -> Option<CallToolResult> {
    let answered = match name {
        "run_code" => run_code::call(call).await,
        "create_sandbox" => create_sandbox::call(call).await,
        "exec" => exec::call(call).await,
        "job" => job::call(call).await,
        "write_file" => files::write(call).await,
        "read_file" => files::read(call).await,
        "list_files" => files::list(call).await,
        "destroy_sandbox" => destroy::call(call).await,
        _ => return None,
    };
    Some(answered.unwrap_or_else(|error| {
        tracing::debug!(tool = name, ?error, "a tool call was refused");
        answer::refused(&error.to_string())
    }))
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
    let settings = call.engine.settings();
    request.program.wall = wall.unwrap_or(match wanted {
        Wanted::Answer => WALL_DEFAULT,
        Wanted::Job => settings.wall_max.min(settings.age_max),
    });
    let wall = request.program.wall;
    let phase = Phase::default();
    let attendance = Attendance { stays, departure: call.departure.clone(), phase: phase.clone() };
    let attending = call.engine.attend(call.who, request, attendance);
    match call.progress.during(wall.min(call.patience), &phase, attending).await? {
        Answer::Finished(run) => Ok(answer::ran(&whole(call, &run, wall))),
        Answer::Job(job) => Ok(answer::still_running(&job)),
    }
}

fn whole<'a>(call: &Call<'_>, run: &'a Run, wall: Duration) -> Told<'a> {
    let kept = call.engine.kept(call.who, run.id.as_str()).is_some();
    Told { run, stdout: &run.report.stdout, stderr: &run.report.stderr, wall, kept }
}

/// A job as its caller is told of it: what is new, and how it ended if it has.
fn looked_at(call: &Call<'_>, job: &JobView) -> CallToolResult {
    match &job.ended {
        None => answer::still_running(job),
        Some(run) => {
            let told = whole(call, run, run.report.duration);
            let mut result = answer::ran(&Told { stdout: &job.stdout, stderr: &job.stderr, ..told });
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
