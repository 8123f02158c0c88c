//! Tables for people: at most a hundred columns, and nothing in them that a terminal would obey.

use std::time::Duration;

/// A text in one line of at most `width` characters. Names come from callers, and may hold anything.
pub(super) fn cell(text: &str, width: usize) -> String {
    let clean = belljar_server::clean(text.as_bytes());
    let mut chars = clean.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    let mut cell: String = chars.by_ref().take(width).collect();
    if chars.next().is_some() {
        cell.pop();
        cell.push('…');
    }
    cell
}

/// A time as few characters as a person needs.
pub(super) fn time(ms: u64) -> String {
    let time = Duration::from_millis(ms);
    match time.as_secs() {
        0 => format!("{ms} ms"),
        seconds @ 1..=99 => format!("{seconds} s"),
        seconds @ 100..=5_999 => format!("{} min", seconds / 60),
        seconds @ 6_000..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// `1 run`, `2 runs`.
pub(super) fn count(number: u64, word: &str) -> String {
    let more = if word.ends_with('x') { "es" } else { "s" };
    format!("{number} {word}{}", if number == 1 { "" } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_that_nothing_obeys() {
        assert_eq!(cell("plain", 10), "plain");
        assert_eq!(cell("a\nb\tc", 10), "a b c");
        assert_eq!(cell("abcdefghijk", 5), "abcd…");
        for hostile in ["\u{1b}[2J\u{1b}[31mred", "\u{7}bell", "\u{202e}rtl", "\u{9b}31m"] {
            let cell = cell(hostile, 40);
            assert!(!cell.chars().any(|c| c.is_control() || c == '\u{202e}'), "{cell:?}");
        }
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([time(5), time(1500), time(120_000), time(7_200_000)], ["5 ms", "1 s", "2 min", "2 h"]);
        assert_eq!([count(1, "run"), count(0, "sandbox"), count(2, "run")], ["1 run", "0 sandboxes", "2 runs"]);
    }
}
