//! A schema made harmless before it is compiled, and how much work it is to check a value by it.
//!
//! Validators check a value by a part of the schema as often as it is referred to: a few lines of schema can mean years of
//! work, or no end at all. The graph walks the same ways and counts, so that such a check is not begun.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::read;

const DEPTH_MAX: usize = 64;
const NODES_MAX: usize = 20_000;
const REFERENCES_MAX: usize = 500;
/// Of all places in the schema together. Each is written out, by the compiler too: a long name with much below it is a lot.
const PLACES_BYTES_MAX: usize = 4 * 1024 * 1024;
const STEPS_MAX: usize = 200_000;
/// How deep a check may go, in the value and in parts of the schema together; each takes some stack.
const STACK_MAX: usize = 256;

/// Where a part of a schema applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// To the same value.
    Here,
    /// To the property of its own name.
    Property,
    /// To every property.
    Properties,
    /// To the item at its own place.
    Place,
    /// To every item.
    Items,
    /// To nothing, unless it is referred to.
    Nowhere,
}

/// How a keyword holds schemas.
enum Shape {
    One(Edge),
    List(Edge),
    Map(Edge),
    None,
}

fn shape(key: &str, value: &Value) -> Shape {
    match key {
        "allOf" | "anyOf" | "oneOf" => Shape::List(Edge::Here),
        "not" | "if" | "then" | "else" => Shape::One(Edge::Here),
        "dependentSchemas" | "dependencies" => Shape::Map(Edge::Here),
        "properties" => Shape::Map(Edge::Property),
        "patternProperties" => Shape::Map(Edge::Properties),
        "additionalProperties" | "unevaluatedProperties" | "propertyNames" => Shape::One(Edge::Properties),
        "items" if value.is_array() => Shape::List(Edge::Place),
        "prefixItems" => Shape::List(Edge::Place),
        "items" | "additionalItems" | "unevaluatedItems" | "contains" => Shape::One(Edge::Items),
        "$defs" | "definitions" => Shape::Map(Edge::Nowhere),
        _ => Shape::None,
    }
}

fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}

/// Keeps of a schema what can be checked without looking elsewhere. Keywords of which `keep` says no are dropped, with those
/// that name the schema or lead out of it. `None` if it is too deep.
pub(super) fn pruned(schema: &Value, keep: &mut dyn FnMut(&str, &mut Value) -> bool) -> Option<Value> {
    let mut schema = schema.clone();
    prune(&mut schema, keep, 0)?;
    Some(schema)
}

fn prune(schema: &mut Value, keep: &mut dyn FnMut(&str, &mut Value) -> bool, depth: usize) -> Option<()> {
    if depth > DEPTH_MAX {
        return None;
    }
    let Value::Object(fields) = schema else { return Some(()) };
    let keys: Vec<String> = fields.keys().cloned().collect();
    for key in keys {
        let Some(value) = fields.get_mut(&key) else { continue };
        let is_name = matches!(key.as_str(), "$schema" | "$id" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor");
        let leads_out = matches!(key.as_str(), "$dynamicRef" | "$recursiveRef" | "$vocabulary");
        let is_dropped = is_name || leads_out || key == "id" && value.is_string() || !keep(&key, value);
        if is_dropped {
            fields.remove(&key);
            continue;
        }
        match shape(&key, value) {
            Shape::One(_) => prune(value, keep, depth + 1)?,
            Shape::List(_) => {
                for part in value.as_array_mut().into_iter().flatten() {
                    prune(part, keep, depth + 1)?;
                }
            }
            Shape::Map(_) => {
                for (_, part) in value.as_object_mut().into_iter().flatten() {
                    prune(part, keep, depth + 1)?;
                }
            }
            Shape::None => {}
        }
    }
    Some(())
}

#[derive(Debug, Default)]
struct Node {
    here: Vec<usize>,
    property: HashMap<String, usize>,
    properties: Vec<usize>,
    places: Vec<usize>,
    items: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    /// Of a pruned schema; references to what is no part of it are removed. `None` if there is too much of it.
    pub(super) fn new(schema: &mut Value) -> Option<Graph> {
        let mut builder = Builder::default();
        builder.add(schema, String::new())?;
        let Builder { mut nodes, ids, references, .. } = builder;
        if references.len() > REFERENCES_MAX {
            return None;
        }
        for (node, own, reference) in references {
            match read::pointer(&reference).and_then(|pointer| ids.get(&pointer)) {
                Some(meant) => nodes[node].here.push(*meant),
                None => drop(schema.pointer_mut(&own).and_then(Value::as_object_mut).map(|own| own.remove("$ref"))),
            }
        }
        Some(Graph { nodes })
    }

    /// Whether a value can be checked in reasonable time.
    pub(super) fn affords(&self, value: &Value) -> bool {
        let mut steps = 0;
        self.walk(0, value, 0, &mut steps)
    }

    fn walk(&self, node: usize, value: &Value, depth: usize, steps: &mut usize) -> bool {
        *steps += 1;
        if *steps > STEPS_MAX || depth > STACK_MAX {
            return false;
        }
        let Some(node) = self.nodes.get(node) else { return true };
        let mut go = |next: usize, value: &Value| self.walk(next, value, depth + 1, steps);
        node.here.iter().all(|next| go(*next, value))
            && match value {
                Value::Object(fields) => fields.iter().all(|(name, value)| {
                    node.property.get(name).is_none_or(|next| go(*next, value))
                        && node.properties.iter().all(|next| go(*next, value))
                }),
                Value::Array(items) => {
                    items.iter().zip(&node.places).all(|(item, next)| go(*next, item))
                        && items.iter().all(|item| node.items.iter().all(|next| go(*next, item)))
                }
                _ => true,
            }
    }
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    ids: HashMap<String, usize>,
    bytes: usize,
    /// Which node refers, where that is, and to what.
    references: Vec<(usize, String, String)>,
}

impl Builder {
    fn add(&mut self, schema: &Value, pointer: String) -> Option<usize> {
        let id = self.nodes.len();
        self.bytes += pointer.len();
        if id >= NODES_MAX || self.bytes > PLACES_BYTES_MAX {
            return None;
        }
        self.nodes.push(Node::default());
        if let Value::Object(fields) = schema {
            self.parts(id, fields, &pointer)?;
        }
        self.ids.insert(pointer, id);
        Some(id)
    }

    fn parts(&mut self, id: usize, fields: &Map<String, Value>, pointer: &str) -> Option<()> {
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            self.references.push((id, pointer.to_owned(), reference.to_owned()));
        }
        for (key, value) in fields {
            let own = format!("{pointer}/{}", token(key));
            match (shape(key, value), value) {
                (Shape::One(edge), value) if is_schema(value) => self.part(id, edge, "", value, own)?,
                (Shape::List(edge), Value::Array(parts)) => {
                    for (index, part) in parts.iter().enumerate() {
                        self.part(id, edge, "", part, format!("{own}/{index}"))?;
                    }
                }
                (Shape::Map(edge), Value::Object(parts)) => {
                    for (name, part) in parts.iter().filter(|(_, part)| is_schema(part)) {
                        self.part(id, edge, name, part, format!("{own}/{}", token(name)))?;
                    }
                }
                _ => {}
            }
        }
        Some(())
    }

    fn part(&mut self, id: usize, edge: Edge, name: &str, schema: &Value, pointer: String) -> Option<()> {
        let part = self.add(schema, pointer)?;
        let node = &mut self.nodes[id];
        match edge {
            Edge::Here => node.here.push(part),
            Edge::Property => drop(node.property.insert(name.to_owned(), part)),
            Edge::Properties => node.properties.push(part),
            Edge::Place => node.places.push(part),
            Edge::Items => node.items.push(part),
            Edge::Nowhere => {}
        }
        Some(())
    }
}

fn token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
