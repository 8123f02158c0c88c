//! A token of few scopes beside another of the same principal that has more.

use std::path::PathBuf;

use belljar_access::{Book, Terms, TokenFile};
use belljar_gateway::approval::Verdict;

use super::*;
use crate::gateway::fake::FakeMode;

/// Of the one who runs a program first.
const OCCASION: u64 = 1;

/// The tokens of one principal, in a file that is there for as long as this.
struct Ann {
    path: PathBuf,
    runner: String,
    reader: String,
}

impl Ann {
    fn new() -> Ann {
        let path = std::env::temp_dir().join(format!("belljar-tokens-{}.json", std::process::id()));
        let book = Book::at(&path);
        let add = |scopes: &[Scope]| {
            let terms = Terms { scopes: scopes.iter().copied().collect(), expires: None, quota: None };
            book.add("ann", terms).unwrap().token
        };
        let (runner, reader) = (add(&[Scope::Run, Scope::Tools]), add(&[Scope::Read]));
        Ann { path, runner, reader }
    }
}

impl Drop for Ann {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// By a client that can ask its user.
fn call(tool: &str, arguments: &Value, answer: Value, token: &str) -> Request {
    let mut params = json!({"name": tool, "arguments": arguments});
    params.as_object_mut().unwrap().extend(answer.as_object().cloned().unwrap());
    let mut request = Request::new("tools/call", Some(tool), params).token(token);
    if let Some(sandbox) = arguments["sandbox_id"].as_str() {
        request = request.set("Mcp-Param-Sandbox", sandbox);
    }
    let capable = r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
    request.body = request.body.replace(r#""io.modelcontextprotocol/clientCapabilities":{}"#, capable);
    request
}

#[tokio::test]
async fn whoever_only_looks_is_not_asked_and_approves_nothing() {
    let (ann, mode) = (Ann::new(), Arc::new(FakeMode::default()));
    let (access, given) = (Access::from(TokenFile::open(&ann.path).unwrap()), mode.clone());
    let server = Server::with(move |settings| {
        settings.access = Some(Arc::new(access));
        settings.surface.code_mode = Some(given);
        settings.surface.yield_after = Duration::from_millis(100);
    })
    .await;
    let asks = async |tool: &str, arguments: &Value, answer: Value, token: &str| {
        server.send(&call(tool, arguments, answer, token)).await
    };
    let run = json!({"language": "python", "code": "sleep 100000"});
    let begun = asks("run_code", &run, json!({}), &ann.runner).await.message();
    let look = json!({"job_id": begun["result"]["structuredContent"]["job_id"]});
    assert!(look["job_id"].is_string(), "{begun}");
    let wanted = mode.request(OCCASION, "create_issue");
    server.until("it waits", |_| !mode.waiting(OCCASION).is_empty()).await;

    let looked = asks("job", &look, json!({}), &ann.reader).await.message();
    assert_eq!(looked["result"]["structuredContent"]["ending"], "running", "{looked}");
    let asked = asks("job", &look, json!({}), &ann.runner).await.message();
    let state = asked["result"]["requestState"].clone();
    assert!(state.is_string(), "{asked}");
    let approval = json!({"action": "accept", "content": {"decision": "approve"}});
    let answer = json!({"requestState": state, "inputResponses": {"approval": approval}});
    let refused = asks("job", &look, answer.clone(), &ann.reader).await;
    let challenge = refused.header("www-authenticate").unwrap_or_default();
    assert!(refused.status == 403 && challenge.contains(r#"scope="run""#), "{refused:?}");
    assert_eq!(mode.waiting(OCCASION).len(), 1, "it waits still");
    asks("job", &look, answer, &ann.runner).await;
    assert_eq!(wanted.await.unwrap(), Some(Verdict::Once));
}
