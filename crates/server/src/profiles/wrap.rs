//! The code of `run_python_code` as the run-python surface runs it: in a namespace of its own, with the caller's global
//! variables, its dependencies looked for, and the value of its last line as JSON.

use std::time::Duration;

use belljar_core::{Ending, Language, Program, Source, Stdin, Then};
use belljar_engine::{Run, STDIN_BYTES_MAX};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::reply::{self, Body, Reply, Verdict};
use super::{ending, rich};
use crate::answer::shorten_text;
use crate::clean;

const WRAP: &str = include_str!("wrap.py");
const OUTCOME: &str = "application/vnd.belljar.outcome+json";

const OUTPUT_CHARS_MAX: usize = 9_000;
const VALUE_CHARS_MAX: usize = 6_000;
const ERROR_CHARS_MAX: usize = 6_000;
const DEPENDENCIES_CHARS_MAX: usize = 1_500;

pub(super) fn program(code: &str, globals: Map<String, Value>, wall: Duration) -> Result<Program, Fault> {
    let source = Source::Cell { language: Language::Python, code: WRAP.to_owned(), then: Then::End };
    Ok(Program { source, env: Vec::new(), cwd: None, stdin: stdin(code, globals)?, wall, changed_max: 0 })
}

/// The code travels as input, since it is not part of the program that runs it.
fn stdin(code: &str, globals: Map<String, Value>) -> Result<Stdin, Fault> {
    if code.trim().is_empty() {
        return Err(Fault::argument("python_code is empty; send the program's text"));
    }
    let bytes = json!({"code": code, "globals": globals}).to_string().into_bytes();
    if bytes.len() > STDIN_BYTES_MAX {
        let sentence = format!("python_code and global_variables have more than {STDIN_BYTES_MAX} bytes; send less");
        return Err(Fault::argument(sentence));
    }
    Ok(Stdin::Whole(bytes))
}

pub(super) fn answer(run: &Run, wall: Duration) -> Reply {
    let told = run.rich.result.as_ref().and_then(|bundle| bundle.data.get(OUTCOME)).unwrap_or(&Value::Null);
    let field = |name: &str| told[name].as_str().map(|text| clean::clean(text.as_bytes()));
    let error = match (run.report.ending, told) {
        (Ending::Exited { code: 0 }, Value::Null) => {
            Some("the code ended the interpreter before its value could be told".to_owned())
        }
        (Ending::Exited { .. }, Value::Object(_)) if field("error").is_some() => field("error"),
        // What stopped it says more than what it last said itself.
        _ => ending::error(run, wall).map(|error| error.to_string()),
    };
    let status = match (&error, told["status"].as_str()) {
        (None, _) => "success",
        (Some(_), Some("install-error")) => "install-error",
        (Some(_), _) => "run-error",
    };
    let mut lines = vec![format!("<status>{status}</status>")];
    let dependencies: Vec<&str> =
        told["dependencies"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !dependencies.is_empty() {
        let list = clean::clean(json!(dependencies).to_string().as_bytes());
        let list = escape_closing("dependencies", &shorten_text(&list, DEPENDENCIES_CHARS_MAX));
        lines.push(format!("<dependencies>{list}</dependencies>"));
    }
    let output = [&run.report.stdout, &run.report.stderr].map(|bytes| reply::stream(bytes));
    let output = output.iter().map(|text| text.trim_end_matches('\n')).filter(|text| !text.is_empty());
    let mut tag = |name: &str, text: &str, chars_max: usize| {
        let text = escape_closing(name, &shorten_text(text, chars_max));
        lines.push(format!("<{name}>\n{text}\n</{name}>"));
    };
    let output = output.collect::<Vec<_>>().join("\n");
    if !output.is_empty() {
        tag("output", &output, OUTPUT_CHARS_MAX);
    }
    match (&error, field("return_value")) {
        (Some(error), _) => tag("error", error, ERROR_CHARS_MAX),
        (None, Some(value)) => tag("return_value", &value, VALUE_CHARS_MAX),
        (None, None) => {}
    }
    let mut reply = Reply::new(Body::Text(lines.join("\n")), Verdict::of(error.is_none()));
    reply.images = rich::images(run);
    reply
}

/// Tags of this name within the text, open or closed, written so that they are text.
fn escape_closing(tag: &str, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest[1..].strip_prefix('/').unwrap_or(&rest[1..]).trim_start();
        let is_tag = name.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let end = if is_tag { line.find('>').map_or(1, |at| at + 1) } else { 0 };
        if end == 0 {
            out.push('<');
            rest = &rest[1..];
        } else {
            out.push_str(&rest[..end].replace('<', "&lt;").replace('>', "&gt;"));
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_within_its_own_content_is_text() {
        assert_eq!(escape_closing("output", "a </output> b"), "a &lt;/output&gt; b");
        assert_eq!(escape_closing("output", "</ OUTPUT x=\"1\"> <output>"), "&lt;/ OUTPUT x=\"1\"&gt; &lt;output&gt;");
        assert_eq!(escape_closing("output", "</output"), "&lt;/output");
        assert_eq!(escape_closing("output", "1 < 2 <error> </é"), "1 < 2 <error> </é");
        assert_eq!(escape_closing("error", "<"), "<");
    }

    #[test]
    fn the_code_is_input_and_never_part_of_the_program() {
        let code = "'''\"\n__import__('os')";
        let globals = json!({"x": [1, "two"]}).as_object().cloned().unwrap();
        let program = program(code, globals, Duration::from_secs(60)).unwrap();
        assert!(matches!(&program.source, Source::Cell { code: wrap, .. } if !wrap.contains(code)));
        let Stdin::Whole(bytes) = program.stdin else { panic!("live input") };
        let job: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(job, json!({"code": code, "globals": {"x": [1, "two"]}}));
        assert!(stdin(" \n", Map::new()).is_err());
        assert!(stdin(&"x".repeat(STDIN_BYTES_MAX), Map::new()).is_err());
    }
}
