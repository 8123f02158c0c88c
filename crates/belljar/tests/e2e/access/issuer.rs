//! An authorization server on loopback, and another server that only listens: both no more than the tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

pub(super) struct Issuer {
    pub(super) name: String,
    pair: EcdsaKeyPair,
    asked: Arc<AtomicUsize>,
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    pub(super) fn start() -> Issuer {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap();
        let point = &pair.public_key().as_ref()[1..];
        let keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "alg": "ES256",
            "x": base64(&point[..32]), "y": base64(&point[32..])}]});
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let address = answer_all(move |head, address| {
            if head.starts_with("GET /.well-known/oauth-authorization-server ") {
                let name = format!("http://{address}");
                return Some(json!({"issuer": name, "jwks_uri": format!("{name}/keys")}));
            }
            head.starts_with("GET /keys ").then(|| {
                counter.fetch_add(1, Ordering::SeqCst);
                keys.clone()
            })
        });
        Issuer { name: format!("http://{address}"), pair, asked }
    }

    /// How often keys were asked for.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// A token of this server's, good for ten minutes unless the claims say otherwise.
    pub(super) fn token(&self, claims: Value) -> String {
        self.token_as(&self.name, claims)
    }

    /// The same under another's name.
    pub(super) fn token_as(&self, name: &str, claims: Value) -> String {
        let signed = signed_part("ES256", name, claims);
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", base64(signature.as_ref()))
    }

    /// One that says of itself that nobody needs to sign it.
    pub(super) fn unsigned(&self, claims: Value) -> String {
        format!("{}.", signed_part("none", &self.name, claims))
    }
}

fn signed_part(algorithm: &str, issuer: &str, claims: Value) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut all = json!({"iss": issuer, "exp": now + 600});
    all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
    let header = json!({"alg": algorithm, "kid": "one", "typ": "at+jwt"});
    format!("{}.{}", base64(header.to_string()), base64(all.to_string()))
}

/// Hears whatever is sent to it: the head and the body of each request. Answers that there is nothing.
pub(super) fn recorder() -> (Receiver<String>, SocketAddr) {
    let (sender, heard) = mpsc::channel();
    let address = answer_all(move |request, _| {
        let _ = sender.send(request.to_owned());
        None
    });
    (heard, address)
}

/// Ends with the tests' process.
fn answer_all(answer: impl Fn(&str, SocketAddr) -> Option<Value> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut request, mut length) = (String::new(), 0);
            while reader.read_line(&mut request).is_ok_and(|read| read > 2) {
                let line = request.lines().last().unwrap_or_default().to_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
            }
            let mut body = vec![0; length];
            let _ = reader.read_exact(&mut body);
            request.push_str(&String::from_utf8_lossy(&body));
            let (status, body) = match answer(&request, address) {
                Some(document) => ("200 OK", document.to_string()),
                None => ("404 Not Found", String::new()),
            };
            let head = format!("content-type: application/json\r\ncontent-length: {}\r\nconnection: close", body.len());
            let _ = write!(stream, "HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}");
        }
    });
    address
}
