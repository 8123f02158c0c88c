//! Files of any kind, and some variables: each is read, or refused with what is wrong and what to do; none ends the program.
//!
//! The fuzzer proper (`fuzz/`) does not know this room, which is part of a program and not of a library. This changes the files
//! of `fuzz/corpus/configuration` at random, the same way each time, for as long as `BELLJAR_FUZZ_SECONDS` says.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;

/// In every run, for however short a time.
const ROUNDS: u64 = 500;
const BYTES_MAX: usize = 16 * 1024;
const CORPUS_MAX: usize = 1000;

/// Values and signs that one of the readers may stumble over.
const WORDS: [&str; 36] = [
    "0",
    "-1",
    "1e400",
    "nan",
    "-inf",
    "18446744073709551616",
    "0x7fffffffffffffff",
    "4294967296",
    "1e-320",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"\\u0000\"",
    "'''",
    "\"\"\"",
    "1979-05-27",
    "[[",
    "]]",
    "=",
    ".",
    "\n",
    "#",
    "\u{feff}",
    "\u{202e}",
    "\"*\"",
    "\"*.\"",
    "\"GET \"",
    "\"a:99999\"",
    "\"[::1]:0\"",
    "\"10.0.0.0/33\"",
    "\"..\"",
    "\"/\"",
    "\"npm:\"",
    "max",
    "[templates.x]\n",
];

/// As others may be set where we are started.
const VARIABLES: [&str; 6] = [
    "BELLJAR_POOL__MAX",
    "BELLJAR_NETWORK__ALLOW",
    "BELLJAR_IDLE_TIMEOUT",
    "BELLJAR_POL__MAX",
    "BELLJAR_",
    "BELLJAR_WALLS__BACKEND",
];

/// xorshift64*, which needs no more than this and tells each run the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most.max(1)
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// One change: of a byte, a line, a value, or the rest by the end of another file. Half of them keep to lines, or nearly all would
/// be refused for their form and show nothing of what is behind it.
fn change(text: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let place = |of: &[u8], dice: &mut Dice| {
        let at = dice.below(of.len() + 1);
        if dice.below(2) == 0 { at } else { of[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1) }
    };
    let at = place(text, dice);
    match dice.below(7) {
        0 if !text.is_empty() => {
            let at = at.min(text.len() - 1);
            text[at] ^= 1 << dice.below(8);
        }
        1 => drop(text.drain(at..(at + dice.below(16)).min(text.len()))),
        2 => drop(text.splice(at..at, dice.one(&WORDS).bytes())),
        3 => {
            text.truncate(at);
            text.extend(&other[place(other, dice)..]);
        }
        4 => {
            // What is behind an equals sign becomes another value.
            let equals: Vec<usize> = (0..text.len()).filter(|at| text[*at] == b'=').collect();
            let Some(&equals) = equals.get(dice.below(equals.len())) else { return };
            let end = text[equals..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| equals + end);
            text.splice(equals + 1..end, dice.one(&WORDS).bytes());
        }
        _ => {
            let lines: Vec<&[u8]> = other.split(|byte| *byte == b'\n').collect();
            let mut line = dice.one(&lines).to_vec();
            line.push(b'\n');
            text.splice(at..at, line);
        }
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/configuration");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 20, "the corpus is there");
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "scripts/fuzz says how long, and reads how many")]
fn files_of_any_kind_are_read_or_refused() {
    let seconds = std::env::var("BELLJAR_FUZZ_SECONDS").ok().map_or(0, |text| text.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut corpus = corpus();
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("config.toml");
    let (mut dice, mut rounds, mut taken) = (Dice(0x9e37_79b9_7f4a_7c15), 0_u64, 0_u64);
    while rounds < ROUNDS || Instant::now() < until {
        rounds += 1;
        let first = dice.below(corpus.len());
        let mut text = corpus[first].clone();
        for _ in 0..1 + dice.below(4) {
            let other = dice.below(corpus.len());
            change(&mut text, &corpus[other], &mut dice);
        }
        text.truncate(BYTES_MAX);
        fs::write(&path, &text).unwrap();
        let variables = match dice.below(4) {
            0 => vec![(dice.one(&VARIABLES).to_owned(), dice.one(&WORDS).trim_matches('"').to_owned())],
            _ => Vec::new(),
        };
        let shown = String::from_utf8_lossy(&text);
        let sources = Sources { variables, ..Sources::only(&path) };
        match catch_unwind(|| sources.read()).unwrap_or_else(|_| panic!("{:?} with {shown}", sources.variables)) {
            Ok(config) => {
                taken += 1;
                assert!(!config.rows().is_empty());
                // To begin with later on: what is right can be changed further. What is shorter would lead to nothing at all.
                if corpus.len() < CORPUS_MAX && text.len() >= corpus[first].len() {
                    corpus.push(text);
                }
            }
            Err(complaint) => {
                assert!(!complaint.what.is_empty() && !complaint.hint.is_empty(), "{shown}");
            }
        }
        // Of those that are made in every run, so that what holds once holds always.
        if rounds == ROUNDS {
            assert!(
                taken > ROUNDS / 50 && taken < ROUNDS - ROUNDS / 50,
                "{taken} of {rounds} were read: nearly all, or nearly none"
            );
        }
    }
    println!("stat::number_of_executed_units: {rounds}\n{taken} of them were read");
}
