//! Tokens as people write them by hand: lines of `NAME:TOKEN`. Each may do everything.

use belljar_engine::Principal;

use crate::scope::Scopes;
use crate::tokens::{self, Known, NAME_CHARS_MAX, TOKEN_CHARS_MAX, Tokens, is_name, is_token_byte};

const TOKEN_CHARS_MIN: usize = 16;
const DEFAULT_NAME: &str = "default";

/// Lines that cannot be used. Never says the token itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("no token found; write one line NAME:TOKEN for each principal")]
    Empty,
    #[error("line {line}: the token has fewer than {TOKEN_CHARS_MIN} characters; make one with: openssl rand -hex 32")]
    Short { line: usize },
    #[error("line {line}: a token has at most {TOKEN_CHARS_MAX} of the characters A-Z a-z 0-9 - . _ ~ + / =")]
    Malformed { line: usize },
    #[error("line {line}: a name has 1 to {NAME_CHARS_MAX} of the characters A-Z a-z 0-9 - . _ @; write NAME:TOKEN")]
    BadName { line: usize },
    #[error("line {line}: this token was given before; each principal needs its own")]
    Twice { line: usize },
}

/// Reads lines of `NAME:TOKEN`, or of a bare `TOKEN`, whose principal is then "default". Empty lines and lines that begin
/// with `#` are skipped.
pub(crate) fn parse(text: &str) -> Result<Tokens, LineError> {
    let mut known: Vec<Known> = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let (line_number, line) = (index + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, token) = line.split_once(':').unwrap_or((DEFAULT_NAME, line));
        let (name, token) = (name.trim(), token.trim());
        if !is_name(name) {
            return Err(LineError::BadName { line: line_number });
        }
        if token.len() < TOKEN_CHARS_MIN {
            return Err(LineError::Short { line: line_number });
        }
        if token.len() > TOKEN_CHARS_MAX || !token.bytes().all(is_token_byte) {
            return Err(LineError::Malformed { line: line_number });
        }
        let hash = tokens::hash(token);
        if known.iter().any(|other| other.hash == hash) {
            return Err(LineError::Twice { line: line_number });
        }
        known.push(Known { hash, who: Principal::new(name), scopes: Scopes::ALL, expires: None });
    }
    if known.is_empty() { Err(LineError::Empty) } else { Ok(Tokens { known, are_lines: true }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_bad_file_is_refused_by_line_and_without_the_token() {
        assert_eq!(parse("").unwrap_err(), LineError::Empty);
        assert_eq!(parse("# only\n").unwrap_err(), LineError::Empty);
        assert_eq!(parse("\nann:short").unwrap_err(), LineError::Short { line: 2 });
        assert_eq!(parse("ann:0123456789 abcdef0").unwrap_err(), LineError::Malformed { line: 1 });
        assert_eq!(parse(&format!("a n:{ANN}")).unwrap_err(), LineError::BadName { line: 1 });
        assert_eq!(parse(&format!("oauth:x:{ANN}")).unwrap_err(), LineError::Malformed { line: 1 });
        assert_eq!(parse(&format!(":{ANN}")).unwrap_err(), LineError::BadName { line: 1 });
        assert_eq!(parse(&format!("a:{ANN}\nb:{ANN}")).unwrap_err(), LineError::Twice { line: 2 });
        let said = parse("ann:secret-but-bad-ü-here").unwrap_err().to_string();
        assert!(!said.contains("secret"), "{said}");
        assert!(parse("x:tiny").unwrap_err().to_string().contains("openssl rand"));
    }
}
