//! Tokens of an OAuth authorization server, of which we are a resource server: JWTs that it signed for us.
//!
//! What is checked: the signature, by a key of the issuer's; that the issuer is the one that the operator named; that the token
//! is meant for us; and its times. Nothing in a token says where keys come from.

mod fetch;
mod jwt;
mod keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_engine::Principal;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use url::Url;

use self::fetch::{Fetcher, may_fetch};
use self::jwt::Jwt;
use self::keys::Keys;
use crate::access::{Pass, Refusal};
use crate::moment::Moment;
use crate::scope::{Scope, Scopes};
use crate::tokens::hex;

const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Clocks differ.
const LEEWAY_SECONDS: u64 = 60;
const SUBJECT_CHARS_MAX: usize = 128;
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What the operator says of the authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OauthSettings {
    pub issuer: String,
    /// Our own address as callers know it, which tokens must be meant for.
    pub audience: String,
    /// Where the issuer's keys are; without it, the issuer's metadata says where.
    pub jwks_uri: Option<String>,
    /// What a word of a token's `scope` claim means here. Without any, `belljar:run` and `run` mean `run`, and so on.
    pub scopes: BTreeMap<String, Scope>,
    /// The claim that tells principals apart.
    pub principal_claim: String,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OauthError {
    #[error(
        "{0} is no address that may be asked: it must begin with https://, or with http:// and be this machine's own"
    )]
    BadUrl(&'static str),
    #[error("audience is no address: it must be ours as callers write it, such as https://belljar.example.com/mcp")]
    BadAudience,
    #[error("principal_claim is empty")]
    NoClaim,
    #[error("no client for HTTPS can be made: {0}")]
    Client(String),
}

#[derive(Debug)]
pub struct Oauth {
    settings: OauthSettings,
    keys: Arc<Keys>,
    metadata_url: String,
    metadata_path: String,
}

impl Oauth {
    pub fn new(settings: OauthSettings) -> Result<Oauth, OauthError> {
        let issuer = Url::parse(&settings.issuer).ok().filter(may_fetch).ok_or(OauthError::BadUrl("issuer"))?;
        let jwks_uri = match &settings.jwks_uri {
            Some(uri) => Some(Url::parse(uri).ok().filter(may_fetch).ok_or(OauthError::BadUrl("jwks_uri"))?),
            None => None,
        };
        let audience = Url::parse(&settings.audience).map_err(|_| OauthError::BadAudience)?;
        if !matches!(audience.scheme(), "https" | "http") || audience.fragment().is_some() {
            return Err(OauthError::BadAudience);
        }
        if settings.principal_claim.is_empty() {
            return Err(OauthError::NoClaim);
        }
        let metadata_path = format!("{WELL_KNOWN}{}", audience.path().trim_end_matches('/'));
        let metadata_url = format!("{}{metadata_path}", audience.origin().ascii_serialization());
        let fetcher = Fetcher::new(&issuer).map_err(|error| OauthError::Client(error.to_string()))?;
        let keys = Arc::new(Keys::new(fetcher, issuer, settings.issuer.clone(), jwks_uri));
        Ok(Oauth { settings, keys, metadata_url, metadata_path })
    }

    pub(crate) fn metadata_url(&self) -> &str {
        &self.metadata_url
    }

    pub(crate) fn metadata_path(&self) -> &str {
        &self.metadata_path
    }

    pub(crate) fn metadata(&self) -> Value {
        let scopes: Vec<&str> = Scope::ALL.into_iter().filter_map(|scope| self.word(scope)).collect();
        json!({
            "resource": self.settings.audience,
            "authorization_servers": [self.settings.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
            "resource_name": "Belljar",
        })
    }

    /// What the authorization server calls this scope.
    pub(crate) fn word(&self, scope: Scope) -> Option<&str> {
        if self.settings.scopes.is_empty() {
            return Some(match scope {
                Scope::Read => "belljar:read",
                Scope::Files => "belljar:files",
                Scope::Run => "belljar:run",
                Scope::Tools => "belljar:tools",
            });
        }
        self.settings.scopes.iter().find(|(_, means)| **means == scope).map(|(word, _)| word.as_str())
    }

    fn meaning(&self, word: &str) -> Option<Scope> {
        if self.settings.scopes.is_empty() {
            return word.strip_prefix("belljar:").unwrap_or(word).parse().ok();
        }
        self.settings.scopes.get(word).copied()
    }

    /// What can be told without a key is told first: a token that is not for us makes us ask nobody.
    pub(crate) async fn check(&self, token: &str, now: Moment) -> Result<Pass, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Jwt("it is longer than 8 KiB"));
        }
        let jwt = Jwt::parse(token)?;
        self.check_claims(&jwt.claims, now)?;
        let subject = jwt.claims.get(&self.settings.principal_claim).and_then(Value::as_str).unwrap_or_default();
        if subject.is_empty() {
            return Err(Refusal::Jwt("it does not say whose it is"));
        }
        let candidates = self.keys.find(jwt.kid.as_deref(), jwt.algorithm).await?;
        if !candidates.iter().any(|key| key.verifies(jwt.algorithm, jwt.signed, &jwt.signature)) {
            return Err(Refusal::Jwt("its signature is not the issuer's"));
        }
        Ok(Pass::new(principal(subject), self.scopes(&jwt.claims)))
    }

    fn check_claims(&self, claims: &Map<String, Value>, now: Moment) -> Result<(), Refusal> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.settings.issuer) {
            return Err(Refusal::Jwt("its issuer is not the one that this server trusts"));
        }
        let is_us = |value: &Value| value.as_str() == Some(&self.settings.audience);
        let is_for_us = match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(is_us),
            Some(one) => is_us(one),
            None => false,
        };
        if !is_for_us {
            return Err(Refusal::Jwt("it is not meant for this server"));
        }
        // Numbers of JSON, which may have fractions.
        let seconds = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().filter(|seconds| *seconds >= 0.0).map(Some).ok_or(()),
        };
        let (Ok(Some(expires)), Ok(begins)) = (seconds("exp"), seconds("nbf")) else {
            return Err(Refusal::Jwt("it does not say until when it holds"));
        };
        let (now, leeway) = (now.unix() as f64, LEEWAY_SECONDS as f64);
        if now >= expires + leeway {
            return Err(Refusal::Expired);
        }
        if begins.is_some_and(|begins| now + leeway < begins) {
            return Err(Refusal::Jwt("it does not hold yet"));
        }
        Ok(())
    }

    /// `scope` is a text of words; some servers say `scp`, and some of those a list.
    fn scopes(&self, claims: &Map<String, Value>) -> Scopes {
        let said = claims.get("scope").or_else(|| claims.get("scp"));
        let words: Vec<&str> = match said {
            Some(Value::String(text)) => text.split(' ').collect(),
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        words.into_iter().filter_map(|word| self.meaning(word)).collect()
    }
}

/// No token's name has a colon, so that no subject can be somebody whom the operator named. A subject that is long or has
/// characters that names have not is told by its hash: two of them never become one.
fn principal(subject: &str) -> Principal {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@|".contains(&byte);
    if subject.len() <= SUBJECT_CHARS_MAX && subject.bytes().all(is_plain) {
        Principal::new(&format!("oauth:{subject}"))
    } else {
        Principal::new(&format!("oauth:~{}", hex(&Sha256::digest(subject.as_bytes()))))
    }
}
