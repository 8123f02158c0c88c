//! The recorded tools of public servers, as a catalogue.

use std::path::PathBuf;
use std::sync::Arc;

use belljar_gateway::catalogue::{Annotations, Catalogue, Server, Tool};
use serde_json::Value;

pub(crate) fn catalogue() -> Catalogue {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("catalogue");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    Catalogue { servers: files.iter().map(|path| Arc::new(server(&std::fs::read_to_string(path).unwrap()))).collect() }
}

fn server(text: &str) -> Server {
    let recorded: Value = serde_json::from_str(text).unwrap();
    let name = recorded["server"].as_str().unwrap().to_owned();
    let tools =
        recorded["tools"].as_array().unwrap().iter().map(|definition| Arc::new(tool(&name, definition))).collect();
    Server { ident: name.clone(), name, instructions: None, tools, refused: Vec::new(), trouble: None }
}

fn tool(server: &str, definition: &Value) -> Tool {
    let name = definition["name"].as_str().unwrap().to_owned();
    Tool {
        server: server.to_owned(),
        server_ident: server.to_owned(),
        ident: name.replace(|character: char| !character.is_ascii_alphanumeric(), "_"),
        name,
        description: definition["description"].as_str().unwrap_or_default().to_owned(),
        input_schema: definition["inputSchema"].as_object().unwrap().clone(),
        output_schema: definition.get("outputSchema").and_then(Value::as_object).cloned(),
        annotations: Annotations::default(),
        definition: definition.clone(),
        digest: String::new(),
    }
}
