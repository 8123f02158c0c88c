//! Other people's text, made safe to show: nothing invisible, nothing that a terminal would obey, and not too much of it.

use std::fmt::Write;

use super::Dialect;

/// Bytes of a tool's description, or of a server's instructions.
pub(super) const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Bytes of a parameter's description.
pub(super) const PARAMETER_BYTES_MAX: usize = 1024;

/// The text without terminal sequences and without what nobody can see, cut after so many bytes with a note on how much is
/// missing.
pub fn clean(text: &str, bytes_max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(bytes_max));
    let mut chars = text.chars().peekable();
    let mut left_out = 0_usize;
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => skip_escape(&mut chars),
            '\u{9b}' => skip_control_sequence(&mut chars),
            c if is_hidden(c) => {}
            c if left_out > 0 || out.len() + c.len_utf8() > bytes_max => left_out += 1,
            c => out.push(c),
        }
    }
    let kept = out.trim_end().len();
    out.truncate(kept);
    if left_out > 0 {
        // Writing to a String cannot fail.
        let _ = write!(out, "… ({left_out} more characters left out)");
    }
    out
}

/// The same, on one line.
pub(super) fn line(text: &str, bytes_max: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    clean(&words.join(" "), bytes_max)
}

/// At most so many characters, the last of them an ellipsis if there were more.
pub(super) fn cut(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(characters_max.saturating_sub(1)).collect();
    short.push('…');
    short
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_control_sequence(chars);
        }
        // Strings for the terminal: titles, links. They end with a bell or with `ESC \`, and what is in them is not text.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(c) = chars.next() {
                if c == '\x07' || c == '\u{9c}' {
                    break;
                }
                if c == '\x1b' {
                    chars.next_if_eq(&'\\');
                    break;
                }
            }
        }
        Some(' '..='/') => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
        }
        Some('0'..='~') => drop(chars.next()),
        _ => {}
    }
}

fn skip_control_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// Whether a reader would not see the character, or would be misled by it. Joiners and variation selectors go as well: an
/// emoji that falls into its parts harms nobody, a row of selectors is a hidden message.
pub(super) fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' | ' '..='~' => false,
        c if c.is_control() => true,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{1d173}'..='\u{1d17a}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}' => true,
        c => u32::from(c) & 0xfffe == 0xfffe || matches!(c, '\u{fdd0}'..='\u{fdef}'),
    }
}

/// A string as either language writes it. Whatever is not seen is written as an escape.
pub(super) fn quoted(text: &str, dialect: Dialect) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            '\n' => write!(out, "\\n"),
            '\t' => write!(out, "\\t"),
            c if !is_hidden(c) => write!(out, "{c}"),
            c => match (u32::from(c), dialect) {
                (code @ ..=0xffff, _) => write!(out, "\\u{code:04x}"),
                (code, Dialect::Python) => write!(out, "\\U{code:08x}"),
                (code, Dialect::TypeScript) => write!(out, "\\u{{{code:x}}}"),
            },
        };
    }
    out.push('"');
    out
}

/// JSON with escapes in place of what nobody can see. The value is the same: such characters only occur inside of strings.
pub(super) fn visible_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut units = [0; 2];
    let mut rest = json;
    while let Some(at) = rest.find(is_hidden) {
        out.push_str(&rest[..at]);
        let mut chars = rest[at..].chars();
        for unit in chars.next().into_iter().flat_map(|c| c.encode_utf16(&mut units).to_vec()) {
            let _ = write!(out, "\\u{unit:04x}");
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}
