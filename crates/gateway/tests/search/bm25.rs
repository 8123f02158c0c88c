//! Plain BM25 over name and description, as most gateways have it: what ours is held against.

use std::collections::HashMap;

use belljar_gateway::catalogue::Catalogue;

pub(crate) struct Plain {
    names: Vec<String>,
    lengths: Vec<f64>,
    average: f64,
    terms: HashMap<String, Vec<(usize, f64)>>,
}

/// The usual numbers.
const K1: f64 = 1.2;
const B: f64 = 0.75;

impl Plain {
    pub(crate) fn new(catalogue: &Catalogue) -> Plain {
        let mut plain = Plain { names: Vec::new(), lengths: Vec::new(), average: 0.0, terms: HashMap::new() };
        for (place, tool) in catalogue.tools().enumerate() {
            plain.names.push(format!("{}.{}", tool.server, tool.name));
            let mut counts: HashMap<String, f64> = HashMap::new();
            let words = words(&format!("{} {}", tool.name, tool.description));
            plain.lengths.push(words.len() as f64);
            for word in words {
                *counts.entry(word).or_default() += 1.0;
            }
            for (word, count) in counts {
                plain.terms.entry(word).or_default().push((place, count));
            }
        }
        plain.average = plain.lengths.iter().sum::<f64>() / plain.lengths.len() as f64;
        plain
    }

    pub(crate) fn search(&self, query: &str, limit: usize) -> Vec<String> {
        let mut scores = vec![0.0; self.names.len()];
        for word in words(query) {
            let Some(tools) = self.terms.get(&word) else { continue };
            let (number, has) = (self.names.len() as f64, tools.len() as f64);
            let rarity = (1.0 + (number - has + 0.5) / (has + 0.5)).ln();
            for (place, count) in tools {
                let long = K1 * (1.0 - B + B * self.lengths[*place] / self.average);
                scores[*place] += rarity * count * (K1 + 1.0) / (count + long);
            }
        }
        let mut order: Vec<usize> = (0..scores.len()).filter(|place| scores[*place] > 0.0).collect();
        order.sort_by(|left, right| scores[*right].total_cmp(&scores[*left]).then(left.cmp(right)));
        order.into_iter().take(limit).map(|place| self.names[place].clone()).collect()
    }
}

/// Lower case, split at whatever is no letter or digit; so `create_issue` is two words.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}
