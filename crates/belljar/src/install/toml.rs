//! TOML. A new entry is a table of its own at the end of the file, where a table can always be.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use toml_edit::{Document, Item, Table, TableLike};

use super::document::{Slot, Trouble};
use super::lines::Lines;

fn parse(text: &str) -> Result<Document<&str>, Trouble> {
    Document::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start).min(text.len());
        let before = text.get(..at).unwrap_or(text);
        Trouble::NotParsed {
            line: before.matches('\n').count() + 1,
            column: before.rsplit('\n').next().unwrap_or_default().chars().count() + 1,
            why: error.message().lines().next().unwrap_or_default().to_owned(),
        }
    })
}

fn servers<'a>(root: &'a Table, slot: Slot<'_>) -> Result<Option<&'a dyn TableLike>, Trouble> {
    let Some(item) = root.get(slot.servers) else { return Ok(None) };
    let what = || format!("has {} as {:?}, not a table", item.type_name(), slot.servers);
    item.as_table_like().map(Some).ok_or_else(|| Trouble::Unexpected { what: what() })
}

pub(super) fn read(text: &str, slot: Slot<'_>) -> Result<Option<Value>, Trouble> {
    let document = parse(text)?;
    Ok(servers(document.as_table(), slot)?.and_then(|servers| servers.get(slot.name)).map(value))
}

/// All but the entry; no servers are the same as an empty table of them.
pub(super) fn rest(text: &str, slot: Slot<'_>) -> Result<Value, Trouble> {
    let document = parse(text)?;
    let mut root = table(document.as_table());
    if let Some(Value::Object(servers)) = root.get_mut(slot.servers) {
        servers.shift_remove(slot.name);
        if servers.is_empty() {
            root.shift_remove(slot.servers);
        }
    }
    Ok(Value::Object(root))
}

pub(super) fn put(text: &str, slot: Slot<'_>, entry: &Value) -> Result<String, Trouble> {
    let document = parse(text)?;
    servers(document.as_table(), slot)?;
    if document.get(slot.servers).is_some_and(Item::is_value) {
        return Err(inline(slot));
    }
    let keys = entry.as_object().into_iter().flatten();
    let head = format!("[{}.{}]", slot.servers, slot.name);
    let mut new = vec![head];
    new.extend(keys.map(|(key, value)| format!("{key} = {}", written(value))));
    if !text.is_empty() {
        new.insert(0, String::new());
    }
    Ok(Lines::of(text).with_last(&new))
}

pub(super) fn update(text: &str, slot: Slot<'_>, entry: &Value) -> Result<String, Trouble> {
    let mut text = text.to_owned();
    for (key, value) in entry.as_object().into_iter().flatten() {
        text = set(&text, slot, key, value)?;
    }
    Ok(text)
}

fn set(text: &str, slot: Slot<'_>, key: &str, wanted: &Value) -> Result<String, Trouble> {
    let document = parse(text)?;
    let Some(entry) = servers(document.as_table(), slot)?.and_then(|servers| servers.get(slot.name)) else {
        return Ok(text.to_owned());
    };
    let old = entry.as_table_like().and_then(|entry| entry.get(key));
    match (old, entry) {
        (Some(old), _) if value(old) == *wanted => Ok(text.to_owned()),
        (Some(old), _) => {
            let span = old.span().filter(|_| old.is_value()).ok_or_else(|| odd(slot))?;
            let mut text = text.to_owned();
            text.replace_range(span, &written(wanted));
            Ok(text)
        }
        (None, Item::Table(entry)) if !entry.is_dotted() => {
            let lines = Lines::of(text);
            let head = lines.at(entry.span().ok_or_else(|| odd(slot))?.start);
            Ok(lines.with(Some(head), &[format!("{key} = {}", written(wanted))]))
        }
        (None, _) => Err(odd(slot)),
    }
}

pub(super) fn take(text: &str, slot: Slot<'_>) -> Result<String, Trouble> {
    let document = parse(text)?;
    let Some(all) = servers(document.as_table(), slot)? else { return Ok(text.to_owned()) };
    let lines = Lines::of(text);
    let mut gone = BTreeSet::new();
    match (all.get(slot.name), all.key(slot.name)) {
        (Some(Item::Table(entry)), _) if !entry.is_dotted() => sections(entry, &lines, &mut gone),
        (Some(Item::Value(value)), Some(key)) if document.get(slot.servers).is_some_and(Item::is_table) => {
            let (Some(start), Some(end)) = (key.span(), value.span()) else { return Err(odd(slot)) };
            gone.extend(lines.at(start.start)..=lines.at(end.end.saturating_sub(1)));
        }
        (Some(Item::Value(_)), _) => return Err(inline(slot)),
        _ => return Err(odd(slot)),
    }
    Ok(lines.without(&gone))
}

/// The lines of a table and of all tables in it, each with the empty line above.
fn sections(table: &Table, lines: &Lines<'_>, gone: &mut BTreeSet<usize>) {
    if let Some(head) = table.span() {
        let first = lines.at(head.start);
        let last = lines.at(end_of_values(table).unwrap_or(head.end).max(head.end).saturating_sub(1));
        gone.extend(first..=last);
        if let Some(above) = first.checked_sub(1).filter(|above| lines.is_blank(*above)) {
            gone.insert(above);
        }
    }
    for (_, item) in table.iter() {
        match item {
            Item::Table(inner) if !inner.is_dotted() => sections(inner, lines, gone),
            Item::ArrayOfTables(inner) => inner.iter().for_each(|inner| sections(inner, lines, gone)),
            _ => {}
        }
    }
}

fn end_of_values(table: &Table) -> Option<usize> {
    let end = |item: &Item| match item {
        Item::Value(value) => value.span().map(|span| span.end),
        Item::Table(inner) if inner.is_dotted() => end_of_values(inner),
        _ => None,
    };
    table.iter().filter_map(|(_, item)| end(item)).max()
}

fn inline(slot: Slot<'_>) -> Trouble {
    Trouble::Unsupported { what: format!("has {:?} as an inline table", slot.servers) }
}

fn odd(slot: Slot<'_>) -> Trouble {
    Trouble::Unsupported { what: format!("has {:?} not as a table of its own", slot.name) }
}

fn value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => plain(value),
        Item::Table(inner) => Value::Object(table(inner)),
        Item::ArrayOfTables(inner) => inner.iter().map(|inner| Value::Object(table(inner))).collect(),
    }
}

fn table(table: &Table) -> Map<String, Value> {
    table.iter().map(|(key, item)| (key.to_owned(), value(item))).collect()
}

fn plain(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::from(text.value().as_str()),
        toml_edit::Value::Integer(number) => Value::from(*number.value()),
        // Not finite ones have no other form.
        toml_edit::Value::Float(number) => {
            serde_json::Number::from_f64(*number.value()).map_or_else(|| number.value().to_string().into(), Value::from)
        }
        toml_edit::Value::Boolean(boolean) => Value::from(*boolean.value()),
        toml_edit::Value::Datetime(time) => Value::from(time.value().to_string()),
        toml_edit::Value::Array(array) => array.iter().map(plain).collect(),
        toml_edit::Value::InlineTable(table) => {
            Value::Object(table.iter().map(|(key, value)| (key.to_owned(), plain(value))).collect())
        }
    }
}

/// A value as TOML writes it, in one line.
fn written(value: &Value) -> String {
    fn made(value: &Value) -> toml_edit::Value {
        match value {
            Value::Null => toml_edit::Value::from(""),
            Value::Bool(boolean) => toml_edit::Value::from(*boolean),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => toml_edit::Value::from(number),
                (None, number) => toml_edit::Value::from(number.unwrap_or_default()),
            },
            Value::String(text) => toml_edit::Value::from(text.as_str()),
            Value::Array(array) => array.iter().map(made).collect(),
            Value::Object(object) => object.iter().map(|(key, value)| (key.as_str(), made(value))).collect(),
        }
    }
    // A text with line breaks would be written over several lines; as JSON it is the same in one.
    match value {
        Value::String(text) if text.contains(['\n', '\r']) => value.to_string(),
        other => made(other).to_string().trim().to_owned(),
    }
}
