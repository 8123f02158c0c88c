//! From what servers list to what programs may call.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::names::{self, Place};
use super::text::{self, DESCRIPTION_BYTES_MAX};
use crate::catalogue::{Annotations, Catalogue, Server, Tool};
use crate::upstream::Listed;

const DEFINITION_BYTES_MAX: usize = 256 * 1024;
/// Of one server. More than any that people write; a list without end has to end somewhere.
const TOOLS_MAX: usize = 5000;
/// Of one server. The rest is counted.
const REFUSED_MAX: usize = 200;

/// A catalogue of what the servers said, with names that are safe to write, and text that is safe to read.
///
/// Two servers whose names are one identifier are both without tools and say so, since a program could not tell which it
/// calls. The same holds for two tools of a server: both are refused.
pub fn catalogue(mut listed: Vec<(String, Result<Listed, String>)>) -> Catalogue {
    listed.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut claims: HashMap<String, Vec<String>> = HashMap::new();
    for (name, _) in &listed {
        claims.entry(names::escaped(name, Place::Server)).or_default().push(name.clone());
    }
    let servers = listed.into_iter().map(|(name, listed)| {
        let ident = names::escaped(&name, Place::Server);
        match claims.get(&ident) {
            Some(rivals) if rivals.len() > 1 => collided(name, &ident, rivals),
            _ => server(name, ident, listed),
        }
    });
    Catalogue { servers: servers.map(Arc::new).collect() }
}

fn collided(name: String, ident: &str, rivals: &[String]) -> Server {
    let rivals: Vec<String> = rivals.iter().map(|rival| text::cut(&text::line(rival, 80), 80)).collect();
    let trouble = format!("the servers {} are all `{ident}` in programs; give them other names", rivals.join(", "));
    let ident = format!("{ident}_{}", names::short_hash(&name));
    Server { name, ident, instructions: None, tools: Vec::new(), refused: Vec::new(), trouble: Some(trouble) }
}

fn server(name: String, ident: String, listed: Result<Listed, String>) -> Server {
    let mut server = Server { name, ident, instructions: None, tools: Vec::new(), refused: Vec::new(), trouble: None };
    let listed = match listed {
        Ok(listed) => listed,
        Err(trouble) => {
            server.trouble = Some(text::clean(&trouble, 1000));
            return server;
        }
    };
    server.instructions = listed
        .instructions
        .map(|instructions| text::clean(&instructions, DESCRIPTION_BYTES_MAX))
        .filter(|instructions| !instructions.trim().is_empty());

    let count = listed.tools.len();
    let mut refused = Vec::new();
    let mut tools: Vec<Tool> = Vec::new();
    for definition in listed.tools.into_iter().take(TOOLS_MAX) {
        let name = definition.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        match tool(&server, &name, definition) {
            Ok(tool) => tools.push(tool),
            Err(reason) => refused.push((shown(&name), reason)),
        }
    }
    let mut claims: HashMap<String, Vec<String>> = HashMap::new();
    for tool in &tools {
        claims.entry(tool.ident.clone()).or_default().push(tool.name.clone());
    }
    for tool in tools {
        let rivals = claims.get(&tool.ident).map(Vec::as_slice).unwrap_or_default();
        if rivals.len() <= 1 {
            server.tools.push(Arc::new(tool));
        } else if rivals.iter().all(|rival| *rival == tool.name) {
            refused.push((shown(&tool.name), "the server lists several tools of this name".to_owned()));
        } else {
            let others = rivals.iter().filter(|rival| **rival != tool.name).take(5).map(|rival| shown(rival));
            let others: Vec<String> = others.collect();
            let reason = format!("programs would write it `{}`, and {} as well", tool.ident, others.join(", "));
            refused.push((shown(&tool.name), reason));
        }
    }
    let more = refused.len().saturating_sub(REFUSED_MAX);
    refused.truncate(REFUSED_MAX);
    if more > 0 {
        refused.push((format!("{more} more"), "for reasons like these".to_owned()));
    }
    if count > TOOLS_MAX {
        let reason = format!("the server lists {count} tools, and only the first {TOOLS_MAX} are taken");
        refused.push((format!("{} more", count - TOOLS_MAX), reason));
    }
    server.refused = refused;
    server
}

/// A name that may be no name, for people to read.
fn shown(name: &str) -> String {
    if name.is_empty() { "(no name)".to_owned() } else { text::cut(&text::line(name, 400), 80) }
}

fn tool(server: &Server, name: &str, definition: Value) -> Result<Tool, String> {
    let Value::Object(fields) = &definition else { return Err("its definition is no JSON object".to_owned()) };
    if !matches!(fields.get("name"), Some(Value::String(_))) {
        return Err("it has no name".to_owned());
    }
    let ident = names::ident(name, Place::Tool)?;
    let canonical = canonical(&definition);
    if canonical.len() > DEFINITION_BYTES_MAX {
        let kib = DEFINITION_BYTES_MAX / 1024;
        return Err(format!("its definition has {} KiB, which is over the {kib} KiB allowed", canonical.len() / 1024));
    }
    let digest = names::hex(&Sha256::digest(&canonical));
    let schema = |key: &str| fields.get(key).and_then(Value::as_object).cloned();
    // Without a description, the name for people is all there is.
    let said = |key: &str| fields.get(key).and_then(Value::as_str).filter(|said| !said.trim().is_empty());
    let title = || fields.get("annotations").and_then(|annotations| annotations.get("title")).and_then(Value::as_str);
    let description = said("description").or_else(|| said("title")).or_else(title).unwrap_or_default();
    let tool = Tool {
        server: server.name.clone(),
        server_ident: server.ident.clone(),
        name: name.to_owned(),
        ident,
        description: text::clean(description.trim(), DESCRIPTION_BYTES_MAX),
        input_schema: schema("inputSchema").unwrap_or_else(empty_schema),
        output_schema: schema("outputSchema"),
        annotations: annotations(fields),
        digest,
        definition: Value::Null,
    };
    Ok(Tool { definition, ..tool })
}

fn empty_schema() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), Value::from("object")), ("properties".to_owned(), Value::Object(Map::new()))])
}

fn annotations(fields: &Map<String, Value>) -> Annotations {
    let hint =
        |key: &str| fields.get("annotations").and_then(|annotations| annotations.get(key)).and_then(Value::as_bool);
    Annotations {
        read_only: hint("readOnlyHint"),
        destructive: hint("destructiveHint"),
        idempotent: hint("idempotentHint"),
        open_world: hint("openWorldHint"),
    }
}

/// JSON with the keys in order, so that a server that shuffles them has still listed the same tool.
fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
