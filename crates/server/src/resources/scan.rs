//! Lines out of a text that comes in pieces, by their numbers or by a pattern.

use std::collections::VecDeque;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};

use super::query::{self, BYTES_MAX, Pattern};
use crate::clean;

/// What [`Grep`] shows at most.
const MATCHES_MAX: usize = 1000;
const SHOWN_BYTES_MAX: usize = 200_000;
/// A longer line is shown in part, around what matches.
const LINE_BYTES_SHOWN: usize = 1000;
/// A longer line is searched in pieces of this length.
const LINE_BYTES_MAX: usize = 128 * 1024;
/// A pattern can be made to take long for each byte, though never longer for each further one.
const TIME_MAX: Duration = Duration::from_secs(5);
/// What a compiled pattern may take. It bounds the time for each byte.
const REGEX_BYTES_MAX: usize = 256 * 1024;

/// The lines of a text between two numbers.
#[derive(Debug)]
pub(super) struct Picker {
    first: u64,
    last: u64,
    /// The line that the next byte belongs to, and whether it has any yet.
    line: u64,
    begun: bool,
    picked: Vec<u8>,
    cut: bool,
}

impl Picker {
    pub(super) fn new(first: u64, last: u64) -> Picker {
        Picker { first, last, line: 1, begun: false, picked: Vec::new(), cut: false }
    }

    /// `Break` when nothing that follows matters.
    pub(super) fn feed(&mut self, piece: &[u8]) -> ControlFlow<()> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line >= self.first {
                let room = (BYTES_MAX as usize).saturating_sub(self.picked.len());
                self.cut = part.len() > room;
                self.picked.extend_from_slice(&part[..part.len().min(room)]);
                if self.cut {
                    return ControlFlow::Break(());
                }
            }
            self.begun = true;
            if part.ends_with(b"\n") {
                self.line += 1;
                self.begun = false;
            }
            if self.line > self.last {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    pub(super) fn has_any(&self) -> bool {
        !self.picked.is_empty()
    }

    pub(super) fn into_text(self) -> String {
        let lines = if self.begun { self.line } else { self.line - 1 };
        if self.picked.is_empty() {
            return format!("(there is no line {}; it has {lines})", self.first);
        }
        let mut text = clean::reveal(&String::from_utf8_lossy(&self.picked)).into_owned();
        if self.cut {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n[cut here, in line {}, at {BYTES_MAX} bytes; ask for fewer lines]", self.line);
        }
        text
    }
}

/// The last `count` lines of a text, of which `bytes` is the end. `None` when more of it would be needed.
pub(super) fn last_lines(bytes: &[u8], count: u64, is_whole: bool) -> Option<&[u8]> {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut newlines = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let nth = usize::try_from(count - 1).unwrap_or(usize::MAX);
    match newlines.nth(nth) {
        Some((at, _)) => Some(&bytes[at + 1..]),
        None => is_whole.then_some(bytes),
    }
}

#[derive(Debug)]
enum Matcher {
    Substring(String),
    Regex(Regex),
}

impl Matcher {
    /// Where in the line it begins.
    fn find(&self, line: &str) -> Option<usize> {
        match self {
            Matcher::Substring(pattern) => line.find(pattern.as_str()),
            Matcher::Regex(regex) => regex.find(line).map(|found| found.start()),
        }
    }
}

/// The lines of a text that match a pattern, with their numbers, as `grep -n` shows them.
#[derive(Debug)]
pub(super) struct Grep {
    matcher: Matcher,
    context: usize,
    until: Instant,
    /// The number of the line that is being read, and what came of it so far.
    line: u64,
    unread: Vec<u8>,
    /// Lines before this one that may be context.
    before: VecDeque<(u64, String)>,
    /// How many lines from here on are context of one before.
    after: usize,
    last_shown: u64,
    out: String,
    matches: usize,
    more: u64,
    out_of_time: bool,
}

impl Grep {
    pub(super) fn new(query: &query::Grep) -> Result<Grep, String> {
        let matcher = match query.kind {
            Pattern::Substring => Matcher::Substring(query.pattern.clone()),
            Pattern::Regex => {
                let mut builder = RegexBuilder::new(&query.pattern);
                let built = builder.size_limit(REGEX_BYTES_MAX).dfa_size_limit(4 * REGEX_BYTES_MAX).build();
                Matcher::Regex(built.map_err(|error| {
                    match error {
                    regex::Error::CompiledTooBig(_) => {
                        "the pattern is too large a machine; use fewer repetitions, or (?-u) for ASCII only".to_owned()
                    }
                    _ => "the pattern is no regular expression of Rust's regex crate, which has no look-around and no \
                          back-references; correct it, or leave out regex=1"
                        .to_owned(),
                }
                })?)
            }
        };
        Ok(Grep {
            matcher,
            context: query.context,
            until: Instant::now() + TIME_MAX,
            line: 1,
            unread: Vec::new(),
            before: VecDeque::new(),
            after: 0,
            last_shown: 0,
            out: String::new(),
            matches: 0,
            more: 0,
            out_of_time: false,
        })
    }

    /// `Break` when it took too long.
    pub(super) fn feed(&mut self, piece: &[u8]) -> ControlFlow<()> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            for part in part.chunks(LINE_BYTES_MAX) {
                self.unread.extend_from_slice(part);
                let is_line = part.ends_with(b"\n");
                if !is_line && self.unread.len() < LINE_BYTES_MAX {
                    continue;
                }
                let unread = std::mem::take(&mut self.unread);
                self.take(unread.strip_suffix(b"\n").unwrap_or(&unread));
                self.unread = unread;
                self.unread.clear();
                self.line += u64::from(is_line);
                if Instant::now() > self.until {
                    self.out_of_time = true;
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.strip_suffix('\r').unwrap_or(&line);
        match self.matcher.find(line) {
            Some(_) if self.is_full() => self.more += 1,
            Some(at) => {
                for (number, text) in std::mem::take(&mut self.before) {
                    self.show(number, '-', &text);
                }
                self.show(self.line, ':', &around(line, at));
                self.matches += 1;
                self.after = self.context;
            }
            None if self.is_full() || self.context == 0 => {}
            None if self.after > 0 => {
                self.after -= 1;
                self.show(self.line, '-', &around(line, 0));
            }
            None => {
                if self.before.len() == self.context {
                    self.before.pop_front();
                }
                self.before.push_back((self.line, around(line, 0)));
            }
        }
    }

    fn is_full(&self) -> bool {
        self.matches >= MATCHES_MAX || self.out.len() >= SHOWN_BYTES_MAX
    }

    fn show(&mut self, number: u64, mark: char, text: &str) {
        if self.context > 0 && self.last_shown > 0 && number > self.last_shown + 1 {
            self.out.push_str("--\n");
        }
        self.last_shown = number;
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "{number}{mark}{text}");
    }

    /// `reached` says where the search ended, if that was before the end of the text.
    pub(super) fn into_text(mut self, reached: Option<u64>) -> String {
        if !self.unread.is_empty() && !self.out_of_time {
            let unread = std::mem::take(&mut self.unread);
            self.take(&unread);
        }
        if self.matches == 0 {
            self.out.push_str("(no line matches)\n");
        }
        if self.more > 0 {
            let _ = writeln!(self.out, "[{} more lines match; give a narrower pattern]", self.more);
        }
        if self.out_of_time {
            let _ = writeln!(
                self.out,
                "[stopped in line {} after {} s; give a simpler pattern]",
                self.line,
                TIME_MAX.as_secs()
            );
        }
        if let Some(reached) = reached {
            let _ = writeln!(self.out, "[searched the first {reached} bytes only; search the rest with exec and grep]");
        }
        self.out
    }
}

/// A line as it is shown: whole, or the part around a place in it.
fn around(line: &str, at: usize) -> String {
    if line.len() <= LINE_BYTES_SHOWN {
        return clean::reveal(line).into_owned();
    }
    let start = line.floor_char_boundary(at.saturating_sub(LINE_BYTES_SHOWN / 4));
    let end = line.floor_char_boundary(start + LINE_BYTES_SHOWN);
    let (head, tail) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{head}{}{tail}", clean::reveal(&line[start..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(text: &str, first: u64, last: u64, piece: usize) -> String {
        let mut picker = Picker::new(first, last);
        for piece in text.as_bytes().chunks(piece) {
            if picker.feed(piece).is_break() {
                break;
            }
        }
        picker.into_text()
    }

    #[test]
    fn lines_are_picked_however_the_text_comes() {
        let text = "one\ntwo é\n\nfour";
        for piece in 1..20 {
            assert_eq!(picked(text, 1, 1, piece), "one\n");
            assert_eq!(picked(text, 2, 3, piece), "two é\n\n");
            assert_eq!(picked(text, 4, 9, piece), "four");
            assert_eq!(picked(text, 5, 5, piece), "(there is no line 5; it has 4)");
            assert_eq!(picked("a\n", 2, 5, piece), "(there is no line 2; it has 1)");
        }
        let long = "x".repeat(BYTES_MAX as usize + 5);
        let cut = picked(&format!("a\n{long}\n"), 2, 9, 1 << 20);
        assert!(cut.len() < BYTES_MAX as usize + 200 && cut.contains("[cut here, in line 2"));
    }

    #[test]
    fn the_last_lines_are_counted_from_the_end() {
        let text = b"a\nb\nc\n";
        assert_eq!(last_lines(text, 1, true), Some(&b"c\n"[..]));
        assert_eq!(last_lines(text, 2, false), Some(&b"b\nc\n"[..]));
        assert_eq!(last_lines(text, 3, true), Some(&text[..]));
        assert_eq!(last_lines(text, 3, false), None, "the first of them may begin earlier");
        assert_eq!(last_lines(b"a\nb", 1, true), Some(&b"b"[..]));
        assert_eq!(last_lines(b"", u64::MAX, true), Some(&b""[..]));
    }

    fn found(text: &str, pattern: &str, kind: Pattern, context: usize, piece: usize) -> String {
        let mut grep = Grep::new(&query::Grep { pattern: pattern.into(), kind, context }).unwrap();
        for piece in text.as_bytes().chunks(piece) {
            assert!(grep.feed(piece).is_continue());
        }
        grep.into_text(None)
    }

    #[test]
    fn lines_that_match_are_found_with_their_numbers() {
        let text = "one\ntwo\nthree\nfour\nfive\nsix\nsevën";
        for piece in 1..40 {
            assert_eq!(found(text, "t", Pattern::Substring, 0, piece), "2:two\n3:three\n");
            assert_eq!(found(text, "o", Pattern::Substring, 1, piece), "1:one\n2:two\n3-three\n4:four\n5-five\n");
            assert_eq!(found(text, "^[st]", Pattern::Regex, 0, piece), "2:two\n3:three\n6:six\n7:sevën\n");
            assert_eq!(
                found(text, "^(one|six)$", Pattern::Regex, 1, piece),
                "1:one\n2-two\n--\n5-five\n6:six\n7-sevën\n"
            );
            assert_eq!(found(text, ".", Pattern::Substring, 0, piece), "(no line matches)\n");
        }
        assert_eq!(found("a\x1b[2J\u{202e}b\r\n", "b", Pattern::Substring, 0, 9), "1:a\\u{1b}[2J\\u{202e}b\n");
    }

    #[test]
    fn what_is_found_is_bounded() {
        let text = "match\n".repeat(5000);
        let found_in_many = found(&text, "match", Pattern::Substring, 3, 1000);
        assert_eq!(found_in_many.lines().filter(|line| line.ends_with(":match")).count(), 1000);
        assert!(found_in_many.ends_with("[4000 more lines match; give a narrower pattern]\n"), "{found_in_many:?}");
        let wide = format!("{}needle{}\n", "é".repeat(100_000), "y".repeat(100_000));
        let found_in_wide = found(&wide.repeat(500), "needle", Pattern::Substring, 0, 1 << 16);
        assert!(found_in_wide.len() < SHOWN_BYTES_MAX + 2 * LINE_BYTES_SHOWN, "{}", found_in_wide.len());
        assert!(found_in_wide.starts_with("1:…é") && found_in_wide.contains("éneedley"));
    }

    #[test]
    fn hostile_patterns_are_refused_or_end() {
        let grep =
            |pattern: &str| Grep::new(&query::Grep { pattern: pattern.into(), kind: Pattern::Regex, context: 0 });
        for pattern in ["(", "(?=a)", "(a)\\1", "((((a{100}){100}){100}){100})", "\\w{1000}", &"(".repeat(999)] {
            assert!(grep(pattern).is_err(), "{pattern:?}");
        }
        assert!(grep("(?i)\\berror\\b.*\\w+\\d{1,3}").is_ok());
        let mut slow = grep("(a?){100}(a|aa)+$").unwrap();
        slow.until = Instant::now();
        let text = format!("{}b\n", "a".repeat(LINE_BYTES_MAX));
        while slow.feed(text.as_bytes()).is_continue() {}
        assert!(slow.into_text(None).contains("[stopped in line 1 after 5 s"));
    }
}
