//! What was asked: the query's words, each with all that would do in its place.

use super::action::{self, Action};
use super::build::{cut, plain};
use super::words::{self, Text, one_apart, stem};
use super::{Inner, synonyms};

const QUERY_BYTES: usize = 1 << 10;
const QUERY_WORDS: usize = 32;
/// How many stems may stand for one word of the query.
const ALTERNATIVES: usize = 24;
const BEGINNING: f32 = 0.5;
const SLIP: f32 = 0.6;
/// What half of a two-word entry is worth alone.
const HALF: f32 = 0.3;
/// Shorter words begin too many others, and are other words with one letter changed.
const BEGINNING_BYTES: usize = 3;
const SLIP_BYTES: usize = 5;

pub(super) struct Query {
    pub(super) groups: Vec<Group>,
    /// Stems that follow each other.
    pub(super) pairs: Vec<(u32, u32)>,
    /// Names of servers in it, and how surely they are meant.
    pub(super) servers: Vec<(u32, f32)>,
    /// The whole of it, and each of its words that has signs in it: they may be names.
    pub(super) names: Vec<String>,
    pub(super) action: Option<Action>,
    words: usize,
}

/// One word, and what would do for it.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) terms: Vec<(u32, f32)>,
    /// How much it tells that a tool has it.
    pub(super) rarity: f32,
}

impl Query {
    pub(super) fn new(index: &Inner, text: &str) -> Query {
        let text = cut(text, QUERY_BYTES);
        let mut all: Vec<String> = Vec::new();
        words::split(text, Text::Prose, |word| all.push(word.to_owned()));
        all.truncate(QUERY_WORDS);
        let action = action::of(all.iter().map(String::as_str));
        let telling: Vec<&String> = all.iter().filter(|word| !words::is_stop(word)).collect();
        // Of "what is this" all words are asked for: better than nothing.
        let chosen = if telling.is_empty() { all.iter().collect() } else { telling };
        let mut stems: Vec<String> = chosen.iter().map(|word| stem(word)).collect();
        let words = stems.len();

        let place = |stem: &String| index.vocabulary.get(stem).copied();
        let pairs = stems.windows(2).filter_map(|pair| Some((place(&pair[0])?, place(&pair[1])?))).collect();
        let servers = (0_u32..).zip(&index.servers);
        let servers =
            servers.filter(|(_, server)| server.sure > 0.0 && server.words.iter().all(|word| stems.contains(word)));
        let servers = servers.map(|(place, server)| (place, server.sure)).collect();

        let mut names = vec![plain(text)];
        let signs = |word: &&str| word.contains(['_', '-', '.', '/']) || word.chars().skip(1).any(char::is_uppercase);
        names.extend(text.split_whitespace().filter(signs).take(QUERY_WORDS).map(plain));

        let mut groups = Vec::new();
        let mut at = 0;
        while at < stems.len() {
            let whole = stems.get(at + 1).and_then(|next| synonyms::table().pair(&stems[at], next));
            if let Some(whole) = whole.map(str::to_owned) {
                let mut group = Group::of(index, &whole);
                group.add(place(&stems[at]), HALF);
                group.add(place(&stems[at + 1]), HALF);
                groups.push(group.weighed(index));
                at += 2;
            } else {
                let stem = std::mem::take(&mut stems[at]);
                groups.push(Group::of(index, &stem).weighed(index));
                at += 1;
            }
        }
        Query { groups, pairs, servers, names, action, words }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words == 0
    }
}

impl Group {
    fn of(index: &Inner, stem: &str) -> Group {
        let mut group = Group::default();
        let itself = index.vocabulary.get(stem).copied();
        group.add(itself, 1.0);
        for (other, weight) in synonyms::table().of(stem) {
            group.add(index.vocabulary.get(other).copied(), *weight);
        }
        // Only words that nothing has are taken for beginnings or slips of others.
        if itself.is_none() {
            group.beginnings(index, stem);
            group.slips(index, stem);
        }
        group
    }

    fn add(&mut self, term: Option<u32>, weight: f32) {
        let Some(term) = term else { return };
        if let Some((_, known)) = self.terms.iter_mut().find(|(known, _)| *known == term) {
            *known = known.max(weight);
        } else if self.terms.len() < ALTERNATIVES {
            self.terms.push((term, weight));
        }
    }

    fn beginnings(&mut self, index: &Inner, stem: &str) {
        if stem.len() < BEGINNING_BYTES {
            return;
        }
        let from = index.forward.partition_point(|term| index.terms[*term as usize].stem.as_str() < stem);
        for term in &index.forward[from..] {
            let other = &index.terms[*term as usize].stem;
            if !other.starts_with(stem) || self.terms.len() >= ALTERNATIVES {
                break;
            }
            self.add(Some(*term), BEGINNING);
        }
    }

    /// One slip leaves either the first two letters or the last two, so only words that share either are looked at.
    fn slips(&mut self, index: &Inner, stem: &str) {
        if stem.len() < SLIP_BYTES || !stem.is_ascii() {
            return;
        }
        let start = &stem[..2];
        let from = index.forward.partition_point(|term| index.terms[*term as usize].stem.as_str() < start);
        for term in &index.forward[from..] {
            let other = &index.terms[*term as usize].stem;
            if !other.starts_with(start) {
                break;
            }
            if one_apart(stem, other) {
                self.add(Some(*term), SLIP);
            }
        }
        let end: Vec<u8> = stem.bytes().rev().take(2).collect();
        let reversed = |term: u32| index.terms[term as usize].stem.bytes().rev();
        let from = index.backward.partition_point(|term| reversed(*term).lt(end.iter().copied()));
        for term in &index.backward[from..] {
            if !reversed(*term).take(2).eq(end.iter().copied()) {
                break;
            }
            if one_apart(stem, &index.terms[*term as usize].stem) {
                self.add(Some(*term), SLIP);
            }
        }
    }

    /// A word tells as much as it is rare; one that stands for it, never more.
    fn weighed(mut self, index: &Inner) -> Group {
        let rarity = |term: u32| index.terms[term as usize].rarity;
        self.rarity = match self.terms.first() {
            Some((term, 1.0)) => rarity(*term),
            _ => self.terms.iter().map(|(term, weight)| rarity(*term) * weight).fold(0.0, f32::max),
        };
        self
    }
}
