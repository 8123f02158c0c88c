use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use tokio::sync::Notify;

use super::*;

const AUDIENCE: &str = "https://bell.example/mcp";

fn rsa() -> RsaKeyPair {
    let text: String = include_str!("tests/rsa.b64").split_whitespace().collect();
    RsaKeyPair::from_pkcs8(&STANDARD.decode(text).unwrap()).unwrap()
}

fn ecdsa(by: &'static ring::signature::EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(by, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(by, document.as_ref(), &random).unwrap()
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn rsa_jwk(kid: &str) -> Value {
    let components: RsaPublicKey = rsa().public().into();
    json!({"kty": "RSA", "kid": kid, "use": "sig", "n": base64(components.n), "e": base64(components.e)})
}

type RsaPublicKey = ring::rsa::PublicKeyComponents<Vec<u8>>;

fn ecdsa_jwk(kid: &str, curve: &str, pair: &EcdsaKeyPair) -> Value {
    let point = &pair.public_key().as_ref()[1..];
    let (x, y) = point.split_at(point.len() / 2);
    json!({"kty": "EC", "kid": kid, "crv": curve, "x": base64(x), "y": base64(y)})
}

/// What the authorization server on loopback answers.
#[derive(Default)]
struct Served {
    issuer: Mutex<String>,
    keys: Mutex<Value>,
    /// How often keys were asked for.
    asked: AtomicUsize,
    metadata_at: Mutex<&'static str>,
    /// Who asks for keys is heard, and left waiting.
    is_stuck: AtomicBool,
    heard: Notify,
    goes_on: Notify,
}

async fn answer(State(served): State<Arc<Served>>, uri: Uri) -> (StatusCode, String) {
    let issuer = served.issuer.lock().unwrap().clone();
    if uri.path() == "/keys" {
        served.asked.fetch_add(1, Ordering::SeqCst);
        if served.is_stuck.load(Ordering::SeqCst) {
            served.heard.notify_one();
            served.goes_on.notified().await;
        }
        let keys = served.keys.lock().unwrap().clone();
        return match keys {
            Value::Null => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
            Value::String(text) => (StatusCode::OK, text),
            keys => (StatusCode::OK, json!({"keys": keys}).to_string()),
        };
    }
    if uri.path() == "/moved" {
        return (StatusCode::FOUND, String::new());
    }
    if uri.path() == *served.metadata_at.lock().unwrap() {
        let base = issuer.trim_end_matches("/realm");
        return (StatusCode::OK, json!({"issuer": issuer, "jwks_uri": format!("{base}/keys")}).to_string());
    }
    (StatusCode::NOT_FOUND, String::new())
}

struct Issuer {
    served: Arc<Served>,
    name: String,
    base: String,
}

impl Issuer {
    async fn with(keys: Value) -> Issuer {
        let served = Arc::new(Served::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(served.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        *served.keys.lock().unwrap() = keys;
        *served.issuer.lock().unwrap() = base.clone();
        *served.metadata_at.lock().unwrap() = "/.well-known/oauth-authorization-server";
        Issuer { served, name: base.clone(), base }
    }

    fn asked(&self) -> usize {
        self.served.asked.load(Ordering::SeqCst)
    }

    fn settings(&self) -> OauthSettings {
        OauthSettings {
            issuer: self.name.clone(),
            audience: AUDIENCE.into(),
            jwks_uri: None,
            scopes: BTreeMap::new(),
            principal_claim: "sub".into(),
        }
    }

    fn oauth(&self) -> Oauth {
        Oauth::new(self.settings()).unwrap()
    }

    fn claims(&self) -> Value {
        let now = Moment::now().unix();
        json!({"iss": self.name, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, "scope": "openid belljar:run"})
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64(header.to_string()), base64(claims.to_string()))
}

fn by_rsa(algorithm: &str, kid: &str, claims: &Value) -> String {
    let how: &'static dyn RsaEncoding = match algorithm {
        "RS384" => &RSA_PKCS1_SHA384,
        "RS512" => &RSA_PKCS1_SHA512,
        "PS256" => &RSA_PSS_SHA256,
        _ => &RSA_PKCS1_SHA256,
    };
    let signed = unsigned(&json!({"alg": algorithm, "kid": kid, "typ": "at+jwt"}), claims);
    let pair = rsa();
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(how, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    format!("{signed}.{}", base64(signature))
}

fn by_ecdsa(algorithm: &str, kid: &str, pair: &EcdsaKeyPair, claims: &Value) -> String {
    let signed = unsigned(&json!({"alg": algorithm, "kid": kid}), claims);
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", base64(signature.as_ref()))
}

async fn check(oauth: &Oauth, token: &str) -> Result<Pass, Refusal> {
    oauth.check(token, Moment::now()).await
}

#[track_caller]
fn refused(outcome: Result<Pass, Refusal>, words: &str) {
    let said = outcome.unwrap_err().to_string();
    assert!(said.contains(words), "{words:?} is not in: {said}");
}

#[tokio::test]
async fn every_algorithm_of_ours_is_checked_by_its_own_key() {
    let (small, large) = (ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING), ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING));
    let keys = json!([
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}, {"kty": "RSA", "kid": "half"}, 5,
        rsa_jwk("r"), ecdsa_jwk("s", "P-256", &small), ecdsa_jwk("l", "P-384", &large),
    ]);
    let issuer = Issuer::with(keys).await;
    let (oauth, claims) = (issuer.oauth(), issuer.claims());
    for algorithm in ["RS256", "RS384", "RS512", "PS256"] {
        let pass = check(&oauth, &by_rsa(algorithm, "r", &claims)).await.unwrap();
        assert_eq!(pass.principal.as_str(), "oauth:ann");
        assert_eq!(pass.scopes, [Scope::Run].into_iter().collect());
    }
    assert!(check(&oauth, &by_ecdsa("ES256", "s", &small, &claims)).await.is_ok());
    assert!(check(&oauth, &by_ecdsa("ES384", "l", &large, &claims)).await.is_ok());
    assert_eq!(issuer.asked(), 1, "keys are kept");
    // A good signature under another's name, or another algorithm's.
    refused(check(&oauth, &by_ecdsa("ES256", "r", &small, &claims)).await, "key");
    refused(check(&oauth, &by_ecdsa("ES256", "l", &large, &claims)).await, "key");
    refused(
        check(&oauth, &by_ecdsa("ES256", "s", &ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING), &claims)).await,
        "signature",
    );
}

#[tokio::test]
async fn nobody_signs_with_none_or_with_the_public_key() {
    let issuer = Issuer::with(json!([rsa_jwk("r")])).await;
    let (oauth, claims) = (issuer.oauth(), issuer.claims());
    for algorithm in ["none", "None", "", "HS256", "HS512", "EdDSA", "PS512", "RS1", "rs256"] {
        let signed = unsigned(&json!({"alg": algorithm, "kid": "r"}), &claims);
        refused(check(&oauth, &format!("{signed}.")).await, "algorithm");
        // What is public is taken for a shared secret.
        let public: RsaPublicKey = rsa().public().into();
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &public.n), signed.as_bytes());
        refused(check(&oauth, &format!("{signed}.{}", base64(tag.as_ref()))).await, "algorithm");
    }
    assert_eq!(issuer.asked(), 0);
    let good = by_rsa("RS256", "r", &claims);
    let (signed, _) = good.rsplit_once('.').unwrap();
    refused(check(&oauth, &format!("{signed}.")).await, "signature");
    let mut other = claims.clone();
    other["sub"] = "root".into();
    let (_, signature) = good.rsplit_once('.').unwrap();
    let changed = format!("{}.{signature}", unsigned(&json!({"alg": "RS256", "kid": "r"}), &other));
    refused(check(&oauth, &changed).await, "signature");
}

#[tokio::test]
async fn where_a_key_is_is_not_the_tokens_to_say() {
    let own = ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let issuer = Issuer::with(json!([rsa_jwk("r")])).await;
    let evil = Issuer::with(json!([ecdsa_jwk("e", "P-256", &own)])).await;
    let header = json!({"alg": "ES256", "kid": "e", "jku": format!("{}/keys", evil.base),
        "x5u": format!("{}/keys", evil.base), "jwk": ecdsa_jwk("e", "P-256", &own)});
    let signed = unsigned(&header, &issuer.claims());
    let signature = own.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    refused(check(&issuer.oauth(), &format!("{signed}.{}", base64(signature.as_ref()))).await, "key");
    assert_eq!(evil.asked(), 0);
    for header in
        [json!({"alg": "RS256", "kid": "r", "crit": ["b64"]}), json!({"alg": "RS256", "kid": "r", "typ": "logout+jwt"})]
    {
        assert!(check(&issuer.oauth(), &format!("{}.AAAA", unsigned(&header, &issuer.claims()))).await.is_err());
    }
}

#[tokio::test]
async fn issuer_audience_and_times_are_checked_before_anybody_is_asked() {
    let issuer = Issuer::with(json!([rsa_jwk("r")])).await;
    let oauth = issuer.oauth();
    let now = Moment::now().unix();
    let with = |name: &str, value: Value| {
        let mut claims = issuer.claims();
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value,
        }
        by_rsa("RS256", "r", &claims)
    };
    for (name, value, words) in [
        ("iss", json!("https://evil.example"), "issuer"),
        ("iss", json!(format!("{}/", issuer.name)), "issuer"),
        ("iss", json!([issuer.name]), "issuer"),
        ("iss", Value::Null, "issuer"),
        ("aud", json!("https://bell.example/mcp/"), "not meant"),
        ("aud", json!("https://bell.example"), "not meant"),
        ("aud", json!([]), "not meant"),
        ("aud", json!({"x": AUDIENCE}), "not meant"),
        ("aud", Value::Null, "not meant"),
        ("exp", json!(now - 61), "expired"),
        ("exp", json!(0), "expired"),
        ("exp", json!("9999999999"), "until when"),
        ("exp", Value::Null, "until when"),
        ("exp", json!(-1), "until when"),
        ("nbf", json!(now + 90), "not hold yet"),
        ("nbf", json!("soon"), "until when"),
        ("sub", Value::Null, "whose"),
        ("sub", json!(""), "whose"),
        ("sub", json!(7), "whose"),
    ] {
        refused(check(&oauth, &with(name, value.clone())).await, words);
    }
    assert_eq!(issuer.asked(), 0);
    for (name, value) in [
        ("aud", json!(["https://other.example", AUDIENCE])),
        ("exp", json!(now - 30)),
        ("exp", json!(now as f64 + 0.5)),
        ("nbf", json!(now + 30)),
    ] {
        assert!(check(&oauth, &with(name, value.clone())).await.is_ok(), "{name}: {value}");
    }
}

#[tokio::test]
async fn what_is_no_token_is_refused_whatever_its_size() {
    let issuer = Issuer::with(json!([rsa_jwk("r")])).await;
    let oauth = issuer.oauth();
    let deep = base64("[".repeat(2500));
    for bad in ["..", "a.b.c", "e30.e30.", "e30.e30.AAAA", "....", &format!("{deep}.{deep}.AAAA")] {
        refused(check(&oauth, bad).await, "no JSON Web Token");
    }
    let mut claims = issuer.claims();
    claims["more"] = "x".repeat(9000).into();
    refused(check(&oauth, &by_rsa("RS256", "r", &claims)).await, "8 KiB");
    assert_eq!(issuer.asked(), 0);
}

#[tokio::test]
async fn an_unknown_key_is_asked_for_but_not_often() {
    let new = ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let issuer = Issuer::with(json!([rsa_jwk("r")])).await;
    let (oauth, claims) = (issuer.oauth(), issuer.claims());
    assert!(check(&oauth, &by_rsa("RS256", "r", &claims)).await.is_ok());
    *issuer.served.keys.lock().unwrap() = json!([rsa_jwk("r"), ecdsa_jwk("new", "P-256", &new)]);
    assert!(check(&oauth, &by_ecdsa("ES256", "new", &new, &claims)).await.is_ok());
    assert_eq!(issuer.asked(), 2);
    for kid in ["a", "b", "c", "../keys", "http://evil.example"] {
        refused(check(&oauth, &by_rsa("RS256", kid, &claims)).await, "none of the issuer's");
    }
    assert_eq!(issuer.asked(), 2);
    oauth.keys.age(Duration::from_secs(31)).await;
    refused(check(&oauth, &by_rsa("RS256", "a", &claims)).await, "none of the issuer's");
    assert_eq!(issuer.asked(), 3);
    // A key that the issuer took back is gone after a while.
    *issuer.served.keys.lock().unwrap() = json!([rsa_jwk("r")]);
    oauth.keys.age(Duration::from_secs(301)).await;
    refused(check(&oauth, &by_ecdsa("ES256", "new", &new, &claims)).await, "none of the issuer's");
}

#[tokio::test]
async fn a_silent_issuer_is_survived_for_an_hour() {
    let issuer = Issuer::with(Value::Null).await;
    let (oauth, claims) = (issuer.oauth(), issuer.claims());
    let good = by_rsa("RS256", "r", &claims);
    assert_eq!(check(&oauth, &good).await, Err(Refusal::Unavailable));
    assert_eq!(check(&oauth, &good).await, Err(Refusal::Unavailable));
    assert_eq!(issuer.asked(), 1, "it is left alone for a moment");
    *issuer.served.keys.lock().unwrap() = json!([rsa_jwk("r")]);
    oauth.keys.age(Duration::from_secs(6)).await;
    assert!(check(&oauth, &good).await.is_ok());
    for broken in [Value::Null, json!("{"), json!("x".repeat(70_000)), json!([]), json!([{"kty": "oct"}])] {
        *issuer.served.keys.lock().unwrap() = broken.clone();
        oauth.keys.age(Duration::from_secs(301)).await;
        assert!(check(&oauth, &good).await.is_ok(), "{broken}");
    }
    oauth.keys.age(Duration::from_secs(3600)).await;
    assert_eq!(check(&oauth, &good).await, Err(Refusal::Unavailable));
}

/// Without waiting for anything.
fn check_at_once(oauth: &Oauth, token: &str) -> Result<Pass, Refusal> {
    let checking = pin!(check(oauth, token));
    match checking.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(checked) => checked,
        Poll::Pending => panic!("it waits"),
    }
}

#[tokio::test]
async fn nobody_waits_for_an_issuer_that_is_known_to_be_silent() {
    let new = ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let issuer = Issuer::with(json!([rsa_jwk("r")])).await;
    let (oauth, claims) = (issuer.oauth(), issuer.claims());
    let good = by_rsa("RS256", "r", &claims);
    assert!(check(&oauth, &good).await.is_ok());
    *issuer.served.keys.lock().unwrap() = Value::Null;
    oauth.keys.age(Duration::from_secs(301)).await;
    assert!(check(&oauth, &good).await.is_ok());
    let asked = issuer.asked();
    assert_eq!(asked, 2, "the first who comes asks");
    // Then it is asked again now and then, and does not even refuse.
    issuer.served.is_stuck.store(true, Ordering::SeqCst);
    *issuer.served.keys.lock().unwrap() = json!([rsa_jwk("r"), ecdsa_jwk("new", "P-256", &new)]);
    oauth.keys.age(Duration::from_secs(6)).await;
    assert!(check_at_once(&oauth, &good).is_ok());
    issuer.served.heard.notified().await;
    assert!(check_at_once(&oauth, &good).is_ok());
    issuer.served.goes_on.notify_one();
    // Waits for whoever asks.
    oauth.keys.age(Duration::ZERO).await;
    assert!(check_at_once(&oauth, &by_ecdsa("ES256", "new", &new, &claims)).is_ok());
    assert_eq!(issuer.asked(), asked + 1);
}

#[tokio::test]
async fn keys_are_found_through_metadata_of_either_kind_and_no_redirect() {
    let issuer = Issuer::with(json!([rsa_jwk("r")])).await;
    for (name, place) in [
        (issuer.base.clone(), "/.well-known/openid-configuration"),
        (format!("{}/realm", issuer.base), "/.well-known/oauth-authorization-server/realm"),
        (format!("{}/realm", issuer.base), "/realm/.well-known/openid-configuration"),
    ] {
        *issuer.served.metadata_at.lock().unwrap() = place;
        *issuer.served.issuer.lock().unwrap() = name.clone();
        let oauth = Oauth::new(OauthSettings { issuer: name.clone(), ..issuer.settings() }).unwrap();
        let mut claims = issuer.claims();
        claims["iss"] = name.into();
        assert!(check(&oauth, &by_rsa("RS256", "r", &claims)).await.is_ok(), "{place}");
    }
    // The metadata says that it is somebody else's.
    *issuer.served.metadata_at.lock().unwrap() = "/.well-known/openid-configuration";
    *issuer.served.issuer.lock().unwrap() = "https://evil.example".into();
    let good = by_rsa("RS256", "r", &issuer.claims());
    assert_eq!(check(&issuer.oauth(), &good).await, Err(Refusal::Unavailable));
    let moved = OauthSettings { jwks_uri: Some(format!("{}/moved", issuer.base)), ..issuer.settings() };
    assert_eq!(check(&Oauth::new(moved).unwrap(), &good).await, Err(Refusal::Unavailable));
    let named = OauthSettings { jwks_uri: Some(format!("{}/keys", issuer.base)), ..issuer.settings() };
    assert!(check(&Oauth::new(named).unwrap(), &good).await.is_ok());
}

#[tokio::test]
async fn scopes_and_principals_are_as_the_operator_says() {
    let issuer = Issuer::with(json!([rsa_jwk("r")])).await;
    let scopes = async |oauth: &Oauth, name: &str, value: Value| {
        let mut claims = issuer.claims();
        claims.as_object_mut().unwrap().remove("scope");
        claims[name] = value;
        check(oauth, &by_rsa("RS256", "r", &claims)).await.unwrap().scopes.words()
    };
    let plain = issuer.oauth();
    assert_eq!(scopes(&plain, "scope", json!("belljar:files tools other")).await, [Scope::Files, Scope::Tools]);
    assert_eq!(scopes(&plain, "scp", json!(["read", "x"])).await, [Scope::Read]);
    assert_eq!(scopes(&plain, "scope", json!("admin belljar: Belljar:run")).await, []);
    assert_eq!(scopes(&plain, "scope", json!({"run": true})).await, []);
    let mapping = BTreeMap::from([("agents.exec".to_owned(), Scope::Run)]);
    let own = OauthSettings { scopes: mapping, principal_claim: "email".into(), ..issuer.settings() };
    let own = Oauth::new(own).unwrap();
    let mut claims = issuer.claims();
    claims["email"] = "ann@example.com".into();
    claims["scope"] = "run agents.exec".into();
    let pass = check(&own, &by_rsa("RS256", "r", &claims)).await.unwrap();
    assert_eq!((pass.principal.as_str(), pass.scopes.words()), ("oauth:ann@example.com", vec![Scope::Run]));
    assert!(!pass.principal.may_call());
    assert_eq!(own.metadata()["scopes_supported"], json!(["agents.exec"]));
    assert_eq!(plain.metadata_url(), "https://bell.example/.well-known/oauth-protected-resource/mcp");

    assert_eq!(principal("auth0|5f7c").as_str(), "oauth:auth0|5f7c");
    let odd: Vec<Principal> =
        ["a b", "a_b\n", "a/b", "../x", "ü", &"x".repeat(200), &"x".repeat(201)].map(principal).into();
    for (index, who) in odd.iter().enumerate() {
        assert!(who.as_str().starts_with("oauth:~") && who.as_str().len() == 71, "{who:?}");
        assert!(!odd[index + 1..].contains(who));
    }
}

#[test]
fn settings_that_cannot_hold_are_refused() {
    let good = OauthSettings {
        issuer: "https://login.example".into(),
        audience: AUDIENCE.into(),
        jwks_uri: None,
        scopes: BTreeMap::new(),
        principal_claim: "sub".into(),
    };
    assert!(Oauth::new(good.clone()).is_ok());
    for issuer in ["", "login.example", "http://login.example", "http://127.0.0.1.evil.example", "file:///etc"] {
        assert!(Oauth::new(OauthSettings { issuer: issuer.into(), ..good.clone() }).is_err(), "{issuer}");
        assert!(Oauth::new(OauthSettings { jwks_uri: Some(issuer.into()), ..good.clone() }).is_err(), "{issuer}");
    }
    for audience in ["", "belljar", "api://x", "https://bell.example/mcp#x"] {
        assert!(Oauth::new(OauthSettings { audience: audience.into(), ..good.clone() }).is_err(), "{audience}");
    }
    assert!(Oauth::new(OauthSettings { principal_claim: String::new(), ..good }).is_err());
}
