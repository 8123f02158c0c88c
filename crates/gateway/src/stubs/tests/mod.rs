//! What becomes of servers' lists: names, text, stubs, and the check of arguments.

mod check;
mod files;
mod golden;
mod listing;
mod parse;

use serde_json::{Value, json};

use super::*;
use crate::catalogue::{Catalogue, Server};
use crate::upstream::Listed;

fn listed(server: &str, tools: Vec<Value>) -> Catalogue {
    catalogue(vec![(server.to_owned(), Ok(Listed { instructions: None, tools }))])
}

fn only(catalogue: &Catalogue) -> &Server {
    assert_eq!(catalogue.servers.len(), 1);
    &catalogue.servers[0]
}

fn tool(definition: Value) -> Tool {
    let catalogue = listed("demo", vec![definition]);
    let server = only(&catalogue);
    assert_eq!(server.refused, []);
    Tool::clone(&server.tools[0])
}

fn with_schema(schema: Value) -> Tool {
    tool(json!({ "name": "probe", "description": "Probes.", "inputSchema": schema }))
}
