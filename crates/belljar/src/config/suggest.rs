//! What somebody who wrote a word that nobody knows may have meant.

/// Less alike than this, two words are two words.
const ALIKE_MIN: f64 = 0.8;

/// The most similar one, if it is similar at all.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|known| (likeness(word, known), known));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score >= ALIKE_MIN).map(|(_, known)| known)
}

/// Long words are compared by their beginnings: a key has at most some dozen letters, and the time is the square of them.
fn likeness(word: &str, known: &str) -> f64 {
    let begun: String = word.chars().take(64).collect::<String>().to_lowercase();
    strsim::jaro_winkler(&begun, &known.to_lowercase())
}

/// The end of a sentence, or nothing.
pub(crate) fn did_you_mean(found: Option<impl std::fmt::Display>) -> String {
    found.map(|found| format!("; did you mean `{found}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_and_other_words_are_not() {
        let known = ["idle_timeout", "max_age", "yield_after", "profile"];
        for (word, meant) in [
            ("idle_timout", Some("idle_timeout")),
            ("IDLE_TIMEOUT", Some("idle_timeout")),
            ("idle-timeout", Some("idle_timeout")),
            ("yeild_after", Some("yield_after")),
            ("maxage", Some("max_age")),
            ("gpu", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"idle_timeout".repeat(10_000), ["pool"]), None);
    }
}
