//! What `search_tools` prints.

use std::fmt::Write as _;

use super::Hit;
use super::build::{cut, first_sentence};
use crate::catalogue::Tool;
use crate::stubs::{self, Dialect};

/// How much is said of each tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    Names,
    #[default]
    Signatures,
    Full,
}

impl Detail {
    /// By the word that callers use; `None` if it is none of the three.
    pub fn named(word: &str) -> Option<Detail> {
        match word {
            "names" => Some(Detail::Names),
            "signatures" => Some(Detail::Signatures),
            "full" => Some(Detail::Full),
            _ => None,
        }
    }
}

/// What an answer may have, unless the caller says otherwise.
const OUTPUT_BYTES: usize = 16 << 10;
const SUMMARY_BYTES: usize = 160;
/// Kept for the last line.
const FOOTER_BYTES: usize = 160;

/// The hits as text, within [`OUTPUT_BYTES`]. `total` is how many there were before the limit.
pub fn render(hits: &[Hit], detail: Detail, dialect: Dialect, total: usize) -> String {
    render_within(hits, detail, dialect, total, OUTPUT_BYTES)
}

/// The same within another bound. A stub is printed whole or not at all: from the first that has no room on, names.
pub(super) fn render_within(hits: &[Hit], detail: Detail, dialect: Dialect, total: usize, bytes: usize) -> String {
    if hits.is_empty() {
        return "No tool matches; use other words, or an empty query for all of them.".to_owned();
    }
    let room = bytes.saturating_sub(FOOTER_BYTES);
    let mut text = String::new();
    let mut detail = detail;
    let mut printed = 0;
    let mut shortened = false;
    for hit in hits {
        let mut block = block(&hit.tool, detail, dialect);
        if text.len() + block.len() > room && detail == Detail::Full {
            (detail, shortened) = (Detail::Names, true);
            block = self::block(&hit.tool, detail, dialect);
        }
        if text.len() + block.len() > room {
            break;
        }
        text.push_str(&block);
        printed += 1;
    }
    let total = total.max(hits.len());
    if printed < total {
        let _ = write!(text, "{printed} of {total} tools; narrow the query, or ask for detail=\"full\" of fewer");
    } else if shortened {
        text.push_str("The last ones by name only: ask for detail=\"full\" of fewer");
    }
    text.truncate(text.trim_end().len());
    text
}

fn block(tool: &Tool, detail: Detail, dialect: Dialect) -> String {
    let head = match detail {
        Detail::Names => tool.path(),
        Detail::Signatures => stubs::signature(tool, dialect),
        Detail::Full => return format!("{}\n\n", stubs::stub(tool, dialect).trim_end()),
    };
    let summary = summary(&tool.description);
    if summary.is_empty() { format!("{head}\n") } else { format!("{head} — {summary}\n") }
}

/// The first sentence of a description, on one line.
pub(super) fn summary(description: &str) -> String {
    let (first, _) = first_sentence(cut(description, 8 * SUMMARY_BYTES));
    let mut line = String::new();
    for word in first.split_whitespace() {
        if line.len() + word.len() + 1 > SUMMARY_BYTES {
            line.push('…');
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line.truncate(line.trim_end_matches('.').len());
    line
}
