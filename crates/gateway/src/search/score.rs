//! How well each tool meets a query.

use super::Inner;
use super::action::Action;
use super::query::Query;

/// How soon more of the same word stops to count.
const SATURATION: f32 = 1.4;
/// What a tool that meets next to nothing of the query keeps of its score.
const UNCOVERED: f32 = 0.35;
/// What it gains by words of its name that were all asked for, by pairs of words, by its server's name, and by its own.
const NAMED: f32 = 0.5;
const PAIRED: f32 = 0.12;
const PAIRS_MAX: usize = 3;
const SERVED: f32 = 0.9;
const EXACT: f32 = 20.0;
/// What it keeps if it does another thing than what is wanted, and if one of them does not say what.
const OTHER: f32 = 0.72;
const UNSAID: f32 = 0.9;

/// The tools that meet anything of it, in no order.
pub(super) fn score(index: &Inner, query: &Query) -> Vec<(u32, f32)> {
    let mut sums = vec![Sum::default(); index.tools.len()];
    let mut best = vec![(0.0_f32, 0.0_f32); index.tools.len()];
    let mut met: Vec<u32> = Vec::new();
    // How much of each stem was asked for, for the names.
    let mut asked = vec![0.0_f32; index.terms.len()];
    let mut whole = 0.0;
    for group in &query.groups {
        whole += group.rarity;
        for (term, weight) in &group.terms {
            let term_index = *term as usize;
            asked[term_index] = asked[term_index].max(*weight);
            let term = &index.terms[term_index];
            let rarity = term.rarity.min(group.rarity.max(term.rarity * 0.5));
            for (tool, much) in &term.tools {
                let value = weight * rarity * much * (SATURATION + 1.0) / (much + SATURATION);
                let best = &mut best[*tool as usize];
                if best.0 == 0.0 {
                    met.push(*tool);
                }
                // The best of the alternatives counts: a tool that says "add" and "create" has not met the query twice.
                best.0 = best.0.max(value);
                best.1 = best.1.max(*weight);
            }
        }
        for tool in met.drain(..) {
            let (value, weight) = std::mem::take(&mut best[tool as usize]);
            let sum = &mut sums[tool as usize];
            sum.score += value;
            sum.covered += group.rarity * weight;
        }
    }
    let mut found = Vec::new();
    for (place, (entry, sum)) in (0_u32..).zip(index.tools.iter().zip(&sums)) {
        let exact = query.names.iter().any(|name| is_name(name, entry));
        if sum.score <= 0.0 && !exact {
            continue;
        }
        let covered = if whole > 0.0 { sum.covered / whole } else { 0.0 };
        let name: f32 = entry.name.iter().map(|stem| asked[*stem as usize]).sum();
        let named = name / entry.name.len().max(1) as f32;
        let pairs = query.pairs.iter().filter(|pair| entry.pairs.binary_search(pair).is_ok()).count().min(PAIRS_MAX);
        let sure = query.servers.iter().find(|(server, _)| *server == entry.server).map_or(0.0, |(_, sure)| *sure);
        let score = sum.score
            * (UNCOVERED + (1.0 - UNCOVERED) * covered)
            * (1.0 + NAMED * named)
            * (1.0 + PAIRED * pairs as f32)
            * (1.0 + SERVED * sure)
            * fitting(query.action, entry.action);
        found.push((place, score + if exact { EXACT } else { 0.0 }));
    }
    found
}

fn fitting(wanted: Option<Action>, does: Option<Action>) -> f32 {
    match (wanted, does) {
        (Some(wanted), Some(does)) if wanted == does => 1.0,
        (Some(_), Some(_)) => OTHER,
        _ => UNSAID,
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    score: f32,
    covered: f32,
}

/// Whether this is the tool's name, with or without its server's before it.
fn is_name(name: &str, entry: &super::Entry) -> bool {
    if name.is_empty() || entry.plain.is_empty() {
        return false;
    }
    match name.strip_suffix(entry.plain.as_str()) {
        Some("") => true,
        Some(before) => before == super::build::plain(&entry.tool.server_ident),
        None => false,
    }
}
