//! Words of names, descriptions and queries, brought to one form.

/// Longer words are cut: nobody searches by them, and a description may be one.
const WORD_BYTES: usize = 40;

/// Words that say nothing of what a tool is for.
const STOP: &[&str] = &[
    "a", "about", "am", "an", "and", "any", "are", "as", "at", "be", "been", "being", "but", "by", "can", "could",
    "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "here", "him", "his", "how", "i", "if",
    "in", "into", "is", "it", "its", "just", "let", "like", "me", "my", "need", "of", "off", "on", "onto", "or", "our",
    "out", "please", "she", "should", "so", "some", "that", "the", "their", "them", "then", "there", "these", "they",
    "this", "those", "to", "too", "tool", "us", "use", "using", "via", "want", "was", "we", "were", "what", "which",
    "who", "whose", "will", "with", "would", "you", "your",
];

pub(super) fn is_stop(word: &str) -> bool {
    STOP.binary_search(&word).is_ok()
}

/// How a chunk of letters and digits is taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// A tool, a parameter: `createPullRequest` is three words, and one.
    Identifier,
    /// Prose: `GitHub` is one word, and not two, but `createIssue` is an identifier here as well.
    Prose,
}

/// Calls `each` with every word in lower case, unstemmed, in order. What an identifier is as a whole comes after its parts.
pub(super) fn split(text: &str, kind: Text, mut each: impl FnMut(&str)) {
    let mut lower = String::new();
    for chunk in text.split(|character: char| !character.is_alphanumeric()) {
        if chunk.is_empty() {
            continue;
        }
        // Most words are plain: nothing to take apart, nothing to change.
        if chunk.len() <= WORD_BYTES && chunk.bytes().all(|byte| byte.is_ascii_lowercase()) {
            each(chunk);
            continue;
        }
        let mut parts = 0;
        if kind == Text::Identifier || chunk.starts_with(|first: char| first.is_lowercase()) {
            let cuts = cuts(chunk);
            if cuts.len() > 1 {
                let mut start = 0;
                for end in cuts {
                    give(&chunk[start..end], &mut lower, &mut each);
                    parts += 1;
                    start = end;
                }
            }
        }
        if parts <= MANY_PARTS {
            give(chunk, &mut lower, &mut each);
        }
    }
}

/// An identifier of more parts than this is not looked for as a whole.
const MANY_PARTS: usize = 3;

fn give(word: &str, lower: &mut String, each: &mut impl FnMut(&str)) {
    lower.clear();
    for character in word.chars() {
        if lower.len() >= WORD_BYTES {
            break;
        }
        lower.extend(character.to_lowercase());
    }
    each(lower);
}

/// Where the parts of an identifier end: before a capital that begins a word, and between letters and digits.
fn cuts(chunk: &str) -> Vec<usize> {
    let characters: Vec<(usize, char)> = chunk.char_indices().collect();
    let mut cuts = Vec::new();
    for (index, pair) in characters.windows(2).enumerate() {
        let (before, (at, here)) = (pair[0].1, pair[1]);
        let after = characters.get(index + 2).map(|(_, after)| *after);
        let capital = here.is_uppercase()
            && (before.is_lowercase() || (before.is_uppercase() && after.is_some_and(char::is_lowercase)));
        if capital || before.is_ascii_digit() != here.is_ascii_digit() {
            cuts.push(at);
        }
    }
    cuts.push(chunk.len());
    cuts
}

/// The stem: enough that `issues`, `creating`, `created`, `creation` and `create` meet. Not a word that anyone reads.
pub(super) fn stem(word: &str) -> String {
    if word.len() < 4 || !word.is_ascii() {
        return word.to_owned();
    }
    let mut stem = plural(word);
    if let Some(base) = stem.strip_suffix("ied").filter(|base| base.len() >= 2) {
        stem = format!("{base}y");
    }
    for suffix in ["ing", "ed"] {
        let Some(base) = stem.strip_suffix(suffix) else { continue };
        if base.len() >= 3 && base.bytes().any(|byte| b"aeiouy".contains(&byte)) {
            stem = single_end(base).to_owned();
            break;
        }
    }
    for (suffix, least) in [("ation", 4), ("ate", 5), ("ion", 4), ("ment", 4), ("at", 5), ("e", 3)] {
        if let Some(base) = stem.strip_suffix(suffix).filter(|base| base.len() >= least) {
            return base.to_owned();
        }
    }
    stem
}

fn plural(word: &str) -> String {
    if let Some(base) = word.strip_suffix("ies") {
        return if base.len() > 1 { format!("{base}y") } else { word.to_owned() };
    }
    for doubled in ["sses", "xes", "ches", "shes", "zes"] {
        if word.ends_with(doubled) {
            return word[..word.len() - 2].to_owned();
        }
    }
    if word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        return word[..word.len() - 1].to_owned();
    }
    word.to_owned()
}

/// `runn` of `running` is `run`; `call` stays.
fn single_end(base: &str) -> &str {
    let bytes = base.as_bytes();
    match bytes {
        [.., before, last] if before == last && !b"lsz".contains(last) && !b"aeiou".contains(last) => {
            &base[..base.len() - 1]
        }
        _ => base,
    }
}

/// Whether one letter more, less, other or swapped with its neighbour makes one of the other.
pub(super) fn one_apart(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let (short, long) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    if long.len() - short.len() > 1 {
        return false;
    }
    let same = short.iter().zip(long).take_while(|(one, other)| one == other).count();
    if short.len() < long.len() {
        return short[same..] == long[same + 1..];
    }
    if same == short.len() {
        return false;
    }
    let swapped = same + 1 < short.len()
        && short[same] == long[same + 1]
        && short[same + 1] == long[same]
        && short[same + 2..] == long[same + 2..];
    swapped || short[same + 1..] == long[same + 1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, kind: Text) -> Vec<String> {
        let mut words = Vec::new();
        split(text, kind, |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn names_are_split_at_case_digits_and_signs() {
        assert_eq!(words("create_issue-comment", Text::Identifier), ["create", "issue", "comment"]);
        assert_eq!(words("getURLContents", Text::Identifier), ["get", "url", "contents", "geturlcontents"]);
        assert_eq!(words("base64", Text::Identifier), ["base", "64", "base64"]);
        assert_eq!(
            words("on GitHub, by createIssue", Text::Prose),
            ["on", "github", "by", "create", "issue", "createissue"]
        );
        assert_eq!(words("…—🦀 ", Text::Identifier), Vec::<String>::new());
    }

    #[test]
    fn stop_words_are_in_order() {
        assert!(STOP.is_sorted());
        assert!(is_stop("the") && !is_stop("issue"));
    }

    #[test]
    fn forms_of_a_word_meet() {
        for family in [
            &["create", "creates", "created", "creating", "creation"][..],
            &["query", "queries", "queried", "querying"],
            &["navigate", "navigation", "navigating", "navigated"],
            &["branch", "branches"],
            &["run", "running", "runs"],
            &["call", "calls", "calling", "called"],
            &["deploy", "deployment", "deploying"],
            &["file", "files", "filing"],
            &["process", "processes"],
        ] {
            for word in family {
                assert_eq!(stem(word), stem(family[0]), "{word}");
            }
        }
        assert_ne!(stem("status"), stem("state"));
        assert_eq!(stem("añadió"), "añadió");
    }

    #[test]
    fn one_slip_is_forgiven_and_two_are_not() {
        for (one, other) in [("screenshot", "screenshto"), ("issue", "isue"), ("query", "querry"), ("merge", "marge")] {
            assert!(one_apart(one, other) && one_apart(other, one), "{one} {other}");
        }
        for (one, other) in [("issue", "issue"), ("query", "quarrel"), ("merge", "large"), ("list", "listing")] {
            assert!(!one_apart(one, other), "{one} {other}");
        }
    }
}
