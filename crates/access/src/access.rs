//! The door: who a request comes from, by its `Authorization` header.

use std::time::{Duration, Instant};

use belljar_engine::Principal;
use serde_json::Value;

use crate::file::{FileError, TokenFile};
use crate::moment::Moment;
use crate::oauth::Oauth;
use crate::rate::Rates;
use crate::scope::{Scope, Scopes};
use crate::tokens::{Tokens, is_token_byte};

/// Longer than any token that we would read.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Who came in, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    pub principal: Principal,
    pub scopes: Scopes,
}

impl Pass {
    /// Whose programs may call other servers' tools only if the scopes say so.
    pub fn new(principal: Principal, scopes: Scopes) -> Pass {
        let principal = if scopes.has(Scope::Tools) { principal } else { principal.without_calls() };
        Pass { principal, scopes }
    }

    /// The one caller of a server that is not shared.
    pub fn local() -> Pass {
        Pass { principal: Principal::local(), scopes: Scopes::ALL }
    }
}

/// Why nobody came in. The words are for whoever knocked, and say nothing of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("send a token of this server: Authorization: Bearer TOKEN")]
    NoToken,
    #[error("the token is none of this server's, or was revoked; send one that is: Authorization: Bearer TOKEN")]
    Unknown,
    #[error("the token has expired; ask for a new one")]
    Expired,
    /// Of an authorization server, or made to look so.
    #[error("the token is not accepted: {0}")]
    Jwt(&'static str),
    #[error("too many requests; try again in {} s", retry_after.as_secs())]
    TooMany { retry_after: Duration },
    /// Not the caller's fault.
    #[error("tokens cannot be checked at the moment; try again later")]
    Unavailable,
}

/// Who may call.
#[derive(Debug, Default)]
pub struct Access {
    tokens: Source,
    oauth: Option<Oauth>,
    rates: Rates,
}

#[derive(Debug, Default)]
enum Source {
    #[default]
    None,
    Fixed(Tokens),
    File(TokenFile),
}

impl From<TokenFile> for Access {
    fn from(file: TokenFile) -> Access {
        Access { tokens: Source::File(file), ..Access::default() }
    }
}

impl From<Tokens> for Access {
    fn from(tokens: Tokens) -> Access {
        Access { tokens: Source::Fixed(tokens), ..Access::default() }
    }
}

impl Access {
    #[must_use]
    pub fn with_oauth(self, oauth: Oauth) -> Access {
        Access { oauth: Some(oauth), ..self }
    }

    /// What each principal may make that has no bound of its own; `None` for as many as it likes.
    pub fn set_requests_per_second(&self, usual: Option<u32>) {
        self.rates.set_usual(usual);
    }

    /// Reads the token file again. A change of it is seen without, at the next request.
    pub fn reload(&self) -> Result<(), FileError> {
        match &self.tokens {
            Source::File(file) => file.reload(),
            Source::None | Source::Fixed(_) => Ok(()),
        }
    }

    /// Lets a request in by the value of its `Authorization` header, if it is one of those who may, and not too soon.
    pub async fn admit(&self, authorization: Option<&str>) -> Result<Pass, Refusal> {
        let pass = self.recognise(authorization).await?;
        match self.rates.count(&pass.principal, Instant::now()) {
            Ok(()) => Ok(pass),
            // In whole seconds, as the header has it.
            Err(wait) => Err(Refusal::TooMany { retry_after: Duration::from_secs(wait.as_secs() + 1) }),
        }
    }

    async fn recognise(&self, authorization: Option<&str>) -> Result<Pass, Refusal> {
        let authorization = authorization.filter(|value| value.len() <= HEADER_BYTES_MAX).ok_or(Refusal::NoToken)?;
        let (scheme, token) = authorization.split_once(' ').ok_or(Refusal::NoToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || !token.bytes().all(is_token_byte) {
            return Err(Refusal::NoToken);
        }
        let now = Moment::now();
        let known = match &self.tokens {
            Source::None => Some(None),
            Source::Fixed(tokens) => Some(tokens.find(token, now)),
            Source::File(file) => file.tokens().map(|tokens| tokens.find(token, now)),
        };
        if let Some(Some(found)) = known {
            return found;
        }
        match &self.oauth {
            Some(oauth) if token.bytes().filter(|byte| *byte == b'.').count() == 2 => oauth.check(token, now).await,
            _ if known.is_none() => Err(Refusal::Unavailable),
            _ => Err(Refusal::Unknown),
        }
    }

    /// Of the `WWW-Authenticate` header of an answer that says no for this reason. `need` is what the request would have
    /// needed, where that is known.
    pub fn challenge(&self, refusal: Refusal, need: Option<Scope>) -> String {
        let mut fields = Vec::new();
        if matches!(refusal, Refusal::Unknown | Refusal::Expired | Refusal::Jwt(_)) {
            fields.push(("error", "invalid_token".to_owned()));
            fields.push(("error_description", refusal.to_string()));
        }
        self.bearer(fields, &[need.unwrap_or(Scope::Run)])
    }

    /// The same for a pass that does not reach.
    pub fn insufficient(&self, need: Scope) -> String {
        let words = format!("this needs the scope {}", self.word(need));
        let fields = vec![("error", "insufficient_scope".to_owned()), ("error_description", words)];
        self.bearer(fields, &[need])
    }

    fn bearer(&self, mut fields: Vec<(&str, String)>, scopes: &[Scope]) -> String {
        if let Some(oauth) = &self.oauth {
            fields.push(("resource_metadata", oauth.metadata_url().to_owned()));
        }
        if self.oauth.is_some() || !fields.is_empty() {
            let scopes: Vec<&str> = scopes.iter().map(|scope| self.word(*scope)).collect();
            fields.push(("scope", scopes.join(" ")));
        }
        let is_plain = |c: &char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
        let fields: Vec<String> = fields
            .into_iter()
            .map(|(name, value)| format!("{name}=\"{}\"", value.chars().filter(is_plain).collect::<String>()))
            .collect();
        if fields.is_empty() { "Bearer".to_owned() } else { format!("Bearer {}", fields.join(", ")) }
    }

    /// How the scope is called where tokens come from.
    fn word(&self, scope: Scope) -> &str {
        self.oauth.as_ref().and_then(|oauth| oauth.word(scope)).unwrap_or(scope.name())
    }

    /// RFC 9728's document, and its path, where there is an authorization server.
    pub fn metadata(&self) -> Option<(String, Value)> {
        self.oauth.as_ref().map(|oauth| (oauth.metadata_path().to_owned(), oauth.metadata()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: &str = "0123456789abcdef0123456789abcdef";
    const BOB: &str = "fedcba9876543210";

    fn two() -> Access {
        Access::from(Tokens::parse(&format!("# who may come in\n\nann:{ANN}\r\n  {BOB}  \n")).unwrap())
    }

    #[tokio::test]
    async fn a_token_names_its_principal() {
        let access = two();
        let ann = access.admit(Some(&format!("Bearer {ANN}"))).await.unwrap();
        assert_eq!((ann.principal.as_str(), ann.scopes), ("ann", Scopes::ALL));
        let bob = access.admit(Some(&format!("bEaReR {BOB}"))).await.unwrap();
        assert_eq!(bob.principal.as_str(), "default");
    }

    #[tokio::test]
    async fn anything_else_names_nobody() {
        let access = two();
        assert_eq!(access.admit(None).await, Err(Refusal::NoToken));
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
            format!("Bearer {ANN}{}", "x".repeat(1 << 20)),
        ] {
            let refusal = access.admit(Some(&value)).await.unwrap_err();
            assert!(matches!(refusal, Refusal::NoToken | Refusal::Unknown), "{value:?}: {refusal:?}");
        }
    }

    #[tokio::test]
    async fn requests_are_counted_for_each_principal() {
        let access = two();
        access.set_requests_per_second(Some(2));
        let ask = async |token: &str| access.admit(Some(&format!("Bearer {token}"))).await;
        assert!(ask(ANN).await.is_ok() && ask(ANN).await.is_ok());
        assert_eq!(ask(ANN).await, Err(Refusal::TooMany { retry_after: Duration::from_secs(1) }));
        assert!(ask(BOB).await.is_ok());
        // Whoever is nobody is not counted.
        assert_eq!(ask("nobody-nobody-nobody").await, Err(Refusal::Unknown));
    }

    #[test]
    fn a_challenge_says_what_is_wrong_and_debug_no_token() {
        let access = two();
        assert_eq!(access.challenge(Refusal::NoToken, None), "Bearer");
        let expired = access.challenge(Refusal::Expired, None);
        assert_eq!(
            expired,
            "Bearer error=\"invalid_token\", error_description=\"the token has expired; ask for a new one\", scope=\"run\""
        );
        assert!(access.insufficient(Scope::Files).contains("error=\"insufficient_scope\""));
        assert!(access.insufficient(Scope::Files).contains("scope=\"files\""));
        let shown = format!("{access:?}");
        assert!(!shown.contains(ANN) && !shown.contains("hash"), "{shown}");
    }
}
