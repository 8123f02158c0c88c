//! YAML, by whole lines: no editor for YAML keeps comments in every case, but the lines of a block can be put in and
//! taken out, and what the file then says is compared with what it said.

use std::borrow::Cow;
use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};

use super::document::{Emptied, Slot, Trouble};
use super::lines::Lines;

/// Deeper than any configuration; it bounds our own recursion.
const DEPTH_MAX: usize = 100;

/// A part of the document. Where it is does not count when two are compared.
#[derive(Debug, Clone)]
pub(super) struct Node {
    what: What,
    /// Its tag and its anchor, if it has them.
    marks: (Option<String>, usize),
    start: Place,
    end: Place,
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        (&self.what, &self.marks) == (&other.what, &other.marks)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Scalar { text: String, plain: bool },
    Map { pairs: Vec<(Node, Node)>, flow: bool },
    List { items: Vec<Node>, flow: bool },
    Alias(usize),
}

/// Line and column, from 0, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    line: usize,
    column: usize,
}

fn places(span: Span) -> (Place, Place) {
    let place = |mark: saphyr_parser::Marker| Place { line: mark.line().saturating_sub(1), column: mark.col() };
    (place(span.start), place(span.end))
}

impl Node {
    fn is_null(&self) -> bool {
        matches!(&self.what, What::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null"))
            && self.marks == (None, 0)
    }

    fn is_scalar(&self, name: &str) -> bool {
        matches!(&self.what, What::Scalar { text, .. } if text == name)
    }

    /// The last line that has something of it.
    fn last_line(&self, lines: &Lines<'_>) -> usize {
        let own = match &self.what {
            What::Map { pairs, flow: false } => pairs.last().map(|(_, value)| value.last_line(lines)),
            What::List { items, flow: false } => items.last().map(|item| item.last_line(lines)),
            _ => None,
        };
        own.unwrap_or_else(|| {
            let mut line = self.end.line;
            // A block of text ends only where the next thing begins.
            let blank = |line: usize, columns: usize| lines.line(line).chars().take(columns).all(char::is_whitespace);
            if line > self.start.line && blank(line, self.end.column) {
                line -= 1;
            }
            while line > self.start.line && lines.is_blank(line) {
                line -= 1;
            }
            line
        })
    }
}

fn unsupported(what: impl Into<String>) -> Trouble {
    Trouble::Unsupported { what: what.into() }
}

/// The document's root; none if the file is empty.
fn parse(text: &str) -> Result<Option<Node>, Trouble> {
    if text.replace("\r\n", "").contains('\r') {
        return Err(unsupported("has lines that end in CR alone"));
    }
    let mut reader = Reader { parser: Parser::new_from_str(text), depth: 0 };
    let mut root = None;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
            (event, span) if root.is_none() => root = Some(reader.node(event, span)?),
            _ => return Err(unsupported("holds several documents")),
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Trouble> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Trouble::NotParsed {
                line: error.marker().line(),
                column: error.marker().col() + 1,
                why: error.info().to_owned(),
            }),
            None => Err(unsupported("ends too early")),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span) -> Result<Node, Trouble> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(unsupported(format!("is nested deeper than {DEPTH_MAX}")));
        }
        let (start, mut end) = places(span);
        let tagged = |tag: Option<Cow<'_, saphyr_parser::Tag>>| tag.map(|tag| format!("{}{}", tag.handle, tag.suffix));
        let (what, marks) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let what = What::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                (what, (tagged(tag), anchor))
            }
            Event::Alias(anchor) => (What::Alias(anchor), (None, 0)),
            Event::SequenceStart(anchor, tag) => {
                let flow = start != end;
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, span) => break end = places(span).1,
                        (event, span) => items.push(self.node(event, span)?),
                    }
                }
                (What::List { items, flow }, (tagged(tag), anchor))
            }
            Event::MappingStart(anchor, tag) => {
                let flow = start != end;
                let mut pairs = Vec::new();
                loop {
                    match self.next()? {
                        (Event::MappingEnd, span) => break end = places(span).1,
                        (event, span) => {
                            let key = self.node(event, span)?;
                            let (event, span) = self.next()?;
                            pairs.push((key, self.node(event, span)?));
                        }
                    }
                }
                (What::Map { pairs, flow }, (tagged(tag), anchor))
            }
            _ => return Err(unsupported("is not one document")),
        };
        self.depth -= 1;
        Ok(Node { what, marks, start, end })
    }
}

/// The pair of a name in a mapping.
fn pair<'a>(pairs: &'a [(Node, Node)], name: &str) -> Result<Option<&'a (Node, Node)>, Trouble> {
    let mut named = pairs.iter().filter(|(key, _)| key.is_scalar(name));
    let found = named.next();
    if named.next().is_some() {
        return Err(Trouble::Unexpected { what: format!("has {name:?} twice") });
    }
    Ok(found)
}

/// What there is on the way to the entry.
struct Found {
    root: Option<Node>,
}

impl Found {
    fn in_text(text: &str, slot: Slot<'_>) -> Result<Found, Trouble> {
        let root = parse(text)?.filter(|root| !root.is_null());
        let found = Found { root };
        if found.root.is_some() && found.root_pairs().is_none() {
            return Err(Trouble::Unexpected { what: "does not hold a mapping".to_owned() });
        }
        if let Some((_, value)) = found.servers(slot)? {
            match &value.what {
                What::Map { pairs, .. } => drop(pair(pairs, slot.name)?),
                _ if value.is_null() => {}
                _ => {
                    let what = format!("has something else than a mapping as {:?}", slot.servers);
                    return Err(Trouble::Unexpected { what });
                }
            }
        }
        Ok(found)
    }

    fn root_pairs(&self) -> Option<&[(Node, Node)]> {
        match &self.root.as_ref()?.what {
            What::Map { pairs, .. } => Some(pairs),
            _ => None,
        }
    }

    fn servers(&self, slot: Slot<'_>) -> Result<Option<&(Node, Node)>, Trouble> {
        self.root_pairs().map_or(Ok(None), |pairs| pair(pairs, slot.servers))
    }

    fn entry(&self, slot: Slot<'_>) -> Result<Option<&(Node, Node)>, Trouble> {
        match self.servers(slot)?.map(|(_, servers)| &servers.what) {
            Some(What::Map { pairs, .. }) => pair(pairs, slot.name),
            _ => Ok(None),
        }
    }

    /// The entry in a form whose lines are its own.
    fn block_entry(&self, lines: &Lines<'_>, slot: Slot<'_>) -> Result<Option<&(Node, Node)>, Trouble> {
        let Some(entry) = self.entry(slot)? else { return Ok(None) };
        let (_, servers) = self.servers(slot)?.unwrap_or(entry);
        if matches!(servers.what, What::Map { flow: true, .. }) || !own_line(lines, &entry.0) {
            return Err(flow(slot.servers));
        }
        Ok(Some(entry))
    }
}

fn flow(name: &str) -> Trouble {
    unsupported(format!("has {name:?} in braces"))
}

/// Whether a key is the first thing on its line.
fn own_line(lines: &Lines<'_>, key: &Node) -> bool {
    lines.line(key.start.line).chars().take(key.start.column).all(|character| character == ' ')
}

pub(super) fn read(text: &str, slot: Slot<'_>) -> Result<Option<Value>, Trouble> {
    Ok(Found::in_text(text, slot)?.entry(slot)?.map(|(_, value)| meaning(value)))
}

pub(super) fn has_servers(text: &str, slot: Slot<'_>) -> bool {
    Found::in_text(text, slot).is_ok_and(|found| matches!(found.servers(slot), Ok(Some(_))))
}

/// All but the entry; no servers are the same as an empty mapping of them.
pub(super) fn rest(text: &str, slot: Slot<'_>) -> Result<Vec<(Node, Node)>, Trouble> {
    let found = Found::in_text(text, slot)?;
    let mut rest = Vec::new();
    for (key, value) in found.root_pairs().unwrap_or_default() {
        let mut value = value.clone();
        if key.is_scalar(slot.servers) {
            match &mut value.what {
                What::Map { pairs, .. } => pairs.retain(|(key, _)| !key.is_scalar(slot.name)),
                _ => continue,
            }
            if matches!(&value.what, What::Map { pairs, .. } if pairs.is_empty()) {
                continue;
            }
        }
        rest.push((key.clone(), value));
    }
    Ok(rest)
}

pub(super) fn put(text: &str, slot: Slot<'_>, entry: &Value) -> Result<String, Trouble> {
    let found = Found::in_text(text, slot)?;
    let lines = Lines::of(text);
    let root = found.root.as_ref().map_or(0, |root| root.start.column);
    if found.root.as_ref().is_some_and(|root| matches!(root.what, What::Map { flow: true, .. })) {
        return Err(unsupported("is written in braces"));
    }
    let Some((key, servers)) = found.servers(slot)? else {
        let mut new = vec![format!("{}{}:", " ".repeat(root), slot.servers)];
        new.extend(block(slot, entry, root + 2, 2));
        return Ok(lines.with_last(&new));
    };
    if !own_line(&lines, key) {
        return Err(unsupported(format!("has {:?} not at the start of a line", slot.servers)));
    }
    if servers.marks.1 != 0 {
        // Whatever refers to it would get the entry, too.
        return Err(unsupported(format!("has an anchor at {:?}", slot.servers)));
    }
    match &servers.what {
        What::Map { pairs, flow: false } => {
            let column = pairs.first().map_or(root + 2, |(key, _)| key.start.column);
            let step = column.saturating_sub(root).max(1);
            Ok(lines.with(Some(key.start.line), &block(slot, entry, column, step)))
        }
        What::Map { pairs, .. } if !pairs.is_empty() => Err(flow(slot.servers)),
        _ if servers.marks != (None, 0) || servers.end.line != key.start.line => Err(flow(slot.servers)),
        // Nothing, or empty braces: what is written there goes.
        _ => {
            let line = lines.line(key.start.line);
            let head: String = line.chars().take(servers.start.column).collect();
            let tail: String = line.chars().skip(servers.end.column).collect();
            let head = if servers.start == servers.end { head } else { head.trim_end().to_owned() };
            let opened = format!("{head}{}", tail.trim_end_matches(['\r', '\n']));
            let text = lines.replaced(key.start.line..=key.start.line, &opened);
            Ok(Lines::of(&text).with(Some(key.start.line), &block(slot, entry, root + 2, 2)))
        }
    }
}

pub(super) fn update(text: &str, slot: Slot<'_>, entry: &Value) -> Result<String, Trouble> {
    let mut text = text.to_owned();
    for (key, value) in entry.as_object().into_iter().flatten() {
        text = set(&text, slot, key, value)?;
    }
    Ok(text)
}

fn set(text: &str, slot: Slot<'_>, key: &str, wanted: &Value) -> Result<String, Trouble> {
    let found = Found::in_text(text, slot)?;
    let lines = Lines::of(text);
    let Some((head, entry)) = found.block_entry(&lines, slot)? else { return Ok(text.to_owned()) };
    let What::Map { pairs, flow: false } = &entry.what else { return Err(flow(slot.name)) };
    let column = pairs.first().map_or(head.start.column + 2, |(key, _)| key.start.column);
    let new = format!("{}{key}: {}", " ".repeat(column), written(wanted));
    match pair(pairs, key)? {
        Some((_, old)) if meaning(old) == *wanted => Ok(text.to_owned()),
        Some((key, _)) if !own_line(&lines, key) => Err(flow(slot.name)),
        Some((key, old)) => Ok(lines.replaced(key.start.line..=old.last_line(&lines), &new)),
        None => Ok(lines.with(Some(head.start.line), &[new])),
    }
}

pub(super) fn take(text: &str, slot: Slot<'_>, emptied: Emptied) -> Result<String, Trouble> {
    let found = Found::in_text(text, slot)?;
    let lines = Lines::of(text);
    let (Some((key, entry)), Some((servers_key, servers))) = (found.block_entry(&lines, slot)?, found.servers(slot)?)
    else {
        return Ok(text.to_owned());
    };
    let only = matches!(&servers.what, What::Map { pairs, .. } if pairs.len() == 1);
    let mut gone: BTreeSet<usize> = (key.start.line..=entry.last_line(&lines)).collect();
    if !only {
        return Ok(lines.without(&gone));
    }
    if !own_line(&lines, servers_key) {
        return Err(unsupported(format!("has {:?} not at the start of a line", slot.servers)));
    }
    if emptied == Emptied::Dropped {
        gone.insert(servers_key.start.line);
        return Ok(lines.without(&gone));
    }
    let text = lines.without(&gone);
    let lines = Lines::of(&text);
    let line = lines.line(servers_key.start.line).trim_end_matches(['\r', '\n']);
    let head: String = line.chars().take(servers_key.end.column).collect();
    let tail = line.get(head.len()..).and_then(|tail| tail.trim_start().strip_prefix(':')).unwrap_or_default();
    Ok(lines.replaced(servers_key.start.line..=servers_key.start.line, &format!("{head}: {{}}{tail}")))
}

/// The lines of an entry.
fn block(slot: Slot<'_>, entry: &Value, column: usize, step: usize) -> Vec<String> {
    let mut lines = vec![format!("{}{}:", " ".repeat(column), slot.name)];
    let keys = entry.as_object().into_iter().flatten();
    lines.extend(keys.map(|(key, value)| format!("{}{key}: {}", " ".repeat(column + step), written(value))));
    lines
}

/// A value in one line. What is JSON is YAML too; simple words go without quotes.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) if is_word(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_word(text: &str) -> bool {
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.chars().all(|character| character.is_ascii_alphanumeric() || "/._- ".contains(character))
        && !text.ends_with(' ')
        && !text.contains(" -")
        && !reserved.contains(&text.to_ascii_lowercase().as_str())
}

/// What a part says, by the core schema.
fn meaning(node: &Node) -> Value {
    match &node.what {
        What::Scalar { text, plain: true } if node.marks.0.is_none() => match text.as_str() {
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            _ if node.is_null() => Value::Null,
            text => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(number), _) => Value::from(number),
                (_, Ok(number)) if text.starts_with(|first: char| "+-.0123456789".contains(first)) => {
                    Value::from(number)
                }
                _ => Value::from(text),
            },
        },
        What::Scalar { text, .. } => Value::from(text.as_str()),
        What::List { items, .. } => items.iter().map(meaning).collect(),
        What::Map { pairs, .. } => {
            let name = |key: &Node| match &key.what {
                What::Scalar { text, .. } => text.clone(),
                _ => String::new(),
            };
            Value::Object(pairs.iter().map(|(key, value)| (name(key), meaning(value))).collect::<Map<_, _>>())
        }
        What::Alias(_) => Value::Null,
    }
}
