//! Long text cut to a budget: its head, its tail, and a line that says what is missing and where it is.

use super::on_new_line;
use crate::clean;

#[derive(Debug)]
pub(super) struct Shortened {
    pub(super) text: String,
    pub(super) cut: bool,
    pub(super) uri: Option<String>,
}

/// A stream as clean text of about `budget` bytes: all of it, or its head and its tail.
pub(super) fn shorten(bytes: &[u8], budget: usize, uri: impl FnOnce() -> Option<String>) -> Shortened {
    // Cleaning can shrink a stream (colours) and grow it (NULs); only what can be shown is worth cleaning.
    let window = budget * 4;
    let (head, tail) = if bytes.len() <= 2 * window {
        (clean::clean(bytes), None)
    } else {
        let (head, tail) = (&bytes[..window], &bytes[bytes.len() - window..]);
        let tail = &tail[tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()..];
        (clean::clean(head), Some(clean::clean(tail)))
    };
    if tail.is_none() && head.len() <= budget {
        return Shortened { text: head, cut: false, uri: None };
    }
    let head_shown = head_of(&head, budget / 2);
    let tail_shown = tail_of(tail.as_deref().unwrap_or(&head), budget / 2);
    // Of the text as it is shown, where all of it was made; else of the stream, which is longer by far.
    let whole = if tail.is_none() { head.len() } else { bytes.len() };
    let left_out = whole.saturating_sub(head_shown.len() + tail_shown.len());
    let uri = uri();
    let mut text = head_shown.to_owned();
    let place = uri.as_ref().map(|uri| format!("; whole output: {uri}")).unwrap_or_default();
    on_new_line(&mut text, &format!("... [{left_out} bytes left out{place}] ...\n"));
    text.push_str(tail_shown);
    Shortened { text, cut: true, uri }
}

/// The first `budget` bytes or a little less, up to the end of a line if one is near.
fn head_of(text: &str, budget: usize) -> &str {
    let end = text.floor_char_boundary(budget);
    let near = text.floor_char_boundary(budget - budget / 4);
    match text[near..end].rfind('\n') {
        Some(at) => &text[..near + at + 1],
        None => &text[..end],
    }
}

/// The last `budget` bytes or a little less, from the beginning of a line if one is near.
fn tail_of(text: &str, budget: usize) -> &str {
    let start = text.ceil_char_boundary(text.len().saturating_sub(budget));
    let near = text.ceil_char_boundary((start + budget / 4).min(text.len()));
    match text[start..near].find('\n') {
        Some(at) => &text[start + at + 1..],
        None => &text[start..],
    }
}

/// Text that is clean already, cut in the same way to at most `budget` bytes.
pub(crate) fn shorten_text(text: &str, budget: usize) -> String {
    if text.len() <= budget {
        return text.to_owned();
    }
    const MARK: usize = "\n... [18446744073709551615 bytes left out] ...\n".len();
    let half = budget.saturating_sub(MARK) / 2;
    let (head, tail) = (head_of(text, half), tail_of(text, half));
    let mut short = head.to_owned();
    on_new_line(&mut short, &format!("... [{} bytes left out] ...\n", text.len() - head.len() - tail.len()));
    short.push_str(tail);
    short
}
