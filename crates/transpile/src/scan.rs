//! Finding tokens between nodes of the tree: it says where a type begins, not where its `?` or `readonly` stands.

/// A word, or one other character, with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'s> {
    pub(crate) text: &'s str,
    pub(crate) start: u32,
}

impl Token<'_> {
    pub(crate) fn end(self) -> u32 {
        self.start + u32::try_from(self.text.len()).unwrap_or(0)
    }
}

/// The tokens from `start` to `end`, comments and space left out. Only for places where no string can stand.
pub(crate) fn tokens(source: &str, start: u32, end: u32) -> impl Iterator<Item = Token<'_>> {
    let text = source.get(start as usize..end as usize).unwrap_or_default();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..)?;
            let first = rest.chars().next()?;
            if rest.starts_with("//") {
                at += rest.find(crate::edits::is_line_end).unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            } else if first.is_whitespace() || first == '\u{feff}' {
                at += first.len_utf8();
            } else {
                let length = match rest.find(|c: char| !is_word(c)) {
                    Some(0) => first.len_utf8(),
                    Some(length) => length,
                    None => rest.len(),
                };
                let token = Token { text: rest.get(..length)?, start: start + u32::try_from(at).ok()? };
                at += length;
                return Some(token);
            }
        }
    })
}

/// The place of the first `text` from `start` to `end`.
pub(crate) fn find(source: &str, text: &str, start: u32, end: u32) -> Option<u32> {
    tokens(source, start, end).find(|token| token.text == text).map(|token| token.start)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || c == '#'
}
