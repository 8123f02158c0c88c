//! An index of a catalogue. Everything in it is somebody else's text, so each field has a bound.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::words::{self, Text, stem};
use super::{Entry, Inner, ServerName, Term};
use super::{action, synonyms};
use crate::catalogue::{Catalogue, Tool};

/// How much a word counts in each field, and how much a long field is held against it.
#[derive(Debug, Clone, Copy)]
struct Field {
    weight: f32,
    length: f32,
}

const FIELDS: [Field; 7] = [NAME, SERVER, TITLE, FIRST, REST, PARAMETERS, PARAMETER_TEXT];
const NAME: Field = Field { weight: 2.0, length: 0.5 };
const SERVER: Field = Field { weight: 1.5, length: 0.0 };
const TITLE: Field = Field { weight: 1.0, length: 0.5 };
/// The first sentence of the description says what it is; the rest says how, and names other tools.
const FIRST: Field = Field { weight: 1.6, length: 0.5 };
const REST: Field = Field { weight: 0.5, length: 0.8 };
const PARAMETERS: Field = Field { weight: 0.6, length: 0.6 };
const PARAMETER_TEXT: Field = Field { weight: 0.25, length: 0.8 };

const NAME_BYTES: usize = 256;
const DESCRIPTION_BYTES: usize = 3 << 10;
const PARAMETERS_MAX: usize = 48;
const PARAMETER_BYTES: usize = 200;

pub(super) fn build(catalogue: &Catalogue) -> Inner {
    let mut builder = Builder::default();
    for (place, server) in (0..).zip(&catalogue.servers) {
        builder.inner.servers.push(ServerName { words: server_words(&server.name), sure: 0.0 });
        for tool in &server.tools {
            builder.add(place, tool);
        }
    }
    builder.finish()
}

/// The words by which people call a server: `server-google-maps` is google maps to them.
fn server_words(name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    words::split(cut(name, NAME_BYTES), Text::Prose, |word| {
        if !["mcp", "server"].contains(&word) && !words::is_stop(word) {
            found.push(stem(word));
        }
    });
    found.dedup();
    found
}

#[derive(Default)]
struct Builder {
    inner: Inner,
    /// For each tool, what is in each field.
    counts: Vec<[Counts; FIELDS.len()]>,
    /// Words that were met before: the places of their stems, and none for stop words.
    stems: HashMap<String, Option<u32>>,
    /// Whether a stem, by its place, begins a two-word entry of the synonyms.
    begins: Vec<bool>,
}

#[derive(Default)]
struct Counts {
    /// The places of its stems, as often as they are there.
    terms: Vec<u32>,
    /// Without the two-word entries.
    length: u32,
}

impl Builder {
    fn add(&mut self, server: u32, tool: &Arc<Tool>) {
        let (first, rest) = first_sentence(cut(&tool.description, DESCRIPTION_BYTES));
        let mut counts: [Counts; FIELDS.len()] = Default::default();
        let name = self.read(cut(&tool.name, NAME_BYTES), Text::Identifier, &mut counts[0]);
        self.read(cut(&tool.server, NAME_BYTES), Text::Identifier, &mut counts[1]);
        self.read(cut(title(&tool.definition), NAME_BYTES), Text::Prose, &mut counts[2]);
        let sentence = self.read(first, Text::Prose, &mut counts[3]);
        self.read(rest, Text::Prose, &mut counts[4]);
        let properties = tool.input_schema.get("properties").and_then(Value::as_object);
        for (parameter, schema) in properties.into_iter().flatten().take(PARAMETERS_MAX) {
            self.read(cut(parameter, NAME_BYTES), Text::Identifier, &mut counts[5]);
            let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
            self.read(cut(text, PARAMETER_BYTES), Text::Prose, &mut counts[6]);
        }
        let mut pairs: Vec<(u32, u32)> =
            name.windows(2).chain(sentence.windows(2)).map(|pair| (pair[0], pair[1])).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let action = action::of(name.iter().map(|place| self.inner.terms[*place as usize].stem.as_str()));
        let mut seen = HashSet::new();
        let name = name.into_iter().filter(|stem| seen.insert(*stem)).collect();
        self.inner.tools.push(Entry { tool: Arc::clone(tool), server, name, action, pairs, plain: plain(&tool.name) });
        self.counts.push(counts);
    }

    /// Counts the words of a field, and the two-word entries of the synonyms in it. The stems in order, without the latter.
    fn read(&mut self, text: &str, kind: Text, counts: &mut Counts) -> Vec<u32> {
        let mut stems: Vec<u32> = Vec::new();
        words::split(text, kind, |word| {
            let Some(place) = self.place(word) else { return };
            counts.terms.push(place);
            counts.length += 1;
            if let Some(before) = stems.last().copied().filter(|before| self.begins[*before as usize]) {
                let stem = |place: u32| self.inner.terms[place as usize].stem.as_str();
                if let Some(pair) = synonyms::table().pair(stem(before), stem(place)) {
                    let pair = self.stem_place(pair);
                    counts.terms.push(pair);
                }
            }
            stems.push(place);
        });
        stems
    }

    /// The place of a word's stem, unless it is a stop word. Stemming is the dear part, so each word is stemmed once.
    fn place(&mut self, word: &str) -> Option<u32> {
        if let Some(known) = self.stems.get(word) {
            return *known;
        }
        let place = if words::is_stop(word) { None } else { Some(self.stem_place(&stem(word))) };
        self.stems.insert(word.to_owned(), place);
        place
    }

    fn stem_place(&mut self, stem: &str) -> u32 {
        if let Some(place) = self.inner.vocabulary.get(stem) {
            return *place;
        }
        let place = u32::try_from(self.inner.terms.len()).unwrap_or(u32::MAX);
        self.inner.terms.push(Term { stem: stem.to_owned(), ..Term::default() });
        self.begins.push(synonyms::table().begins(stem));
        self.inner.vocabulary.insert(stem.to_owned(), place);
        place
    }

    fn finish(mut self) -> Inner {
        let number = self.counts.len().max(1) as f32;
        let mut average = [0.0_f32; FIELDS.len()];
        for counts in &self.counts {
            for (average, counts) in average.iter_mut().zip(counts) {
                *average += counts.length as f32 / number;
            }
        }
        for (tool, counts) in (0_u32..).zip(&self.counts) {
            let mut parts: Vec<(u32, f32)> = Vec::new();
            for ((field, average), counts) in FIELDS.iter().zip(average).zip(counts) {
                let long = 1.0 - field.length + field.length * counts.length as f32 / average.max(1.0);
                parts.extend(counts.terms.iter().map(|term| (*term, field.weight / long)));
            }
            // Stable, so that the same are added in the same order each time.
            parts.sort_by_key(|(term, _)| *term);
            for same in parts.chunk_by(|left, right| left.0 == right.0) {
                let sum = same.iter().map(|(_, part)| part).sum();
                self.inner.terms[same[0].0 as usize].tools.push((tool, sum));
            }
        }
        for term in &mut self.inner.terms {
            let has = term.tools.len() as f32;
            term.rarity = (1.0 + (number - has + 0.5) / (has + 0.5)).ln();
        }
        self.order();
        self.sureness();
        self.inner
    }

    fn order(&mut self) {
        let terms = &self.inner.terms;
        let all = 0..u32::try_from(terms.len()).unwrap_or(u32::MAX);
        let mut forward: Vec<u32> = all.clone().collect();
        forward.sort_by(|left, right| terms[*left as usize].stem.cmp(&terms[*right as usize].stem));
        let mut backward: Vec<u32> = all.collect();
        backward.sort_by(|left, right| {
            terms[*left as usize].stem.bytes().rev().cmp(terms[*right as usize].stem.bytes().rev())
        });
        (self.inner.forward, self.inner.backward) = (forward, backward);
    }

    /// A server's name is a sure sign where few tools of others have its words.
    fn sureness(&mut self) {
        for (place, server) in (0_u32..).zip(&mut self.inner.servers) {
            let mut sure: f32 = if server.words.is_empty() { 0.0 } else { 1.0 };
            let mut least: f32 = 0.0;
            for word in &server.words {
                let Some(term) = self.inner.vocabulary.get(word).map(|term| &self.inner.terms[*term as usize]) else {
                    sure = 0.0;
                    break;
                };
                let own =
                    term.tools.iter().filter(|(tool, _)| self.inner.tools[*tool as usize].server == place).count();
                least = least.max(own as f32 / term.tools.len().max(1) as f32);
            }
            server.sure = sure * least;
        }
    }
}

/// The name without anything but letters and digits.
pub(super) fn plain(name: &str) -> String {
    let letters = name.chars().filter(|character| character.is_alphanumeric());
    letters.flat_map(char::to_lowercase).take(NAME_BYTES).collect()
}

fn title(definition: &Value) -> &str {
    let own = definition.get("title").and_then(Value::as_str);
    let annotated = || definition.get("annotations").and_then(|annotations| annotations.get("title")?.as_str());
    own.or_else(annotated).unwrap_or_default()
}

/// The first sentence or line, and what follows it. A heading ("Purpose:") is no sentence: it takes the next line along.
pub(super) fn first_sentence(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = |from: usize| {
        let line = text[from..].find('\n').map_or(text.len(), |at| from + at);
        line.min(text[from..].find(". ").map_or(text.len(), |at| from + at + 1))
    };
    let first = end(0);
    if !text[..first].trim_end().ends_with(':') {
        return text.split_at(first);
    }
    let next = text.len() - text[first..].trim_start().len();
    // "1. Lists" has its full stop after the number.
    let numbered = text[next..].find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(0);
    text.split_at(end(next + numbered))
}

/// At most so many bytes of it, and no half characters.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
