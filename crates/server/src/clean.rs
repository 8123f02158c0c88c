//! What a program printed, as a terminal would show it, made safe to read: valid UTF-8, no terminal sequences, nothing
//! invisible.
//!
//! Output is an attack channel towards the model and towards whoever reads the transcript in a terminal. Sequences that
//! move and erase are carried out ([`screen`]), so that a progress bar is its last state and not a thousand; those that
//! only colour are dropped; whatever else would not be seen is written as `\u{..}`, so that it can be seen.
//!
//! The price: a program can overwrite what it printed before, as it can in any terminal. It can hide no more than that,
//! for where a terminal's own memory is in doubt (what scrolled away, a cleared screen) we keep the text; and the stream
//! as it came stays readable as a resource with `?raw`.

mod screen;
mod sequence;

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::{Map, Value};

/// Output of a program, as text.
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let moves = |byte: &u8| matches!(byte, b'\r' | 0x08 | 0x1b);
    if text.as_bytes().iter().any(moves) {
        return screen::show(&text);
    }
    match reveal(&text) {
        Cow::Borrowed(_) => text.into_owned(),
        Cow::Owned(revealed) => revealed,
    }
}

/// Content of a file, changed only where a character would not be seen. Borrowed when there is none.
pub(crate) fn reveal(text: &str) -> Cow<'_, str> {
    let mut before = None;
    let mut hidden = |c: char| {
        let hidden = c != '\r' && is_hidden(c, before);
        before = Some(c);
        hidden
    };
    if is_plain(text) || !text.chars().any(&mut hidden) {
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

/// Whether the text is nothing but printable ASCII, newlines and tabs, as most is. In pieces, without a branch for each
/// byte, so that it takes next to no time.
fn is_plain(text: &str) -> bool {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    text.as_bytes().chunks(64).all(|piece| piece.iter().fold(true, |all, byte| all & plain(byte)))
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
        ' '..='~' | '\n' | '\t' => false,
        // One joiner or variation selector belongs to emoji and to several scripts; a row of them carries a message.
        '\u{200c}' | '\u{200d}' => !before.is_some_and(|b| b == '\u{fe0f}' || !b.is_ascii() && is_visible(b)),
        '\u{fe00}'..='\u{fe0f}' => !before.is_some_and(is_visible),
        c => !is_visible(c),
    }
}

fn is_visible(c: char) -> bool {
    !c.is_control() && !is_invisible(c)
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A value with all its texts clean, keys too.
pub(crate) fn json(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean(text.as_bytes())),
        Value::Array(items) => items.iter().map(json).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (clean(key.as_bytes()), json(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
