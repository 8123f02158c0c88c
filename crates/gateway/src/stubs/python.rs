//! Types and stubs as Python writes them.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::names::{self, Taken};
use super::text::{self, quoted};
use super::types::{Object, Type, Types};
use super::{Dialect, brief, example};
use crate::catalogue::Tool;

/// Names that a stub uses itself.
const RESERVED: &[&str] = &[
    "Any",
    "Literal",
    "Never",
    "NotRequired",
    "Required",
    "TypeAlias",
    "TypedDict",
    "None",
    "True",
    "False",
    "bool",
    "dict",
    "float",
    "int",
    "list",
    "str",
    "tuple",
];

const IMPORTED: &[&str] = &["Any", "Literal", "Never", "NotRequired", "TypeAlias", "TypedDict"];

/// A JSON value as Python writes it.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text, Dialect::Python),
        Value::Array(items) => format!("[{}]", items.iter().map(self::value).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let field =
                |(key, item): (&String, &Value)| format!("{}: {}", quoted(key, Dialect::Python), self::value(item));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

/// How a parameter is written in a call: a keyword of Python gets `_` after it. `None` for a name that only
/// `**{"name": ..}` can give.
pub(super) fn parameter(name: &str, object: &Object) -> Option<String> {
    if !names::is_plain(name) {
        return None;
    }
    if !names::is_python_keyword(name) {
        return Some(name.to_owned());
    }
    let name = format!("{name}_");
    if object.fields.iter().any(|field| field.name == name) { None } else { Some(name) }
}

/// Types written as declarations, as far as they need a name.
#[derive(Debug)]
struct Writer<'a> {
    types: &'a Types,
    declarations: Vec<String>,
    taken: Taken,
    named: HashMap<usize, String>,
    pending: VecDeque<usize>,
}

impl<'a> Writer<'a> {
    fn new(types: &'a Types, taken: Taken) -> Writer<'a> {
        Writer { types, declarations: Vec::new(), taken, named: HashMap::new(), pending: VecDeque::new() }
    }

    fn kind(&mut self, kind: &Type, hint: &str) -> String {
        match kind {
            Type::Any => "Any".to_owned(),
            Type::Never => "Never".to_owned(),
            Type::Null => "None".to_owned(),
            Type::Boolean => "bool".to_owned(),
            Type::Integer => "int".to_owned(),
            Type::Number => "float".to_owned(),
            Type::String => "str".to_owned(),
            Type::Literal(values) => literal(values),
            Type::Array(items) => format!("list[{}]", self.kind(items, &format!("{hint}_item"))),
            Type::Tuple(first, rest) => match rest {
                None => {
                    let items: Vec<String> = first.iter().map(|item| self.kind(item, hint)).collect();
                    format!("tuple[{}]", items.join(", "))
                }
                // Python has no tuple that goes on after its first items: a list of any of them.
                Some(rest) => {
                    let members: Vec<Type> = first.iter().cloned().chain([(**rest).clone()]).collect();
                    format!("list[{}]", self.kind(&super::types::union(members), hint))
                }
            },
            Type::Map(values) => format!("dict[str, {}]", self.kind(values, &format!("{hint}_value"))),
            Type::Union(members) => {
                let members: Vec<String> = members.iter().map(|member| self.kind(member, hint)).collect();
                members.join(" | ")
            }
            Type::Object(object) => {
                let name = self.taken.fresh(hint);
                self.declare(&name, object);
                name
            }
            Type::Named(index) => self.reference(*index, hint),
        }
    }

    fn reference(&mut self, index: usize, hint: &str) -> String {
        if let Some(name) = self.named.get(&index) {
            return name.clone();
        }
        let types = self.types;
        let Some(named) = types.named.get(index) else { return "Any".to_owned() };
        if types.is_inline(index) {
            return self.kind(&named.kind, hint);
        }
        let name = self.taken.fresh(if named.name.is_empty() { hint } else { &named.name });
        self.named.insert(index, name.clone());
        self.pending.push_back(index);
        name
    }

    fn declare(&mut self, name: &str, object: &Object) {
        // The place is kept, so that the outer type stands before those that it is made of.
        let place = self.declarations.len();
        self.declarations.push(String::new());
        let fields: Vec<(String, String)> = object
            .fields
            .iter()
            .map(|field| {
                let kind = self.kind(&field.kind, &format!("{name}_{}", field.name));
                (field.name.clone(), if field.required { kind } else { format!("NotRequired[{kind}]") })
            })
            .collect();
        let writable = |name: &str| names::is_plain(name) && !names::is_python_keyword(name) && !name.starts_with("__");
        let mut out = String::new();
        if fields.iter().all(|(name, _)| writable(name)) {
            out.push_str(&format!("class {name}(TypedDict):\n"));
            for ((field, kind), known) in fields.iter().zip(&object.fields) {
                out.push_str(&format!("    {field}: {kind}{}\n", comment(&known.doc)));
            }
            if fields.is_empty() {
                out.push_str("    pass\n");
            }
        } else {
            out.push_str(&format!("{name} = TypedDict({}, {{\n", quoted(name, Dialect::Python)));
            for ((field, kind), known) in fields.iter().zip(&object.fields) {
                let key = quoted(field, Dialect::Python);
                out.push_str(&format!("    {key}: {kind},{}\n", comment(&known.doc)));
            }
            out.push_str("})\n");
        }
        self.declarations[place] = out;
    }

    fn finish(&mut self) {
        while let Some(index) = self.pending.pop_front() {
            let Some(name) = self.named.get(&index).cloned() else { continue };
            let types = self.types;
            match types.named.get(index).map(|named| &named.kind) {
                Some(Type::Object(object)) => self.declare(&name, object),
                Some(kind) => {
                    let kind = self.kind(kind, &format!("{name}_value"));
                    self.declarations.push(format!("{name}: TypeAlias = {kind}\n"));
                }
                None => {}
            }
        }
    }
}

fn literal(values: &[Value]) -> String {
    let values: Vec<String> = values.iter().map(value).collect();
    format!("Literal[{}]", values.join(", "))
}

fn comment(doc: &str) -> String {
    if doc.is_empty() { String::new() } else { format!("  # {}", text::cut(&text::line(doc, 400), 160)) }
}

/// The content of `<tool>.pyi`.
pub(super) fn stub(tool: &Tool, input: &Types, output: &Types, docs: bool) -> String {
    let arguments = input.arguments();
    let mut inputs = Writer::new(input, Taken::new(RESERVED, &tool.ident));
    let mut parameters = Vec::new();
    let mut others = Vec::new();
    for field in &arguments.fields {
        let kind = inputs.kind(&field.kind, &format!("{}_{}", tool.ident, field.name));
        match parameter(&field.name, &arguments) {
            Some(name) => {
                let default = if field.required { "" } else { " = ..." };
                parameters.push(format!("    {name}: {kind}{default},\n"));
            }
            None => {
                let needed = if field.required { ", required" } else { "" };
                others.push(format!("{}: {kind}{needed}", quoted(&field.name, Dialect::Python)));
            }
        }
    }
    if !parameters.is_empty() {
        parameters.insert(0, "    *,\n".to_owned());
    }
    if !others.is_empty() || arguments.others.is_some() {
        let mut name = "others".to_owned();
        while arguments.fields.iter().any(|field| field.name == name) {
            name.push('_');
        }
        let kind = match &arguments.others {
            Some(kind) if others.is_empty() => inputs.kind(kind, &format!("{}_other", tool.ident)),
            _ => "Any".to_owned(),
        };
        parameters.push(format!("    **{name}: {kind},\n"));
    }
    inputs.finish();
    let Writer { declarations, taken, .. } = inputs;
    let mut outputs = Writer::new(output, taken);
    let result = outputs.kind(&output.root, &format!("{}_result", tool.ident));
    outputs.finish();

    let mut out = String::new();
    for declaration in declarations.iter().chain(&outputs.declarations) {
        out.push_str(declaration);
        out.push('\n');
    }
    let parameters = if parameters.is_empty() { String::new() } else { format!("\n{}", parameters.concat()) };
    out.push_str(&format!("def {}({parameters}) -> {result}:\n", tool.ident));
    let used: Vec<&str> = IMPORTED.iter().copied().filter(|name| out.contains(name)).collect();
    if !used.is_empty() {
        out.insert_str(0, &format!("from typing import {}\n\n", used.join(", ")));
    }
    out.push_str(&documentation(tool, &arguments, &others, docs));
    out
}

fn documentation(tool: &Tool, arguments: &Object, others: &[String], docs: bool) -> String {
    let mut lines: Vec<String> = Vec::new();
    if docs && !tool.description.is_empty() {
        lines.extend(tool.description.lines().map(str::to_owned));
        lines.push(String::new());
    }
    let described: Vec<_> = arguments.fields.iter().filter(|field| !field.doc.is_empty()).collect();
    if docs && !described.is_empty() {
        lines.push("Args:".to_owned());
        for field in described {
            let name = parameter(&field.name, arguments).unwrap_or_else(|| quoted(&field.name, Dialect::Python));
            let mut doc = field.doc.lines();
            lines.push(format!("    {name}: {}", doc.next().unwrap_or_default()));
            lines.extend(doc.map(|line| format!("        {line}")));
        }
        lines.push(String::new());
    }
    if !others.is_empty() {
        lines.push("Only as `**{\"name\": value}`, for these are no names in Python:".to_owned());
        lines.extend(others.iter().map(|other| format!("    {other}")));
        lines.push(String::new());
    }
    if let Some(note) = brief::annotations(tool) {
        lines.push(note);
        lines.push(String::new());
    }
    lines.push("Example:".to_owned());
    lines.push(format!("    {}", example::example(tool, Dialect::Python)));
    let mut out = "    \"\"\"\n".to_owned();
    for line in lines {
        let line = line.replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"");
        out.push_str(format!("    {line}").trim_end());
        out.push('\n');
    }
    out.push_str("    \"\"\"\n");
    out
}
