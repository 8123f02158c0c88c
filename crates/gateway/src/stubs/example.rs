//! A call that could be made.

use serde_json::{Map, Value};

use super::text::quoted;
use super::{Dialect, python, read, typescript};
use crate::catalogue::Tool;

const DEPTH_MAX: usize = 5;
/// Of one argument; a longer value is left to the reader.
const VALUE_CHARACTERS_MAX: usize = 200;
const CALL_BYTES_MAX: usize = 1000;

/// A plausible call with the required parameters only.
pub fn example(tool: &Tool, dialect: Dialect) -> String {
    let object = super::input_types(tool, 4).arguments();
    let root = Value::Object(tool.input_schema.clone());
    let mut plain = Vec::new();
    let mut others = Vec::new();
    let mut length = 0;
    for field in object.fields.iter().filter(|field| field.required) {
        let schema = property(&root, &root, &field.name, 3);
        let value = schema.map_or(Value::from("..."), |schema| guess(schema, &root, DEPTH_MAX));
        let text = written(&value, dialect);
        let text = if text.chars().count() > VALUE_CHARACTERS_MAX { "...".to_owned() } else { text };
        let text = if text == "..." && dialect == Dialect::TypeScript { "undefined".to_owned() } else { text };
        length += field.name.len() + text.len();
        if length > CALL_BYTES_MAX {
            plain.push("...".to_owned());
            break;
        }
        match (dialect, python::parameter(&field.name, &object)) {
            (Dialect::Python, Some(name)) => plain.push(format!("{name}={text}")),
            (Dialect::Python, None) => others.push(format!("{}: {text}", quoted(&field.name, dialect))),
            (Dialect::TypeScript, _) => plain.push(format!("{}: {text}", typescript::key(&field.name))),
        }
    }
    if !others.is_empty() {
        plain.push(format!("**{{{}}}", others.join(", ")));
    }
    let arguments = plain.join(", ");
    match dialect {
        Dialect::Python => format!("{}({arguments})", tool.path()),
        Dialect::TypeScript if arguments.is_empty() => format!("await {}({{}})", tool.path()),
        Dialect::TypeScript => format!("await {}({{ {arguments} }})", tool.path()),
    }
}

fn written(value: &Value, dialect: Dialect) -> String {
    match dialect {
        Dialect::Python => python::value(value),
        Dialect::TypeScript => typescript::value(value),
    }
}

/// The schema of a property, wherever in the parts of this one it stands.
fn property<'a>(schema: &'a Value, root: &'a Value, name: &str, depth: usize) -> Option<&'a Value> {
    if let Some(found) = schema.get("properties").and_then(|properties| properties.get(name)) {
        return Some(found);
    }
    let parts = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten().take(8);
    let meant = schema.get("$ref").and_then(Value::as_str).and_then(|reference| read::resolve(root, reference));
    if depth == 0 {
        None
    } else {
        meant.into_iter().chain(parts).find_map(|part| property(part, root, name, depth - 1))
    }
}

fn guess(schema: &Value, root: &Value, depth: usize) -> Value {
    let Value::Object(fields) = schema else { return Value::from("...") };
    let first = |key: &str| fields.get(key).and_then(Value::as_array).and_then(|values| values.first());
    let given = first("examples").or(fields.get("example")).or(fields.get("default").filter(|value| !value.is_null()));
    if let Some(value) = given.or(fields.get("const")).or(first("enum")) {
        return value.clone();
    }
    if depth == 0 {
        return Value::from("...");
    }
    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
        return read::resolve(root, reference).map_or(Value::from("..."), |meant| guess(meant, root, depth - 1));
    }
    if let Some(part) = first("anyOf").or(first("oneOf")).or(first("allOf")).filter(|_| !fields.contains_key("type")) {
        return guess(part, root, depth - 1);
    }
    let kind = match fields.get("type") {
        Some(Value::Array(_)) => first("type").and_then(Value::as_str),
        kind => kind.and_then(Value::as_str),
    };
    match kind {
        Some("integer" | "number") => match fields.get("minimum").or(fields.get("maximum")) {
            Some(Value::Number(bound)) => Value::Number(bound.clone()),
            _ => Value::from(1),
        },
        Some("boolean") => Value::from(true),
        Some("null") => Value::Null,
        Some("array") => {
            Value::Array(fields.get("items").map(|items| vec![guess(items, root, depth - 1)]).unwrap_or_default())
        }
        Some("object") => Value::Object(guess_object(fields, root, depth)),
        None if fields.contains_key("properties") => Value::Object(guess_object(fields, root, depth)),
        _ => Value::from(text_of(fields)),
    }
}

fn guess_object(fields: &Map<String, Value>, root: &Value, depth: usize) -> Map<String, Value> {
    let required = fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let schema = |name: &str| fields.get("properties").and_then(|properties| properties.get(name));
    let value = |name: &str| schema(name).map_or(Value::from("..."), |schema| guess(schema, root, depth - 1));
    required.take(6).map(|name| (name.to_owned(), value(name))).collect()
}

fn text_of(fields: &Map<String, Value>) -> &'static str {
    match fields.get("format").and_then(Value::as_str) {
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("date") => "2026-01-31",
        Some("time") => "12:00:00Z",
        Some("email") => "someone@example.com",
        Some("uri" | "url" | "uri-reference") => "https://example.com/",
        Some("uuid") => "123e4567-e89b-12d3-a456-426614174000",
        _ => "...",
    }
}
