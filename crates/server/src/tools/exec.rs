//! `exec`: one command line in a sandbox that stays.

use belljar_core::{Program, Source, Stdin};
use belljar_engine::{RunRequest, Wants};
use rmcp::model::CallToolResult;

use super::{Arguments, Call, ToolError, Wanted, program, run, wanted};

const ARGUMENTS: &[&str] = &["sandbox_id", "command", "cwd", "env", "stdin", "timeout", "background"];

pub(super) async fn call(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), ARGUMENTS)?;
    let sandbox = arguments.text("sandbox_id")?;
    let command = arguments.text("command")?;
    let (wall, wanted) = (arguments.optional_seconds("timeout")?, wanted(&mut arguments)?);
    let mut program = Program {
        cwd: arguments.optional_text("cwd")?,
        env: arguments.strings("env")?,
        ..program(Source::Command(command), &mut arguments)?
    };
    // A job that was given no input may be given some later.
    if wanted == Wanted::Job && program.stdin == Stdin::empty() {
        program.stdin = Stdin::Live;
    }
    let request = RunRequest { sandbox: Some(sandbox), program, wants: Wants::default() };
    run(&call, request, wall, wanted).await
}
