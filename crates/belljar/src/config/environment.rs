//! Keys as variables: `BELLJAR_IDLE_TIMEOUT`, and `BELLJAR_POOL__MAX` for `max` in `[pool]`.

use serde_json::Value;

use super::document::one_of;
use super::raw;
use super::schema::{Key, Kind, below, keys};
use super::suggest::{did_you_mean, nearest};
use super::value::{Origin, Origins};
use crate::complaint::Complaint;

const PREFIX: &str = "BELLJAR_";

/// Variables of ours that are no keys of the file.
const OTHERS: [&str; 1] = ["BELLJAR_LOG_FORMAT"];

/// Variables that somebody else sets: our tests and scripts, a sandbox that we run in, and Kubernetes, which tells every
/// program of a service called `belljar` in these words.
const FOREIGN: [&str; 6] =
    ["BELLJAR_TEST_", "BELLJAR_SECRET_", "BELLJAR_WALLS_STAY", "BELLJAR_TRANSPILE", "BELLJAR_SERVICE_", "BELLJAR_PORT"];

/// What the variables say, and which they are.
#[derive(Debug, Default)]
pub(super) struct Environment {
    pub(super) table: toml::Table,
    pub(super) origins: Origins,
}

/// The variable of a key; none for tables, which are written in the file alone.
pub(super) fn variable(key: &Key) -> Option<String> {
    let name = || format!("{PREFIX}{}", key.path.replace('.', "__").to_ascii_uppercase());
    (key.kind != Kind::Table).then(name)
}

impl Environment {
    /// Of all the variables there are.
    pub(super) fn read(
        variables: impl IntoIterator<Item = (String, String)>,
        schema: &Value,
    ) -> Result<Environment, Complaint> {
        let mut ours: Vec<(String, String)> = variables.into_iter().filter(|(name, _)| is_ours(name)).collect();
        // In an order of their own, so that the same mistake is told each time.
        ours.sort();
        let mut environment = Environment::default();
        if ours.is_empty() {
            return Ok(environment);
        }
        let keys = keys(schema);
        let known: Vec<(String, &Key)> = keys.iter().filter_map(|key| Some((variable(key)?, key))).collect();
        for (name, text) in ours {
            let Some((_, key)) = known.iter().find(|(known, _)| *known == name) else {
                let meant = nearest(&name, known.iter().map(|(name, _)| name.as_str()));
                let what = format!("unknown variable {}{}", shown(&name), did_you_mean(meant));
                let hint = "`belljar config show` has every key; names that begin with BELLJAR_ are ours: unset it, or call it otherwise";
                return Err(Complaint::new(what, hint));
            };
            // What is passed on from a variable that is not set comes as nothing.
            if text.is_empty() && key.kind != Kind::Words {
                continue;
            }
            let value = value(&text, key.kind).map_err(|hint| wrong(&name, "has no such value", hint))?;
            check(&name, key, &value, schema)?;
            put(&mut environment.table, &key.path, value);
            environment.origins.insert(key.path.clone(), Origin::Variable(name));
        }
        Ok(environment)
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX) && !OTHERS.contains(&name) && !FOREIGN.iter().any(|begin| name.starts_with(begin))
}

fn value(text: &str, kind: Kind) -> Result<toml::Value, &'static str> {
    let trimmed = text.trim();
    Ok(match kind {
        Kind::Switch => toml::Value::Boolean(trimmed.parse().map_err(|_| "write true or false")?),
        Kind::Whole => toml::Value::Integer(trimmed.parse().map_err(|_| "write a whole number")?),
        Kind::Number => toml::Value::Float(trimmed.parse().map_err(|_| "write a number, such as 30 or 0.5")?),
        Kind::Word | Kind::Table => toml::Value::String(text.to_owned()),
        Kind::Words => {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            toml::Value::Array(words.map(|word| toml::Value::String(word.to_owned())).collect())
        }
    })
}

/// By itself, so that what is wrong is told with the variable's name.
fn check(name: &str, key: &Key, value: &toml::Value, schema: &Value) -> Result<(), Complaint> {
    let steps = key.path.split('.');
    let Some(schema) = steps.into_iter().try_fold(schema, |schema, step| below(schema, step)) else { return Ok(()) };
    let hint = "docs/configuration.md tells what it may be";
    let place = || format!("the variable {name}");
    let words = value.as_array().into_iter().flatten().filter_map(toml::Value::as_str);
    let words = words.map(|word| (word, &schema["items"])).chain(value.as_str().map(|word| (word, schema)));
    for (word, schema) in words {
        one_of(word, schema, place).map_err(|what| Complaint::new(what, hint))?;
    }
    let mut alone = toml::Table::new();
    put(&mut alone, &key.path, value.clone());
    match toml::Value::Table(alone).try_into::<raw::Config>() {
        Ok(_) => Ok(()),
        Err(error) => Err(wrong(name, error.message(), hint)),
    }
}

fn wrong(name: &str, why: &str, hint: &str) -> Complaint {
    Complaint::new(format!("the variable {name}: {why}"), hint)
}

fn put(table: &mut toml::Table, path: &str, value: toml::Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let below = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let toml::Value::Table(below) = below {
                put(below, rest, value);
            }
        }
    }
}

/// A name that is not ours, which can be anything.
fn shown(name: &str) -> String {
    name.chars().take(100).flat_map(char::escape_debug).collect()
}
