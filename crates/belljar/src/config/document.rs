//! The file's text: parsed, held against the schema, and each key with its line.

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::raw;
use super::schema::{below, join, keys, properties};
use super::suggest::{did_you_mean, nearest};
use super::value::{Origin, Origins};

/// What a file says, and where.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) table: toml::Table,
    pub(super) lines: Origins,
}

impl Document {
    /// The error is a sentence, or the line with a mark below what is wrong in it.
    pub(super) fn read(text: &str, schema: &Value) -> Result<Document, String> {
        let said = |error: toml::de::Error| error.to_string().trim_end().to_owned();
        let table: toml::Table = toml::from_str(text).map_err(said)?;
        let spanned = DeTable::parse(text).map_err(said)?;
        let mut reader = Reader { schema, starts: line_starts(text), lines: Origins::new() };
        reader.table(spanned.get_ref(), schema, "")?;
        // Types, numbers that do not fit and keys that are missing: this error knows its place, that of a table would not.
        toml::from_str::<raw::Config>(text).map_err(said)?;
        Ok(Document { table, lines: reader.lines })
    }
}

struct Reader<'a> {
    schema: &'a Value,
    starts: Vec<usize>,
    lines: Origins,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>, schema: &Value, at: &str) -> Result<(), String> {
        for (key, value) in table {
            let name = key.get_ref();
            let path = join(at, name);
            let line = self.line(key.span().start);
            self.lines.insert(path.clone(), Origin::Line(line));
            let Some(schema) = below(schema, name) else {
                let meant = meant(self.schema, schema, at, name);
                return Err(format!("unknown key `{}` in line {line}{}", shown(&path), did_you_mean(meant)));
            };
            let place = || format!("`{}` in line {line}", shown(&path));
            match value.get_ref() {
                DeValue::Table(table) => self.table(table, schema, &path)?,
                DeValue::String(word) => one_of(word, schema, place)?,
                DeValue::Array(words) => {
                    for word in words.iter().filter_map(|word| word.get_ref().as_str()) {
                        one_of(word, &schema["items"], place)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

/// A word of an enumeration; where the schema has none, any word will do.
pub(super) fn one_of(word: &str, schema: &Value, place: impl Fn() -> String) -> Result<(), String> {
    let Some(words) = schema["enum"].as_array() else { return Ok(()) };
    let known: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    if known.contains(&word) {
        return Ok(());
    }
    let end = match nearest(word, known.iter().copied()) {
        Some(meant) => did_you_mean(Some(meant)),
        None => format!("; use one of: {}", known.join(", ")),
    };
    Err(format!("{} cannot be {:?}{end}", place(), shown(word)))
}

/// A sibling that is written alike, or else a key of that very name in another place.
fn meant(root: &Value, schema: &Value, at: &str, name: &str) -> Option<String> {
    let siblings = properties(schema).map(|(name, _)| name.as_str());
    if let Some(sibling) = nearest(name, siblings) {
        return Some(join(at, sibling));
    }
    let all = keys(root).into_iter().map(|key| key.path);
    all.into_iter().find(|path| path.rsplit('.').next() == Some(name))
}

/// Keys can have anything in them, and be as long as the file.
fn shown(text: &str) -> String {
    text.chars().take(100).flat_map(char::escape_debug).collect()
}
