//! A registry on loopback that answers as real ones do, and lies where it is told to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use sha2::{Digest, Sha256};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// How it misbehaves. Each request for what is concerned takes one off.
#[derive(Debug, Default)]
pub(crate) struct Lies {
    /// Answers of 429 before the truth.
    pub(crate) busy: u32,
    /// Blobs that end half-way.
    pub(crate) cut: u32,
    /// Blobs with one other byte.
    pub(crate) other_byte: u32,
    /// Manifests with one more space: the same, and another digest.
    pub(crate) other_manifest: bool,
    /// More of a blob than there is.
    pub(crate) endless: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    /// By tag and by digest, with the media type.
    pub(crate) manifests: BTreeMap<String, (String, Vec<u8>)>,
    /// The user and password it wants to hear of.
    pub(crate) login: Option<(String, String)>,
    pub(crate) lies: Lies,
    /// Every path that was asked for.
    pub(crate) asked: Vec<String>,
}

pub(crate) type Shared = Arc<Mutex<Content>>;

pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    pub(crate) content: Shared,
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

impl Registry {
    pub(crate) async fn start() -> Registry {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let content = Shared::default();
        let state = (Arc::clone(&content), address);
        let router = Router::new()
            .route("/v2/", get(base))
            .route("/v2/team/image/manifests/{reference}", get(manifest))
            .route("/v2/team/image/blobs/{digest}", get(blob))
            .route("/token", get(token))
            .with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Registry { address, content }
    }

    pub(crate) fn reference(&self, rest: &str) -> String {
        format!("{}/team/image{rest}", self.address)
    }

    /// Puts an image there: layers as they are sent, each with the digest of what it unpacks to.
    pub(crate) fn put(&self, tag: &str, layers: &[(Vec<u8>, String)], env: &[&str]) -> String {
        let mut content = self.content.lock().unwrap();
        let config = json!({
            "os": "linux", "architecture": architecture(), "config": {"Env": env},
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|(_, diff_id)| diff_id).collect::<Vec<_>>()},
        });
        let config = config.to_string().into_bytes();
        let mut descriptors = Vec::new();
        for (bytes, _) in layers {
            let digest = sha256(bytes);
            descriptors.push(
                json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": bytes.len()}),
            );
            content.blobs.insert(digest, bytes.clone());
        }
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": sha256(&config), "size": config.len()},
            "layers": descriptors,
        });
        content.blobs.insert(sha256(&config), config);
        let manifest = manifest.to_string().into_bytes();
        let digest = sha256(&manifest);
        content.manifests.insert(tag.to_owned(), (MANIFEST.to_owned(), manifest.clone()));
        content.manifests.insert(digest.clone(), (MANIFEST.to_owned(), manifest));
        digest
    }

    /// Puts an index there, of images by their architecture.
    pub(crate) fn put_index(&self, tag: &str, images: &[(&str, &str)]) {
        let manifests: Vec<_> = images
            .iter()
            .map(|(architecture, digest)| {
                json!({"mediaType": MANIFEST, "digest": digest, "size": 1, "platform": {"os": "linux", "architecture": architecture}})
            })
            .collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string().into_bytes();
        self.content.lock().unwrap().manifests.insert(tag.to_owned(), (INDEX.to_owned(), index));
    }

    pub(crate) fn asked(&self, of: &str) -> usize {
        self.content.lock().unwrap().asked.iter().filter(|path| path.contains(of)).count()
    }
}

pub(crate) fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

type Here = State<(Shared, SocketAddr)>;

/// `None` if whoever asks may.
fn refusal(content: &Content, address: SocketAddr, headers: &HeaderMap) -> Option<Response> {
    content.login.as_ref()?;
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if token == format!("Bearer {TOKEN}") {
        return None;
    }
    let challenge =
        format!("Bearer realm=\"http://{address}/token\",service=\"test\",scope=\"repository:team/image:pull\"");
    let body = r#"{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}"#;
    Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)], body).into_response())
}

const TOKEN: &str = "dG9rZW4";

async fn base(State((content, address)): Here, headers: HeaderMap) -> Response {
    let content = content.lock().unwrap();
    refusal(&content, address, &headers).unwrap_or_else(|| StatusCode::OK.into_response())
}

async fn token(State((content, _)): Here, headers: HeaderMap) -> Response {
    let content = content.lock().unwrap();
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (user, password) = content.login.clone().unwrap_or_default();
    use base64::Engine;
    let wanted = format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(format!("{user}:{password}")));
    if given != wanted {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    ([(header::CONTENT_TYPE, "application/json")], json!({"token": TOKEN, "expires_in": 300}).to_string())
        .into_response()
}

fn busy(content: &mut Content) -> Option<Response> {
    content.lies.busy = content.lies.busy.checked_sub(1)?;
    let body = r#"{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}"#;
    Some((StatusCode::TOO_MANY_REQUESTS, body).into_response())
}

async fn manifest(State((content, address)): Here, Path(reference): Path<String>, headers: HeaderMap) -> Response {
    let mut content = content.lock().unwrap();
    content.asked.push(format!("manifests/{reference}"));
    if let Some(refusal) = refusal(&content, address, &headers).or_else(|| busy(&mut content)) {
        return refusal;
    }
    let Some((media_type, mut body)) = content.manifests.get(&reference).cloned() else {
        let body = r#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "none"}]}"#;
        return (StatusCode::NOT_FOUND, body).into_response();
    };
    if content.lies.other_manifest {
        body.push(b' ');
    }
    ([(header::CONTENT_TYPE, media_type)], body).into_response()
}

async fn blob(State((content, address)): Here, Path(digest): Path<String>, headers: HeaderMap) -> Response {
    let mut content = content.lock().unwrap();
    content.asked.push(format!("blobs/{digest}"));
    if let Some(refusal) = refusal(&content, address, &headers).or_else(|| busy(&mut content)) {
        return refusal;
    }
    let Some(mut bytes) = content.blobs.get(&digest).cloned() else { return StatusCode::NOT_FOUND.into_response() };
    let length = bytes.len();
    if content.lies.endless {
        bytes.extend(vec![0; 1 << 20]);
        return bytes.into_response();
    }
    if let Some(left) = content.lies.other_byte.checked_sub(1) {
        content.lies.other_byte = left;
        bytes[length / 2] ^= 1;
    }
    if let Some(left) = content.lies.cut.checked_sub(1) {
        content.lies.cut = left;
        bytes.truncate(length / 2);
    }
    bytes.into_response()
}
