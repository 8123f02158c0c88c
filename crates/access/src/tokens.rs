//! The tokens that a server accepts. Only hashes are kept, and every one is compared, so that neither memory nor time tells a
//! token.

use std::fmt;
use std::sync::Arc;

use belljar_engine::{Principal, Quota};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::access::{Pass, Refusal};
use crate::lines::{self, LineError};
use crate::moment::Moment;
use crate::scope::{Scope, Scopes};

pub(crate) const TOKEN_CHARS_MAX: usize = 1024;
pub(crate) const NAME_CHARS_MAX: usize = 64;

/// All of them, ready to be compared with.
#[derive(Clone, Default)]
pub struct Tokens {
    pub(crate) known: Vec<Known>,
    /// Whether they were written by hand, as lines.
    pub(crate) are_lines: bool,
}

#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) hash: [u8; 32],
    pub(crate) who: Principal,
    pub(crate) scopes: Scopes,
    pub(crate) expires: Option<Moment>,
}

/// A token as it is kept in a file: everything but the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Of its principal.
    pub name: String,
    #[serde(rename = "sha256", serialize_with = "write_hash", deserialize_with = "read_hash")]
    pub(crate) hash: [u8; 32],
    pub scopes: Vec<Scope>,
    pub created: Moment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
}

impl Entry {
    /// By which it is called when it is spoken about.
    pub fn id(&self) -> String {
        hex(&self.hash[..4])
    }

    fn known(self) -> Known {
        let who = Principal::new(&self.name);
        let who = match self.quota {
            Some(quota) => who.with_quota(Arc::new(quota)),
            None => who,
        };
        Known { hash: self.hash, who, scopes: self.scopes.into_iter().collect(), expires: self.expires }
    }
}

impl Tokens {
    /// Of lines of `NAME:TOKEN`.
    pub fn parse(text: &str) -> Result<Tokens, LineError> {
        lines::parse(text)
    }

    pub(crate) fn of(entries: Vec<Entry>) -> Tokens {
        Tokens { known: entries.into_iter().map(Entry::known).collect(), are_lines: false }
    }

    /// Whose token this is. `None` when it is none of ours.
    pub(crate) fn find(&self, token: &str, now: Moment) -> Option<Result<Pass, Refusal>> {
        if token.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let presented = hash(token);
        let mut found = None;
        for known in &self.known {
            if bool::from(known.hash.ct_eq(&presented)) {
                found = Some(known);
            }
        }
        let known = found?;
        Some(if known.expires.is_some_and(|expires| expires <= now) {
            Err(Refusal::Expired)
        } else {
            Ok(Pass::new(known.who.clone(), known.scopes))
        })
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("count", &self.known.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).field("id", &self.id()).finish_non_exhaustive()
    }
}

pub(crate) fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// RFC 6750's b64token.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

pub(crate) fn is_name(name: &str) -> bool {
    // Whoever sits at the machine is "local", over stdio and a socket; nobody else may be.
    name != "local"
        && (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_hash<S: Serializer>(hash: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(hash))
}

fn read_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let bad = || serde::de::Error::custom("a hash has 64 hexadecimal digits");
    let text = String::deserialize(deserializer)?;
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let mut hash = [0; 32];
    for (byte, index) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[index..index + 2], 16).map_err(|_| bad())?;
    }
    Ok(hash)
}
