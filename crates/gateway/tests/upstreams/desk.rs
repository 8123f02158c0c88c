//! What those who watch are told of calls, and what a server is told of the trace that a call belongs to.

use std::sync::{Arc, Mutex};

use belljar_core::Caller;
use belljar_gateway::approval::Verdict;
use belljar_gateway::audit::{Audit, Decided, Line};
use belljar_gateway::error::ErrorKind;
use belljar_gateway::ledger::Ledger;
use belljar_gateway::policy::{Approve, Rules};
use belljar_gateway::privacy::Privacy;
use belljar_gateway::skills::Skills;
use belljar_gateway::{Budget, Gateway, ServerSettings, Settings};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::mock::{LIMIT, Mock, settings, text};

const SPAN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(Debug, Default)]
struct Watcher {
    lines: Mutex<Vec<Line>>,
    decided: Mutex<Vec<Decided>>,
}

impl Audit for Watcher {
    fn called(&self, line: &Line) {
        self.lines.lock().unwrap().push(line.clone());
    }

    fn calling(&self, run: &str) -> Option<String> {
        (run == "run_traced").then(|| SPAN.to_owned())
    }

    fn decided(&self, decided: &Decided) {
        self.decided.lock().unwrap().push(decided.clone());
    }
}

/// A gateway to the mock, which has a tool that tells what came with its call.
fn gateway() -> (Gateway, Arc<Watcher>, Mock) {
    let mock = Mock::new(&["--extra", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstreams/extra_tools")]);
    let watcher = Arc::new(Watcher::default());
    let rule = |tool: &str| vec![tool.to_owned()];
    let rules = Rules::new(&rule("meta"), &rule("echo"), &[], false).unwrap();
    let server = ServerSettings { name: "mock".into(), rules, timeout: LIMIT, parses: false };
    let settings = Settings {
        servers: vec![server],
        approve: Approve::Writes,
        budget: Budget::default(),
        privacy: Privacy::new(&[], &[]).unwrap(),
        skills: Skills::at(None),
        ledger: Ledger::at(None),
        audit: watcher.clone(),
        store: None,
    };
    (Gateway::new(mock.upstreams.clone(), settings), watcher, mock)
}

fn caller(run: &str, occasion: Option<u64>) -> Caller {
    Caller { owner: "ann".into(), run: run.into(), sandbox: None, occasion }
}

#[tokio::test]
async fn a_server_is_told_the_span_that_its_call_belongs_to() {
    for era in ["both", "legacy"] {
        let mock = Mock::with(&["--era", era], json!({}), settings());
        let never = CancellationToken::new();
        let call = |span| mock.upstreams.call_in_trace("mock", "meta", Map::new(), LIMIT, &never, span);
        let meta: Value = serde_json::from_str(&text(&call(Some(SPAN)).await.unwrap())).unwrap();
        assert_eq!(meta["traceparent"], SPAN, "{era}: {meta}");
        let meta: Value = serde_json::from_str(&text(&call(None).await.unwrap())).unwrap();
        assert_eq!(meta.get("traceparent"), None, "{era}: {meta}");
        mock.upstreams.end().await;
    }
}

#[tokio::test]
async fn a_run_in_a_trace_calls_in_it_and_another_does_not() {
    let (gateway, watcher, _mock) = gateway();
    let tool = gateway.tool("mock.meta").await.unwrap();
    for (run, span) in [("run_traced", Some(SPAN)), ("run_other", None)] {
        let result = gateway.call(caller(run, None), &tool, Map::new()).await.unwrap();
        let meta: Value = serde_json::from_str(&text(&result)).unwrap();
        assert_eq!(meta.get("traceparent").and_then(Value::as_str), span, "{meta}");
        let line = watcher.lines.lock().unwrap().pop().unwrap();
        assert_eq!((line.traceparent.as_deref(), line.outcome), (span, "ok"));
        assert!(!serde_json::to_string(&line).unwrap().contains("traceparent"), "the audit has no use for it");
    }
    gateway.end().await;
}

#[tokio::test]
async fn what_a_person_says_to_a_call_is_told() {
    let (gateway, watcher, _mock) = gateway();
    let tool = gateway.tool("mock.echo").await.unwrap();
    let arguments = Map::from_iter([("text".to_owned(), Value::from("a secret word"))]);
    let refused = gateway.call(caller("run_1", None), &tool, arguments.clone()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ApprovalDenied);
    for verdict in [Verdict::Deny, Verdict::Once, Verdict::Same] {
        let occasion = gateway.approvals().open("ann");
        let decide = async {
            let asked = gateway.approvals().wanted(occasion).await.unwrap();
            gateway.approvals().decide("ann", occasion, &[asked[0].id], verdict);
        };
        let call = gateway.call(caller("run_1", Some(occasion)), &tool, arguments.clone());
        assert_eq!(tokio::join!(call, decide).0.is_ok(), verdict != Verdict::Deny);
    }
    let again = gateway.call(caller("run_2", None), &tool, arguments).await;
    assert!(again.is_ok(), "always, exactly this: nobody has to be asked");
    gateway.end().await;
    let decided = watcher.decided.lock().unwrap();
    let outcomes: Vec<_> = decided.iter().map(|decided| decided.outcome).collect();
    assert_eq!(outcomes, ["nobody", "denied", "approved", "approved-same"]);
    let first = &decided[0];
    assert_eq!((first.owner.as_str(), first.run.as_deref(), first.what), ("ann", Some("run_1"), "call"));
    assert_eq!((first.name.as_str(), first.sha256.len()), ("mock.echo", 64));
    assert!(!format!("{decided:?}").contains("a secret word"));
}
