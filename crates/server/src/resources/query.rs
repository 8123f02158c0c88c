//! Which part of a resource is asked for: `?lines=100-200`, `?offset=..&length=..`, `?grep=..`, `?raw`.

use crate::address::percent_decode;

/// The most that one answer has.
pub(super) const BYTES_MAX: u64 = 8 * 1024 * 1024;
const PATTERN_BYTES_MAX: usize = 1000;
const CONTEXT_MAX: u64 = 50;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Query {
    pub(super) part: Part,
    pub(super) form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Form {
    /// As a terminal shows it, with nothing hidden.
    #[default]
    Shown,
    /// As it came.
    Raw,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Part {
    #[default]
    Whole,
    Lines(Lines),
    /// `length` is at most [`BYTES_MAX`].
    Bytes {
        offset: u64,
        length: u64,
    },
    Grep(Grep),
}

/// Counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    From { first: u64, last: u64 },
    Last(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grep {
    pub(super) pattern: String,
    pub(super) kind: Pattern,
    /// Lines to show around each that matches.
    pub(super) context: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    Substring,
    Regex,
}

const SHAPE: &str = "after the ? there is lines=FIRST-LAST, offset=N&length=N, grep=PATTERN, or raw; if it belongs to the \
     file's name, write ? as %3F";

impl Query {
    pub(super) fn parse(text: &str) -> Result<Query, String> {
        let mut fields = Fields::default();
        for field in text.split('&') {
            let (name, value) = match field.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (field, None),
            };
            fields.set(name, value)?;
        }
        fields.into_query()
    }
}

#[derive(Debug, Default)]
struct Fields<'a> {
    lines: Option<&'a str>,
    offset: Option<&'a str>,
    length: Option<&'a str>,
    grep: Option<&'a str>,
    context: Option<&'a str>,
    regex: Option<&'a str>,
    raw: Option<&'a str>,
}

impl<'a> Fields<'a> {
    fn set(&mut self, name: &str, value: Option<&'a str>) -> Result<(), String> {
        let (field, value) = match (name, value) {
            ("lines", Some(value)) => (&mut self.lines, value),
            ("offset", Some(value)) => (&mut self.offset, value),
            ("length", Some(value)) => (&mut self.length, value),
            ("grep", Some(value)) => (&mut self.grep, value),
            ("context", Some(value)) => (&mut self.context, value),
            ("regex", Some("1")) => (&mut self.regex, "1"),
            ("raw", None) => (&mut self.raw, ""),
            _ => return Err(SHAPE.into()),
        };
        // A second ? might be meant for the name, too.
        if value.contains('?') {
            return Err(SHAPE.into());
        }
        match field.replace(value) {
            None => Ok(()),
            Some(_) => Err(format!("{name} is there twice; give it once")),
        }
    }

    fn into_query(self) -> Result<Query, String> {
        let form = if self.raw.is_some() { Form::Raw } else { Form::Shown };
        if (self.context.is_some() || self.regex.is_some()) && self.grep.is_none() {
            return Err("context and regex go with grep; add grep=PATTERN or leave them out".into());
        }
        let bytes = self.offset.is_some() || self.length.is_some();
        let part = match (self.lines, bytes, self.grep) {
            (None, false, None) => Part::Whole,
            (Some(lines), false, None) => Part::Lines(parse_lines(lines)?),
            (None, true, None) => Part::Bytes {
                offset: self.offset.map_or(Ok(0), |text| number("offset", text, 0, i64::MAX as u64))?,
                length: self.length.map_or(Ok(BYTES_MAX), |text| number("length", text, 1, BYTES_MAX))?,
            },
            (None, false, Some(pattern)) => Part::Grep(Grep {
                pattern: parse_pattern(pattern)?,
                kind: if self.regex.is_some() { Pattern::Regex } else { Pattern::Substring },
                context: self.context.map_or(Ok(0), |text| number("context", text, 0, CONTEXT_MAX))? as usize,
            }),
            _ => return Err("give one of lines, offset with length, and grep; the others leave out".into()),
        };
        if form == Form::Raw && !matches!(part, Part::Whole | Part::Bytes { .. }) {
            return Err("raw goes with offset and length only; leave out raw or the other".into());
        }
        Ok(Query { part, form })
    }
}

fn parse_lines(text: &str) -> Result<Lines, String> {
    let line = |text| number("lines", text, 1, i64::MAX as u64);
    match text.split_once('-') {
        Some(("", count)) => Ok(Lines::Last(line(count)?)),
        Some((first, "")) => Ok(Lines::From { first: line(first)?, last: u64::MAX }),
        Some((first, last)) => {
            let (first, last) = (line(first)?, line(last)?);
            if first > last {
                return Err("lines ends before it begins; give FIRST-LAST".into());
            }
            Ok(Lines::From { first, last })
        }
        None => line(text).map(|line| Lines::From { first: line, last: line }),
    }
}

fn parse_pattern(text: &str) -> Result<String, String> {
    let pattern = percent_decode(text).ok_or("the pattern is not percent-encoded UTF-8; write % as %25")?;
    if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("the pattern is empty or longer than {PATTERN_BYTES_MAX} bytes; give a part of a line"));
    }
    if pattern.contains(['\n', '\0']) {
        return Err("the pattern has a newline or a NUL, which no line has; give a part of one line".into());
    }
    Ok(pattern)
}

/// Digits and nothing else, so that there is one way to write each number that anyone would think of.
fn number(name: &str, text: &str, min: u64, max: u64) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("{name} takes whole numbers from {min} to {max}; see the resource templates"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_can_be_asked_for() {
        let part = |text| Query::parse(text).unwrap().part;
        assert_eq!(part("lines=100-200"), Part::Lines(Lines::From { first: 100, last: 200 }));
        assert_eq!(part("lines=7"), Part::Lines(Lines::From { first: 7, last: 7 }));
        assert_eq!(part("lines=7-"), Part::Lines(Lines::From { first: 7, last: u64::MAX }));
        assert_eq!(part("lines=-50"), Part::Lines(Lines::Last(50)));
        assert_eq!(part("offset=5&length=10"), Part::Bytes { offset: 5, length: 10 });
        assert_eq!(part("length=10"), Part::Bytes { offset: 0, length: 10 });
        let grep = Grep { pattern: "a b=?&".into(), kind: Pattern::Regex, context: 2 };
        assert_eq!(part("grep=a%20b=%3F%26&context=2&regex=1"), Part::Grep(grep));
        let raw = Query { part: Part::Bytes { offset: 1, length: BYTES_MAX }, form: Form::Raw };
        assert_eq!(Query::parse("raw&offset=1"), Ok(raw));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "y",
            "&",
            "raw&",
            "raw=",
            "raw=1",
            "raw&raw",
            "lines",
            "lines=",
            "lines=-",
            "lines=0",
            "lines=0-5",
            "lines=5-4",
            "lines=+5",
            "lines=1-2-3",
            "lines=1&lines=2",
            "lines=1&grep=x",
            "lines=1&offset=2",
            "lines=1&raw",
            "grep=",
            "grep=%",
            "grep=%ff",
            "grep=%0A",
            "grep=%00",
            "grep=a?lines=1",
            "grep=a&raw",
            "context=1",
            "regex=1",
            "grep=a&regex=0",
            "grep=a&context=51",
            "offset=-1",
            "offset= 1",
            "length=0",
            "length=8388609",
            "offset=99999999999999999999",
            "LINES=1",
            "lines%3D1",
        ] {
            assert!(Query::parse(text).is_err(), "{text:?} gave {:?}", Query::parse(text));
        }
        assert!(Query::parse(&format!("grep={}", "a".repeat(1001))).is_err());
    }
}
