//! A text by its lines, to take lines out of it and put lines into it without touching any other byte.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// What ends a line in this text.
pub(super) fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Lines are counted from 0, and each has its end of line, which only the last can lack.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    lines: Vec<&'a str>,
    newline: &'static str,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Lines<'a> {
        Lines { lines: text.split_inclusive('\n').collect(), newline: newline(text) }
    }

    pub(super) fn line(&self, number: usize) -> &'a str {
        self.lines.get(number).copied().unwrap_or_default()
    }

    pub(super) fn is_blank(&self, number: usize) -> bool {
        self.line(number).trim().is_empty()
    }

    /// The line that this byte is in.
    pub(super) fn at(&self, byte: usize) -> usize {
        let mut end = 0;
        let holds = |line: &&str| {
            end += line.len();
            byte < end
        };
        self.lines.iter().position(holds).unwrap_or(self.lines.len().saturating_sub(1))
    }

    /// Puts lines after a line; after none, in front of all.
    pub(super) fn with(&self, after: Option<usize>, new: &[String]) -> String {
        let at = after.map_or(0, |number| number + 1).min(self.lines.len());
        let (head, tail) = self.lines.split_at(at);
        let mut text = head.concat();
        let ends_open = !text.is_empty() && !text.ends_with('\n');
        let added = new.join(self.newline);
        if ends_open {
            // The file lacks its last end of line, and keeps lacking it.
            text.push_str(self.newline);
            text.push_str(&added);
        } else {
            text.push_str(&added);
            text.push_str(self.newline);
        }
        text.push_str(&tail.concat());
        text
    }

    /// Puts lines at the end.
    pub(super) fn with_last(&self, new: &[String]) -> String {
        self.with(self.lines.len().checked_sub(1), new)
    }

    /// Replaces lines.
    pub(super) fn replaced(&self, old: RangeInclusive<usize>, new: &str) -> String {
        let (first, last) = (*old.start(), *old.end());
        let ending = if self.line(last).ends_with('\n') { self.newline } else { "" };
        let mut text = self.lines[..first].concat();
        text.push_str(new);
        text.push_str(ending);
        text.push_str(&self.lines.get(last + 1..).unwrap_or_default().concat());
        text
    }

    /// Takes lines out.
    pub(super) fn without(&self, gone: &BTreeSet<usize>) -> String {
        let kept = self.lines.iter().enumerate().filter(|(number, _)| !gone.contains(number));
        let mut text: String = kept.map(|(_, line)| *line).collect();
        let last = self.lines.len().saturating_sub(1);
        let was_open = self.lines.last().is_some_and(|line| !line.ends_with('\n'));
        if gone.contains(&last) && was_open {
            let length = text.trim_end_matches(['\r', '\n']).len();
            let ending = text[length..].find('\n').map_or(0, |_| if text.ends_with("\r\n") { 2 } else { 1 });
            text.truncate(text.len() - ending);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_and_out() {
        for text in ["", "a\n", "a", "a\r\nb\r\n", "a\r\nb", "\n\n", "a\n\n"] {
            let lines = Lines::of(text);
            let new = ["x".to_owned(), "y".to_owned()];
            let with = lines.with_last(&new);
            let count = Lines::of(&with).lines.len();
            let gone = BTreeSet::from([count - 2, count - 1]);
            assert_eq!(Lines::of(&with).without(&gone), text, "{with:?}");
            assert!(!with.replace("\r\n", "").contains('\r'));
        }
        assert_eq!(Lines::of("a\r\nb").with(Some(0), &["x".to_owned()]), "a\r\nx\r\nb");
        assert_eq!(Lines::of("a\nb\nc").replaced(1..=2, "x"), "a\nx");
        assert_eq!((Lines::of("a\nb").at(1), Lines::of("a\nb").at(2), Lines::of("a\nb").at(9)), (0, 1, 1));
    }
}
