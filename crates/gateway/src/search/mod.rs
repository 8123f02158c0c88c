//! Finding a tool by what it is for.
//!
//! ```text
//! catalogue ─ build ─▶ Index: stems ─▶ which tools, how much of each
//! query ─ query ─▶ groups: what was asked, each with its synonyms, beginnings and slips ─ score ─▶ hits, the best first
//! ```
//!
//! BM25 over weighted fields, no model: the same catalogue and query have the same answer on every machine. Deliberately
//! not here: what a signature looks like.

mod action;
mod build;
mod nearest;
mod note;
mod query;
mod render;
mod score;
mod synonyms;
mod words;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalogue::{Catalogue, Tool};

pub use self::note::{NOTE_TOKENS, catalogue_note};
pub use self::render::{Detail, render};

/// After so many, a hit that is worth less than this share of the best is none: every line of an answer costs whoever reads it.
const SURE: usize = 5;
const TAIL: f32 = 0.4;

/// An index of one catalogue. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Index(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tools: Vec<Entry>,
    /// By stem; the number is its place in `terms`.
    vocabulary: HashMap<String, u32>,
    terms: Vec<Term>,
    /// The places of all stems, in the order of their letters, and in that of their letters from behind.
    forward: Vec<u32>,
    backward: Vec<u32>,
    servers: Vec<ServerName>,
}

#[derive(Debug)]
struct Entry {
    tool: Arc<Tool>,
    /// Its place in [`Inner::servers`].
    server: u32,
    /// The stems of its name, each once.
    name: Vec<u32>,
    action: Option<action::Action>,
    /// Stems that follow each other in its name or in the first sentence on it.
    pairs: Vec<(u32, u32)>,
    /// The name in lower case without anything but letters and digits.
    plain: String,
}

#[derive(Debug, Default)]
struct Term {
    stem: String,
    /// Which tools have it, and how much of it, by the weights of the fields.
    tools: Vec<(u32, f32)>,
    /// How much it tells.
    rarity: f32,
}

#[derive(Debug)]
struct ServerName {
    /// Whether a query means this server when it has all of these words, and how surely: a server may be called `time`.
    words: Vec<String>,
    sure: f32,
}

#[derive(Debug, Clone)]
pub struct Hit {
    pub tool: Arc<Tool>,
    pub score: f32,
}

impl Index {
    pub fn new(catalogue: &Catalogue) -> Index {
        Index(Arc::new(build::build(catalogue)))
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.0.tools.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.tools.is_empty()
    }

    /// The best first; with `server` only that one's, by either of its names. An empty query matches everything, in the
    /// catalogue's order.
    pub fn search(&self, query: &str, server: Option<&str>, limit: usize) -> Vec<Hit> {
        let wanted = |entry: &Entry| {
            server.is_none_or(|server| entry.tool.server == server || entry.tool.server_ident == server)
        };
        let query = query::Query::new(&self.0, query);
        if query.is_empty() {
            let all = self.0.tools.iter().filter(|entry| wanted(entry));
            return all.take(limit).map(|entry| Hit { tool: Arc::clone(&entry.tool), score: 0.0 }).collect();
        }
        let mut found = score::score(&self.0, &query);
        found.retain(|(place, _)| wanted(&self.0.tools[*place as usize]));
        // By place where they are equal, which is the catalogue's order.
        found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        found.truncate(limit);
        let least = found.first().map_or(0.0, |(_, best)| best * TAIL);
        let worth = found.iter().skip(SURE).take_while(|(_, score)| *score >= least).count();
        found.truncate(SURE + worth);
        let hit = |(place, score): (u32, f32)| Hit { tool: Arc::clone(&self.0.tools[place as usize].tool), score };
        found.into_iter().map(hit).collect()
    }

    /// Names nearest to one that does not exist, for "did you mean".
    pub fn nearest(&self, name: &str, limit: usize) -> Vec<String> {
        nearest::nearest(&self.0, name, limit)
    }
}
