//! Personal data becomes tokens such as `[EMAIL_1]` in what reaches the model, and itself again in what a program passes to a
//! tool.
//!
//! The same value has the same token for as long as the server runs, per owner: the model can reason on who is who. What a
//! program sees is the data itself; the sandbox is where it may be. Deliberately not here: names of people, which no pattern
//! finds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use regex::Regex;
use serde_json::Value;

/// Values remembered for each owner. Past that the oldest cannot be resolved any more.
const VALUES_MAX: usize = 10_000;

/// Owners remembered at once.
const OWNERS_MAX: usize = 1_000;

const EMAIL: &str = r"(?i)\b[a-z0-9._%+-]{1,64}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}\b";
/// With a country's code, or with brackets or gaps as people write them: a plain number is none.
const PHONE: &str = r"(?:\+\d{1,3}[ .\-]?(?:\(\d{1,4}\)[ .\-]?)?\d{1,4}(?:[ .\-]?\d{2,4}){1,4}|\(\d{3}\) ?\d{3}[ .\-]\d{4}|\b\d{3}[.\-]\d{3}[.\-]\d{4})\b";
const CARD: &str = r"\b\d(?:[ \-]?\d){12,18}\b";

#[derive(Debug)]
pub struct Privacy {
    detectors: Vec<Detector>,
    token: Option<Regex>,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug)]
struct Detector {
    name: String,
    regex: Regex,
    check: Option<fn(&str) -> bool>,
}

/// The values of one owner.
#[derive(Debug, Default)]
struct Known {
    tokens: HashMap<String, String>,
    values: HashMap<String, String>,
    counts: HashMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is nothing that can be hidden: {why}; write email, phone, card, or NAME = \"REGEX\" with an upper-case name"
)]
pub struct BadDetector {
    pub name: String,
    pub why: String,
}

impl Privacy {
    /// `kinds` are `email`, `phone` and `card`; `own` are the operator's, by name and pattern.
    pub fn new(kinds: &[String], own: &[(String, String)]) -> Result<Privacy, BadDetector> {
        let built_in = kinds.iter().map(|kind| match kind.as_str() {
            "email" => Ok(("EMAIL", EMAIL.to_owned(), None)),
            "phone" => Ok(("PHONE", PHONE.to_owned(), Some(is_phone as fn(&str) -> bool))),
            "card" => Ok(("CARD", CARD.to_owned(), Some(is_card as fn(&str) -> bool))),
            other => Err(BadDetector { name: other.to_owned(), why: "it is not known".to_owned() }),
        });
        let own = own.iter().map(|(name, pattern)| {
            let is_name =
                !name.is_empty() && name.len() <= 32 && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
            match is_name {
                true => Ok((name.as_str(), pattern.clone(), None)),
                false => Err(BadDetector { name: name.clone(), why: "its name is no upper-case word".to_owned() }),
            }
        });
        let mut detectors = Vec::new();
        // The operator's first: they know better what a number of theirs is.
        for found in own.chain(built_in) {
            let (name, pattern, check) = found?;
            let regex = regex::RegexBuilder::new(&pattern).size_limit(4 << 20).build();
            let regex = regex.map_err(|error| BadDetector { name: name.to_owned(), why: error.to_string() })?;
            detectors.push(Detector { name: name.to_owned(), regex, check });
        }
        let names: Vec<&str> = detectors.iter().map(|detector| detector.name.as_str()).collect();
        let token = Regex::new(&format!(r"\[(?:{})_\d{{1,12}}\]", names.join("|"))).ok().filter(|_| !names.is_empty());
        Ok(Privacy { detectors, token, known: Mutex::default() })
    }

    pub fn is_on(&self) -> bool {
        !self.detectors.is_empty()
    }

    /// Puts tokens in place of what is found.
    pub fn hide(&self, owner: &str, text: &mut String) {
        for detector in &self.detectors {
            if !detector.regex.is_match(text) {
                continue;
            }
            let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= OWNERS_MAX && !all.contains_key(owner) {
                all.clear();
            }
            let known = all.entry(owner.to_owned()).or_default();
            let hidden = detector.regex.replace_all(text, |found: &regex::Captures<'_>| {
                let value = &found[0];
                match detector.check {
                    Some(check) if !check(value) => value.to_owned(),
                    _ => known.token(&detector.name, value),
                }
            });
            *text = hidden.into_owned();
        }
    }

    /// Puts the values back, in every text of an argument.
    pub fn reveal(&self, owner: &str, value: &mut Value) {
        let Some(token) = &self.token else { return };
        let all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(owner) {
            reveal(token, known, value);
        }
    }
}

fn reveal(token: &Regex, known: &Known, value: &mut Value) {
    match value {
        Value::String(text) if token.is_match(text) => {
            let revealed = token.replace_all(text, |found: &regex::Captures<'_>| {
                known.values.get(&found[0]).cloned().unwrap_or_else(|| found[0].to_owned())
            });
            *text = revealed.into_owned();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| reveal(token, known, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| reveal(token, known, field)),
        _ => {}
    }
}

impl Known {
    fn token(&mut self, name: &str, value: &str) -> String {
        if let Some(token) = self.tokens.get(value) {
            return token.clone();
        }
        if self.tokens.len() >= VALUES_MAX {
            self.tokens.clear();
            self.values.clear();
        }
        let count = self.counts.entry(name.to_owned()).or_default();
        *count += 1;
        let token = format!("[{name}_{count}]");
        self.tokens.insert(value.to_owned(), token.clone());
        self.values.insert(token.clone(), value.to_owned());
        token
    }
}

fn is_phone(text: &str) -> bool {
    (8..=15).contains(&text.bytes().filter(u8::is_ascii_digit).count())
}

/// Luhn's sum, which nearly every number that is no card fails.
fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.bytes().filter(u8::is_ascii_digit).map(|digit| u32::from(digit - b'0')).collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, &digit)| if index % 2 == 1 { digit * 2 / 10 + digit * 2 % 10 } else { digit })
        .sum();
    (13..=19).contains(&digits.len()) && sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all() -> Privacy {
        let kinds = ["email", "phone", "card"].map(str::to_owned);
        Privacy::new(&kinds, &[("CUSTOMER".into(), r"\bC-\d{6}\b".into())]).unwrap()
    }

    fn hidden(privacy: &Privacy, owner: &str, text: &str) -> String {
        let mut text = text.to_owned();
        privacy.hide(owner, &mut text);
        text
    }

    #[test]
    fn what_is_personal_becomes_a_token_and_itself_again() {
        let privacy = all();
        let text =
            "ada@example.org, +44 20 7946 0958, 4111 1111 1111 1111, C-123456; ada@example.org again, bob@example.org";
        let said = hidden(&privacy, "me", text);
        assert_eq!(said, "[EMAIL_1], [PHONE_1], [CARD_1], [CUSTOMER_1]; [EMAIL_1] again, [EMAIL_2]");
        let mut arguments = json!({"to": ["[EMAIL_2]"], "body": "Dear [EMAIL_1], [EMAIL_9]", "n": 1});
        privacy.reveal("me", &mut arguments);
        assert_eq!(arguments, json!({"to": ["bob@example.org"], "body": "Dear ada@example.org, [EMAIL_9]", "n": 1}));
    }

    #[test]
    fn another_owner_cannot_resolve_it() {
        let privacy = all();
        hidden(&privacy, "me", "ada@example.org");
        let mut arguments = json!("[EMAIL_1]");
        privacy.reveal("you", &mut arguments);
        assert_eq!(arguments, json!("[EMAIL_1]"));
    }

    #[test]
    fn plain_numbers_dates_and_hashes_stay() {
        let privacy = all();
        for text in [
            "2026-11-15 12:30:00",
            "1234567890123456",
            "total 1048576 bytes",
            "10.0.0.1:8080",
            "a1b2c3d4e5f60718293a4b5c6d7e8f90",
            "version 1.2.3-4",
            "3.14159265358979",
            "x@y",
        ] {
            assert_eq!(hidden(&privacy, "me", text), text);
        }
    }

    #[test]
    fn what_cannot_be_hidden_is_refused() {
        assert!(Privacy::new(&["names".into()], &[]).is_err());
        assert!(Privacy::new(&[], &[("lower".into(), "x".into())]).is_err());
        assert!(Privacy::new(&[], &[("X".into(), "[".into())]).is_err());
        assert!(!Privacy::new(&[], &[]).unwrap().is_on());
    }
}
