//! Types and stubs as TypeScript writes them.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::names::{self, Taken};
use super::text::quoted;
use super::types::{Field, Object, Type, Types};
use super::{Dialect, brief, example};
use crate::catalogue::Tool;

/// Names that mean something to TypeScript already.
const RESERVED: &[&str] = &[
    "Array", "Boolean", "Function", "Number", "Object", "Promise", "Record", "String", "Symbol", "Date", "Error",
    "Map", "Set", "Partial", "Required", "Readonly",
];

/// A JSON value as TypeScript writes it.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text, Dialect::TypeScript),
        Value::Array(items) => format!("[{}]", items.iter().map(self::value).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let field = |(name, item): (&String, &Value)| format!("{}: {}", key(name), self::value(item));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// A property's name. `__proto__` in quotes would set the prototype of a literal, but in a type it is a name like others.
pub(super) fn key(name: &str) -> String {
    match name {
        "__proto__" => "[\"__proto__\"]".to_owned(),
        name if names::is_plain(name) => name.to_owned(),
        name => quoted(name, Dialect::TypeScript),
    }
}

#[derive(Debug)]
struct Writer<'a> {
    types: &'a Types,
    declarations: Vec<String>,
    taken: Taken,
    named: HashMap<usize, String>,
    pending: VecDeque<usize>,
    docs: bool,
}

impl<'a> Writer<'a> {
    fn new(types: &'a Types, taken: Taken, docs: bool) -> Writer<'a> {
        Writer { types, declarations: Vec::new(), taken, named: HashMap::new(), pending: VecDeque::new(), docs }
    }

    fn kind(&mut self, kind: &Type, indent: usize) -> String {
        match kind {
            Type::Any => "unknown".to_owned(),
            Type::Never => "never".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Boolean => "boolean".to_owned(),
            Type::Integer | Type::Number => "number".to_owned(),
            Type::String => "string".to_owned(),
            Type::Literal(values) => values.iter().map(value).collect::<Vec<_>>().join(" | "),
            Type::Array(items) => format!("Array<{}>", self.kind(items, indent)),
            Type::Tuple(first, rest) => {
                let mut items: Vec<String> = first.iter().map(|item| self.kind(item, indent)).collect();
                if let Some(rest) = rest {
                    items.push(format!("...Array<{}>", self.kind(rest, indent)));
                }
                format!("[{}]", items.join(", "))
            }
            Type::Map(values) => format!("Record<string, {}>", self.kind(values, indent)),
            Type::Union(members) => {
                let members: Vec<String> = members.iter().map(|member| self.kind(member, indent)).collect();
                members.join(" | ")
            }
            Type::Object(object) => self.object(object, indent),
            Type::Named(index) => self.reference(*index, indent),
        }
    }

    fn reference(&mut self, index: usize, indent: usize) -> String {
        if let Some(name) = self.named.get(&index) {
            return name.clone();
        }
        let types = self.types;
        let Some(named) = types.named.get(index) else { return "unknown".to_owned() };
        if types.is_inline(index) {
            return self.kind(&named.kind, indent);
        }
        let wanted = if named.name.is_empty() { "Value" } else { &named.name };
        let name = self.taken.fresh(wanted);
        self.named.insert(index, name.clone());
        self.pending.push_back(index);
        name
    }

    fn object(&mut self, object: &Object, indent: usize) -> String {
        let inner = "  ".repeat(indent + 1);
        let mut out = "{\n".to_owned();
        for field in &object.fields {
            if self.docs && !field.doc.is_empty() {
                out.push_str(&comment(&[field.doc.as_str()], &inner));
            }
            let kind = self.kind(&field.kind, indent + 1);
            out.push_str(&format!("{inner}{}: {kind};\n", optional(field)));
        }
        if object.others.is_some() {
            // The values of an index signature have to take in those of every field; only `unknown` always does.
            out.push_str(&format!("{inner}[other: string]: unknown;\n"));
        }
        if object.fields.is_empty() && object.others.is_none() {
            return "{}".to_owned();
        }
        out.push_str(&"  ".repeat(indent));
        out.push('}');
        out
    }

    fn finish(&mut self) {
        while let Some(index) = self.pending.pop_front() {
            let Some(name) = self.named.get(&index).cloned() else { continue };
            let types = self.types;
            let Some(named) = types.named.get(index) else { continue };
            let kind = self.kind(&named.kind, 0);
            self.declarations.push(format!("export type {name} = {kind};\n"));
        }
    }
}

pub(super) fn optional(field: &Field) -> String {
    format!("{}{}", key(&field.name), if field.required { "" } else { "?" })
}

fn comment(paragraphs: &[&str], indent: &str) -> String {
    let text = paragraphs.join("\n").replace("*/", "*\\/");
    let lines: Vec<&str> = text.lines().collect();
    if let [line] = lines.as_slice() {
        return format!("{indent}/** {line} */\n");
    }
    let mut out = format!("{indent}/**\n");
    for line in lines {
        out.push_str(format!("{indent} * {line}").trim_end());
        out.push('\n');
    }
    out.push_str(&format!("{indent} */\n"));
    out
}

/// The content of `<tool>.d.ts`.
pub(super) fn stub(tool: &Tool, input: &Types, output: &Types, docs: bool) -> String {
    let mut inputs = Writer::new(input, Taken::new(RESERVED, &tool.ident), docs);
    let arguments = input.arguments();
    let parameters = match input.open(&input.root) {
        _ if arguments.fields.is_empty() => "args?: Record<string, unknown>".to_owned(),
        kind => {
            let is_needed = arguments.fields.iter().any(|field| field.required);
            let kind = match kind {
                Type::Union(_) => inputs.kind(kind, 0),
                _ => inputs.object(&arguments, 0),
            };
            format!("args{}: {kind}", if is_needed { "" } else { "?" })
        }
    };
    inputs.finish();
    let Writer { declarations, taken, .. } = inputs;
    let mut outputs = Writer::new(output, taken, docs);
    let result = outputs.kind(&output.root, 0);
    outputs.finish();

    let mut out = String::new();
    for declaration in declarations.iter().chain(&outputs.declarations) {
        out.push_str(declaration);
        out.push('\n');
    }
    let call = example::example(tool, Dialect::TypeScript);
    let mut paragraphs = Vec::new();
    if docs && !tool.description.is_empty() {
        paragraphs.extend([tool.description.as_str(), ""]);
    }
    let note = brief::annotations(tool);
    if let Some(note) = &note {
        paragraphs.extend([note.as_str(), ""]);
    }
    paragraphs.extend(["@example", &call]);
    out.push_str(&comment(&paragraphs, ""));
    out.push_str(&format!("export declare function {}({parameters}): Promise<{result}>;\n", tool.ident));
    out
}
