//! Tools as text that programs and models read: signatures, stubs for Python and TypeScript, READMEs; and whether arguments
//! fit a tool.
//!
//! ```text
//! definition ─ listing ─▶ Tool ─ read ─▶ Types ─ python · typescript ─▶ stub
//!               names · text                └── brief · example ─▶ files
//! arguments ─ check (bounds by graph) ─▶ problems
//! ```
//!
//! Deliberately not here: any reading or writing. All of it is somebody else's text, so each step has a bound.

mod brief;
mod check;
mod example;
mod files;
mod graph;
mod listing;
mod meet;
mod names;
mod python;
mod read;
mod text;
mod types;
mod typescript;
mod words;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use self::brief::{signature, summary};
pub use self::check::Validator;
pub use self::example::example;
pub use self::files::files;
pub use self::listing::catalogue;
pub use self::text::clean;
use self::types::Types;
use crate::catalogue::Tool;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Python,
    TypeScript,
}

const STUB_BYTES_MAX: usize = 64 * 1024;

/// A server's name as programs write it.
pub fn server_ident(name: &str) -> String {
    names::escaped(name, names::Place::Server)
}

/// The whole stub with its documentation and an example: the content of `<tool>.pyi` or `<tool>.d.ts`. One that would be over
/// 64 KiB says less of what lies deep, then nothing in prose, then nothing of the types.
pub fn stub(tool: &Tool, dialect: Dialect) -> String {
    for (depth, docs) in [(read::DEPTH_MAX, true), (4, true), (2, false)] {
        let input = input_types(tool, depth);
        let output = output_types(tool, depth);
        let text = match dialect {
            Dialect::Python => python::stub(tool, &input, &output, docs),
            Dialect::TypeScript => typescript::stub(tool, &input, &output, docs),
        };
        if text.len() <= STUB_BYTES_MAX {
            return text;
        }
    }
    let (name, path) = (&tool.ident, format!("{}.json", tool.ident));
    match dialect {
        Dialect::Python => {
            format!(
                "from typing import Any\n\n# Too large for a stub; see {path}.\ndef {name}(**arguments: Any) -> Any: ...\n"
            )
        }
        Dialect::TypeScript => format!(
            "/** Too large for a stub; see {path}. */\n\
             export declare function {name}(args: Record<string, unknown>): Promise<unknown>;\n"
        ),
    }
}

/// What is wrong with these arguments, one sentence each; empty if nothing is. Whoever asks often keeps a [`Validator`].
pub fn problems(tool: &Tool, arguments: &Map<String, Value>) -> Vec<String> {
    Validator::new(tool).problems(arguments)
}

fn input_types(tool: &Tool, depth_max: usize) -> Types {
    read::read(&tool.input_schema, depth_max)
}

/// The type of a call's value: what FastMCP wraps is what was in the wrapping.
fn output_types(tool: &Tool, depth_max: usize) -> Types {
    let Some(schema) = &tool.output_schema else { return Types { root: types::Type::Any, named: Vec::new() } };
    let mut types = read::read(schema, depth_max);
    if schema.get("x-fastmcp-wrap-result") == Some(&Value::Bool(true))
        && let types::Type::Object(object) = &types.root
        && let [field] = object.fields.as_slice()
        && field.name == "result"
        && field.required
    {
        types.root = field.kind.clone();
    }
    types
}
