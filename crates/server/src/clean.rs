//! What a program printed, made safe to read: valid UTF-8, no terminal sequences, nothing invisible.
//!
//! Output is an attack channel towards the model and towards whoever reads the transcript in a terminal. Sequences that
//! only colour or move are dropped; whatever else would not be seen is written as `\u{..}`, so that it can be seen.

use std::borrow::Cow;
use std::fmt::Write;

/// How far to look for the end of a terminal string (OSC, DCS and their kin). One that never ends would otherwise
/// swallow the rest of the output.
const STRING_CHARS_MAX: usize = 4096;

const ESCAPE: char = '\u{1b}';

/// Output of a program, as text.
pub(crate) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if c == ESCAPE
            && let Some(length) = sequence_length(after)
        {
            rest = &after[length..];
            continue;
        }
        rest = after;
        match c {
            '\r' if after.starts_with('\n') => {}
            '\r' => out.push('\n'),
            c => show(c, before, &mut out),
        }
        before = Some(c);
    }
    out
}

/// Content of a file, changed only where a character would not be seen. Borrowed when there is none.
pub(crate) fn reveal(text: &str) -> Cow<'_, str> {
    let mut before = None;
    let hidden = text.chars().any(|c| {
        let hidden = c != '\r' && is_hidden(c, before);
        before = Some(c);
        hidden
    });
    if !hidden {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut before = None;
    for c in text.chars() {
        if c == '\r' {
            out.push(c)
        } else {
            show(c, before, &mut out)
        }
        before = Some(c);
    }
    Cow::Owned(out)
}

fn show(c: char, before: Option<char>, out: &mut String) {
    if is_hidden(c, before) {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
    } else {
        out.push(c);
    }
}

/// Whether a reader would not see the character, or would be misled by it.
fn is_hidden(c: char, before: Option<char>) -> bool {
    match c {
        '\n' | '\t' => false,
        // One joiner or variation selector belongs to emoji and to several scripts; a row of them carries a message.
        '\u{200c}' | '\u{200d}' => !before.is_some_and(|b| b == '\u{fe0f}' || !b.is_ascii() && !is_invisible(b)),
        '\u{fe00}'..='\u{fe0f}' => !before.is_some_and(|b| !b.is_control() && !is_invisible(b)),
        c => c.is_control() || is_invisible(c),
    }
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The length of the terminal sequence that `text`, which follows an ESC, begins with (ECMA-48). `None` when it is none.
fn sequence_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    match *bytes.first()? {
        b'[' => {
            let parameters = count(&bytes[1..], 0x30..=0x3f);
            let intermediates = count(&bytes[1 + parameters..], 0x20..=0x2f);
            let end = 1 + parameters + intermediates;
            matches!(bytes.get(end), Some(0x40..=0x7e)).then_some(end + 1)
        }
        b']' | b'P' | b'X' | b'^' | b'_' => string_length(text),
        0x20..=0x2f => {
            let intermediates = count(bytes, 0x20..=0x2f);
            matches!(bytes.get(intermediates), Some(0x30..=0x7e)).then_some(intermediates + 1)
        }
        0x30..=0x7e => Some(1),
        _ => None,
    }
}

fn count(bytes: &[u8], range: std::ops::RangeInclusive<u8>) -> usize {
    bytes.iter().take_while(|byte| range.contains(byte)).count()
}

/// A string sequence ends with BEL or ESC \. A newline in it says that it was never one.
fn string_length(text: &str) -> Option<usize> {
    for (at, c) in text.char_indices().take(STRING_CHARS_MAX) {
        match c {
            '\u{7}' | '\u{9c}' => return Some(at + c.len_utf8()),
            ESCAPE => return text[at + 1..].starts_with('\\').then_some(at + 2),
            '\n' => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> String {
        clean(text.as_bytes())
    }

    #[test]
    fn plain_text_stays() {
        for text in
            ["", "hello\n", "a\tb\n", "naïve — 日本語 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}\n", "می\u{200c}خواهم"]
        {
            assert_eq!(cleaned(text), text);
        }
    }

    #[test]
    fn line_ends_become_newlines() {
        assert_eq!(cleaned("a\r\nb\rc\r"), "a\nb\nc\n");
        assert_eq!(cleaned("10%\r20%\r\n"), "10%\n20%\n");
    }

    #[test]
    fn terminal_sequences_go() {
        assert_eq!(cleaned("\x1b[31mred\x1b[0m \x1b[1;38;5;200mx\x1b[K\x1b[2J\x1b[?25l"), "red x");
        assert_eq!(cleaned("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b"), "alinkb");
        assert_eq!(cleaned("\x1bPq#0\x1b\\a\x1b_apc\x1b\\b\x1b(Bc\x1b7d\x1bMe"), "abcde");
    }

    #[test]
    fn a_sequence_that_never_ends_hides_nothing() {
        assert_eq!(cleaned("\x1b]0;title\nall of this\n"), "\\u{1b}]0;title\nall of this\n");
        assert_eq!(cleaned("\x1b[31"), "\\u{1b}[31");
        assert_eq!(cleaned("x\x1b"), "x\\u{1b}");
        let long = format!("\x1b]{}", "a".repeat(10_000));
        assert!(cleaned(&long).ends_with(&"a".repeat(10_000)));
    }

    #[test]
    fn what_cannot_be_seen_is_shown() {
        assert_eq!(cleaned("a\0b\x08c\x7f"), "a\\u{0}b\\u{8}c\\u{7f}");
        assert_eq!(cleaned("\u{9b}31m\u{85}"), "\\u{9b}31m\\u{85}");
        assert_eq!(cleaned("abc\u{202e}fed\u{2066}"), "abc\\u{202e}fed\\u{2066}");
        assert_eq!(cleaned("\u{e0041}\u{e007f}\u{e0100}"), "\\u{e0041}\\u{e007f}\\u{e0100}");
        assert_eq!(cleaned("a\u{200b}b\u{feff}\u{ad}"), "a\\u{200b}b\\u{feff}\\u{ad}");
        assert_eq!(cleaned("a\u{200d}b"), "a\\u{200d}b");
        assert_eq!(cleaned("😀\u{fe01}\u{fe02}"), "😀\u{fe01}\\u{fe02}");
        assert_eq!(cleaned("日\u{200d}\u{200c}"), "日\u{200d}\\u{200c}");
    }

    #[test]
    fn bytes_that_are_not_text_become_replacement_characters() {
        assert_eq!(clean(b"a\xff\xfeb\xc3"), "a\u{fffd}\u{fffd}b\u{fffd}");
    }

    #[test]
    fn a_file_keeps_its_line_ends_and_its_sequences_are_shown() {
        assert!(matches!(reveal("a\r\nb\n"), Cow::Borrowed("a\r\nb\n")));
        assert_eq!(reveal("\x1b[31m\r\n\u{202e}"), "\\u{1b}[31m\r\n\\u{202e}");
    }

    #[test]
    fn every_character_alone_is_either_kept_or_shown() {
        for c in '\0'..=char::MAX {
            let out = cleaned(&c.to_string());
            assert!(!out.is_empty(), "{c:?}");
            assert!(!out.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{c:?} gave {out:?}");
        }
    }
}
