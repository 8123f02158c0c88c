//! Takes values that nobody inside may see out of what comes back, however it is cut.

use aho_corasick::{AhoCorasick, BuildError};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use super::Hidden;

/// Of an encoded form only what is surely the value's; less than this is found everywhere.
const FORM_BYTES_MIN: usize = 6;

/// The forms of some values, to be found in a stream.
pub(crate) struct Forms {
    forms: Vec<Zeroizing<Vec<u8>>>,
    finder: AhoCorasick,
}

impl std::fmt::Debug for Forms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Forms({})", self.forms.len())
    }
}

impl Forms {
    pub(crate) fn new<'a>(values: impl Iterator<Item = &'a Hidden>) -> Result<Forms, BuildError> {
        let mut forms: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        for value in values {
            for form in forms_of(value.reveal().as_bytes()) {
                if !forms.contains(&form) {
                    forms.push(form);
                }
            }
        }
        let finder = AhoCorasick::new(forms.iter().map(|form| form.as_slice()))?;
        Ok(Forms { forms, finder })
    }

    fn found(&self, bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
        self.finder.find_overlapping_iter(bytes).map(|found| found.range()).collect()
    }

    /// How many bytes at the end could be the beginning of a value. That is the last word, whatever it is: were it only what a
    /// value does begin with, whoever lets a host repeat guesses could see by what is held back how far they are right.
    fn doubtful(&self, bytes: &[u8]) -> usize {
        let longest = self.forms.iter().map(|form| form.len()).max().unwrap_or(1) - 1;
        let word = bytes.iter().rev().take(longest).take_while(|byte| is_of_a_word(**byte)).count();
        let begins = |form: &[u8]| {
            let longest = form.len().saturating_sub(1).min(bytes.len());
            (word + 1..=longest).rev().find(|count| bytes.ends_with(&form[..*count])).unwrap_or(0)
        };
        // The few values that are more than a word.
        let more = self.forms.iter().filter(|form| !form.iter().all(|byte| is_of_a_word(*byte)));
        more.map(|form| begins(form)).fold(word, usize::max)
    }
}

/// Not what ends words, lines and events.
fn is_of_a_word(byte: u8) -> bool {
    !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The value as it is, and as programs write it: base64 wherever in a longer text it stands, percent signs, hexadecimal, two
/// bytes a letter, JSON.
fn forms_of(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms = vec![value.to_vec()];
    for before in 0..3_usize {
        let mut padded = Zeroizing::new(vec![0; before]);
        padded.extend_from_slice(value);
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let mut text = engine.encode(&*padded).into_bytes();
            // A letter has six bits. Those that have bits of what is before or behind are not the value's alone.
            text.truncate(padded.len() * 8 / 6);
            text.drain(..(before * 8).div_ceil(6));
            forms.push(text);
        }
    }
    let keeps = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    for upper in [true, false] {
        let hex = |byte: &u8| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") };
        let percent = |byte: &u8| if keeps(byte) { char::from(*byte).to_string() } else { format!("%{}", hex(byte)) };
        forms.push(value.iter().map(percent).collect::<String>().into_bytes());
        forms.push(value.iter().map(hex).collect::<String>().into_bytes());
    }
    forms.push(value.iter().flat_map(|byte| [*byte, 0]).collect());
    forms.push(value.iter().flat_map(|byte| [0, *byte]).collect());
    if let Ok(json) = serde_json::to_string(&String::from_utf8_lossy(value)) {
        // Without its own quotes.
        forms.push(json.as_bytes()[1..json.len() - 1].to_vec());
    }
    forms.retain(|form| form.len() >= FORM_BYTES_MIN);
    forms.into_iter().map(Zeroizing::new).collect()
}

/// Blanks one stream.
#[derive(Debug)]
pub(crate) struct Blanker<'a> {
    forms: &'a Forms,
    /// What could go on as a value.
    held: Vec<u8>,
    /// How many of those are the end of one that was found: they are blanked whatever comes.
    covered: usize,
}

impl<'a> Blanker<'a> {
    pub(crate) fn new(forms: &'a Forms) -> Blanker<'a> {
        Blanker { forms, held: Vec::new(), covered: 0 }
    }

    /// What can go on of what came so far: as a rule, all of it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let found = self.forms.found(&all);
        let cut = all.len() - self.forms.doubtful(&all);
        self.held = all.split_off(cut);
        all[..self.covered.min(cut)].fill(b'*');
        self.covered = self.covered.saturating_sub(cut);
        for range in found {
            // One that is held as a whole is found again.
            if range.start < cut {
                all[range.start..range.end.min(cut)].fill(b'*');
                self.covered = self.covered.max(range.end.saturating_sub(cut));
            }
        }
        all
    }

    pub(crate) fn end(&mut self) -> Vec<u8> {
        let mut rest = self.whole(self.held.clone());
        rest[..self.covered].fill(b'*');
        (self.held, self.covered) = (Vec::new(), 0);
        rest
    }

    /// All of something that is whole.
    pub(crate) fn whole(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for range in self.forms.found(&bytes) {
            bytes[range].fill(b'*');
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUE: &str = "s3cr3t/va+lue \"x\"";

    fn forms() -> Forms {
        Forms::new([Hidden::new(VALUE.into())].iter()).unwrap()
    }

    fn blanked(text: &[u8], cut: usize) -> Vec<u8> {
        let forms = forms();
        let mut blanker = Blanker::new(&forms);
        let mut out: Vec<u8> = text.chunks(cut.max(1)).flat_map(|part| blanker.push(part)).collect();
        out.extend(blanker.end());
        out
    }

    #[test]
    fn a_value_is_blanked_in_each_of_its_forms() {
        for form in [
            VALUE.to_owned(),
            "s3cr3t%2Fva%2Blue%20%22x%22".into(),
            "s3cr3t%2fva%2blue%20%22x%22".into(),
            "s3cr3t/va+lue \\\"x\\\"".into(),
            VALUE.bytes().map(|byte| format!("{byte:02x}")).collect(),
        ] {
            let text = format!("before {form} behind");
            assert_eq!(
                blanked(text.as_bytes(), 1000),
                format!("before {} behind", "*".repeat(form.len())).into_bytes()
            );
        }
    }

    #[test]
    fn base64_is_blanked_wherever_the_value_stands_in_it() {
        for before in ["", "u", "us", "use", "user:"] {
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let text = engine.encode(format!("{before}{VALUE}, and more"));
                let out = blanked(text.as_bytes(), 7);
                let stars = out.iter().filter(|byte| **byte == b'*').count();
                assert!(
                    stars >= VALUE.len() * 8 / 6 - 2,
                    "{before:?}: {text} became {}",
                    String::from_utf8_lossy(&out)
                );
            }
        }
    }

    #[test]
    fn what_is_no_value_goes_on_at_once() {
        let forms = forms();
        let mut blanker = Blanker::new(&forms);
        assert_eq!(blanker.push(b"data: an event\n\n"), b"data: an event\n\n");
        assert_eq!(blanker.push(b"ends in s3c"), b"ends in ", "which could be its beginning");
        assert_eq!(blanker.push(b"x and more "), b"s3cx and more ");
    }

    #[test]
    fn what_is_held_back_does_not_tell_how_a_value_begins() {
        let forms = Forms::new([Hidden::new("abcdefghijkl".into())].iter()).unwrap();
        for guess in ["abcdef", "abcdeX", "zzzzzz"] {
            let mut blanker = Blanker::new(&forms);
            assert_eq!(blanker.push(format!("a guess: {guess}").as_bytes()), b"a guess: ", "{guess}");
        }
    }

    #[test]
    fn a_value_that_another_begins_with_hides_nothing_of_it() {
        let forms = Forms::new([Hidden::new("abcdefgh".into()), Hidden::new("abcdefghXYZ".into())].iter()).unwrap();
        for cut in 1..14 {
            let mut blanker = Blanker::new(&forms);
            let mut out: Vec<u8> = b"-abcdefghXYZ-".chunks(cut).flat_map(|part| blanker.push(part)).collect();
            out.extend(blanker.end());
            assert_eq!(out, b"-***********-", "cut at {cut}");
        }
    }

    #[test]
    fn nothing_of_it_is_printed() {
        assert!(!format!("{:?} {:?}", forms(), Hidden::new(VALUE.into())).contains("s3cr3t"));
    }

    proptest! {
        #[test]
        fn where_it_is_cut_makes_no_difference(text in "(s3cr3t/va\\+lue \"x\"|[s3cr/va+lue \"x]|s3cr3t/va\\+lue ){0,12}", cut in 1_usize..40) {
            prop_assert_eq!(blanked(text.as_bytes(), cut), blanked(text.as_bytes(), text.len()));
        }

        #[test]
        fn no_cut_lets_it_through(before in "[a-z3s]{0,20}", behind in "[a-z3s]{0,20}", cut in 1_usize..40) {
            let text = format!("{before}{VALUE}{VALUE}{behind}");
            let out = blanked(text.as_bytes(), cut);
            prop_assert_eq!(out, format!("{before}{}{behind}", "*".repeat(2 * VALUE.len())).into_bytes());
        }
    }
}
