//! JSON as it comes, for a command that passes it on: numbers keep the digits that they were written with.

use std::fmt::Write;

/// What is nested deeper is refused: there is one small stack.
const DEPTH_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// As it was written.
    Number(String),
    Text(String),
    List(Vec<Json>),
    /// In the order in which they came.
    Object(Vec<(String, Json)>),
}

impl Json {
    pub(super) fn text(text: &str) -> Json {
        Json::Text(text.to_owned())
    }

    pub(super) fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
        Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// `None` for what is no JSON.
    pub(super) fn parse(text: &str) -> Option<Json> {
        let mut rest = Rest(text.trim_ascii());
        let value = rest.value(0)?;
        rest.0.is_empty().then_some(value)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// A text that an object has.
    pub(super) fn get_text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Json::as_text)
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn items(&self) -> &[Json] {
        if let Json::List(items) = self { items } else { &[] }
    }

    pub(super) fn members(&self) -> &[(String, Json)] {
        if let Json::Object(members) = self { members } else { &[] }
    }

    pub(super) fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, None);
        out
    }

    /// For a person.
    pub(super) fn indented(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Some(0));
        out
    }

    fn write(&self, out: &mut String, indent: Option<usize>) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(digits) => out.push_str(digits),
            Json::Text(text) => quote(text, out),
            Json::List(items) => {
                write_all(out, ['[', ']'], items, indent, |out, item, inner| item.write(out, inner));
            }
            Json::Object(members) => write_all(out, ['{', '}'], members, indent, |out, (name, value), inner| {
                quote(name, out);
                out.push_str(if inner.is_some() { ": " } else { ":" });
                value.write(out, inner);
            }),
        }
    }
}

fn write_all<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: &[T],
    indent: Option<usize>,
    each: impl Fn(&mut String, &T, Option<usize>),
) {
    let inner = indent.map(|by| by + 2);
    let line = |out: &mut String, by: Option<usize>| {
        if let Some(by) = by.filter(|_| !items.is_empty()) {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', by));
        }
    };
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        line(out, inner);
        each(out, item, inner);
    }
    line(out, indent);
    out.push(close);
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

struct Rest<'t>(&'t str);

impl Rest<'_> {
    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.0.bytes().next()? {
            b'"' => self.text().map(Json::Text),
            b'[' => {
                let mut items = Vec::new();
                self.all(']', |rest| {
                    items.push(rest.value(depth + 1)?);
                    Some(())
                })?;
                Some(Json::List(items))
            }
            b'{' => {
                let mut members = Vec::new();
                self.all('}', |rest| {
                    let name = rest.text()?;
                    rest.take(':')?;
                    members.push((name, rest.value(depth + 1)?));
                    Some(())
                })?;
                Some(Json::Object(members))
            }
            _ => self.word(),
        }
    }

    /// What is within brackets, up to the closing one.
    fn all(&mut self, close: char, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.0 = self.0.get(1..)?.trim_ascii_start();
        if self.take(close).is_some() {
            return Some(());
        }
        loop {
            each(self)?;
            if self.take(',').is_none() {
                return self.take(close);
            }
        }
    }

    fn take(&mut self, wanted: char) -> Option<()> {
        self.0 = self.0.trim_ascii_start().strip_prefix(wanted)?.trim_ascii_start();
        Some(())
    }

    fn word(&mut self) -> Option<Json> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let end = self.0.bytes().position(|byte| !is_part(byte)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        match word {
            "null" => Some(Json::Null),
            "true" => Some(Json::Bool(true)),
            "false" => Some(Json::Bool(false)),
            _ => is_number(word).then(|| Json::Number(word.to_owned())),
        }
    }

    fn text(&mut self) -> Option<String> {
        self.0 = self.0.strip_prefix('"')?;
        let mut text = String::new();
        loop {
            let end = self.0.find(['"', '\\'])?;
            let (plain, rest) = self.0.split_at(end);
            text.push_str(plain);
            if let Some(rest) = rest.strip_prefix('"') {
                self.0 = rest;
                return Some(text);
            }
            let mut letters = rest.get(1..)?.chars();
            let escaped = letters.next()?;
            self.0 = letters.as_str();
            text.push(match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => self.unicode()?,
                '"' | '\\' | '/' => escaped,
                _ => return None,
            });
        }
    }

    /// After `\u`: a pair of surrogates is one letter, and half of one is none that can be told.
    fn unicode(&mut self) -> Option<char> {
        let first = self.unit()?;
        if (0xd800..0xdc00).contains(&first)
            && let Some(rest) = self.0.strip_prefix("\\u")
        {
            let mut after = Rest(rest);
            if let Some(Ok(letter)) = after.unit().and_then(|second| char::decode_utf16([first, second]).next()) {
                self.0 = &self.0[self.0.len() - after.0.len()..];
                return Some(letter);
            }
        }
        Some(char::from_u32(u32::from(first)).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn unit(&mut self) -> Option<u16> {
        let (digits, rest) = self.0.split_at_checked(4)?;
        self.0 = rest;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
    }
}

/// `-1`, `0.5`, `1e9`, and not `01`, `1.`, `+1` or `inf`.
fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let starts_well = match digits.as_bytes() {
        [b'0', rest @ ..] => !rest.first().is_some_and(u8::is_ascii_digit),
        [first, ..] => first.is_ascii_digit(),
        [] => false,
    };
    let ends_well = digits.bytes().last().is_some_and(|byte| byte.is_ascii_digit());
    let dot_is_between = digits.split_once('.').is_none_or(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
    starts_well && ends_well && dot_is_between && digits.parse::<f64>().is_ok_and(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_was() {
        for text in [
            "null",
            "[true,false,[],{}]",
            r#"{"a":1.50,"b":-0,"c":12345678901234567890,"d":"é\"\\\n","e":1e9}"#,
            r#""\u0001""#,
        ] {
            assert_eq!(Json::parse(&format!(" {text}\n")).unwrap().compact(), text);
        }
        let spaced = Json::parse("{ \"a\" : [ 1 , { \"b\" : \"\\ud83d\\ude00\\/\" } ] }").unwrap();
        assert_eq!(spaced.compact(), "{\"a\":[1,{\"b\":\"\u{1f600}/\"}]}");
        assert_eq!(spaced.indented(), "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"\u{1f600}/\"\n    }\n  ]\n}");
        assert_eq!(Json::parse("[]").unwrap().indented(), "[]");
        assert_eq!(Json::parse(r#""\ud800x""#), Some(Json::Text("\u{fffd}x".to_owned())));
    }

    #[test]
    fn what_is_no_json_is_nothing() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "01",
            "1.",
            ".5",
            "+1",
            "inf",
            "nan",
            "1e999",
            "\"a",
            "tru",
            "1 2",
            "'a'",
            "\"\\x\"",
        ] {
            assert_eq!(Json::parse(text), None, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(Json::parse(&deep), None);
    }
}
