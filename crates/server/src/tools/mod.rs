//! The tools: each reads its arguments, makes one call of the engine, and answers.

mod arguments;
mod create_sandbox;
mod destroy;
mod exec;
mod files;
mod run_code;

use std::time::Duration;

use belljar_core::{Program, Source, Stdin};
use belljar_engine::{Engine, EngineError, Principal, RunRequest};
use rmcp::model::{CallToolResult, JsonObject};

use crate::answer;
use crate::progress::Progress;
use arguments::{Arguments, BadArgument};

const WALL_DEFAULT: Duration = Duration::from_secs(30);

/// One call of a tool, and on whose behalf.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) who: &'a Principal,
    pub(crate) progress: Progress,
    pub(crate) arguments: Option<JsonObject>,
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

/// What `run_code` and `exec` have in common: run the program, tell how far it is, answer with its report.
async fn run(call: &Call<'_>, sandbox: Option<String>, program: Program) -> Result<CallToolResult, ToolError> {
    let wall = program.wall;
    let request = RunRequest { sandbox, program };
    let run = call.progress.during(wall, call.engine.run(call.who, request)).await?;
    let kept = |stream| call.engine.kept_output(call.who, run.id.as_str(), stream).is_some();
    Ok(answer::ran(&run, wall, kept))
}

fn program(source: Source, arguments: &mut Arguments) -> Result<Program, BadArgument> {
    Ok(Program {
        source,
        env: Vec::new(),
        cwd: None,
        stdin: Stdin::Whole(arguments.optional_text("stdin")?.unwrap_or_default().into_bytes()),
        wall: arguments.optional_seconds("timeout")?.unwrap_or(WALL_DEFAULT),
    })
}

#[cfg(test)]
mod tests;
