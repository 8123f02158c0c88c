//! `imports LANGUAGE < code > json`: which modules a program asks for. What is installed, and under which name, is not
//! known here.

mod javascript;
mod python;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

/// What a program asks for. Code that cannot be read asks for nothing: whoever runs it will say what is wrong with it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Imports {
    modules: Vec<Module>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Module {
    /// As it is written: `google.cloud.storage`, `@scope/name/part`.
    name: String,
    /// As `npm:name@version` has it.
    version: Option<String>,
    /// The program goes on without it.
    optional: bool,
}

/// More than this no program that is meant well imports.
const MODULES_MAX: usize = 1000;

/// Each module once, by its name; it is optional if it is so everywhere.
#[derive(Debug, Default)]
struct Found(BTreeMap<(String, Option<String>), bool>);

impl Found {
    fn add(&mut self, name: &str, version: Option<&str>, optional: bool) {
        let key = (name.to_owned(), version.map(str::to_owned));
        if self.0.len() < MODULES_MAX || self.0.contains_key(&key) {
            self.0.entry(key).and_modify(|before| *before &= optional).or_insert(optional);
        }
    }

    fn finish(self) -> Imports {
        let modules = self.0.into_iter().map(|((name, version), optional)| Module { name, version, optional });
        Imports { modules: modules.collect() }
    }
}

pub(crate) fn imports(language: Option<&str>, source: &str) -> Result<String, String> {
    let found = match language {
        Some("python") => python::imports(source),
        Some("javascript") => javascript::imports(source, javascript::Dialect::JavaScript),
        Some("typescript") => javascript::imports(source, javascript::Dialect::TypeScript),
        other => {
            return Err(format!(
                "the language is python, javascript or typescript, not {}",
                other.unwrap_or("nothing")
            ));
        }
    };
    serde_json::to_string(&found.unwrap_or_default()).map_err(|error| format!("writing what is imported: {error}"))
}
