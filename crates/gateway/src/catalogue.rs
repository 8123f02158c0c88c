//! What there is to call: every server's tools, under names that programs can write.

use std::sync::Arc;

use serde_json::{Map, Value};

/// All servers at one moment. Never changed: a new list makes a new catalogue.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// By name.
    pub servers: Vec<Arc<Server>>,
}

#[derive(Debug, Clone)]
pub struct Server {
    /// As the operator wrote it.
    pub name: String,
    /// As programs write it: the name itself wherever that is an identifier.
    pub ident: String,
    /// Its own words on how to use it; cleaned and bounded.
    pub instructions: Option<String>,
    pub tools: Vec<Arc<Tool>>,
    /// Tools that are not offered, and why: names that collide, or are no names.
    pub refused: Vec<(String, String)>,
    /// Why its tools are not known, if they are not.
    pub trouble: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Tool {
    /// The server's [`Server::name`] and [`Server::ident`].
    pub server: String,
    pub server_ident: String,
    /// In the upstream's spelling.
    pub name: String,
    /// As programs write it.
    pub ident: String,
    /// Cleaned of what nobody can see, and bounded.
    pub description: String,
    pub input_schema: Map<String, Value>,
    pub output_schema: Option<Map<String, Value>>,
    pub annotations: Annotations,
    /// The definition as the upstream gave it.
    pub definition: Value,
    /// Of the definition, in hexadecimal digits: another one means another tool.
    pub digest: String,
}

/// What a tool says of itself. Believed of trusted servers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Annotations {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

impl Catalogue {
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.servers.iter().flat_map(|server| &server.tools)
    }
}

impl Tool {
    /// `server.tool`, as programs write it.
    pub fn path(&self) -> String {
        format!("{}.{}", self.server_ident, self.ident)
    }
}
