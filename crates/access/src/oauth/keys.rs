//! The issuer's keys, kept for some minutes and asked for again when a token names one that is not among them.
//!
//! While the issuer does not answer, the keys that there are hold on for a while, and whoever comes with one of them does not
//! wait for the next attempt.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

use super::fetch::{FetchError, Fetcher, may_fetch};
use super::jwt::{Algorithm, Family};
use crate::access::Refusal;

const FRESH: Duration = Duration::from_secs(5 * 60);
/// How long keys are good for when the issuer does not answer.
const STALE_MAX: Duration = Duration::from_secs(60 * 60);
/// Anybody can send a token with a key that nobody knows.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(30);
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
const KEYS_MAX: usize = 32;

const UNKNOWN_KEY: Refusal = Refusal::Jwt("its key is none of the issuer's");

#[derive(Debug)]
pub(super) struct Key {
    kid: Option<String>,
    /// The one algorithm that it is for, if it says so.
    only: Option<String>,
    public: Public,
}

#[derive(Debug)]
enum Public {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point of the curve, uncompressed.
    Ecdsa {
        curve: String,
        point: Vec<u8>,
    },
}

#[derive(Debug, Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Key {
    /// `None` for what is no key to check signatures with. Those of one secret (`oct`) are none.
    fn of(raw: Value) -> Option<Key> {
        let raw: RawKey = serde_json::from_value(raw).ok()?;
        if raw.purpose.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let number = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok();
        let public = match raw.kty.as_str() {
            "RSA" => {
                let bare = |mut bytes: Vec<u8>| {
                    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                    bytes.drain(..zeros);
                    bytes
                };
                Public::Rsa { n: bare(number(raw.n)?), e: bare(number(raw.e)?) }
            }
            "EC" => {
                let point = [vec![4], number(raw.x)?, number(raw.y)?].concat();
                Public::Ecdsa { curve: raw.crv?, point }
            }
            _ => return None,
        };
        Some(Key { kid: raw.kid, only: raw.alg, public })
    }

    /// The key decides what it may be used for, not the token.
    fn is_for(&self, algorithm: Algorithm) -> bool {
        let fits = match (&self.public, algorithm.family()) {
            (Public::Rsa { .. }, Family::Rsa(_)) => true,
            (Public::Ecdsa { curve: own, .. }, Family::Ecdsa { curve, .. }) => own == curve,
            _ => false,
        };
        fits && self.only.as_deref().is_none_or(|only| only == algorithm.name())
    }

    pub(super) fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        let verified = match (&self.public, algorithm.family()) {
            (Public::Rsa { n, e }, Family::Rsa(parameters)) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature)
            }
            (Public::Ecdsa { point, .. }, Family::Ecdsa { by, .. }) => {
                UnparsedPublicKey::new(by, point).verify(signed, signature)
            }
            _ => return false,
        };
        self.is_for(algorithm) && verified.is_ok()
    }
}

/// The keys as they were at one time.
#[derive(Debug, Clone, Default)]
struct Known {
    keys: Arc<[Arc<Key>]>,
    since: Option<Instant>,
    /// Whether newer ones were asked for, and not to be had.
    is_failing: bool,
}

impl Known {
    fn is_younger(&self, age: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() < age)
    }

    fn matching(&self, kid: Option<&str>, algorithm: Algorithm) -> Vec<Arc<Key>> {
        let matches = |key: &&Arc<Key>| {
            key.is_for(algorithm) && kid.is_none_or(|kid| key.kid.as_deref().is_none_or(|own| own == kid))
        };
        self.keys.iter().filter(matches).cloned().collect()
    }
}

#[derive(Debug)]
pub(super) struct Keys {
    fetcher: Fetcher,
    issuer: Url,
    /// As it is written, which metadata must repeat.
    issuer_name: String,
    /// Where the operator says they are.
    jwks_uri: Option<Url>,
    known: RwLock<Known>,
    asking: Mutex<Asking>,
}

/// Held by whoever asks the issuer; everybody else who needs to waits for what comes of it.
#[derive(Debug, Default)]
struct Asking {
    /// Where the metadata says they are.
    found: Option<Url>,
    for_unknown: Option<Instant>,
    failed: Option<Instant>,
}

impl Asking {
    fn may_ask(&self) -> bool {
        self.failed.is_none_or(|last| last.elapsed() >= FAILURE_PAUSE)
    }
}

impl Keys {
    pub(super) fn new(fetcher: Fetcher, issuer: Url, issuer_name: String, jwks_uri: Option<Url>) -> Keys {
        Keys { fetcher, issuer, issuer_name, jwks_uri, known: RwLock::default(), asking: Mutex::default() }
    }

    fn known(&self) -> Known {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys that a token of this algorithm may be signed with, never none.
    pub(super) async fn find(
        self: &Arc<Keys>,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<Arc<Key>>, Refusal> {
        let known = self.known();
        let found = known.matching(kid, algorithm);
        if known.is_younger(FRESH) && !found.is_empty() {
            return Ok(found);
        }
        if known.is_failing && known.is_younger(STALE_MAX) && !found.is_empty() {
            self.renew_aside();
            return Ok(found);
        }
        let mut asking = self.asking.lock().await;
        // Somebody else may have asked meanwhile.
        let known = self.known();
        let found = known.matching(kid, algorithm);
        if known.is_younger(FRESH) {
            if !found.is_empty() {
                return Ok(found);
            }
            if asking.for_unknown.is_some_and(|last| last.elapsed() < UNKNOWN_KEY_PAUSE) {
                return Err(UNKNOWN_KEY);
            }
            asking.for_unknown = Some(Instant::now());
        }
        if asking.may_ask() {
            self.renew(&mut asking).await;
        }
        let known = self.known();
        let found = known.matching(kid, algorithm);
        match found.is_empty() {
            _ if !known.is_younger(STALE_MAX) => Err(Refusal::Unavailable),
            true => Err(UNKNOWN_KEY),
            false => Ok(found),
        }
    }

    /// Asks the issuer while nobody waits for it, unless somebody asks already or has just done so.
    fn renew_aside(self: &Arc<Keys>) {
        if !self.asking.try_lock().is_ok_and(|asking| asking.may_ask()) {
            return;
        }
        let keys = self.clone();
        tokio::spawn(async move {
            if let Ok(mut asking) = keys.asking.try_lock()
                && asking.may_ask()
            {
                keys.renew(&mut asking).await;
            }
        });
    }

    /// Asks the issuer, and keeps what comes of it.
    async fn renew(&self, asking: &mut Asking) {
        match self.ask(asking).await {
            Ok(fresh) => {
                asking.failed = None;
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = fresh;
            }
            Err(error) => {
                tracing::warn!(%error, "the keys of the issuer of OAuth tokens could not be had");
                asking.failed = Some(Instant::now());
                // They may be elsewhere by now.
                asking.found = None;
                self.known.write().unwrap_or_else(PoisonError::into_inner).is_failing = true;
            }
        }
    }

    async fn ask(&self, asking: &mut Asking) -> Result<Known, FetchError> {
        let uri = match (&self.jwks_uri, &asking.found) {
            (Some(uri), _) | (None, Some(uri)) => uri.clone(),
            (None, None) => self.discover().await?,
        };
        let mut set = self.fetcher.json(&uri).await?;
        let keys = set.get_mut("keys").and_then(Value::as_array_mut).map(std::mem::take);
        let keys = keys.ok_or(FetchError::Wrong("it is no set of keys"))?;
        let keys: Arc<[Arc<Key>]> = keys.into_iter().filter_map(Key::of).take(KEYS_MAX).map(Arc::new).collect();
        if keys.is_empty() {
            return Err(FetchError::Wrong("there is no key in it to check signatures with"));
        }
        asking.found = Some(uri);
        Ok(Known { keys, since: Some(Instant::now()), is_failing: false })
    }

    /// RFC 8414 puts its name before the issuer's path, OpenID behind it.
    async fn discover(&self) -> Result<Url, FetchError> {
        let path = self.issuer.path().trim_end_matches('/');
        let places = [
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("{path}/.well-known/openid-configuration"),
            format!("/.well-known/openid-configuration{path}"),
        ];
        let mut last = FetchError::Wrong("it has no metadata");
        for place in places {
            let mut address = self.issuer.clone();
            address.set_path(&place);
            match self.fetcher.json(&address).await {
                Ok(metadata) => return self.jwks_uri_in(&metadata),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn jwks_uri_in(&self, metadata: &Value) -> Result<Url, FetchError> {
        if metadata["issuer"].as_str() != Some(&self.issuer_name) {
            return Err(FetchError::Wrong("its metadata is of another issuer"));
        }
        let uri = metadata["jwks_uri"].as_str().and_then(|uri| Url::parse(uri).ok());
        // Only a server on this machine may send us to another one on it.
        let fits = |uri: &Url| uri.scheme() == "https" || (may_fetch(uri) && self.issuer.scheme() == "http");
        uri.filter(fits).ok_or(FetchError::Wrong("its metadata names no place for keys that may be asked"))
    }

    /// As if so much time had passed.
    #[cfg(test)]
    pub(super) async fn age(&self, by: Duration) {
        let earlier = |time: &mut Option<Instant>| *time = time.and_then(|time| time.checked_sub(by));
        earlier(&mut self.known.write().unwrap().since);
        let mut asking = self.asking.lock().await;
        earlier(&mut asking.for_unknown);
        earlier(&mut asking.failed);
    }
}
