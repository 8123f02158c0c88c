//! The token benchmark's workflows, played with its upstream and its programs in plain Python: that they can be played, and
//! that both ways come to the same answer. What they cost through Belljar itself is for `belljar bench tokens` to say.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use belljar_gateway::catalogue::Catalogue;
use belljar_gateway::search::{Detail, Index, NOTE_TOKENS, catalogue_note, render};
use belljar_gateway::stubs::{self, Dialect};
use belljar_gateway::tokens::Encoding;
use belljar_gateway::tokens::arms::{Arm, PlayError, Stage, play};
use belljar_gateway::tokens::recorded::{Recorded, select};
use belljar_gateway::tokens::transcript::{Bill, Counter, saved};
use belljar_gateway::tokens::workflows::{self, Call, Workflow};
use belljar_gateway::upstream::Listed;
use serde_json::{Value, json};

/// The benchmark's upstream, Python in place of the sandbox, and of our server's words those that are the gateway's.
#[derive(Default)]
struct Plain {
    servers: HashMap<&'static str, Upstream>,
    catalogue: Catalogue,
    index: Index,
}

/// As many as `search_tools` gives when nobody says how many.
const HITS: usize = 10;

impl Plain {
    fn new(tools: &[Recorded]) -> Plain {
        let listed = |recorded: &Recorded| {
            let tools = recorded.tools.clone();
            (recorded.server.clone(), Ok(Listed { instructions: None, tools }))
        };
        let catalogue = stubs::catalogue(tools.iter().map(listed).collect());
        Plain { servers: HashMap::new(), index: Index::new(&catalogue), catalogue }
    }
}

/// One server, as a process. It ends with its standard input.
struct Upstream {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn python(script: &str) -> Command {
    let mut python = Command::new("python3");
    python.arg(here(script)).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    python
}

const UPSTREAM: &str = "../belljar/src/cli/bench/tokens/upstream.py";

impl Upstream {
    fn new(server: &str) -> Upstream {
        let mut child = python(UPSTREAM).arg(here(&format!("catalogue/{server}.json"))).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Upstream { child, input, output, last: 0 }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        writeln!(self.input, "{message}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], self.last);
        answer
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stage for Plain {
    type Error = String;

    fn surface(&mut self) -> Result<Vec<String>, String> {
        Ok(vec![catalogue_note(&self.catalogue, NOTE_TOKENS)])
    }

    fn search(&mut self, query: &str, detail: Detail) -> Result<String, String> {
        let hits = self.index.search(query, None, HITS);
        Ok(render(&hits, detail, Dialect::Python, self.index.len()))
    }

    fn run(&mut self, program: &str) -> Result<String, String> {
        let mut child = python("tests/tokens/stage.py").arg(here(UPSTREAM)).arg(here("catalogue")).spawn().unwrap();
        child.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err("it failed".to_owned())
        }
    }

    fn call(&mut self, call: &Call) -> Result<String, String> {
        let server = self.servers.entry(call.server).or_insert_with(|| Upstream::new(call.server));
        let answer = server.ask("tools/call", json!({"name": call.tool, "arguments": call.arguments}));
        answer["result"]["content"][0]["text"].as_str().map(str::to_owned).ok_or_else(|| answer.to_string())
    }
}

#[test]
fn the_upstream_serves_a_record_as_it_is() {
    let mut server = Upstream::new("atlassian");
    let begun = server.ask("initialize", json!({"protocolVersion": "2025-11-25"}));
    assert_eq!(begun["result"]["protocolVersion"], "2025-11-25");
    let recorded = Recorded::all().unwrap().into_iter().find(|recorded| recorded.server == "atlassian").unwrap();
    assert_eq!(server.ask("tools/list", json!({}))["result"]["tools"], Value::Array(recorded.tools));
    assert_eq!(server.ask("server/discover", json!({}))["error"]["code"], -32601);
    assert_eq!(server.ask("tools/call", json!({"name": "nothing"}))["error"]["code"], -32602);
    let unscripted = server.ask("tools/call", json!({"name": "jira_get_link_types", "arguments": {}}));
    assert_eq!(unscripted["result"]["isError"], true);
    let wrong = server.ask("tools/call", json!({"name": "jira_add_comment", "arguments": {}}));
    assert_eq!(wrong["result"]["isError"], true);
}

#[test]
fn the_direct_calls_fit_the_schemas() {
    let all = Recorded::all().unwrap();
    for workflow in workflows::ALL {
        let mut stage = Plain::default();
        let mut results = workflows::Results::default();
        loop {
            let calls = (workflow.next)(&results).unwrap();
            if calls.is_empty() {
                break;
            }
            let mut texts = Vec::new();
            for call in &calls {
                let recorded = all.iter().find(|recorded| recorded.server == call.server).unwrap();
                let schema = &recorded.tool(call.tool).unwrap()["inputSchema"];
                let arguments = Value::Object(call.arguments.clone());
                let validator = jsonschema::validator_for(schema).unwrap();
                let wrong: Vec<String> = validator.iter_errors(&arguments).map(|error| error.to_string()).collect();
                assert!(wrong.is_empty(), "{} {}: {wrong:?}", call.server, call.tool);
                assert!(workflow.needed.contains(&(call.server, call.tool)), "{} {}", workflow.name, call.tool);
                texts.push(stage.call(call).unwrap());
            }
            results.0.push(texts);
        }
    }
}

fn bills(workflow: &Workflow, size: usize, counter: &mut Counter) -> Vec<(Arm, Bill)> {
    let tools = select(&Recorded::all().unwrap(), workflow.needed, size);
    let played = play(workflow, &tools, &mut Plain::new(&tools)).unwrap();
    played.into_iter().map(|(arm, transcript)| (arm, transcript.bill(counter))).collect()
}

#[test]
fn both_ways_come_to_the_same_answer_in_every_workflow() {
    let mut counter = Counter::new(Encoding::O200k);
    for workflow in workflows::ALL {
        let size = *workflow.sizes.last().unwrap();
        let bills = bills(workflow, size, &mut counter);
        assert_eq!(bills.iter().map(|(arm, _)| *arm).collect::<Vec<_>>(), Arm::ALL);
        for (arm, bill) in &bills {
            let (name, saved) = (workflow.name, saved(bills[0].1.total(), bill.total()));
            let (turns, total, peak, weighted) = (bill.turns, bill.total(), bill.peak, bill.weighted);
            println!("{name:18} {size:3} {:12} {turns:3} {total:8} {peak:8} {weighted:10.0} {saved:6.1}%", arm.name());
        }
        let [direct, deferred, code, pessimistic] = bills[..] else { panic!("four arms") };
        assert_eq!(deferred.1.turns, direct.1.turns + 1, "{}", workflow.name);
        assert!(pessimistic.1.total() > code.1.total());
        // One search found all that the program calls, or none was needed.
        assert!(code.1.turns <= 3, "{}: {} turns", workflow.name, code.1.turns);
        assert_eq!(pessimistic.1.turns, 5, "{}", workflow.name);
    }
}

#[test]
fn the_document_is_as_long_as_the_well_known_one() {
    let call = (workflows::ALL[0].next)(&workflows::Results::default()).unwrap().remove(0);
    let text = Plain::default().call(&call).unwrap();
    let tokens = Encoding::O200k.count(&text);
    assert!((25_000..27_000).contains(&tokens), "{tokens}");
    assert_eq!(text, Plain::default().call(&call).unwrap());
}

#[test]
fn a_copy_is_written_word_by_word_when_it_is_made_directly() {
    let mut counter = Counter::new(Encoding::Cl100k);
    let bills = bills(&workflows::ALL[0], 30, &mut counter);
    let (direct, code) = (bills[0].1, bills[2].1);
    assert!(direct.output > 20_000 && code.output < 1_000, "{direct:?} {code:?}");
}

#[test]
fn a_program_that_comes_to_something_else_is_no_comparison() {
    let wrong = Workflow { program: "print('something else')", ..*workflow("single") };
    let tools = select(&Recorded::all().unwrap(), wrong.needed, 2);
    assert!(matches!(play(&wrong, &tools, &mut Plain::default()), Err(PlayError::Disagrees { .. })));
    let missing = play(workflow("single"), &tools[..0], &mut Plain::default());
    assert!(matches!(missing, Err(PlayError::Missing { tool: "get_current_time", .. })));
}

fn workflow(name: &str) -> &'static Workflow {
    workflows::ALL.iter().find(|workflow| workflow.name == name).unwrap()
}
