//! Which tool a program means. Exact names first, then those that differ in spelling alone, if there is only one.

use std::sync::Arc;

use crate::catalogue::{Catalogue, Server, Tool};
use crate::error::{CallError, ErrorKind};
use crate::snapshot::Snapshot;

/// Names that are told to whoever got one wrong.
const SUGGESTIONS: usize = 5;

/// No name of a server and a tool together is longer. Looking for one takes time that grows with the square of its length.
const NAME_BYTES_MAX: usize = 512;

/// By server and name, or by a name that has the server in it, or that only one server has.
pub(crate) fn tool(snapshot: &Snapshot, server: Option<&str>, name: &str) -> Result<Arc<Tool>, CallError> {
    if name.len() + server.map_or(0, str::len) > NAME_BYTES_MAX {
        let message = format!("no tool has a name of over {NAME_BYTES_MAX} bytes; search for what it is to do");
        return Err(CallError::new(ErrorKind::UnknownTool, message));
    }
    match find(&snapshot.offered, server, name) {
        Found::One(tool) => Ok(tool),
        Found::Several(tools) => {
            let message = format!("{name:?} is a tool of several servers; name the one that is meant");
            let mut error = CallError::new(ErrorKind::UnknownTool, message);
            error.suggestions = tools.iter().take(SUGGESTIONS).map(|tool| tool.path()).collect();
            Err(error)
        }
        Found::None => Err(unknown(snapshot, server, name)),
    }
}

fn unknown(snapshot: &Snapshot, server: Option<&str>, name: &str) -> CallError {
    let shown: String = server.iter().flat_map(|server| [*server, "."]).chain([name]).collect();
    let shown: String = shown.chars().take(100).collect();
    if let Found::One(tool) = find(&snapshot.all, server, name) {
        let message =
            format!("{} is denied by this server's policy; use another tool, or ask the operator", tool.path());
        return CallError {
            server: tool.server.clone(),
            tool: tool.name.clone(),
            ..CallError::new(ErrorKind::PolicyDenied, message)
        };
    }
    let mentioned = server.or_else(|| name.split_once('.').map(|(server, _)| server));
    let mentioned = mentioned.and_then(|mentioned| server_named(&snapshot.offered, mentioned));
    if let Some(Server { name, trouble: Some(why), .. }) = mentioned.map(Arc::as_ref) {
        return CallError::new(ErrorKind::Upstream, format!("the tools of the server {name} are not known: {why}"));
    }
    let mut error = CallError::new(ErrorKind::UnknownTool, String::new());
    error.suggestions = snapshot.index.nearest(&shown, SUGGESTIONS);
    let hint = match error.suggestions.as_slice() {
        [] => "; search for what it is to do".to_owned(),
        some => format!("; did you mean {}?", some.join(", ")),
    };
    error.message = format!("there is no tool {shown:?}{hint}");
    error
}

enum Found {
    None,
    One(Arc<Tool>),
    Several(Vec<Arc<Tool>>),
}

fn find(catalogue: &Catalogue, server: Option<&str>, name: &str) -> Found {
    if let Some(server) = server {
        let Some(server) = server_named(catalogue, server) else { return Found::None };
        return one(tools_named(&server.tools, name));
    }
    // A server's name may have dots in it, and a tool's too.
    for separator in [".", "__", "/"] {
        for (at, _) in name.match_indices(separator) {
            let (server, tool) = (&name[..at], &name[at + separator.len()..]);
            if let Some(server) = server_named(catalogue, server)
                && let Found::One(tool) = one(tools_named(&server.tools, tool))
            {
                return Found::One(tool);
            }
        }
    }
    let all: Vec<Arc<Tool>> = catalogue.tools().cloned().collect();
    one(tools_named(&all, name))
}

fn one(mut tools: Vec<Arc<Tool>>) -> Found {
    match tools.len() {
        0 => Found::None,
        1 => Found::One(tools.remove(0)),
        _ => Found::Several(tools),
    }
}

fn server_named<'a>(catalogue: &'a Catalogue, name: &str) -> Option<&'a Arc<Server>> {
    let exact = catalogue.servers.iter().find(|server| server.name == name || server.ident == name);
    exact.or_else(|| {
        let plain = plain(name);
        let mut near = catalogue.servers.iter().filter(|server| self::plain(&server.ident) == plain);
        near.next().filter(|_| near.next().is_none())
    })
}

fn tools_named(tools: &[Arc<Tool>], name: &str) -> Vec<Arc<Tool>> {
    let exact: Vec<_> = tools.iter().filter(|tool| tool.name == name || tool.ident == name).cloned().collect();
    if !exact.is_empty() {
        return exact;
    }
    let plain = plain(name);
    tools.iter().filter(|tool| self::plain(&tool.ident) == plain).cloned().collect()
}

/// The same for `listIssues`, `list_issues` and `list-issues`.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::search::Index;
    use crate::stubs;
    use crate::upstream::Listed;

    fn snapshot() -> Snapshot {
        let listed = |tools: &[&str]| {
            let tools = tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            Ok(Listed { instructions: None, tools: tools.collect() })
        };
        let all = stubs::catalogue(vec![
            ("git.hub".into(), listed(&["list_issues", "get-me", "echo"])),
            ("slack".into(), listed(&["post.message", "echo"])),
            ("late".into(), Err("it is still starting".into())),
        ]);
        let index = Index::new(&all);
        Snapshot { offered: all.clone(), all, index, layer: None }
    }

    fn path(server: Option<&str>, name: &str) -> Result<String, ErrorKind> {
        tool(&snapshot(), server, name).map(|tool| format!("{}/{}", tool.server, tool.name)).map_err(|error| error.kind)
    }

    #[test]
    fn spelling_is_forgiven_and_doubt_is_not() {
        for (server, name, expected) in [
            (Some("git.hub"), "list_issues", Ok("git.hub/list_issues")),
            (Some("git_hub"), "listIssues", Ok("git.hub/list_issues")),
            (None, "git.hub.list-issues", Ok("git.hub/list_issues")),
            (None, "get_me", Ok("git.hub/get-me")),
            (None, "slack.post.message", Ok("slack/post.message")),
            (None, "slack__echo", Ok("slack/echo")),
            (None, "echo", Err(ErrorKind::UnknownTool)),
            (Some("slack"), "list_issues", Err(ErrorKind::UnknownTool)),
            (Some("nobody"), "echo", Err(ErrorKind::UnknownTool)),
            (Some("late"), "anything", Err(ErrorKind::Upstream)),
            (None, "", Err(ErrorKind::UnknownTool)),
        ] {
            assert_eq!(path(server, name), expected.map(str::to_owned), "{server:?} {name}");
        }
    }

    #[test]
    fn a_name_of_a_megabyte_is_none() {
        for name in [".".repeat(1 << 20), "_".repeat(1 << 20), "a.".repeat(1 << 19)] {
            assert_eq!(path(None, &name), Err(ErrorKind::UnknownTool));
            assert_eq!(path(Some(&name), "echo"), Err(ErrorKind::UnknownTool));
        }
    }

    #[test]
    fn a_tool_that_policy_hides_is_denied_and_not_unknown() {
        let mut snapshot = snapshot();
        snapshot.offered = Catalogue::default();
        assert_eq!(tool(&snapshot, Some("slack"), "echo").unwrap_err().kind, ErrorKind::PolicyDenied);
    }
}
