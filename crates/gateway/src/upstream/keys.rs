//! The keys that one server has in the configuration.

use serde_json::{Map, Value};

/// The keys of one server. Errors name the key, never the value.
pub(super) struct Keys<'a> {
    pub(super) entry: &'a Map<String, Value>,
}

const KNOWN: [&str; 22] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "type",
    "transport",
    "disabled",
    "trusted",
    "timeout",
    "allow",
    "ask",
    "deny",
    "forward",
    "max_result_mb",
    "parse",
    "oauth",
    "description",
    "name",
];

impl Keys<'_> {
    pub(super) fn string(&self, key: &str) -> Result<Option<String>, String> {
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.contains('\0') => Ok(Some(text.clone())),
            Some(_) => Err(format!("\"{key}\" is not a text")),
        }
    }

    pub(super) fn strings(&self, key: &str) -> Result<Vec<String>, String> {
        let wrong = || format!("\"{key}\" is not a list of texts");
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().filter(|text| !text.contains('\0')).map(str::to_owned).ok_or_else(wrong))
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    pub(super) fn pairs(&self, key: &str) -> Result<Vec<(String, String)>, String> {
        let wrong = || format!("\"{key}\" is not an object of texts");
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Object(items)) => items
                .iter()
                .map(|(key, value)| match value {
                    Value::String(text) => Ok((key.clone(), text.clone())),
                    // Ports and switches are written bare often enough.
                    Value::Number(_) | Value::Bool(_) => Ok((key.clone(), value.to_string())),
                    _ => Err(wrong()),
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool, String> {
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| format!("\"{key}\" is neither true nor false")),
        }
    }

    pub(super) fn number(&self, key: &str, default: f64, least: f64, most: f64) -> Result<f64, String> {
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value
                .as_f64()
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| format!("\"{key}\" is not a number from {least} to {most}")),
        }
    }

    /// The same file serves other clients, so that their keys are no mistake.
    pub(super) fn mention_unknown(&self, server: &str) {
        for key in self.entry.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
            tracing::debug!(server, key = %key.escape_debug(), "a key of the server's configuration is not ours; ignored");
        }
    }
}
