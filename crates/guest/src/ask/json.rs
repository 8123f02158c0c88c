//! The little JSON that is spoken with process 1: strings to write, and flat objects to read.

/// `text` as a string of JSON.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

pub(super) fn list(items: &[String]) -> String {
    format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(","))
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
}

/// The members of an object that has texts and whole numbers only; `None` for anything else.
pub(super) fn members(line: &str) -> Option<Vec<(String, Value)>> {
    let mut rest = Rest(line.trim());
    let mut found = Vec::new();
    rest.take('{')?;
    if rest.take('}').is_some() {
        return rest.0.is_empty().then_some(found);
    }
    loop {
        let name = rest.text()?;
        rest.take(':')?;
        let value = match rest.0.trim_start().starts_with('"') {
            true => Value::Text(rest.text()?),
            false => Value::Number(rest.number()?),
        };
        found.push((name, value));
        if rest.take(',').is_none() {
            rest.take('}')?;
            return rest.0.is_empty().then_some(found);
        }
    }
}

#[derive(Debug)]
struct Rest<'t>(&'t str);

impl Rest<'_> {
    fn take(&mut self, wanted: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(wanted)?.trim_start();
        Some(())
    }

    fn number(&mut self) -> Option<i64> {
        let end = self.0.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits.parse().ok()
    }

    fn text(&mut self) -> Option<String> {
        self.0 = self.0.trim_start().strip_prefix('"')?;
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

    /// After `\u`; a pair of surrogates is one letter.
    fn unicode(&mut self) -> Option<char> {
        let first = self.unit()?;
        let pair = [first, 0];
        if !(0xd800..0xdc00).contains(&first) {
            return char::decode_utf16([pair[0]]).next()?.ok();
        }
        self.0 = self.0.strip_prefix("\\u")?;
        char::decode_utf16([first, self.unit()?]).next()?.ok()
    }

    fn unit(&mut self) -> Option<u16> {
        let (digits, rest) = self.0.split_at_checked(4)?;
        self.0 = rest;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Option<Value> {
        members(line).and_then(|mut found| found.pop()).map(|(_, value)| value)
    }

    #[test]
    fn what_is_quoted_reads_as_it_was() {
        for text in ["", "plain", "a\"b\\c\n\t\u{1}é\u{1f600}/"] {
            assert_eq!(one(&format!(" {{ \"err\" : {} }} ", quoted(text))), Some(Value::Text(text.to_owned())));
        }
        assert_eq!(one(r#"{"a":1,"exit":-12}"#), Some(Value::Number(-12)));
        assert_eq!(one(r#"{"out":"\ud83d\ude00\u00e9\/\b\f"}"#), Some(Value::Text("\u{1f600}é/\u{8}\u{c}".to_owned())));
        assert_eq!(members("{}"), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_flat_object_is_nothing() {
        for line in [
            "",
            "{",
            "[]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":\"b}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u+123\"}",
            "{\"a\":1}x",
            "{\"a\":{}}",
            "{\"a\":1,}",
            "{\"a\":\"\\",
        ] {
            assert_eq!(members(line), None, "{line}");
        }
    }
}
