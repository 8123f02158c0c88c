//! How well tools are found: labelled queries over the recorded tools of public servers, beside plain BM25.
//!
//! `cargo test -p belljar-gateway --test search -- --nocapture` prints the figures.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

mod bm25;
mod recorded;

use std::collections::HashSet;

use belljar_gateway::catalogue::Catalogue;
use belljar_gateway::search::Index;

const QUERIES: &str = include_str!("queries.tsv");
/// As far down as an answer is looked for.
const DEPTH: usize = 50;

struct Query {
    held_out: bool,
    text: &'static str,
    right: Vec<&'static str>,
}

fn queries() -> Vec<Query> {
    let lines = QUERIES.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [set, text, right] = columns[..] else { panic!("three columns: {line}") };
            assert!(["tuned", "held-out"].contains(&set), "{line}");
            Query { held_out: set == "held-out", text, right: right.split(' ').collect() }
        })
        .collect()
}

/// The place of the first right answer, from 1 on, for each query.
type Places = Vec<Option<usize>>;

#[derive(Debug, Clone, Copy)]
struct Figures {
    first: f64,
    fifth: f64,
    reciprocal: f64,
}

fn figures<'a>(places: impl Iterator<Item = &'a Option<usize>>) -> Figures {
    let places: Vec<_> = places.collect();
    let number = places.len() as f64;
    let within = |most: usize| places.iter().filter(|place| place.is_some_and(|place| place <= most)).count() as f64;
    let reciprocal: f64 = places.iter().filter_map(|place| place.map(|place| 1.0 / place as f64)).sum();
    Figures { first: within(1) / number, fifth: within(5) / number, reciprocal: reciprocal / number }
}

fn ours(catalogue: &Catalogue, queries: &[Query]) -> Places {
    let index = Index::new(catalogue);
    let place = |query: &Query| {
        let hits = index.search(query.text, None, DEPTH);
        hits.iter().position(|hit| query.right.contains(&format!("{}.{}", hit.tool.server, hit.tool.name).as_str()))
    };
    queries.iter().map(|query| place(query).map(|place| place + 1)).collect()
}

fn plain(catalogue: &Catalogue, queries: &[Query]) -> Places {
    let index = bm25::Plain::new(catalogue);
    let place =
        |query: &Query| index.search(query.text, DEPTH).iter().position(|name| query.right.contains(&name.as_str()));
    queries.iter().map(|query| place(query).map(|place| place + 1)).collect()
}

#[test]
fn every_answer_is_a_recorded_tool_and_every_server_is_asked_for() {
    let catalogue = recorded::catalogue();
    let queries = queries();
    assert!(queries.len() >= 120, "{}", queries.len());
    assert!(queries.iter().filter(|query| query.held_out).count() * 3 >= queries.len() - 2);
    let known: HashSet<String> = catalogue.tools().map(|tool| format!("{}.{}", tool.server, tool.name)).collect();
    let asked: HashSet<&str> = queries.iter().flat_map(|query| query.right.iter().copied()).collect();
    let unknown: Vec<&str> = asked.iter().filter(|name| !known.contains(**name)).copied().collect();
    assert!(unknown.is_empty(), "not recorded: {unknown:?}");
    for server in &catalogue.servers {
        let prefix = format!("{}.", server.name);
        assert!(asked.iter().any(|name| name.starts_with(&prefix)), "nothing asks for {}", server.name);
    }
    assert!(catalogue.servers.len() >= 15 && known.len() >= 150, "{} {}", catalogue.servers.len(), known.len());
}

#[test]
fn the_right_tool_is_among_the_first_five() {
    let catalogue = recorded::catalogue();
    let queries = queries();
    let (ours, plain) = (ours(&catalogue, &queries), plain(&catalogue, &queries));
    println!(
        "{} queries over {} tools of {} servers",
        queries.len(),
        catalogue.tools().count(),
        catalogue.servers.len()
    );
    println!("{:10} {:>7} {:>7} {:>7}   {:>7} {:>7} {:>7}", "", "hit@1", "hit@5", "MRR", "BM25@1", "BM25@5", "MRR");
    let mut whole = None;
    let mut held_out = None;
    for (name, set) in [("all", None), ("tuned", Some(false)), ("held-out", Some(true))] {
        let chosen = |places: &Places| {
            let both = queries.iter().zip(places);
            let both = both.filter(|(query, _)| set.is_none_or(|held_out| query.held_out == held_out));
            figures(both.map(|(_, place)| place))
        };
        let (ours, plain) = (chosen(&ours), chosen(&plain));
        println!(
            "{name:10} {:7.3} {:7.3} {:7.3}   {:7.3} {:7.3} {:7.3}",
            ours.first, ours.fifth, ours.reciprocal, plain.first, plain.fifth, plain.reciprocal
        );
        match set {
            None => whole = Some((ours, plain)),
            Some(true) => held_out = Some((ours, plain)),
            Some(false) => {}
        }
    }
    for (query, place) in queries.iter().zip(&ours).filter(|(query, _)| !query.held_out) {
        if place.is_none_or(|place| place > 5) {
            let hits = Index::new(&catalogue).search(query.text, None, 5);
            let names: Vec<String> = hits.iter().map(|hit| format!("{}={:.1}", hit.tool.path(), hit.score)).collect();
            println!("missed: {} ({place:?}): {}", query.text, names.join(", "));
        }
    }
    let (ours, plain) = whole.unwrap();
    assert!(ours.fifth >= 0.85, "{ours:?}");
    assert!(ours.first > plain.first && ours.fifth > plain.fifth && ours.reciprocal > plain.reciprocal);
    let (ours, plain) = held_out.unwrap();
    assert!(ours.fifth > plain.fifth && ours.reciprocal > plain.reciprocal, "{ours:?} {plain:?}");
}
