//! The four ways to do the same work, as transcripts.

use serde_json::{Map, Value, json};

use super::recorded::Recorded;
use super::transcript::{Transcript, Turn};
use super::workflows::{Call, Results, Workflow};
use super::{Encoding, count};
use crate::search::Detail;

/// How the model gets at the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// All definitions are there from the start.
    Direct,
    /// Their names are; definitions come with a search, and then exactly those that are needed.
    Deferred,
    /// Code mode, with the texts that our server emitted.
    Code,
    /// The same with a look at full stubs, and a first program that fails.
    Pessimistic,
}

impl Arm {
    pub const ALL: [Arm; 4] = [Arm::Direct, Arm::Deferred, Arm::Code, Arm::Pessimistic];

    pub fn name(self) -> &'static str {
        match self {
            Arm::Direct => "direct",
            Arm::Deferred => "deferred",
            Arm::Code => "code",
            Arm::Pessimistic => "pessimistic",
        }
    }
}

/// A running server with the tools of one selection behind it: whoever starts one implements this.
pub trait Stage {
    type Error;

    /// All that a model has of Belljar before the first word: each of its tools as JSON, and its instructions.
    fn surface(&mut self) -> Result<Vec<String>, Self::Error>;

    /// What `search_tools` answered, as the model reads it.
    fn search(&mut self, query: &str, detail: Detail) -> Result<String, Self::Error>;

    /// What running this Python program answered, as the model reads it.
    fn run(&mut self, program: &str) -> Result<String, Self::Error>;

    /// The text of a direct call's result; that of an error is a result as well.
    fn call(&mut self, call: &Call) -> Result<String, Self::Error>;
}

/// Why a workflow has no transcripts.
#[derive(Debug, thiserror::Error)]
pub enum PlayError<E> {
    #[error("{0}")]
    Stage(E),
    /// The upstreams answered what the workflow cannot go on with.
    #[error("the workflow `{workflow}` cannot go on after step {step}; look at what upstream.py answers")]
    Stuck { workflow: &'static str, step: usize },
    /// A comparison of two ways to different answers would be worth nothing.
    #[error("the program of `{workflow}` did not print `{expected}`, but: {printed}")]
    Disagrees { workflow: &'static str, expected: String, printed: String },
    #[error("the tool {server}.{tool}, which `{workflow}` needs, is not in the selection")]
    Missing { workflow: &'static str, server: &'static str, tool: &'static str },
}

/// So many steps are the most that a workflow has.
const STEPS_MAX: usize = 64;
/// What the traceback of the program that fails has.
const TRACEBACK_TOKENS: usize = 500;
/// What is shown of what a program printed, in an error.
const SHOWN_BYTES: usize = 300;

/// Plays a workflow in all four ways, with these tools behind the stage.
pub fn play<S: Stage>(
    workflow: &Workflow,
    tools: &[Recorded],
    stage: &mut S,
) -> Result<Vec<(Arm, Transcript)>, PlayError<S::Error>> {
    let direct = Direct::play(workflow, stage)?;
    let needed = needed(workflow, tools)?;
    let all: Vec<String> =
        tools.iter().flat_map(|server| server.tools.iter().map(|tool| definition(&server.server, tool))).collect();
    let names: Vec<String> =
        tools.iter().flat_map(|server| server.tools.iter().map(|tool| name(server, tool))).collect();
    let code = Code::play(workflow, stage, &direct.answer)?;
    Ok(vec![
        (Arm::Direct, Transcript { definitions: all, turns: direct.turns(workflow, None) }),
        (
            Arm::Deferred,
            Transcript {
                definitions: vec![TOOL_SEARCH.to_owned(), names.join("\n")],
                turns: direct.turns(workflow, Some(needed)),
            },
        ),
        (Arm::Code, code.transcript(workflow, &direct.answer, Luck::Good)),
        (Arm::Pessimistic, code.transcript(workflow, &direct.answer, Luck::Bad)),
    ])
}

/// What clients that defer tools give the model in their place.
const TOOL_SEARCH: &str = r#"{"name":"tool_search","description":"Finds tools by keywords and loads their definitions, so that they can be called. The names of all tools are listed below; only loaded ones can be called.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"Keywords, or names"}},"required":["query"]}}"#;

fn name(server: &Recorded, tool: &Value) -> String {
    format!("{}__{}", server.server, tool["name"].as_str().unwrap_or_default())
}

/// What a model sees of a tool: neither what it gives back, nor its annotations.
fn definition(server: &str, tool: &Value) -> String {
    let name = format!("{server}__{}", tool["name"].as_str().unwrap_or_default());
    json!({"name": name, "description": tool["description"], "inputSchema": tool["inputSchema"]}).to_string()
}

/// A call as a model writes it.
fn written(name: &str, arguments: &Map<String, Value>) -> String {
    json!({"name": name, "arguments": arguments}).to_string()
}

fn needed<E>(workflow: &Workflow, tools: &[Recorded]) -> Result<Vec<String>, PlayError<E>> {
    let find = |(server, tool): &(&'static str, &'static str)| {
        let found = tools.iter().find(|recorded| recorded.server == *server).and_then(|recorded| recorded.tool(tool));
        let missing = || PlayError::Missing { workflow: workflow.name, server, tool };
        found.map(|found| definition(server, found)).ok_or_else(missing)
    };
    workflow.needed.iter().map(find).collect()
}

/// The direct calls, as they were made.
struct Direct {
    steps: Vec<(Vec<String>, Vec<String>)>,
    answer: String,
}

impl Direct {
    fn play<S: Stage>(workflow: &Workflow, stage: &mut S) -> Result<Direct, PlayError<S::Error>> {
        let stuck = |step| PlayError::Stuck { workflow: workflow.name, step };
        let mut results = Results::default();
        let mut steps = Vec::new();
        for step in 0..STEPS_MAX {
            let calls = (workflow.next)(&results).ok_or_else(|| stuck(step))?;
            if calls.is_empty() {
                let answer = (workflow.answer)(&results).ok_or_else(|| stuck(step))?;
                return Ok(Direct { steps, answer });
            }
            let mut texts = Vec::new();
            for call in &calls {
                texts.push(stage.call(call).map_err(PlayError::Stage)?);
            }
            let write = |call: &Call| written(&format!("{}__{}", call.server, call.tool), &call.arguments);
            steps.push((calls.iter().map(write).collect(), texts.clone()));
            results.0.push(texts);
        }
        Err(stuck(STEPS_MAX))
    }

    /// With `loaded`, after a search that gave these definitions.
    fn turns(&self, workflow: &Workflow, loaded: Option<Vec<String>>) -> Vec<Turn> {
        let mut talk = Talk::new(workflow);
        if let Some(definitions) = loaded {
            let query = Map::from_iter([("query".to_owned(), json!(workflow.searches.join("; ")))]);
            talk.turn(vec![written("tool_search", &query)], definitions);
        }
        for (calls, texts) in &self.steps {
            talk.turn(calls.clone(), texts.clone());
        }
        talk.end(&self.answer)
    }
}

/// What code mode emitted.
struct Code {
    surface: Vec<String>,
    /// Whether the signatures of all that is needed are in the surface: then nobody has to search.
    known: bool,
    found: Vec<String>,
    /// A second search, for tools that the first did not show: queries and answers.
    missed: Vec<(String, String)>,
    full: String,
    printed: String,
}

#[derive(Debug, Clone, Copy)]
enum Luck {
    Good,
    Bad,
}

impl Code {
    fn play<S: Stage>(workflow: &Workflow, stage: &mut S, answer: &str) -> Result<Code, PlayError<S::Error>> {
        let surface = stage.surface().map_err(PlayError::Stage)?;
        let mut found = Vec::new();
        for query in workflow.searches {
            found.push(stage.search(query, Detail::Signatures).map_err(PlayError::Stage)?);
        }
        let mut missed = Vec::new();
        let mut known = true;
        for (server, tool) in workflow.needed {
            let path = format!("{server}.{}(", tool.replace('-', "_"));
            if surface.iter().any(|text| text.contains(&path)) {
                continue;
            }
            known = false;
            if !found.iter().any(|text| text.contains(&path)) {
                let query = format!("{server} {tool}");
                let text = stage.search(&query, Detail::Signatures).map_err(PlayError::Stage)?;
                missed.push((query, text));
            }
        }
        let full = stage.search(workflow.searches.first().unwrap_or(&""), Detail::Full).map_err(PlayError::Stage)?;
        let printed = stage.run(workflow.program).map_err(PlayError::Stage)?;
        if !printed.contains(answer.trim()) {
            let shown = |text: &str| text[..text.floor_char_boundary(SHOWN_BYTES)].to_owned();
            let (expected, printed) = (shown(answer), shown(&printed));
            return Err(PlayError::Disagrees { workflow: workflow.name, expected, printed });
        }
        Ok(Code { surface, known, found, missed, full, printed })
    }

    fn transcript(&self, workflow: &Workflow, answer: &str, luck: Luck) -> Transcript {
        let search = |query: &str, more: &[(&str, &str)]| {
            let mut arguments = Map::from_iter([("query".to_owned(), json!(query))]);
            arguments.extend(more.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
            written("search_tools", &arguments)
        };
        let run = json!({"language": "python", "code": workflow.program});
        let run = written("run_code", run.as_object().unwrap_or(&Map::new()));
        let mut talk = Talk::new(workflow);
        // With bad luck it is looked for all the same.
        if !self.known || matches!(luck, Luck::Bad) {
            talk.turn(workflow.searches.iter().map(|query| search(query, &[])).collect(), self.found.clone());
        }
        if !self.missed.is_empty() {
            let (queries, texts): (Vec<String>, Vec<String>) = self.missed.iter().cloned().unzip();
            talk.turn(queries.iter().map(|query| search(query, &[])).collect(), texts);
        }
        if matches!(luck, Luck::Bad) {
            let query = workflow.searches.first().unwrap_or(&"");
            talk.turn(vec![search(query, &[("detail", "full")])], vec![self.full.clone()]);
            talk.turn(vec![run.clone()], vec![traceback(TRACEBACK_TOKENS)]);
        }
        talk.turn(vec![run], vec![self.printed.clone()]);
        Transcript { definitions: self.surface.clone(), turns: talk.end(answer) }
    }
}

/// Turns as they come: what was said last is what the next one reads.
struct Talk {
    turns: Vec<Turn>,
    heard: Vec<String>,
}

impl Talk {
    fn new(workflow: &Workflow) -> Talk {
        Talk { turns: Vec::new(), heard: vec![workflow.request.to_owned()] }
    }

    fn turn(&mut self, wrote: Vec<String>, hears: Vec<String>) {
        let input = std::mem::replace(&mut self.heard, hears);
        self.turns.push(Turn { input, output: wrote });
    }

    fn end(mut self, answer: &str) -> Vec<Turn> {
        self.turn(vec![answer.to_owned()], Vec::new());
        self.turns
    }
}

/// What a program that fails deep inside of a library prints: so many tokens of it.
fn traceback(tokens: usize) -> String {
    let mut text = "Traceback (most recent call last):\n".to_owned();
    let end = "KeyError: 'items'\n";
    let mut frame = 0;
    loop {
        frame += 1;
        let next = format!(
            "  File \"/workspace/program.py\", line {frame}, in step_{frame}\n    rows = fetch(page)[\"items\"]\n"
        );
        if count(&text) + count(&next) + count(end) > tokens {
            break;
        }
        text.push_str(&next);
    }
    while count(&text) + count(end) < tokens {
        text.push_str("^\n");
    }
    text + end
}

/// For tables: how long the traceback is in an encoding.
pub fn traceback_tokens(encoding: Encoding) -> usize {
    encoding.count(&traceback(TRACEBACK_TOKENS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traceback_is_as_long_as_it_should_be() {
        assert!(traceback_tokens(Encoding::O200k).abs_diff(TRACEBACK_TOKENS) <= 2);
    }
}
