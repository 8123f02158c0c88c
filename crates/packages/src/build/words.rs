//! What the resolver said: made fit to be read, and understood as far as somebody acts on it.

use crate::InstallErrorKind;

/// What a caller is told at most, in bytes.
const WORDS_MAX: usize = 4 << 10;

/// The part that says what is wrong, without what a terminal would act upon, and not longer than one reads.
pub(crate) fn clean(text: &str) -> String {
    let plain = without_escapes(text);
    let is_ours = |line: &&str| !line.starts_with("belljar:") && !line.starts_with("Using CPython");
    let lines = plain.lines().map(str::trim_end).filter(is_ours).collect::<Vec<_>>();
    // uv says first how far it came, and npm what it fetched.
    let start = lines
        .iter()
        .position(|line| ["error", "ERROR", "npm err", "npm ERR"].iter().any(|word| line.starts_with(word)));
    let is_noise = |line: &&&str| line.starts_with("npm http") || line.contains("A complete log of this run");
    let said = lines.get(start.unwrap_or(0)..).unwrap_or_default();
    let said = said.iter().filter(|line| !is_noise(line)).copied().collect::<Vec<_>>().join("\n");
    let said = said.trim();
    if said.len() <= WORDS_MAX {
        return said.to_owned();
    }
    // How it begins, and how it ends, which is where a compiler says why.
    let (head, tail) = (said.floor_char_boundary(WORDS_MAX / 2), said.ceil_char_boundary(said.len() - WORDS_MAX / 2));
    format!("{}\n[...]\n{}", said.get(..head).unwrap_or_default(), said.get(tail..).unwrap_or_default())
}

fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            if rest.next_if_eq(&'[').is_some() {
                // Parameters, up to the letter that ends them.
                while rest.next_if(|c| !c.is_ascii_alphabetic()).is_some() {}
                rest.next();
            }
        } else if c == '\n' || c == '\t' || !(c.is_control() || is_bidi(c)) {
            plain.push(c);
        }
    }
    plain
}

/// Letters that turn the direction of what follows.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// By what uv, pip and npm say; in this order, since a resolver that found no host also says that it found no package.
const SIGNS: [(InstallErrorKind, &[&str]); 4] = [
    (InstallErrorKind::NoSpace, &["No space left on device", "os error 28", "ENOSPC", "Disk quota exceeded"]),
    (
        InstallErrorKind::Offline,
        &[
            // As our own guard says it.
            "could not be resolved",
            "could not be reached",
            "tunnel error",
            "Tunnel connection failed",
            "dns error",
            "tcp connect error",
            "Failed to establish a new connection",
            "Temporary failure in name resolution",
            "Name or service not known",
            "Network is unreachable",
            "ENOTFOUND",
            "EAI_AGAIN",
            "ECONNREFUSED",
            "ENETUNREACH",
            "Connection refused",
        ],
    ),
    (
        InstallErrorKind::NotFound,
        &[
            "not found in the package registry",
            "not found in the provided package locations",
            "no version of",
            "no versions of",
            "has no wheels with",
            "has no usable wheels",
            "Failed to parse",
            "Distribution not found",
            "Couldn't parse requirement",
            "No matching distribution found",
            "Invalid requirement",
            "code E404",
            "code ETARGET",
            "code EINVALID",
            "is not in the index",
        ],
    ),
    (
        InstallErrorKind::Conflict,
        &["No solution found", "ResolutionImpossible", "code ERESOLVE", "conflicting dependencies"],
    ),
];

pub(crate) fn kind(text: &str) -> InstallErrorKind {
    let found = SIGNS.iter().find(|(_, signs)| signs.iter().any(|sign| text.contains(sign)));
    found.map_or(InstallErrorKind::Failed, |(kind, _)| *kind)
}

/// Which of these names the resolver speaks of.
pub(crate) fn mentioned<'a>(words: &str, names: &'a [String]) -> Vec<&'a String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '/');
    let spoken = words.split(|c| !is_part(c)).map(|word| word.trim_matches(['.', '/'])).collect::<Vec<_>>();
    let says = |name: &str| {
        let bare = name.get(1..).and_then(|rest| rest.find('@')).map_or(name, |at| name.get(..=at).unwrap_or(name));
        spoken.iter().any(|word| *word == bare || word.starts_with(&format!("{bare}@")))
    };
    names.iter().filter(|name| says(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolvers_words_are_kept_and_nothing_else() {
        let said = "belljar:resolving\nUsing CPython 3.11.2 interpreter at: /usr/bin/python3\n\u{1b}[31merror\u{1b}[0m: No solution \
                    found\u{7}\n  cause: Because x was not found\u{202e} in the package registry.\n";
        assert_eq!(clean(said), "error: No solution found\n  cause: Because x was not found in the package registry.");
    }

    #[test]
    fn long_words_keep_their_beginning_and_their_end() {
        let said = format!("error: first\n{}\nlast", "ä".repeat(20_000));
        let kept = clean(&said);
        assert!(kept.len() < WORDS_MAX + 20 && kept.starts_with("error: first") && kept.ends_with("last"));
    }

    #[test]
    fn errors_are_told_apart() {
        for (said, wanted) in [
            (
                "cause: Because no-such was not found in the package registry and you require",
                InstallErrorKind::NotFound,
            ),
            ("cause: Because there is no version of six==99 and you require six==99", InstallErrorKind::NotFound),
            ("npm error code E404\nnpm error 404 Not Found", InstallErrorKind::NotFound),
            ("No solution found: Because pandas>=3 depends on numpy>=2 and you require", InstallErrorKind::Conflict),
            ("error: Request failed after 3 retries\n cause: dns error", InstallErrorKind::Offline),
            ("error: Failed to build `x==1`", InstallErrorKind::Failed),
            ("failed to write: No space left on device (os error 28)", InstallErrorKind::NoSpace),
        ] {
            assert_eq!(kind(said), wanted, "{said}");
        }
    }

    #[test]
    fn culprits_are_found_by_their_whole_names() {
        let names =
            ["no-such".to_owned(), "no".to_owned(), "pandas".to_owned(), "@a/b".to_owned(), "left@1".to_owned()];
        let said =
            "Because no-such was not found in the package registry and you require pandas>=3, 404 '@a/b@*' leftover.";
        assert_eq!(mentioned(said, &names), ["no-such", "pandas", "@a/b"]);
        assert_eq!(mentioned("'left@1' is not there", &names), ["left@1"]);
    }
}
