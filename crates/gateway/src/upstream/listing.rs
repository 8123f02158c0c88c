//! The tools of a server, asked for page by page, and never more than anybody can use.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ErrorCode, ListToolsRequest, PaginatedRequestParams, ServerResult};
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::Listed;

const TOOLS_MAX: usize = 2000;
const PAGES_MAX: usize = 50;
const BYTES_MAX: usize = 16 * 1024 * 1024;
const INSTRUCTIONS_CHARACTERS_MAX: usize = 64 * 1024;

/// A list, and why it is not all of it.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) listed: Listed,
    pub(super) cut: Option<String>,
}

/// All pages, as far as the bounds go.
pub(super) async fn fetch(peer: &Peer<RoleClient>, limit: Duration) -> Result<Fetched, ServiceError> {
    let instructions = peer.peer_info().and_then(|info| info.instructions.clone());
    let instructions = instructions.map(|text| text.chars().take(INSTRUCTIONS_CHARACTERS_MAX).collect());
    let deadline = Instant::now() + limit;
    let mut tools: Vec<Value> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let mut bytes = 0;
    let mut seen = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut cut = None;
    for page in 1.. {
        let params = Some(PaginatedRequestParams::default().with_cursor(cursor.take()));
        let request = ListToolsRequest { params, ..ListToolsRequest::default() };
        let answer = match timeout_at(deadline, peer.send_request(ClientRequest::ListToolsRequest(request))).await {
            Ok(Ok(answer)) => answer,
            // A server without tools need not know the question.
            Ok(Err(ServiceError::McpError(error))) if error.code == ErrorCode::METHOD_NOT_FOUND && page == 1 => break,
            Ok(Err(error)) if page == 1 => return Err(error),
            Err(_) if page == 1 => return Err(ServiceError::Timeout { timeout: limit }),
            Ok(Err(_)) => {
                cut = Some(format!("page {page} of its tools could not be had"));
                break;
            }
            Err(_) => {
                cut = Some(format!("its tools did not come within {} s", limit.as_secs_f64()));
                break;
            }
        };
        let (found, next) = page_of(answer)?;
        for tool in found {
            // A server that says the same twice has said one thing; two tools of one name are another matter.
            let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
            if by_name.get(name).is_some_and(|known| tools[*known] == tool) {
                continue;
            }
            bytes += tool.to_string().len();
            if tools.len() == TOOLS_MAX {
                cut = Some(format!("it has more than {TOOLS_MAX} tools"));
            } else if bytes > BYTES_MAX {
                cut = Some(format!("the definitions of its tools are over {} MB", BYTES_MAX / 1024 / 1024));
            }
            if cut.is_some() {
                break;
            }
            by_name.insert(name.to_owned(), tools.len());
            tools.push(tool);
        }
        match next.filter(|next| !next.is_empty()) {
            _ if cut.is_some() => break,
            None => break,
            Some(next) if !seen.insert(next.clone()) => {
                cut = Some("its list of tools runs in a circle".into());
                break;
            }
            Some(_) if page == PAGES_MAX => {
                cut = Some(format!("its list of tools has more than {PAGES_MAX} pages"));
                break;
            }
            next => cursor = next,
        }
    }
    let cut = cut.map(|why| format!("{why}; the first {} are known", tools.len()));
    Ok(Fetched { listed: Listed { instructions, tools }, cut })
}

/// The tools of one answer. One that is not as it should be does not cost the others.
fn page_of(answer: ServerResult) -> Result<(Vec<Value>, Option<String>), ServiceError> {
    if let ServerResult::ListToolsResult(page) = answer {
        let tools = page.tools.iter().filter_map(|tool| serde_json::to_value(tool).ok()).collect();
        return Ok((tools, page.next_cursor));
    }
    let answer = serde_json::to_value(answer).map_err(|_| ServiceError::UnexpectedResponse)?;
    let tools = answer.get("tools").and_then(Value::as_array).ok_or(ServiceError::UnexpectedResponse)?;
    let next = answer.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
    Ok((tools.iter().filter(|tool| tool.get("name").is_some_and(Value::is_string)).cloned().collect(), next))
}
