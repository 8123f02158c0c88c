//! Programs that were kept, from a shell.

use std::ffi::CString;
use std::fs;

use super::json::Json;
use super::talk::{Failure, ask, print};
use crate::sys::{self, Strings};

/// Runs a skill in Python: arguments are `key=value`, as in a call.
const PYTHON: &str = "\
import json, sys
from mcp_runtime import tools
given = {}
for word in sys.argv[2:]:
    key, equals, value = word.partition('=')
    if not equals: sys.exit('%r is no argument; write KEY=VALUE, or KEY:=JSON' % word)
    given[key.rstrip(':')] = json.loads(value) if key[-1:] == ':' else value
value = tools.skills.run(sys.argv[1], **given)
if value is not None: print(value if isinstance(value, str) else json.dumps(value, default=str))
";

/// The same for Node.
const NODE: &str = "\
const [name, ...words] = process.argv.slice(1);
const given = {};
for (const word of words) {
  const at = word.indexOf('=');
  if (at < 1) { console.error(`${word} is no argument; write KEY=VALUE, or KEY:=JSON`); process.exit(2); }
  const isJson = word[at - 1] === ':';
  given[word.slice(0, isJson ? at - 1 : at)] = isJson ? JSON.parse(word.slice(at + 1)) : word.slice(at + 1);
}
require('/belljar/node/tools.js').skills.run(name, given).then((value) => {
  if (value !== undefined) console.log(typeof value === 'string' ? value : JSON.stringify(value));
}, (error) => { console.error(error.stack); process.exitCode = 1; });
";

pub(super) fn run(words: &[String]) -> Result<i32, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] | [] => list(),
        ["save", name, file, rest @ ..] => save(name, file, rest),
        ["run", name, rest @ ..] => start(name, rest),
        ["remove", name] => {
            asked("remove", Json::object([("name", Json::text(name))]))?;
            Ok(0)
        }
        _ => Err(Failure::usage("tools skills takes list, save NAME FILE, run NAME or remove NAME; see tools --help")),
    }
}

fn asked(verb: &str, about: Json) -> Result<Json, Failure> {
    ask(&Json::object([("skills", Json::object([(verb, about)]))]))
}

fn list() -> Result<i32, Failure> {
    let answer = asked("list", Json::object([]))?;
    for skill in answer.get("skills").map_or(&[][..], Json::items) {
        let text = |name| skill.get_text(name).unwrap_or_default();
        let stale = skill.get_text("stale").map(|why| format!(" (stale: {why})")).unwrap_or_default();
        print(&format!("{} ({}): {}{stale}", text("name"), text("language"), text("description")));
    }
    Ok(0)
}

fn save(name: &str, file: &str, rest: &[&str]) -> Result<i32, Failure> {
    let (mut description, mut tools, mut words) = (None, Vec::new(), rest.iter());
    while let Some(word) = words.next() {
        match (*word, words.next()) {
            ("--description", Some(text)) => description = Some(*text),
            ("--tool", Some(tool)) => tools.push(Json::text(tool)),
            _ => return Err(Failure::usage(format!("{word} is no option here, or has no value; see tools --help"))),
        }
    }
    let description = description.ok_or_else(|| Failure::usage("a skill has a --description, by which it is found"))?;
    let language = match file.rsplit('.').next() {
        Some("py") => "python",
        Some("ts" | "mts") => "typescript",
        Some("js" | "mjs" | "cjs") => "javascript",
        Some("sh" | "bash") => "shell",
        _ => return Err(Failure::usage(format!("{file} has to end with .py, .js, .ts or .sh"))),
    };
    let code = fs::read_to_string(file).map_err(|error| Failure::usage(format!("{file}: {error}")))?;
    let about = [
        ("name", Json::text(name)),
        ("description", Json::text(description)),
        ("language", Json::text(language)),
        ("code", Json::Text(code)),
        ("tools", Json::List(tools)),
    ];
    asked("save", Json::object(about))?;
    print(&format!("saved {name}"));
    Ok(0)
}

/// Becomes the skill's interpreter. Whether it may be run is asked here, so that a shell's is asked for too.
fn start(name: &str, words: &[&str]) -> Result<i32, Failure> {
    let answer = asked("get", Json::object([("name", Json::text(name))]))?;
    let skill = answer.get("skill").cloned().unwrap_or(Json::Null);
    let text = |key| skill.get_text(key).unwrap_or_default();
    let command: Vec<&str> = match text("language") {
        "python" => vec!["python3", "-c", PYTHON, name],
        "javascript" | "typescript" => vec!["node", "-e", NODE, "--", name],
        "shell" => vec!["bash", "-c", text("code"), name],
        other => return Err(Failure::new("ToolError", format!("nothing here runs {other:?}"))),
    };
    let words = command.iter().chain(words).map(|word| CString::new(*word));
    let words = words.collect::<Result<Vec<_>, _>>().map_err(|_| Failure::usage("there is a NUL in it"))?;
    // Found by `env`, which looks along PATH.
    let argv = Strings::new([CString::from(c"env")].into_iter().chain(words).collect());
    sys::exec_in_own_environment(c"/usr/bin/env", &argv);
    Err(Failure::new("ToolError", format!("{} cannot be started here", command[0])))
}
