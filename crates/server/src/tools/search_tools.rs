//! `search_tools`: what programs can call of other servers.

use rmcp::model::{CallToolResult, ContentBlock};

use super::{Arguments, BadArgument, Call, ToolError};
use crate::answer;
use crate::gateway::{Detail, Search};

const ARGUMENTS: &[&str] = &["query", "detail", "server", "limit"];
const LIMIT_DEFAULT: u64 = 10;
const LIMIT_MAX: u64 = 100;
const QUERY_BYTES_MAX: usize = 4096;

pub(super) async fn call(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), ARGUMENTS)?;
    let query = arguments.optional_text("query")?.unwrap_or_default();
    if query.len() > QUERY_BYTES_MAX {
        return Err(BadArgument::new(format!("query is longer than {QUERY_BYTES_MAX} bytes; send a few words")).into());
    }
    let detail = match arguments.choice("detail", &["signatures", "names", "full"])? {
        "names" => Detail::Names,
        "full" => Detail::Full,
        _ => Detail::Signatures,
    };
    let server = arguments.optional_text("server")?;
    let limit = arguments.optional_whole("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT) as usize;
    let Some(asking) = &call.asking else {
        return Err(BadArgument::new("there are no other servers here to search").into());
    };
    let found = asking.code_mode.search(call.who.as_str(), Search { query, detail, server, limit }).await;
    Ok(match found {
        Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
        Err(error) => answer::call_failed(&error),
    })
}
