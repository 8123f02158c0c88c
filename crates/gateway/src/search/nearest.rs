//! Which tool was meant by a name that none has.

use super::Inner;
use super::build::{cut, plain};
use super::words::{self, Text, stem};

const NAME_BYTES: usize = 128;
/// Less alike than this was not meant.
const ALIKE: f32 = 0.5;
/// What it is worth that the server is the one that was named.
const SERVER: f32 = 0.15;

/// `server.tool` of each, the nearest first.
pub(super) fn nearest(index: &Inner, name: &str, limit: usize) -> Vec<String> {
    let name = cut(name, NAME_BYTES);
    let (server, tool) = match name.rsplit_once(['.', '/']) {
        Some((server, tool)) => (plain(server), tool),
        None => (String::new(), name),
    };
    let (letters, stems) = (plain(tool), stems(tool));
    let mut found: Vec<(f32, usize)> = Vec::new();
    for (place, entry) in index.tools.iter().enumerate() {
        let named = plain(&entry.tool.server_ident);
        // Some write the server into the name: `github_create_issue`.
        let prefixed = letters.strip_prefix(named.as_str()).filter(|rest| !rest.is_empty());
        let by_letters = [Some(letters.as_str()), prefixed].into_iter().flatten();
        let by_letters = by_letters.map(|letters| alike(letters, &entry.plain)).fold(0.0, f32::max);
        let by_words =
            shared(&stems, &entry.name.iter().map(|stem| &index.terms[*stem as usize].stem).collect::<Vec<_>>());
        let mut score = by_letters.max(by_words * 0.95);
        if score >= ALIKE {
            let same = !server.is_empty() && server == named || prefixed.is_some();
            score += if same { SERVER } else { 0.0 };
            found.push((score, place));
        }
    }
    found.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    found.truncate(limit);
    found.into_iter().map(|(_, place)| index.tools[place].tool.path()).collect()
}

fn stems(name: &str) -> Vec<String> {
    let mut stems = Vec::new();
    words::split(name, Text::Identifier, |word| stems.push(stem(word)));
    stems.dedup();
    stems
}

/// From 0 to 1, by the words that both have.
fn shared(left: &[String], right: &[&String]) -> f32 {
    let both = left.iter().filter(|word| right.contains(word)).count();
    2.0 * both as f32 / (left.len() + right.len()).max(1) as f32
}

/// From 0 to 1, by the letters that would have to be changed. Names are bounded, and so is the work.
fn alike(left: &str, right: &str) -> f32 {
    let (left, right): (Vec<char>, Vec<char>) =
        (left.chars().take(NAME_BYTES).collect(), right.chars().take(NAME_BYTES).collect());
    let longest = left.len().max(right.len());
    if longest == 0 || left.len().abs_diff(right.len()) * 2 > longest {
        return 0.0;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (down, one) in left.iter().enumerate() {
        let mut corner = row[0];
        row[0] = down + 1;
        for (across, other) in right.iter().enumerate() {
            let changed = corner + usize::from(one != other);
            corner = row[across + 1];
            row[across + 1] = changed.min(row[across] + 1).min(corner + 1);
        }
    }
    1.0 - row[right.len()] as f32 / longest as f32
}
