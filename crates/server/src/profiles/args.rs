//! Arguments as the other systems take them: names that nobody knows are ignored unless the schema forbids them, null
//! is nothing, and a number may come as text.

use serde_json::{Map, Value};

use super::fault::Fault;
use crate::clean;

const SHOWN_CHARS_MAX: usize = 40;

#[derive(Debug)]
pub(super) struct Args(Map<String, Value>);

impl Args {
    /// `wrapper` is an object that the arguments may be in; without it they are taken as they are.
    pub(super) fn new(
        values: Option<Map<String, Value>>,
        wrapper: Option<&str>,
        schema: &Value,
    ) -> Result<Args, Fault> {
        let mut values = values.unwrap_or_default();
        values.retain(|_, value| !value.is_null());
        if schema["additionalProperties"] == false
            && let Some(unknown) = values.keys().find(|name| schema["properties"].get(name.as_str()).is_none())
        {
            return Err(Fault::argument(format!("unknown argument {}", shown(unknown))));
        }
        match wrapper.and_then(|name| values.remove(name).map(|inner| (name, inner))) {
            None => {}
            Some((_, Value::Object(inner))) => {
                values = inner;
                values.retain(|_, value| !value.is_null());
            }
            Some((name, _)) => return Err(Fault::argument(format!("{name} must be an object"))),
        }
        Ok(Args(values))
    }

    /// An argument under its name, or, if that is not there, under the same in snake case: `filePath`, `file_path`.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).or_else(|| self.0.remove(&snake(name)))
    }

    /// There, and not empty.
    pub(super) fn required(&mut self, name: &str) -> Result<String, Fault> {
        match self.optional(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(Fault::argument(format!("{name} is required; send it as a string that is not empty"))),
        }
    }

    /// There; it may be empty.
    pub(super) fn text(&mut self, name: &str) -> Result<String, Fault> {
        self.optional(name)?.ok_or_else(|| Fault::argument(format!("{name} is required; send it as a string")))
    }

    pub(super) fn optional(&mut self, name: &str) -> Result<Option<String>, Fault> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    /// The same, and an empty one is none.
    pub(super) fn nonempty(&mut self, name: &str) -> Result<Option<String>, Fault> {
        Ok(self.optional(name)?.filter(|text| !text.is_empty()))
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Fault> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong(name, "true or false", &other)),
        }
    }

    pub(super) fn number(&mut self, name: &str, min: f64, max: f64) -> Result<Option<f64>, Fault> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = match &value {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_f64(),
        };
        match number {
            Some(number) if number >= min && number <= max => Ok(Some(number)),
            _ => Err(wrong(name, &format!("a number from {min} to {max}"), &value)),
        }
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Map<String, Value>, Fault> {
        match self.take(name) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(other) => Err(wrong(name, "an object", &other)),
        }
    }

    /// An object of strings.
    pub(super) fn strings(&mut self, name: &str) -> Result<Vec<(String, String)>, Fault> {
        let pair = |(key, value): (String, Value)| match value {
            Value::String(value) => Ok((key, value)),
            other => Err(wrong(&format!("{name}.{}", shown(&key)), "a string", &other)),
        };
        self.object(name)?.into_iter().map(pair).collect()
    }

    /// Whether something is there that says something: neither empty, nor false, nor zero.
    pub(super) fn says(&mut self, name: &str) -> bool {
        match self.take(name) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(object)) => !object.is_empty(),
            Some(Value::Bool(true)) => true,
        }
    }
}

fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn wrong(name: &str, wanted: &str, got: &Value) -> Fault {
    let got = match got {
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("{:?}", shown(text)),
        other => shown(&other.to_string()),
    };
    Fault::argument(format!("{name} must be {wanted}, not {got}"))
}

fn shown(text: &str) -> String {
    let head: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let cut = if head.len() < text.len() { "…" } else { "" };
    format!("{}{cut}", clean::clean(head.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn args(value: Value) -> Args {
        Args::new(value.as_object().cloned(), Some("request"), &json!({})).unwrap()
    }

    #[test]
    fn wrapped_and_flat_are_the_same() {
        assert_eq!(args(json!({"request": {"command": "x"}})).required("command").unwrap(), "x");
        assert_eq!(args(json!({"command": "x"})).required("command").unwrap(), "x");
        assert!(Args::new(json!({"request": 5}).as_object().cloned(), Some("request"), &json!({})).is_err());
    }

    #[test]
    fn unknown_names_are_refused_only_where_the_schema_says_so() {
        let strict = json!({"properties": {"a": {}}, "additionalProperties": false});
        assert!(Args::new(json!({"a": 1, "b": 2}).as_object().cloned(), None, &strict).is_err());
        assert!(Args::new(json!({"a": 1, "b": null}).as_object().cloned(), None, &strict).is_ok());
        assert!(Args::new(json!({"b": 2}).as_object().cloned(), None, &json!({"properties": {}})).is_ok());
    }

    #[test]
    fn old_spellings_and_numbers_as_text_are_taken() {
        let mut args = args(json!({"file_path": "a", "port": "8000", "n": "x", "e": ""}));
        assert_eq!(args.required("filePath").unwrap(), "a");
        assert_eq!(args.number("port", 1.0, 65535.0).unwrap(), Some(8000.0));
        assert_eq!(args.number("n", 1.0, 2.0).unwrap_err().to_string(), "n must be a number from 1 to 2, not \"x\"");
        assert_eq!(args.nonempty("e").unwrap(), None);
    }

    #[test]
    fn what_is_echoed_is_short_and_clean() {
        let said = args(json!({"n": "\u{1b}[31m".repeat(1000)})).number("n", 0.0, 1.0).unwrap_err().to_string();
        assert!(said.len() < 200 && !said.contains('\u{1b}'), "{said}");
    }
}
