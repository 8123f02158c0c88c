//! A login with a browser, against a small authorisation server that checks what it is sent.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use belljar_gateway::error::ErrorKind;
use belljar_gateway::upstream::{Settings, Upstreams, parse};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::mock::{names, settings};
use super::web::answer;

type Fields = HashMap<String, String>;

#[derive(Default)]
struct World {
    url: String,
    /// Whether the person agrees.
    denies: bool,
    secret: Option<String>,
    lifetime: u64,
    registered: Option<String>,
    asked: Fields,
    /// How often tokens were given, and for what.
    grants: Vec<String>,
    /// Tokens before this one do not hold any more.
    revoked: usize,
}

type Shared = Arc<Mutex<World>>;

fn fields(text: &str) -> Fields {
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

fn json_of(value: Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn resource(State(world): State<Shared>) -> Response {
    let url = world.lock().unwrap().url.clone();
    json_of(json!({ "resource": format!("{url}/mcp"), "authorization_servers": [url], "scopes_supported": ["tools"] }))
}

async fn metadata(State(world): State<Shared>) -> Response {
    let url = world.lock().unwrap().url.clone();
    json_of(json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": ["tools"],
    }))
}

async fn register(State(world): State<Shared>, body: Bytes) -> Response {
    let wish: Value = serde_json::from_slice(&body).unwrap();
    world.lock().unwrap().registered = wish["redirect_uris"][0].as_str().map(str::to_owned);
    let answer = json!({ "client_id": "dynamic", "redirect_uris": wish["redirect_uris"] });
    (StatusCode::CREATED, json_of(answer)).into_response()
}

async fn authorize(State(world): State<Shared>, uri: Uri) -> Response {
    let mut world = world.lock().unwrap();
    world.asked = fields(uri.query().unwrap_or_default());
    let mut back = url::Url::parse(&world.asked["redirect_uri"]).unwrap();
    back.query_pairs_mut().append_pair("state", &world.asked["state"]).append_pair("iss", &world.url);
    match world.denies {
        true => back.query_pairs_mut().append_pair("error", "access_denied"),
        false => back.query_pairs_mut().append_pair("code", "the-code"),
    };
    (StatusCode::FOUND, [(header::LOCATION, back.as_str())]).into_response()
}

async fn token(State(world): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let mut world = world.lock().unwrap();
    let given = fields(std::str::from_utf8(&body).unwrap());
    let refuse = |why: &str| {
        let body = json!({ "error": "invalid_grant", "error_description": why });
        (StatusCode::BAD_REQUEST, json_of(body)).into_response()
    };
    if let Some(secret) = &world.secret {
        let expected = format!("Basic {}", STANDARD.encode(format!("known:{secret}")));
        if headers.get(header::AUTHORIZATION).is_none_or(|value| value != expected.as_str()) {
            return refuse("no secret");
        }
    }
    if given.get("resource") != Some(&format!("{}/mcp", world.url)) {
        return refuse("no resource");
    }
    match given["grant_type"].as_str() {
        "authorization_code" => {
            let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&given["code_verifier"]));
            if given["code"] != "the-code" || challenge != world.asked["code_challenge"] {
                return refuse("wrong code");
            }
            if given["redirect_uri"] != world.asked["redirect_uri"] {
                return refuse("wrong redirect");
            }
        }
        "refresh_token" if given["refresh_token"] == format!("refresh-{}", world.grants.len()) => {}
        _ => return refuse("no such grant"),
    }
    world.grants.push(given["grant_type"].clone());
    let number = world.grants.len();
    json_of(json!({
        "access_token": format!("access-{number}"), "refresh_token": format!("refresh-{number}"),
        "token_type": "Bearer", "expires_in": world.lifetime, "scope": "tools",
    }))
}

async fn mcp(State(world): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let world = world.lock().unwrap();
    let token =
        headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer access-"));
    let number = token.and_then(|number| number.parse::<usize>().ok()).unwrap_or_default();
    if number == 0 || number <= world.revoked {
        let challenge = format!("Bearer resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", world.url);
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response();
    }
    match answer(&serde_json::from_slice(&body).unwrap(), false) {
        Some(answer) => json_of(answer),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

async fn begin(world: World) -> Shared {
    let world = Arc::new(Mutex::new(world));
    let router = Router::new()
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .route("/mcp", post(mcp))
        .with_state(world.clone());
    let url = super::web::serve(router).await;
    world.lock().unwrap().url = url;
    world
}

fn upstreams(world: &Shared, more: Value, tokens: &Path) -> Upstreams {
    let mut entry = json!({ "url": format!("{}/mcp", world.lock().unwrap().url) });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let text = json!({ "mcpServers": { "web": entry } }).to_string();
    Upstreams::new(parse(&text, &|_| None).unwrap(), Settings { tokens: Some(tokens.to_owned()), ..settings() })
}

/// A person with a browser, and a page in it that tries to slip in a code of its own first.
fn browser(address: &str) {
    let address = url::Url::parse(address).unwrap();
    tokio::spawn(async move {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let back = fields(address.query().unwrap())["redirect_uri"].clone();
        for forged in ["?code=evil&state=guess", "?code=evil", ""] {
            assert_eq!(client.get(format!("{back}{forged}")).send().await.unwrap().status(), 404);
        }
        let response = client.get(address).send().await.unwrap();
        let location = response.headers()[header::LOCATION].to_str().unwrap().to_owned();
        assert_eq!(client.get(location).send().await.unwrap().status(), 200);
    });
}

#[tokio::test]
async fn a_person_logs_in_once_and_the_tokens_are_kept_and_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    let world = begin(World { lifetime: 3600, ..World::default() }).await;
    let first = upstreams(&world, json!({}), &tokens);
    let error = first.list("web").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::AuthRequired);
    assert!(error.message.contains("run `belljar tools login web`"), "{error}");

    first.login("web", browser).await.unwrap();
    assert_eq!(names(&first.list("web").await.unwrap().tools), ["echo"]);
    {
        let world = world.lock().unwrap();
        assert_eq!(world.asked["client_id"], "dynamic");
        assert_eq!(world.asked["resource"], format!("{}/mcp", world.url));
        assert_eq!(world.asked["code_challenge_method"], "S256");
        assert_eq!(world.registered.as_ref(), Some(&world.asked["redirect_uri"]));
        assert!(world.asked["redirect_uri"].starts_with("http://127.0.0.1:"));
    }
    let files: Vec<_> = std::fs::read_dir(&tokens).unwrap().map(|file| file.unwrap()).collect();
    assert_eq!(files.len(), 1);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&files[0].path()), mode(&tokens)), (0o600, 0o700));
    assert!(!format!("{first:?}").contains("access-1"));
    first.end().await;

    // Another process, and a token that does not hold any more.
    let second = upstreams(&world, json!({}), &tokens);
    assert_eq!(names(&second.list("web").await.unwrap().tools), ["echo"]);
    assert_eq!(world.lock().unwrap().grants.len(), 1);
    world.lock().unwrap().revoked = 1;
    let never = Default::default();
    second.call("web", "echo", Default::default(), super::mock::LIMIT, &never).await.unwrap();
    assert_eq!(world.lock().unwrap().grants, ["authorization_code", "refresh_token"]);

    assert!(second.logout("web").await.unwrap());
    assert!(!second.logout("web").await.unwrap());
    assert_eq!(std::fs::read_dir(&tokens).unwrap().count(), 0);
    let call = second.call("web", "echo", Default::default(), super::mock::LIMIT, &never);
    assert_eq!(call.await.unwrap_err().kind, ErrorKind::AuthRequired);
    second.end().await;
}

#[tokio::test]
async fn a_known_client_uses_its_secret_also_to_renew_what_has_expired() {
    let folder = tempfile::tempdir().unwrap();
    let world = begin(World { lifetime: 1, secret: Some("hush-hush".into()), ..World::default() }).await;
    let oauth = json!({ "oauth": { "client_id": "known", "client_secret": "hush-hush", "scopes": ["tools"] } });
    let first = upstreams(&world, oauth.clone(), folder.path());
    first.login("web", browser).await.unwrap();
    assert_eq!(world.lock().unwrap().registered, None);
    first.end().await;
    let second = upstreams(&world, oauth, folder.path());
    assert_eq!(names(&second.list("web").await.unwrap().tools), ["echo"]);
    assert_eq!(world.lock().unwrap().grants[1], "refresh_token");
    second.end().await;
}

#[tokio::test]
async fn a_login_that_is_refused_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let world = begin(World { denies: true, ..World::default() }).await;
    let upstreams = upstreams(&world, json!({}), folder.path());
    let error = upstreams.login("web", browser).await.unwrap_err();
    assert!(error.message.contains("was refused: access_denied"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_login_that_nobody_finishes_ends() {
    let folder = tempfile::tempdir().unwrap();
    let world = begin(World::default()).await;
    let text = json!({ "mcpServers": { "web": { "url": format!("{}/mcp", world.lock().unwrap().url) } } }).to_string();
    let limit = std::time::Duration::from_millis(200);
    let settings = Settings { tokens: Some(folder.path().to_owned()), login_limit: limit, ..settings() };
    let error = Upstreams::new(parse(&text, &|_| None).unwrap(), settings).login("web", |_| {}).await.unwrap_err();
    assert!(error.message.contains("nobody finished the login"), "{error}");
}
