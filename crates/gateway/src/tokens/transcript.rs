//! A conversation with a model, and what it costs.

use std::collections::HashMap;

use super::Encoding;

/// What a model read and wrote, turn after turn. The client's own system prompt is left out: it is the same in every arm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    /// What it has before the first word: the definitions of its tools, and what servers say of themselves.
    pub definitions: Vec<String>,
    pub turns: Vec<Turn>,
}

/// One request to the model and its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    /// What is new to it: the user's words, or results of tools.
    pub input: Vec<String>,
    /// What it wrote: words and calls.
    pub output: Vec<String>,
}

/// What a transcript costs. Every turn reads all that came before it once more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bill {
    pub turns: usize,
    /// Over all turns.
    pub input: usize,
    pub output: usize,
    /// The most that the model had before it at once, with what it wrote then.
    pub peak: usize,
    /// In tokens of plain input, where what was read before comes from the cache.
    pub weighted: f64,
}

/// What a token costs, beside one of plain input: put into the cache, taken from it, and written by the model.
const CACHE_WRITE: f64 = 1.25;
const CACHE_READ: f64 = 0.1;
const OUTPUT: f64 = 5.0;

impl Bill {
    /// All tokens that are paid for.
    pub fn total(&self) -> usize {
        self.input + self.output
    }
}

impl Transcript {
    pub fn bill(&self, counter: &mut Counter) -> Bill {
        let mut sum = |texts: &[String]| texts.iter().map(|text| counter.count(text)).sum::<usize>();
        let mut bill = Bill { turns: self.turns.len(), input: 0, output: 0, peak: 0, weighted: 0.0 };
        // What the next turn reads of what was before it, and how much of that is in the cache.
        let mut before = sum(&self.definitions);
        let mut cached = 0;
        for turn in &self.turns {
            let (input, output) = (before + sum(&turn.input), sum(&turn.output));
            bill.input += input;
            bill.output += output;
            bill.peak = bill.peak.max(input + output);
            bill.weighted +=
                CACHE_READ * cached as f64 + CACHE_WRITE * (input - cached) as f64 + OUTPUT * output as f64;
            // What the model wrote is in the cache only once it was read.
            cached = input;
            before = input + output;
        }
        bill
    }
}

/// Counts, and remembers: the arms share most of their texts, and some are long.
#[derive(Debug)]
pub struct Counter {
    encoding: Encoding,
    known: HashMap<String, usize>,
}

impl Counter {
    pub fn new(encoding: Encoding) -> Counter {
        Counter { encoding, known: HashMap::new() }
    }

    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub fn count(&mut self, text: &str) -> usize {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let number = self.encoding.count(text);
        self.known.insert(text.to_owned(), number);
        number
    }
}

/// How much less the other is, in percent; negative where it is more.
pub fn saved(of: usize, other: usize) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * (of as f64 - other as f64) / of as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(number: usize) -> String {
        vec!["the"; number].join(" ")
    }

    #[test]
    fn every_turn_reads_all_before_it() {
        let mut counter = Counter::new(Encoding::O200k);
        assert_eq!(counter.count(&words(100)), 100);
        let turn = |input, output| Turn { input: vec![words(input)], output: vec![words(output)] };
        let transcript = Transcript { definitions: vec![words(100)], turns: vec![turn(10, 5), turn(20, 7)] };
        let bill = transcript.bill(&mut counter);
        assert_eq!((bill.turns, bill.input, bill.output), (2, 110 + 135, 12));
        assert_eq!(bill.total(), 257);
        assert_eq!(bill.peak, 142);
        // 110 written; then 110 read, and 5 of its own words and 20 new ones written.
        let expected = 1.25 * 110.0 + 0.1 * 110.0 + 1.25 * 25.0 + 5.0 * 12.0;
        assert!((bill.weighted - expected).abs() < 1e-9, "{}", bill.weighted);
    }

    #[test]
    fn nothing_costs_nothing_and_less_is_saved() {
        let bill = Transcript::default().bill(&mut Counter::new(Encoding::Cl100k));
        assert_eq!((bill.turns, bill.total(), bill.peak), (0, 0, 0));
        assert_eq!(saved(200, 50), 75.0);
        assert_eq!(saved(100, 130), -30.0);
        assert_eq!(saved(0, 5), 0.0);
    }
}
