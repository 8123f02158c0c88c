//! `destroy_sandbox`: ends a sandbox and all that is in it.

use rmcp::model::CallToolResult;

use super::{Arguments, Call, ToolError};
use crate::answer;

pub(super) async fn call(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), &["sandbox_id"])?;
    let sandbox = arguments.text("sandbox_id")?;
    call.engine.destroy(call.who, &sandbox).await?;
    Ok(answer::destroyed(&sandbox))
}
