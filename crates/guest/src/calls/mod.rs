//! What is called `tools` in a sandbox: calls tools of other servers from a shell, and from any language that has no library
//! for it here. What Python and Node have beside it is in `python/` and `node/`.

mod arguments;
mod json;
mod skills;
mod talk;

use std::ffi::CString;

use json::Json;
use talk::{Failure, ask, print, print_file, print_value, say};

const HELP: &str = "\
Calls tools of other servers.

  tools [list [SERVER]]                  what there is
  tools search QUERY... [--detail names|signatures|full] [--server SERVER] [--limit N]
  tools describe SERVER.TOOL
  tools call SERVER TOOL [KEY=VALUE ...] [KEY:=JSON ...] [--json '{...}' | --json -] [--raw] [--timeout SECONDS]
  tools call SERVER.TOOL ...             the same
  tools skills list
  tools skills save NAME FILE --description TEXT [--tool SERVER.TOOL ...]
  tools skills run NAME [ARGUMENT ...]
  tools skills remove NAME

A text is printed as it is, anything else as JSON. Exit codes: 1 the tool failed, 2 the arguments do not fit, 3 not
allowed, 4 there is no such tool, 5 it took too long. More is in /tools/README.md.
";

const NONE: &str = "no servers are configured, so there are no tools to call; whoever starts belljar names them with \
    --mcp-config FILE (the usual mcpServers JSON)\n";

pub(crate) fn is_called(name: &CString) -> bool {
    name.to_bytes().rsplit(|byte| *byte == b'/').next() == Some(b"tools")
}

/// Runs it, after its own name, and is its exit code.
pub(crate) fn main(words: &[CString]) -> i32 {
    let words = words.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Result<Vec<_>, _>>();
    let done = match words {
        Ok(words) => run(&words),
        Err(_) => Err(Failure::usage("an argument is not text")),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            say(&format!("{}: {}\n", failure.kind, failure.message));
            failure.code()
        }
    }
}

fn run(words: &[String]) -> Result<i32, Failure> {
    let (command, rest) = words.split_first().map_or(("list", &[][..]), |(command, rest)| (command.as_str(), rest));
    match command {
        "list" => list(rest.first().map(String::as_str))?,
        "search" => search(rest)?,
        "describe" => {
            let [name] = rest else { return Err(Failure::usage("tools describe takes a name: SERVER.TOOL")) };
            print_text(&Json::object([("describe", Json::object([("name", Json::text(name)), language()]))]))?;
        }
        "call" => call(rest)?,
        "skills" => return skills::run(rest),
        "help" | "--help" | "-h" => print(HELP),
        _ => return Err(Failure::usage(format!("{command:?} is no command; see tools --help"))),
    }
    Ok(0)
}

/// What signatures are told in: of the languages that have some, the one that is read most easily beside a shell's.
fn language() -> (&'static str, Json) {
    ("language", Json::text("python"))
}

fn print_text(question: &Json) -> Result<(), Failure> {
    print(ask(question)?.get_text("text").unwrap_or_default());
    Ok(())
}

fn list(only: Option<&str>) -> Result<(), Failure> {
    let answer = ask(&Json::object([("list", Json::object([]))]))?;
    let servers = answer.get("servers").map_or(&[][..], Json::items);
    if servers.is_empty() {
        say(NONE);
        return Ok(());
    }
    let is_named = |server: &Json, name: &str| ["name", "ident"].iter().any(|key| server.get_text(key) == Some(name));
    if let Some(name) = only.filter(|name| !servers.iter().any(|server| is_named(server, name))) {
        let names: Vec<_> = servers.iter().filter_map(|server| server.get_text("name")).collect();
        let why = format!("there is no server {name}; there are: {}", names.join(", "));
        return Err(Failure::new("UnknownTool", why));
    }
    let mut told = String::new();
    for server in servers.iter().filter(|server| only.is_none_or(|name| is_named(server, name))) {
        let ident = server.get_text("ident").unwrap_or_default();
        for tool in server.get("tools").map_or(&[][..], Json::items) {
            told += &format!("{ident}.{}\n", tool.get_text("ident").unwrap_or_default());
        }
        if let Some(trouble) = server.get_text("trouble") {
            say(&format!("{ident}: {trouble}\n"));
        }
    }
    if !told.is_empty() {
        print(&told);
    }
    Ok(())
}

fn search(words: &[String]) -> Result<(), Failure> {
    let (mut query, mut wanted) = (Vec::new(), vec![("detail".to_owned(), Json::text("signatures"))]);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("--") {
            Some(name @ ("detail" | "server" | "limit")) => {
                let value = words.next().ok_or_else(|| Failure::usage(format!("{word} has no value")))?;
                let value = match name {
                    "limit" => Json::parse(value).filter(|value| matches!(value, Json::Number(_))),
                    _ => Some(Json::text(value)),
                };
                wanted.retain(|(known, _)| known != name);
                wanted.push((name.to_owned(), value.ok_or_else(|| Failure::usage("--limit takes a number"))?));
            }
            Some(_) => return Err(Failure::usage(format!("{word} is no option; see tools --help"))),
            None => query.push(word.as_str()),
        }
    }
    let (name, value) = language();
    wanted.extend([("query".to_owned(), Json::Text(query.join(" "))), (name.to_owned(), value)]);
    print_text(&Json::object([("search", Json::Object(wanted))]))
}

fn call(words: &[String]) -> Result<(), Failure> {
    let call = arguments::read(words)?;
    let answer = ask(&call.question)?;
    if let Some(path) = answer.get_text("spooled") {
        return print_file(path);
    }
    match answer.get(if call.raw { "raw" } else { "value" }) {
        Some(value) => print_value(value),
        None => return Err(Failure::new("Upstream", "the answer to the call is none that this sandbox knows")),
    }
    Ok(())
}
