//! Changes to a text that leave every line where it was.

use oxc_span::Span;

#[derive(Debug)]
struct Edit {
    span: Span,
    /// `None`: spaces.
    text: Option<String>,
}

/// Changes, collected in any order. Of two that overlap, the one that begins first counts, or else the longer one.
#[derive(Debug, Default)]
pub(crate) struct Edits(Vec<Edit>);

impl Edits {
    /// Puts spaces in the place of everything but line ends.
    pub(crate) fn blank(&mut self, start: u32, end: u32) {
        if start < end {
            self.0.push(Edit { span: Span::new(start, end), text: None });
        }
    }

    /// Puts `text`, which has no line end of its own, and then the line ends that were there.
    pub(crate) fn replace(&mut self, start: u32, end: u32, text: impl Into<String>) {
        self.0.push(Edit { span: Span::new(start, end), text: Some(text.into()) });
    }

    pub(crate) fn insert(&mut self, at: u32, text: impl Into<String>) {
        self.replace(at, at, text);
    }

    pub(crate) fn apply(mut self, source: &str) -> String {
        // Stable: what was inserted first at a place comes first.
        self.0.sort_by_key(|edit| (edit.span.start, u32::from(edit.span.end > edit.span.start)));
        let mut out = String::with_capacity(source.len() + 256);
        let mut at = 0;
        for Edit { span, text } in &self.0 {
            if span.start < at {
                continue;
            }
            out.push_str(slice(source, at, span.start));
            let old = slice(source, span.start, span.end);
            match text {
                None => push_spaces(&mut out, old),
                Some(text) => {
                    out.push_str(text);
                    let width = utf16(text);
                    let ends = old.chars().filter(|&c| is_line_end(c)).collect::<String>();
                    if ends.is_empty() {
                        // Columns after it stay right where the new text is not longer.
                        (width..utf16(old)).for_each(|_| out.push(' '));
                    }
                    out.push_str(&ends);
                }
            }
            at = span.end;
        }
        out.push_str(slice(source, at, u32::try_from(source.len()).unwrap_or(u32::MAX)));
        out
    }
}

fn slice(source: &str, start: u32, end: u32) -> &str {
    source.get(start as usize..end as usize).unwrap_or_default()
}

/// Columns are counted in UTF-16 units.
fn utf16(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

fn push_spaces(out: &mut String, old: &str) {
    for c in old.chars() {
        if is_line_end(c) {
            out.push(c);
        } else {
            (0..c.len_utf16()).for_each(|_| out.push(' '));
        }
    }
}

pub(crate) fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}
