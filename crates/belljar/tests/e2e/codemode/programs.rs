//! One program that calls several servers and prints one line, in each language; what the model is told of the tools.

use serde_json::{Value, json};

use super::place::{Place, prints};
use crate::client::{Caller, StdioClient};

const PYTHON: &str = r#"
import re
from tools import everything, fetch, filesystem, git, memory, sequential_thinking, sqlite, time, parallel

sqlite.create_table(query="CREATE TABLE birds (name TEXT, seen INTEGER)")
sqlite.write_query(query="INSERT INTO birds VALUES ('lark', 40), ('wren', 2)")
total = re.search(r"\d+", sqlite.read_query(query="SELECT sum(seen) AS total FROM birds")).group()
page, log = parallel([(fetch.fetch, {"url": "PAGE"}), (git.git_log, {"repo_path": "PLACE/repository"})])
memory.create_entities(entities=[{"name": "Ann", "entityType": "person", "observations": ["counts larks"]}])
thought = sequential_thinking.sequentialthinking(
    thought="count", nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1)
tokyo = time.convert_time(source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")["target"]["datetime"]
filesystem.write_file(path="PLACE/files/report.txt", content=f"{total} larks\n")
known = [each["name"] for each in memory.read_graph()["entities"]]
print(total, "Forty-two larks" in page, "The first word" in log, known, thought["thoughtHistoryLength"], tokyo[11:16],
    everything.get_sum(a=20, b=22), filesystem.read_text_file(path="PLACE/files/report.txt")["content"].strip())
"#;

const TYPESCRIPT: &str = r#"
import { filesystem, everything, time, type ToolError } from "tools";
type Read = { content: string };
const [read, sum, noon]: [Read, string, any] = await Promise.all([
  filesystem.read_text_file({ path: "PLACE/files/report.txt" }),
  everything.get_sum({ a: 1, b: 2 }),
  time.convert_time({ source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" }),
]);
console.log(read.content.trim(), sum, noon.time_difference);
"#;

const JAVASCRIPT: &str = r#"
const { memory, git } = tools;
const found = await memory.search_nodes({ query: "larks" });
const log = await git.git_log({ repo_path: 'PLACE/repository', max_count: 1 });
const places = await tools.parallel(tools.everything.get_sum, [{ a: 1, b: 1 }, { a: 2, b: 2 }]);
console.log(found.entities[0].name, /Author: (.*)/.exec(log)[1], places.length);
"#;

const SHELL: &str = r#"
set -e
sum=$(tools call everything get-sum a=40 b=2)
tools call filesystem write_file path=PLACE/files/shell.txt content="$sum" > /dev/null
rows=$(tools call sqlite.read_query query="SELECT count(*) AS n FROM birds")
echo "$sum $rows $(tools call filesystem list_directory --json '{"path": "PLACE/files"}' | grep -o 'shell.txt')"
"#;

fn filled(program: &str, place: &Place, page: &str) -> String {
    program
        .replace("PLACE", &place.path(""))
        .replace("//files", "/files")
        .replace("//repo", "/repo")
        .replace("PAGE", page)
}

/// All that a model is told of tools, and the program that it would write.
#[test]
fn a_program_calls_eight_servers_in_four_languages() {
    Place::each_public(|place| {
        let (place, page) = place.public();
        let mut server = place.serve();
        let client = &mut server.client;
        what_the_model_is_told(client);
        let python = "42 True True ['Ann'] 1 21:00 The sum of 20 and 22 is 42. 42 larks\n";
        prints(client, "python", &filled(PYTHON, &place, &page), python);
        prints(client, "typescript", &filled(TYPESCRIPT, &place, &page), "42 larks The sum of 1 and 2 is 3. +9.0h\n");
        prints(client, "javascript", &filled(JAVASCRIPT, &place, &page), "Ann Ann 2\n");
        prints(client, "shell", &filled(SHELL, &place, &page), "The sum of 40 and 2 is 42. [{'n': 2}] shell.txt\n");
        assert_eq!(place.read("files/report.txt"), "42 larks\n");
        what_is_in_the_folder(client);
    });
}

fn what_the_model_is_told(client: &mut StdioClient) {
    let id = client.request("tools/list", json!({}));
    let listed = client.answer(id)["result"]["tools"].clone();
    let tool = |name: &str| listed.as_array().unwrap().iter().find(|tool| tool["name"] == name).cloned();
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names.len(), 9, "no tool of another server is offered by itself: {names:?}");
    assert!(tool("search_tools").is_some(), "{names:?}");
    let described = tool("run_code").unwrap()["description"].as_str().unwrap().to_owned();
    let servers = "servers: everything (13), fetch (1), filesystem (14), git (12), memory (9), sequential_thinking (1), \
                   sqlite (6), time (2)";
    let trouble = client.call("search_tools", json!({"query": "", "detail": "names", "limit": 1}));
    assert!(described.contains(servers), "{described}\n{}", trouble.text());
    assert!(
        described.contains("sqlite.read_query(query: str)") && described.contains("more: search_tools"),
        "{described}"
    );
    assert!(described.len() < 6_000, "{} bytes", described.len());

    let mut search = |arguments: Value| client.call("search_tools", arguments).text().to_owned();
    let names = search(json!({"query": "run an SQL query on the database", "detail": "names", "limit": 3}));
    assert!(names.contains("sqlite.read_query") && !names.contains("str"), "{names}");
    let signatures = search(json!({"query": "current time in a city"}));
    assert!(signatures.contains("time.get_current_time(timezone: str) -> dict"), "{signatures}");
    let full = search(json!({"query": "write a file", "detail": "full", "server": "filesystem", "limit": 1}));
    assert!(full.contains("write_file") && full.contains("content") && !full.contains("sqlite"), "{full}");
}

fn what_is_in_the_folder(client: &mut StdioClient) {
    let code = r#"
import json, os, tools
index = json.load(open("/tools/index.json"))["servers"]
one = json.load(open("/tools/everything/get_sum.json"))
stub = open("/tools/filesystem/write_file.pyi").read()
print(sorted(index) == sorted(each for each in os.listdir("/tools") if os.path.isdir("/tools/" + each)), one["name"])
print("def write_file(" in stub, "write_file" in open("/tools/filesystem/write_file.d.ts").read())
print("memory.search_nodes" in tools.search("find entities in the knowledge graph"))
print("def get_sum(" in tools.describe("everything.get_sum"))
try:
    open("/tools/x", "w")
except OSError as error:
    print("read-only")
"#;
    prints(client, "python", code, "True get-sum\nTrue True\nTrue\nTrue\nread-only\n");
}

#[test]
fn errors_are_typed_and_caught() {
    Place::each_public(|place| {
        let place = place.everything().filesystem();
        let mut server = place.serve();
        let python = r#"
import tools
from tools import everything, filesystem, ToolError, InvalidArguments, UnknownTool
def caught(call, **arguments):
    try:
        return call(**arguments)
    except ToolError as error:
        return error
wrong = caught(everything.get_sum, a="one")
print(type(wrong).__name__, isinstance(wrong, TypeError), len(wrong.problems), wrong.signature)
failed = caught(filesystem.read_text_file, path="/etc/passwd")
print(type(failed).__name__, failed.server, failed.tool, "Access denied" in str(failed))
unknown = caught(lambda: tools.everything.get_summ(a=1, b=2))
print(type(unknown).__name__, isinstance(unknown, AttributeError), unknown.suggestions)
nobody = caught(lambda: tools.evrything.echo(message="x"))
print(type(nobody).__name__, "everything" in str(nobody))
print(everything.getSum(a=1, b=2))
"#;
        let expected = "InvalidArguments True 2 everything.get_sum(a: float, b: float) -> Any\n\
                        ToolError filesystem read_text_file True\n\
                        UnknownTool True ['everything.get_sum']\n\
                        UnknownTool True\n\
                        The sum of 1 and 2 is 3.\n";
        prints(&mut server.client, "python", python, expected);
        let typescript = r#"
import { everything, filesystem, ToolError, InvalidArguments, UnknownTool } from "tools";
const caught = (call: Promise<unknown>) => call.then(() => null, (error: any) => error);
const wrong = await caught(everything.get_sum({ a: 1 }));
console.log(wrong instanceof InvalidArguments, wrong instanceof ToolError, wrong.problems);
const failed = await caught(filesystem.read_text_file({ path: "/etc/passwd" }));
console.log(failed.name, failed.server, /Access denied/.test(failed.message));
const unknown = await caught((everything as any).get_summ({}));
console.log(unknown instanceof UnknownTool, unknown.suggestions);
"#;
        let expected = "true true [ 'missing required argument \"b\"' ]\nToolError filesystem true\n\
                        true [ 'everything.get_sum' ]\n";
        prints(&mut server.client, "typescript", typescript, expected);
        let shell = "tools call everything get-sum a=1; echo $?; tools call everything get-summ; echo $?; \
                     tools call filesystem read_text_file path=/etc/passwd; echo $?";
        let answer = server.client.shell(shell);
        assert_eq!(answer.stdout(), "2\n4\n1\n", "{}", answer.result);
        // What is not caught ends the program, and tells what was done before.
        let code = "from tools import everything\neverything.echo(message='x')\neverything.get_sum(a=1)";
        let uncaught = server.client.python(code);
        assert!(uncaught.is_error(), "{}", uncaught.result);
        assert_eq!(uncaught.field("error")["name"], "InvalidArguments");
        let note = "[calls made before the error: everything.echo ok, everything.get-sum InvalidArguments]";
        assert!(uncaught.text().contains(note), "{}", uncaught.text());
        assert_eq!(uncaught.field("calls")[0]["tool"], "everything.echo", "{}", uncaught.result);
    });
}
