//! What the file may hold, as JSON Schema: for editors, for `belljar config show`, and for finding mistakes. It is made of
//! the raw types, so there is nothing to keep in step.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Value, json};

use super::raw;

/// The schema of the whole file.
pub(crate) fn schema() -> Value {
    // Draft 7 is what the editors' TOML support reads.
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<raw::Config>();
    RecursiveTransform(plain).transform(&mut schema);
    schema.insert("title".to_owned(), json!("Belljar's configuration"));
    schema.to_value()
}

/// TOML has no null, and editors know nothing of Rust's numbers.
fn plain(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    schema.remove("default");
    schema.remove("format");
}

/// A key that has a place of its own in the file, and is not a section.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    /// Such as `pool.max`.
    pub(crate) path: String,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Switch,
    Whole,
    Number,
    Word,
    Words,
    /// By names that the operator chooses; it can be written in the file alone.
    Table,
}

/// All keys, in the order of the raw types.
pub(crate) fn keys(schema: &Value) -> Vec<Key> {
    let mut keys = Vec::new();
    gather(schema, "", &mut keys);
    keys
}

fn gather(schema: &Value, at: &str, keys: &mut Vec<Key>) {
    for (name, below) in properties(schema) {
        let path = join(at, name);
        let kind = match below["type"].as_str() {
            Some("boolean") => Kind::Switch,
            Some("integer") => Kind::Whole,
            Some("number") => Kind::Number,
            Some("array") => Kind::Words,
            Some("object") if below["properties"].is_object() => {
                gather(below, &path, keys);
                continue;
            }
            Some("object") => Kind::Table,
            _ => Kind::Word,
        };
        keys.push(Key { path, kind });
    }
}

pub(super) fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

/// What is said of the key below a section or table; `None` where it may have no such key.
pub(super) fn below<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    // As a schema, it lets everything pass.
    static ANYTHING: Value = Value::Bool(true);
    let named = schema["properties"].get(name);
    let others = schema.get("additionalProperties").unwrap_or(&ANYTHING);
    named.or_else(|| (*others != Value::Bool(false)).then_some(others))
}

pub(super) fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}
