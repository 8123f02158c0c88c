//! The arguments of a tool call, read one by one. What is wrong is said in a sentence that an agent can act on.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::{Map, Value};

/// Past every real timeout, and small enough for any clock arithmetic. The engine has its own, lower bound.
const SECONDS_MAX: f64 = 1e9;
const SHOWN_CHARS_MAX: usize = 40;

/// One sentence: what is wrong with the arguments, and what to send instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadArgument(String);

impl BadArgument {
    pub(crate) fn new(sentence: impl Into<String>) -> BadArgument {
        BadArgument(sentence.into())
    }
}

#[derive(Debug)]
pub(crate) struct Arguments {
    /// `""`, or the name of the argument that these are in, with a dot.
    prefix: String,
    values: Map<String, Value>,
}

impl Arguments {
    /// Refuses every name that is not in `allowed`. An explicit null is the same as nothing.
    pub(crate) fn new(values: Option<Map<String, Value>>, allowed: &[&str]) -> Result<Arguments, BadArgument> {
        Arguments::within(String::new(), values.unwrap_or_default(), allowed)
    }

    fn within(prefix: String, mut values: Map<String, Value>, allowed: &[&str]) -> Result<Arguments, BadArgument> {
        if let Some(name) = values.keys().find(|name| !allowed.contains(&name.as_str())) {
            let name = shorten(name);
            return Err(BadArgument(format!("unknown argument {prefix}{name}; use only: {}", allowed.join(", "))));
        }
        values.retain(|_, value| !value.is_null());
        Ok(Arguments { prefix, values })
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, BadArgument> {
        self.optional_text(name)?
            .ok_or_else(|| BadArgument(format!("{}{name} is missing; send it as a string", self.prefix)))
    }

    pub(crate) fn optional_text(&mut self, name: &str) -> Result<Option<String>, BadArgument> {
        match self.values.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    /// One of `choices`, of which the first is the default.
    pub(crate) fn choice<'a>(&mut self, name: &str, choices: &[&'a str]) -> Result<&'a str, BadArgument> {
        let Some(text) = self.optional_text(name)? else { return Ok(choices.first().copied().unwrap_or_default()) };
        choices
            .iter()
            .find(|choice| **choice == text)
            .copied()
            .ok_or_else(|| self.wrong(name, &format!("one of: {}", choices.join(", ")), &Value::String(text.clone())))
    }

    /// A duration in seconds, fractions allowed.
    pub(crate) fn optional_seconds(&mut self, name: &str) -> Result<Option<Duration>, BadArgument> {
        let Some(value) = self.values.remove(name) else { return Ok(None) };
        match value.as_f64() {
            Some(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(Some(Duration::from_secs_f64(seconds))),
            _ => Err(self.wrong(name, "a number of seconds above 0, such as 30", &value)),
        }
    }

    pub(crate) fn optional_flag(&mut self, name: &str) -> Result<Option<bool>, BadArgument> {
        match self.values.remove(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(name, "true or false", &other)),
        }
    }

    /// A whole number from `min` to `max`. A float without a fraction is one: JSON has only one kind of number.
    pub(crate) fn optional_whole(&mut self, name: &str, min: u64, max: u64) -> Result<Option<u64>, BadArgument> {
        let Some(value) = self.values.remove(name) else { return Ok(None) };
        let whole = value.as_u64().or_else(|| {
            value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=9e15).contains(number)).map(|n| n as u64)
        });
        match whole {
            Some(whole) if (min..=max).contains(&whole) => Ok(Some(whole)),
            _ => Err(self.wrong(name, &format!("a whole number from {min} to {max}"), &value)),
        }
    }

    /// A number above zero, in thousandths.
    pub(crate) fn optional_milli(&mut self, name: &str) -> Result<Option<u32>, BadArgument> {
        let Some(value) = self.values.remove(name) else { return Ok(None) };
        match value.as_f64().map(|number| (number * 1000.0).round()) {
            Some(milli) if (1.0..=1e9).contains(&milli) => Ok(Some(milli as u32)),
            _ => Err(self.wrong(name, "a number above 0, such as 1.5", &value)),
        }
    }

    /// An object of strings.
    pub(crate) fn strings(&mut self, name: &str) -> Result<Vec<(String, String)>, BadArgument> {
        let object = match self.values.remove(name) {
            None => return Ok(Vec::new()),
            Some(Value::Object(object)) => object,
            Some(other) => return Err(self.wrong(name, "an object of strings", &other)),
        };
        let pair = |(key, value): (String, Value)| match value {
            Value::String(value) => Ok((key, value)),
            other => Err(self.wrong(&format!("{name}.{}", shorten(&key)), "a string", &other)),
        };
        object.into_iter().map(pair).collect()
    }

    /// A list of strings. One alone is a list of one.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<String>, BadArgument> {
        let items = match self.values.remove(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(one @ Value::String(_)) => vec![one],
            Some(other) => return Err(self.wrong(name, "a list of strings", &other)),
        };
        let item = |item: Value| match item {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(name, "a list of strings", &other)),
        };
        items.into_iter().map(item).collect()
    }

    /// An object with arguments of its own.
    pub(crate) fn object(&mut self, name: &str, allowed: &[&str]) -> Result<Arguments, BadArgument> {
        let values = match self.values.remove(name) {
            None => Map::new(),
            Some(Value::Object(object)) => object,
            Some(other) => return Err(self.wrong(name, "an object", &other)),
        };
        Arguments::within(format!("{}{name}.", self.prefix), values, allowed)
    }

    fn wrong(&self, name: &str, wanted: &str, got: &Value) -> BadArgument {
        BadArgument(format!("{}{name} must be {wanted}, not {}", self.prefix, describe(got)))
    }
}

/// Standard base64, with or without its padding; line breaks are what encoders put in, so they are skipped.
pub(crate) fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(&text).or_else(|_| STANDARD_NO_PAD.decode(&text)).ok()
}

fn describe(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("{:?}", shorten(text)),
        other => shorten(&other.to_string()),
    }
}

fn shorten(text: &str) -> String {
    let shown = text.chars().take(SHOWN_CHARS_MAX).collect::<String>();
    let shown = crate::clean::clean(shown.as_bytes());
    if shown.len() < text.len() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALLOWED: &[&str] = &["code", "timeout", "depth", "env", "limits", "encoding", "cpus"];

    fn arguments(value: Value) -> Arguments {
        Arguments::new(value.as_object().cloned(), ALLOWED).unwrap()
    }

    fn said<T: std::fmt::Debug>(result: Result<T, BadArgument>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = said(Arguments::new(json!({"cod": 1}).as_object().cloned(), &["code", "language"]));
        assert_eq!(error, "unknown argument cod; use only: code, language");
    }

    #[test]
    fn null_is_nothing() {
        let mut arguments = arguments(json!({"code": null, "timeout": null}));
        assert_eq!(arguments.optional_seconds("timeout"), Ok(None));
        assert_eq!(said(arguments.text("code")), "code is missing; send it as a string");
    }

    #[test]
    fn a_timeout_is_a_number_above_zero() {
        for bad in [json!("NaN"), json!("30"), json!([]), json!({}), json!(-1), json!(0), json!(1e18), json!(true)] {
            let error = said(arguments(json!({"timeout": bad})).optional_seconds("timeout"));
            assert!(error.starts_with("timeout must be a number of seconds above 0, such as 30, not "), "{error}");
        }
        let good = arguments(json!({"timeout": 0.5})).optional_seconds("timeout");
        assert_eq!(good, Ok(Some(Duration::from_millis(500))));
    }

    #[test]
    fn a_whole_number_has_bounds() {
        for bad in [json!(0), json!(17), json!(1.5), json!(-1), json!("1"), json!(1e300), json!(u64::MAX)] {
            let error = said(arguments(json!({"depth": bad})).optional_whole("depth", 1, 16));
            assert!(error.starts_with("depth must be a whole number from 1 to 16, not "), "{error}");
        }
        assert_eq!(arguments(json!({"depth": 3.0})).optional_whole("depth", 1, 16), Ok(Some(3)));
    }

    #[test]
    fn thousandths_are_rounded() {
        assert_eq!(arguments(json!({"cpus": 1.5})).optional_milli("cpus"), Ok(Some(1500)));
        assert!(arguments(json!({"cpus": 0})).optional_milli("cpus").is_err());
        assert!(arguments(json!({"cpus": 1e30})).optional_milli("cpus").is_err());
    }

    #[test]
    fn inner_objects_say_where_they_are() {
        let mut outer = arguments(json!({"limits": {"memory": 1}, "env": {"A": 1}}));
        assert_eq!(said(outer.object("limits", &["memory_mb"])), "unknown argument limits.memory; use only: memory_mb");
        assert_eq!(said(outer.strings("env")), "env.A must be a string, not 1");
        let mut inner = arguments(json!({"limits": {"memory_mb": "x"}})).object("limits", &["memory_mb"]).unwrap();
        let error = said(inner.optional_whole("memory_mb", 1, 9));
        assert_eq!(error, "limits.memory_mb must be a whole number from 1 to 9, not \"x\"");
    }

    #[test]
    fn a_choice_defaults_to_the_first() {
        assert_eq!(arguments(json!({})).choice("encoding", &["utf-8", "base64"]), Ok("utf-8"));
        assert_eq!(arguments(json!({"encoding": "base64"})).choice("encoding", &["utf-8", "base64"]), Ok("base64"));
        let error = said(arguments(json!({"encoding": "rot13"})).choice("encoding", &["utf-8", "base64"]));
        assert_eq!(error, "encoding must be one of: utf-8, base64, not \"rot13\"");
    }

    #[test]
    fn what_is_echoed_is_short_and_clean() {
        let error = said(arguments(json!({"depth": "\u{1b}[31m".repeat(1000)})).optional_whole("depth", 1, 16));
        assert!(error.len() < 200 && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn base64_is_read_with_and_without_padding() {
        assert_eq!(base64_decode("aGk=").as_deref(), Some(&b"hi"[..]));
        assert_eq!(base64_decode("aG\nk").as_deref(), Some(&b"hi"[..]));
        assert_eq!(base64_decode("a$"), None);
    }
}
