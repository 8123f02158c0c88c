//! Whether arguments fit a tool, said in its own words.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError};
use serde_json::{Map, Value};

use super::graph::{self, Graph};
use super::words::{nearest, place, sentence, unknown};
use super::{input_types, text};
use crate::catalogue::Tool;

const PROBLEMS_MAX: usize = 10;
const PROBLEM_CHARACTERS_MAX: usize = 400;
/// Of all patterns together with [`PATTERNS_MAX`], some 25 MiB at the very worst.
const PATTERN_BYTES_MAX: usize = 256 * 1024;
const PATTERNS_MAX: usize = 100;
/// Arguments with more values than this are told their first problem only.
const VALUES_MAX: usize = 10_000;

/// A tool's schema, compiled. Costs some time to make and none to keep.
///
/// Never stricter than the schema: what cannot be checked, since it lies elsewhere, does not compile, or would take too long,
/// is let pass, for the server has the last word. Patterns are matched in linear time. Formats are not asserted, and no value
/// is changed.
#[derive(Debug)]
pub struct Validator {
    compiled: Option<(jsonschema::Validator, Graph)>,
    known: Vec<String>,
    required: Vec<String>,
    /// Whether names that are not among the known ones have a meaning of their own.
    has_patterns: bool,
}

impl Validator {
    pub fn new(tool: &Tool) -> Validator {
        let arguments = input_types(tool, 6).arguments();
        let compiled = compile(&tool.input_schema);
        if compiled.is_none() {
            tracing::debug!(tool = tool.path(), "the schema of the arguments cannot be compiled; they are not checked");
        }
        let required = arguments.fields.iter().filter(|field| field.required).map(|field| field.name.clone()).collect();
        let known = arguments.fields.into_iter().map(|field| field.name).collect();
        Validator { compiled, known, required, has_patterns: tool.input_schema.contains_key("patternProperties") }
    }

    /// What is wrong with these arguments, one sentence each; empty if nothing is.
    pub fn problems(&self, arguments: &Map<String, Value>) -> Vec<String> {
        let mut problems = Vec::new();
        let mut add = |problem: String| note(&mut problems, &problem);
        let arguments = Value::Object(arguments.clone());
        if let Some((compiled, graph)) = &self.compiled {
            if !graph.affords(&arguments) {
                tracing::debug!("the arguments are too much work to check by their schema; they are not checked");
            } else if count(&arguments) > VALUES_MAX {
                if let Err(error) = compiled.validate(&arguments) {
                    self.explain(&error, &arguments, &mut add);
                }
            } else if !compiled.is_valid(&arguments) {
                for error in compiled.iter_errors(&arguments).take(PROBLEMS_MAX) {
                    self.explain(&error, &arguments, &mut add);
                }
            }
        }
        if !problems.is_empty() {
            for name in arguments.as_object().into_iter().flat_map(Map::keys).take(100) {
                if let Some(meant) = self.misspelt(name, &arguments) {
                    note(&mut problems, &unknown(name, Some(meant)));
                }
            }
        }
        problems
    }

    /// The missing, required name that an unknown one is so near to that it can only be meant. Other unknown names are
    /// allowed by JSON Schema, unless the schema itself says no.
    fn misspelt(&self, name: &String, arguments: &Value) -> Option<&str> {
        if self.has_patterns || self.known.contains(name) {
            return None;
        }
        let missing = self.required.iter().filter(|required| arguments.get(required.as_str()).is_none());
        nearest(name, missing)
    }

    fn explain(&self, error: &ValidationError<'_>, arguments: &Value, add: &mut dyn FnMut(String)) {
        let place = place(error);
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected }
                if place.is_empty() =>
            {
                for name in unexpected.iter().take(PROBLEMS_MAX) {
                    let missing = self.required.iter().filter(|required| arguments.get(required.as_str()).is_none());
                    let free = self.known.iter().filter(|known| arguments.get(known.as_str()).is_none());
                    add(unknown(name, nearest(name, missing).or_else(|| nearest(name, free))));
                }
            }
            _ => add(sentence(error, &place, 3)),
        }
    }
}

fn note(problems: &mut Vec<String>, problem: &str) {
    let problem = text::cut(&text::line(problem, 4 * PROBLEM_CHARACTERS_MAX), PROBLEM_CHARACTERS_MAX);
    if problems.len() < PROBLEMS_MAX && !problems.contains(&problem) {
        problems.push(problem);
    }
}

fn options() -> jsonschema::ValidationOptions<'static> {
    jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .should_ignore_unknown_formats(true)
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX))
}

fn compile(schema: &Map<String, Value>) -> Option<(jsonschema::Validator, Graph)> {
    let mut draft = match schema.get("$schema").and_then(Value::as_str) {
        Some(name) if name.contains("draft-04") => Draft::Draft4,
        Some(name) if name.contains("draft-06") => Draft::Draft6,
        Some(name) if name.contains("draft-07") => Draft::Draft7,
        Some(name) if name.contains("2019-09") => Draft::Draft201909,
        _ => Draft::Draft202012,
    };
    let mut patterns = 0;
    let (mut is_old, mut is_less) = (false, false);
    let mut keep = |key: &str, value: &mut Value| {
        let is_kept = match key {
            "pattern" => value.as_str().is_some_and(|pattern| compiles(pattern, &mut patterns)),
            "patternProperties" => {
                value.as_object().is_some_and(|parts| parts.keys().all(|pattern| compiles(pattern, &mut patterns)))
            }
            "$ref" => value.as_str().is_some_and(|reference| reference.starts_with('#')),
            "format" | "contentEncoding" | "contentMediaType" | "contentSchema" => return false,
            // As OpenAPI has it, and the very first drafts: of a property, whether it is required.
            "required" => return value.is_array(),
            _ => true,
        };
        is_old |= key == "items" && value.is_array();
        is_less |= !is_kept;
        is_kept
    };
    let mut schema = graph::pruned(&Value::Object(schema.clone()), &mut keep)?;
    if is_less {
        // A condition that asks for less makes these ask for more.
        const CONVERSE: &[&str] = &[
            "additionalProperties",
            "else",
            "if",
            "maxContains",
            "not",
            "oneOf",
            "then",
            "unevaluatedItems",
            "unevaluatedProperties",
        ];
        schema = graph::pruned(&schema, &mut |key, _| !CONVERSE.contains(&key))?;
    }
    if is_old && draft == Draft::Draft202012 {
        draft = Draft::Draft7;
    }
    let graph = Graph::new(&mut schema)?;
    let compiled = options().with_draft(draft).build(&schema).ok()?;
    Some((compiled, graph))
}

fn compiles(pattern: &str, patterns: &mut usize) -> bool {
    *patterns += 1;
    let schema = Value::Object(Map::from_iter([("pattern".to_owned(), Value::from(pattern))]));
    *patterns <= PATTERNS_MAX && pattern.len() <= 4096 && options().build(&schema).is_ok()
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}
