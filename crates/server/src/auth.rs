//! Who may speak over HTTP: bearer tokens, each with the name of its principal.
//!
//! Only hashes are kept, and every one is compared, so that neither memory nor time tells a token.

use std::fmt;

use belljar_engine::Principal;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

const TOKEN_CHARS_MIN: usize = 16;
const TOKEN_CHARS_MAX: usize = 1024;
const NAME_CHARS_MAX: usize = 64;
const DEFAULT_NAME: &str = "default";

/// The tokens that a server accepts.
#[derive(Clone)]
pub struct Tokens {
    known: Vec<Known>,
}

#[derive(Clone)]
struct Known {
    hash: [u8; 32],
    who: Principal,
}

/// A token file that cannot be used. Never says the token itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
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

impl Tokens {
    /// Reads lines of `NAME:TOKEN`, or of a bare `TOKEN`, whose principal is then "default". Empty lines and lines that
    /// begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Tokens, TokenError> {
        let mut known: Vec<Known> = Vec::new();
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let (line_number, line) = (index + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, token) = line.split_once(':').unwrap_or((DEFAULT_NAME, line));
            let (name, token) = (name.trim(), token.trim());
            if !is_name(name) {
                return Err(TokenError::BadName { line: line_number });
            }
            if token.len() < TOKEN_CHARS_MIN {
                return Err(TokenError::Short { line: line_number });
            }
            if token.len() > TOKEN_CHARS_MAX || !token.bytes().all(is_token_byte) {
                return Err(TokenError::Malformed { line: line_number });
            }
            let hash = hash(token);
            if known.iter().any(|other| other.hash == hash) {
                return Err(TokenError::Twice { line: line_number });
            }
            known.push(Known { hash, who: Principal::new(name) });
        }
        if known.is_empty() { Err(TokenError::Empty) } else { Ok(Tokens { known }) }
    }

    /// The principal of the value of an `Authorization` header, if it is `Bearer` and one of our tokens.
    pub(crate) fn principal(&self, authorization: &str) -> Option<Principal> {
        let (scheme, token) = authorization.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") || !token.bytes().all(is_token_byte) {
            return None;
        }
        let presented = hash(token);
        let mut found = None;
        for known in &self.known {
            let same: Choice = known.hash.ct_eq(&presented);
            if bool::from(same) {
                found = Some(known.who.clone());
            }
        }
        found
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("count", &self.known.len()).finish_non_exhaustive()
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// RFC 6750's b64token.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

fn is_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: &str = "0123456789abcdef0123456789abcdef";
    const BOB: &str = "fedcba9876543210";

    fn two() -> Tokens {
        Tokens::parse(&format!("# who may come in\n\nann:{ANN}\r\n  {BOB}  \n")).unwrap()
    }

    #[test]
    fn a_token_names_its_principal() {
        let tokens = two();
        assert_eq!(tokens.principal(&format!("Bearer {ANN}")), Some(Principal::new("ann")));
        assert_eq!(tokens.principal(&format!("bEaReR {BOB}")), Some(Principal::new("default")));
    }

    #[test]
    fn anything_else_names_nobody() {
        let tokens = two();
        for value in [
            String::new(),
            "Bearer".into(),
            "Bearer ".into(),
            ANN.into(),
            format!("Basic {ANN}"),
            format!("bearer  {ANN}"),
            format!("Bearer {ANN} x"),
            format!("Bearer {ANN},"),
            format!("Bearer\t{ANN}"),
            format!(" Bearer {ANN}"),
            format!("Bearer {}", &ANN[1..]),
            format!("Bearer ann:{ANN}"),
            format!("Bearer {}", ANN.to_uppercase()),
        ] {
            assert_eq!(tokens.principal(&value), None, "{value:?}");
        }
    }

    #[test]
    fn a_bad_file_is_refused_by_line_and_without_the_token() {
        assert_eq!(Tokens::parse("").unwrap_err(), TokenError::Empty);
        assert_eq!(Tokens::parse("# only\n").unwrap_err(), TokenError::Empty);
        assert_eq!(Tokens::parse("\nann:short").unwrap_err(), TokenError::Short { line: 2 });
        assert_eq!(Tokens::parse("ann:0123456789 abcdef0").unwrap_err(), TokenError::Malformed { line: 1 });
        assert_eq!(Tokens::parse(&format!("a n:{ANN}")).unwrap_err(), TokenError::BadName { line: 1 });
        assert_eq!(Tokens::parse(&format!(":{ANN}")).unwrap_err(), TokenError::BadName { line: 1 });
        assert_eq!(Tokens::parse(&format!("a:{ANN}\nb:{ANN}")).unwrap_err(), TokenError::Twice { line: 2 });
        let said = Tokens::parse("ann:secret-but-bad-ü-here").unwrap_err().to_string();
        assert!(!said.contains("secret"), "{said}");
        assert!(Tokens::parse("x:tiny").unwrap_err().to_string().contains("openssl rand"));
    }

    #[test]
    fn debug_shows_no_token() {
        let shown = format!("{:?}", two());
        assert!(!shown.contains(ANN) && !shown.contains("hash"), "{shown}");
    }
}
