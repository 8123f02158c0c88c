//! A tool on one line.

use super::text::{self, quoted};
use super::types::{Field, Object, Type, Types};
use super::{Dialect, input_types, output_types, python, read, typescript};
use crate::catalogue::Tool;

const SIGNATURE_CHARACTERS_MAX: usize = 300;
/// A type that takes more is only named for what it is.
const TYPE_CHARACTERS_MAX: usize = 60;
const SUMMARY_CHARACTERS_MAX: usize = 120;

/// One line: `github.list_issues(owner: str, repo: str, state: Literal["OPEN", "CLOSED"] = ...) -> list[dict]`. Parameters
/// that find no room are left out from the end, so that the required ones are the last to go; `...` stands for them.
pub fn signature(tool: &Tool, dialect: Dialect) -> String {
    let input = input_types(tool, read::DEPTH_MAX);
    let output = output_types(tool, read::DEPTH_MAX);
    let arguments = input.arguments();
    let (open, close) = match (dialect, arguments.fields.is_empty() && arguments.others.is_none()) {
        (Dialect::Python, _) => (format!("{}(", tool.path()), ") -> "),
        (Dialect::TypeScript, true) => (format!("{}(", tool.path()), "): Promise<"),
        (Dialect::TypeScript, false) => (format!("{}({{ ", tool.path()), " }): Promise<"),
    };
    let mut result = short(&output, &output.root, dialect);
    if dialect == Dialect::TypeScript {
        result.push('>');
    }
    let mut room = SIGNATURE_CHARACTERS_MAX.saturating_sub(length(&open) + length(close) + length(&result) + 5);
    let mut parameters = Vec::new();
    let others = match (dialect, arguments.others.is_some()) {
        (_, false) => None,
        (Dialect::Python, true) => Some("**others: Any".to_owned()),
        (Dialect::TypeScript, true) => Some("[other: string]: unknown".to_owned()),
    };
    let known = arguments.fields.iter().map(|field| parameter(&input, field, &arguments, dialect));
    for parameter in known.chain(others) {
        let needed = length(&parameter) + 2;
        if needed > room {
            parameters.push("...".to_owned());
            break;
        }
        room -= needed;
        parameters.push(parameter);
    }
    format!("{open}{}{close}{result}", parameters.join(", "))
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn parameter(types: &Types, field: &Field, all: &Object, dialect: Dialect) -> String {
    let kind = short(types, &field.kind, dialect);
    match dialect {
        Dialect::Python => {
            let name = python::parameter(&field.name, all).unwrap_or_else(|| quoted(&field.name, dialect));
            format!("{name}: {kind}{}", if field.required { "" } else { " = ..." })
        }
        Dialect::TypeScript => format!("{}: {kind}", typescript::optional(field)),
    }
}

/// A type in at most [`TYPE_CHARACTERS_MAX`] characters.
fn short(types: &Types, kind: &Type, dialect: Dialect) -> String {
    for depth in [3, 2, 1] {
        let text = inline(types, kind, dialect, depth);
        if length(&text) <= TYPE_CHARACTERS_MAX {
            return text;
        }
    }
    inline(types, kind, dialect, 0)
}

fn inline(types: &Types, kind: &Type, dialect: Dialect, depth: usize) -> String {
    let python = dialect == Dialect::Python;
    let pick = |one: &str, other: &str| if python { one.to_owned() } else { other.to_owned() };
    let next = |kind: &Type| inline(types, kind, dialect, depth - 1);
    match types.open(kind) {
        Type::Any => pick("Any", "unknown"),
        Type::Never => pick("Never", "never"),
        Type::Null => pick("None", "null"),
        Type::Boolean => pick("bool", "boolean"),
        Type::Integer => pick("int", "number"),
        Type::Number => pick("float", "number"),
        Type::String => pick("str", "string"),
        Type::Literal(values) if depth > 0 => {
            let values: Vec<String> =
                values.iter().map(if python { python::value } else { typescript::value }).collect();
            if python { format!("Literal[{}]", values.join(", ")) } else { values.join(" | ") }
        }
        Type::Literal(values) if values.iter().all(serde_json::Value::is_string) => pick("str", "string"),
        Type::Literal(values) if values.iter().all(serde_json::Value::is_number) => pick("int", "number"),
        Type::Array(items) if depth > 0 && python => format!("list[{}]", next(items)),
        Type::Array(items) if depth > 0 => format!("Array<{}>", next(items)),
        Type::Tuple(first, None) if depth > 0 => {
            let items = first.iter().map(next).collect::<Vec<_>>().join(", ");
            if python { format!("tuple[{items}]") } else { format!("[{items}]") }
        }
        Type::Array(_) | Type::Tuple(..) => pick("list", "unknown[]"),
        Type::Map(values) if depth > 0 && !python => format!("Record<string, {}>", next(values)),
        Type::Object(object) if depth > 0 && !python && object.others.is_none() => {
            let field = |field: &Field| format!("{}: {}", typescript::optional(field), next(&field.kind));
            let fields = object.fields.iter().map(field).collect::<Vec<_>>().join("; ");
            if fields.is_empty() { "{}".to_owned() } else { format!("{{ {fields} }}") }
        }
        Type::Map(_) | Type::Object(_) => pick("dict", "{...}"),
        Type::Union(members) if depth > 0 => {
            let mut parts: Vec<String> = Vec::new();
            for member in members {
                let part = next(member);
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
            parts.join(" | ")
        }
        Type::Literal(_) | Type::Union(_) | Type::Named(_) => pick("Any", "unknown"),
    }
}

/// The first sentence of the description.
pub fn summary(tool: &Tool) -> String {
    let paragraph = tool.description.trim().split("\n\n").next().unwrap_or_default();
    let text = text::line(paragraph, 1024);
    let is_end = |(at, _): &(usize, char)| text[..*at].ends_with(['.', '!', '?']) && !text[..*at].ends_with("e.g.");
    let end = text.char_indices().filter(|(_, c)| *c == ' ').find(is_end).map_or(text.len(), |(at, _)| at);
    text::cut(&text[..end], SUMMARY_CHARACTERS_MAX)
}

/// What the tool says of itself, in one sentence.
pub(super) fn annotations(tool: &Tool) -> Option<String> {
    let said = tool.annotations;
    let mut words = Vec::new();
    match (said.read_only, said.destructive) {
        (Some(true), _) => words.push("only reads"),
        (_, Some(true)) => words.push("may destroy"),
        (_, Some(false)) => words.push("writes, and destroys nothing"),
        _ => {}
    }
    if said.idempotent == Some(true) && said.read_only != Some(true) {
        words.push("a second same call changes nothing");
    }
    if said.open_world == Some(true) {
        words.push("reaches out of its own system");
    }
    if words.is_empty() { None } else { Some(format!("By the server's own words: {}.", words.join("; "))) }
}
