//! JSON, with comments and trailing commas. The parser says where things are; the text around them is never rewritten.

use std::ops::Range;

use jsonc_parser::ast::{self, Object, ObjectProp};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions};
use serde_json::Value;

use super::document::{Emptied, Slot, Trouble};
use super::lines::newline;

/// What JSON.parse takes, and what VS Code and Zed allow besides; nothing of JSON5.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

fn parse(text: &str) -> Result<Option<ast::Value<'_>>, Trouble> {
    match jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &OPTIONS) {
        Ok(parsed) => Ok(parsed.value),
        Err(error) => Err(Trouble::NotParsed {
            line: error.line_display(),
            column: error.column_display(),
            why: error.kind().to_string(),
        }),
    }
}

/// The object that holds all servers, if there is one, inside the object that the file is.
struct Found<'a> {
    root: Option<Object<'a>>,
}

impl<'a> Found<'a> {
    fn in_text(text: &'a str, slot: Slot<'_>) -> Result<Found<'a>, Trouble> {
        let root = match parse(text)? {
            None => None,
            Some(ast::Value::Object(root)) => Some(root),
            Some(other) => {
                return Err(Trouble::Unexpected { what: format!("holds {}, not an object", kind(&other)) });
            }
        };
        let found = Found { root };
        if let Some(root) = &found.root {
            once(root, slot.servers)?;
        }
        if let Some(prop) = found.servers_prop(slot) {
            let ast::Value::Object(servers) = &prop.value else {
                let what = format!("has {} as {:?}, not an object", kind(&prop.value), slot.servers);
                return Err(Trouble::Unexpected { what });
            };
            once(servers, slot.name)?;
        }
        Ok(found)
    }

    fn servers_prop(&self, slot: Slot<'_>) -> Option<&ObjectProp<'a>> {
        self.root.as_ref()?.get(slot.servers)
    }

    fn servers(&self, slot: Slot<'_>) -> Option<&Object<'a>> {
        self.servers_prop(slot)?.value.as_object()
    }

    fn entry(&self, slot: Slot<'_>) -> Option<&ObjectProp<'a>> {
        self.servers(slot)?.get(slot.name)
    }
}

/// Of a name that is there twice clients take the last, other tools the first.
fn once(object: &Object<'_>, name: &str) -> Result<(), Trouble> {
    if object.properties.iter().filter(|prop| prop.name.as_str() == name).count() > 1 {
        return Err(Trouble::Unexpected { what: format!("has {name:?} twice") });
    }
    Ok(())
}

fn kind(value: &ast::Value<'_>) -> &'static str {
    match value {
        ast::Value::StringLit(_) => "a string",
        ast::Value::NumberLit(_) => "a number",
        ast::Value::BooleanLit(_) => "true or false",
        ast::Value::Object(_) => "an object",
        ast::Value::Array(_) => "an array",
        ast::Value::NullKeyword(_) => "null",
    }
}

pub(super) fn read(text: &str, slot: Slot<'_>) -> Result<Option<Value>, Trouble> {
    let found = Found::in_text(text, slot)?;
    Ok(found.entry(slot).map(|prop| Value::from(prop.value.clone())))
}

pub(super) fn has_servers(text: &str, slot: Slot<'_>) -> bool {
    Found::in_text(text, slot).is_ok_and(|found| found.servers(slot).is_some())
}

/// All but the entry; no servers are the same as an empty object of them.
pub(super) fn rest(text: &str, slot: Slot<'_>) -> Result<Value, Trouble> {
    let found = Found::in_text(text, slot)?;
    let mut root = found.root.map(|root| Value::from(ast::Value::Object(root))).unwrap_or(Value::Null);
    if let Some(root) = root.as_object_mut() {
        let servers = root.get_mut(slot.servers).and_then(Value::as_object_mut);
        if let Some(servers) = servers {
            servers.shift_remove(slot.name);
            if servers.is_empty() {
                root.shift_remove(slot.servers);
            }
        }
        if root.is_empty() {
            return Ok(Value::Null);
        }
    }
    Ok(root)
}

pub(super) fn put(text: &str, slot: Slot<'_>, entry: &Value) -> Result<String, Trouble> {
    let found = Found::in_text(text, slot)?;
    let style = Style::of(text, found.root.as_ref());
    let wrapped = |name: &str, value: &Value| Value::Object([(name.to_owned(), value.clone())].into_iter().collect());
    let Some(root) = &found.root else {
        let object = style.spread(&wrapped(slot.servers, &wrapped(slot.name, entry)), "");
        // Nothing but comments, perhaps; they stay.
        let head = text.trim_end();
        let gap = if head.is_empty() { "" } else { style.newline };
        return Ok(format!("{head}{gap}{object}{}", style.newline));
    };
    let edits = match found.servers(slot) {
        Some(servers) => insertion(text, servers, slot.name, entry, &style),
        None => insertion(text, root, slot.servers, &wrapped(slot.name, entry), &style),
    };
    Ok(splice(text, edits))
}

pub(super) fn update(text: &str, slot: Slot<'_>, entry: &Value) -> Result<String, Trouble> {
    let mut text = text.to_owned();
    for (key, value) in entry.as_object().into_iter().flatten() {
        text = set(&text, slot, key, value)?;
    }
    Ok(text)
}

fn set(text: &str, slot: Slot<'_>, key: &str, value: &Value) -> Result<String, Trouble> {
    let found = Found::in_text(text, slot)?;
    let style = Style::of(text, found.root.as_ref());
    let Some(object) = found.entry(slot).and_then(|prop| prop.value.as_object()) else {
        return Ok(text.to_owned());
    };
    once(object, key)?;
    let edits = match object.get(key) {
        Some(prop) if Value::from(prop.value.clone()) == *value => Vec::new(),
        Some(prop) => vec![(range(&prop.value), style.inline(value))],
        None => insertion(text, object, key, value, &style),
    };
    Ok(splice(text, edits))
}

pub(super) fn take(text: &str, slot: Slot<'_>, emptied: Emptied) -> Result<String, Trouble> {
    let found = Found::in_text(text, slot)?;
    let (Some(root), Some(servers)) = (&found.root, found.servers(slot)) else { return Ok(text.to_owned()) };
    let only = servers.properties.len() == 1 && only_spaces(text, servers);
    let (object, name) = match emptied {
        Emptied::Dropped if only => (root, slot.servers),
        _ => (servers, slot.name),
    };
    let expected = rest(text, slot)?;
    let mut tries = removals(text, object, name).into_iter().map(|edits| splice(text, edits));
    let kept = tries.find(|after| rest(after, slot).is_ok_and(|rest| rest == expected));
    kept.ok_or_else(|| Trouble::Unsupported { what: format!("has {name:?} where it cannot be taken out") })
}

type Edit = (Range<usize>, String);

fn splice(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|(range, _)| range.start);
    let mut result = text.to_owned();
    for (range, new) in edits.into_iter().rev() {
        result.replace_range(range, &new);
    }
    result
}

fn range(node: &impl Ranged) -> Range<usize> {
    node.start()..node.end()
}

/// Puts a property behind all others.
fn insertion(text: &str, object: &Object<'_>, name: &str, value: &Value, style: &Style) -> Vec<Edit> {
    let key = Value::from(name);
    let inside = &text[object.start() + 1..object.end() - 1];
    let indent = line_indent(text, object.start());
    let Some(last) = object.properties.last() else {
        let child = format!("{indent}{}", style.unit);
        let new = format!("{0}{child}{key}: {1}", style.newline, style.spread(value, &child));
        if inside.trim().is_empty() {
            return vec![(object.start() + 1..object.end() - 1, format!("{new}{}{indent}", style.newline))];
        }
        // A comment, which stays in front.
        let at = object.start() + 1 + inside.trim_end().len();
        let close =
            if text[at..object.end()].contains('\n') { String::new() } else { style.newline.to_owned() + indent };
        return vec![(at..at, format!("{new}{close}"))];
    };
    let comma = comma_after(text, last.end());
    let new = if inside.contains('\n') {
        let child = object.properties.iter().find_map(|prop| own_line(text, prop.start()));
        let child = child.map_or_else(|| format!("{indent}{}", style.unit), str::to_owned);
        format!("{}{child}{key}: {}", style.newline, style.spread(value, &child))
    } else {
        format!("{}{key}:{}{}", style.space, style.space, style.inline(value))
    };
    match comma {
        // As all others here, it gets a comma.
        Some(comma) => {
            let at = line_rest(text, comma + 1);
            vec![(at..at, new + ",")]
        }
        None => {
            let at = line_rest(text, last.end());
            vec![(last.end()..last.end(), ",".to_owned()), (at..at, new)]
        }
    }
}

/// Ways to take a property out, the best first.
fn removals(text: &str, object: &Object<'_>, name: &str) -> Vec<Vec<Edit>> {
    let Some(at) = object.properties.iter().position(|prop| prop.name.as_str() == name) else { return Vec::new() };
    let prop = &object.properties[at];
    if object.properties.len() == 1 && only_spaces(text, object) {
        return vec![vec![(object.start() + 1..object.end() - 1, String::new())]];
    }
    let is_last = at + 1 == object.properties.len();
    let comma = comma_after(text, prop.end());
    let end = comma.map_or(prop.end(), |comma| comma + 1);
    let end = line_rest(text, end);
    let before = &text[..prop.start()];
    let on_line = before.trim_end_matches([' ', '\t']);
    // With the end of the line before, if it has its line to itself; else with the space on one side.
    let starts = match on_line.strip_suffix('\n') {
        Some(line) => vec![line.strip_suffix('\r').unwrap_or(line).len(), on_line.len()],
        None if is_last => vec![on_line.len()],
        None => vec![prop.start()],
    };
    let spaces = |end: usize| text[end..].len() - text[end..].trim_start_matches([' ', '\t']).len();
    let end = if !on_line.ends_with('\n') && !is_last { end + spaces(end) } else { end };
    let previous = at.checked_sub(1).map(|at| &object.properties[at]);
    // A comma that would be left in front of the end.
    let orphan = match (comma, previous) {
        (None, Some(previous)) => comma_after(text, previous.end()),
        _ => None,
    };
    let with_orphan = |start: usize| {
        let mut edits = vec![(start..end, String::new())];
        edits.extend(orphan.filter(|comma| *comma < start).map(|comma| (comma..comma + 1, String::new())));
        edits
    };
    starts.into_iter().map(with_orphan).collect()
}

/// Whether there is nothing but space around an object's only property.
fn only_spaces(text: &str, object: &Object<'_>) -> bool {
    let Some(prop) = object.properties.first() else { return true };
    let after = comma_after(text, prop.end()).map_or(prop.end(), |comma| comma + 1);
    let sides = [&text[object.start() + 1..prop.start()], &text[after..object.end() - 1]];
    sides.iter().all(|side| side.trim().is_empty()) && text[prop.end()..after].trim_end_matches(',').trim().is_empty()
}

/// Where the comma after a property is.
fn comma_after(text: &str, end: usize) -> Option<usize> {
    let mut at = end;
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start().len();
        let rest = &text[at..];
        let comment = if rest.starts_with("//") {
            rest.find('\n')
        } else if rest.starts_with("/*") {
            block_length(rest)
        } else {
            return rest.starts_with(',').then_some(at);
        };
        at += comment?;
    }
}

fn block_length(comment: &str) -> Option<usize> {
    comment.get(2..)?.find("*/").map(|end| end + 4)
}

/// The end of the comments that follow on the same line.
fn line_rest(text: &str, end: usize) -> usize {
    let mut at = end;
    loop {
        let rest = &text[at..];
        let comment = rest.trim_start_matches([' ', '\t']);
        let space = rest.len() - comment.len();
        let length = if comment.starts_with("//") {
            comment.find(['\n', '\r']).unwrap_or(comment.len())
        } else if comment.starts_with("/*") {
            match block_length(comment) {
                Some(length) if !comment[..length].contains('\n') => length,
                _ => return at,
            }
        } else {
            return at;
        };
        at += space + length;
    }
}

/// The space at the start of a place's line.
fn line_indent(text: &str, at: usize) -> &str {
    let line = &text[text[..at].rfind('\n').map_or(0, |newline| newline + 1)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The same, if nothing else is in front of that place.
fn own_line(text: &str, at: usize) -> Option<&str> {
    let start = text[..at].rfind('\n')? + 1;
    text[start..at].trim().is_empty().then(|| &text[start..at])
}

/// How this file is written.
struct Style {
    newline: &'static str,
    unit: String,
    /// What is between a colon and its value.
    space: &'static str,
}

impl Style {
    fn of(text: &str, root: Option<&Object<'_>>) -> Style {
        let first = root.and_then(|root| root.properties.first());
        let root_indent = root.map_or("", |root| line_indent(text, root.start()));
        let unit = first.and_then(|prop| own_line(text, prop.start())?.strip_prefix(root_indent));
        let unit = unit.filter(|unit| !unit.is_empty()).unwrap_or("  ").to_owned();
        let gap = first.map_or(" ", |prop| &text[prop.name.end()..prop.value.start()]);
        let space = if gap == ":" { "" } else { " " };
        Style { newline: newline(text), unit, space }
    }

    /// Objects over several lines, lists in one.
    fn spread(&self, value: &Value, indent: &str) -> String {
        let Some(object) = value.as_object().filter(|object| !object.is_empty()) else { return self.inline(value) };
        let child = format!("{indent}{}", self.unit);
        let one = |(key, value): (&String, &Value)| {
            format!("{}{child}{}: {}", self.newline, Value::from(key.as_str()), self.spread(value, &child))
        };
        format!("{{{}{}{indent}}}", object.iter().map(one).collect::<Vec<_>>().join(","), self.newline)
    }

    fn inline(&self, value: &Value) -> String {
        let comma = format!(",{}", self.space);
        match value {
            Value::Object(object) => {
                let one = |(key, value): (&String, &Value)| {
                    format!("{}:{}{}", Value::from(key.as_str()), self.space, self.inline(value))
                };
                format!("{{{}}}", object.iter().map(one).collect::<Vec<_>>().join(&comma))
            }
            Value::Array(array) => {
                format!("[{}]", array.iter().map(|value| self.inline(value)).collect::<Vec<_>>().join(&comma))
            }
            other => other.to_string(),
        }
    }
}
