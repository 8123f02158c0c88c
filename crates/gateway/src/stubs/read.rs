//! From a JSON Schema, of 2020-12 or of the drafts before it, to a type. Anything that is not understood is any value;
//! nothing outside of the schema is ever looked at.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::text::{self, PARAMETER_BYTES_MAX};
use super::types::{Field, Named, Object, Type, Types, union};

/// Beyond these, everything is any value. The second one counts schemas that were looked at.
pub(super) const DEPTH_MAX: usize = 24;
pub(super) const STEPS_MAX: usize = 3000;
/// Of one object. Those after them are any others.
const FIELDS_MAX: usize = 1000;
/// An enum with more members is its base type, with a note on the first few.
const ENUM_MAX: usize = 30;

/// The type of a schema.
pub(super) fn read(schema: &Map<String, Value>, depth_max: usize) -> Types {
    let root = Value::Object(schema.clone());
    let mut reader = Reader { root: &root, named: Vec::new(), pointers: HashMap::new(), steps: 0, depth_max };
    let kind = reader.read(&root, 0);
    let named = reader.named;
    Types { root: kind, named }
}

/// The part of the schema that a reference within it means.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(&pointer(reference)?)
}

/// The JSON pointer of a reference; `None` if it leads elsewhere.
pub(super) fn pointer(reference: &str) -> Option<String> {
    let fragment = reference.strip_prefix('#')?;
    if !fragment.is_empty() && !fragment.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

pub(super) struct Reader<'a> {
    root: &'a Value,
    pub(super) named: Vec<Named>,
    pointers: HashMap<String, usize>,
    pub(super) steps: usize,
    pub(super) depth_max: usize,
}

impl Reader<'_> {
    fn read(&mut self, schema: &Value, depth: usize) -> Type {
        self.steps += 1;
        if depth > self.depth_max || self.steps > STEPS_MAX {
            return Type::Any;
        }
        let fields = match schema {
            Value::Bool(false) => return Type::Never,
            Value::Object(fields) => fields,
            _ => return Type::Any,
        };
        let mut kind = self.own(fields, depth);
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            let meant = self.reference(reference, depth);
            kind = self.both(kind, meant, depth);
        }
        if let Some(all) = fields.get("allOf").and_then(Value::as_array) {
            for part in all {
                let part = self.read(part, depth + 1);
                kind = self.both(kind, part, depth);
            }
        }
        for key in ["anyOf", "oneOf"] {
            let Some(any) = fields.get(key).and_then(Value::as_array) else { continue };
            let members: Vec<Type> = any.iter().map(|member| self.read(member, depth + 1)).collect();
            kind = self.either(kind, members, depth);
        }
        if fields.get("nullable") == Some(&Value::Bool(true)) && kind != Type::Any {
            kind = union(vec![kind, Type::Null]);
        }
        kind
    }

    /// What the keywords of this very schema say, those that lead to others aside.
    fn own(&mut self, fields: &Map<String, Value>, depth: usize) -> Type {
        if let Some(value) = fields.get("const") {
            return literal(std::slice::from_ref(value));
        }
        if let Some(Value::Array(values)) = fields.get("enum") {
            return literal(values);
        }
        match fields.get("type") {
            Some(Value::String(name)) => self.of_type(name, fields, depth),
            Some(Value::Array(names)) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).take(8).collect();
                let members: Vec<Type> = names.iter().map(|name| self.of_type(name, fields, depth)).collect();
                if members.is_empty() { Type::Any } else { union(members) }
            }
            _ if ["properties", "additionalProperties", "required"].iter().any(|key| fields.contains_key(*key)) => {
                self.object(fields, depth)
            }
            _ if fields.contains_key("items") || fields.contains_key("prefixItems") => self.array(fields, depth),
            _ => Type::Any,
        }
    }

    fn of_type(&mut self, name: &str, fields: &Map<String, Value>, depth: usize) -> Type {
        match name {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "string" => Type::String,
            "array" => self.array(fields, depth),
            "object" => self.object(fields, depth),
            _ => Type::Any,
        }
    }

    fn array(&mut self, fields: &Map<String, Value>, depth: usize) -> Type {
        let (first, rest) = match (fields.get("prefixItems"), fields.get("items")) {
            (Some(Value::Array(first)), rest) => (first.as_slice(), rest),
            (_, Some(Value::Array(first))) => (first.as_slice(), fields.get("additionalItems")),
            (_, rest) => (&[][..], rest),
        };
        if first.is_empty() || first.len() > 16 {
            let items = rest.map_or(Type::Any, |rest| self.read(rest, depth + 1));
            return Type::Array(Box::new(if first.is_empty() { items } else { Type::Any }));
        }
        let first = first.iter().map(|item| self.read(item, depth + 1)).collect();
        let rest = match rest {
            Some(Value::Bool(false)) => None,
            Some(rest) => Some(Box::new(self.read(rest, depth + 1))),
            None => Some(Box::new(Type::Any)),
        };
        Type::Tuple(first, rest)
    }

    fn object(&mut self, fields: &Map<String, Value>, depth: usize) -> Type {
        let mut required: Vec<&str> = match fields.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let needed: HashSet<&str> = required.iter().copied().collect();
        let mut object = Object::default();
        if let Some(Value::Object(properties)) = fields.get("properties") {
            for (name, schema) in properties.iter().take(FIELDS_MAX) {
                let kind = self.read(schema, depth + 1);
                let required = needed.contains(name.as_str());
                object.fields.push(Field { name: name.clone(), kind, required, doc: doc(schema, self.root) });
            }
        }
        let properties = fields.get("properties").and_then(Value::as_object);
        required.retain(|name| properties.is_none_or(|properties| !properties.contains_key(*name)));
        let mut seen = HashSet::new();
        required.retain(|name| seen.insert(*name));
        for name in required.into_iter().take(FIELDS_MAX) {
            let doc = String::new();
            object.fields.push(Field { name: name.to_owned(), kind: Type::Any, required: true, doc });
        }
        let mut others = Vec::new();
        if properties.is_some_and(|properties| properties.len() > FIELDS_MAX) {
            others.push(Type::Any);
        }
        if let Some(Value::Object(patterns)) = fields.get("patternProperties") {
            others.extend(patterns.values().take(8).map(|schema| self.read(schema, depth + 1)));
        }
        match fields.get("additionalProperties") {
            None | Some(Value::Bool(false)) => {}
            Some(schema) => others.push(self.read(schema, depth + 1)),
        }
        object.others = if others.is_empty() { None } else { Some(Box::new(union(others))) };
        match (object.fields.is_empty(), object.others) {
            (true, Some(values)) => Type::Map(values),
            (true, None) if depth > 0 && !is_closed(fields) => Type::Map(Box::new(Type::Any)),
            (_, others) => Type::Object(Object { fields: object.fields, others }),
        }
    }

    fn reference(&mut self, reference: &str, depth: usize) -> Type {
        let Some(pointer) = pointer(reference) else { return Type::Any };
        if let Some(index) = self.pointers.get(&pointer) {
            return Type::Named(*index);
        }
        let root = self.root;
        let Some(meant) = root.pointer(&pointer) else { return Type::Any };
        let index = self.named.len();
        let name = pointer.rsplit('/').next().unwrap_or_default().to_owned();
        self.named.push(Named { name, kind: Type::Any });
        self.pointers.insert(pointer, index);
        let kind = self.read(meant, depth + 1);
        self.named[index].kind = without(kind, index);
        Type::Named(index)
    }
}

fn is_closed(fields: &Map<String, Value>) -> bool {
    fields.get("additionalProperties") == Some(&Value::Bool(false))
}

/// A name's meaning without the name itself, which would say nothing.
fn without(kind: Type, index: usize) -> Type {
    match kind {
        Type::Named(own) if own == index => Type::Any,
        Type::Union(members) => union(members.into_iter().filter(|member| *member != Type::Named(index)).collect()),
        kind => kind,
    }
}

fn base(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Boolean,
        Value::Number(number) if number.is_f64() => Type::Number,
        Value::Number(_) => Type::Integer,
        Value::String(_) => Type::String,
        Value::Array(_) => Type::Array(Box::new(Type::Any)),
        Value::Object(_) => Type::Map(Box::new(Type::Any)),
    }
}

fn literal(values: &[Value]) -> Type {
    let is_long = |value: &Value| value.as_str().is_some_and(|text| text.len() > 200);
    if values.len() > ENUM_MAX || values.iter().any(is_long) {
        return union(values.iter().map(base).collect());
    }
    // No language has literal fractions, arrays or objects among its types.
    let is_literal = |value: &&Value| !(value.is_array() || value.is_object() || value.is_f64());
    let literals: Vec<Value> = values.iter().filter(is_literal).filter(|value| !value.is_null()).cloned().collect();
    let mut members: Vec<Type> =
        values.iter().filter(|value| !is_literal(value) || value.is_null()).map(base).collect();
    if !literals.is_empty() {
        members.insert(0, Type::Literal(literals));
    }
    union(members)
}

/// A property's description, and what its type does not say.
fn doc(schema: &Value, root: &Value) -> String {
    let text = |key: &str| schema.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let meant = schema.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(root, reference));
    let described = text("description")
        .or_else(|| meant.and_then(|meant| meant.get("description")).and_then(Value::as_str))
        .or_else(|| text("title"));
    let mut doc = described.map(|text| text::clean(text.trim(), PARAMETER_BYTES_MAX)).unwrap_or_default();
    let mut notes = Vec::new();
    if let Some(Value::Array(values)) = schema.get("enum").filter(|values| literal_note(values)) {
        let first: Vec<String> = values.iter().take(5).map(|value| text::cut(&value.to_string(), 40)).collect();
        notes.push(format!("one of {}, … ({} in all)", first.join(", "), values.len()));
    }
    for (key, word) in [("format", "format"), ("pattern", "pattern"), ("minimum", "at least"), ("maximum", "at most")] {
        match schema.get(key) {
            Some(Value::String(value)) => notes.push(format!("{word} {}", text::cut(&text::line(value, 200), 60))),
            Some(Value::Number(value)) => notes.push(format!("{word} {value}")),
            _ => {}
        }
    }
    if let Some(default) = schema.get("default") {
        let default = text::cut(&text::line(&default.to_string(), 400), 80);
        notes.push(format!("default {default}"));
    }
    if !notes.is_empty() {
        doc.push_str(if doc.is_empty() { "" } else { " " });
        doc.push_str(&format!("({})", notes.join("; ")));
    }
    text::clean(&doc, 2 * PARAMETER_BYTES_MAX)
}

fn literal_note(values: &Value) -> bool {
    values.as_array().is_some_and(|values| values.len() > ENUM_MAX)
}
