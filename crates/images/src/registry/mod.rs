//! Images of registries: which layers one has for this machine, and their bytes, checked against their digests.
//!
//! A mirror is asked first, in the order given, then the registry itself. What a registry says is believed only as far as a
//! digest holds it: a tag is what the registry says it is, all below a digest is what whoever named it has seen.

mod auth;
mod fetch;
mod manifest;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};

use self::auth::Logins;
use self::fetch::{Patience, Refused, fetch_blob};
use self::manifest::{Config, Descriptor, Manifest};
use crate::bounds::Bounds;
use crate::decode::{digits, sha256};
use crate::error::{ImageError, ImageErrorKind};

const CONNECT: Duration = Duration::from_secs(10);
/// For a manifest, all of it.
const DOCUMENT: Duration = Duration::from_secs(60);

const ACCEPTED: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// How registries are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registries {
    /// Hosts that have copies of a registry's images, by its name, such as `docker.io`.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Those without TLS. On this machine's loopback none is needed.
    pub insecure: Vec<String>,
    /// Docker's config.json with logins.
    pub auth: Option<PathBuf>,
}

/// An image as a registry describes it. Nothing of it is downloaded yet.
pub(crate) struct Pulled {
    client: Client,
    reference: Reference,
    pub(crate) source: String,
    pub(crate) digest: String,
    pub(crate) layers: Vec<LayerBlob>,
    pub(crate) env: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
pub(crate) struct LayerBlob {
    descriptor: Descriptor,
    /// Sixty-four digits.
    pub(crate) diff_id: String,
    pub(crate) bytes: u64,
}

pub(crate) async fn resolve(registries: &Registries, bounds: &Bounds, reference: &str) -> Result<Pulled, ImageError> {
    let named: Reference = reference.parse().map_err(|error| {
        ImageError::new(ImageErrorKind::BadName, format!("{reference:?} is no reference to an image: {error}"))
    })?;
    let logins = Logins::read(registries.auth.as_deref())?;
    let mirrors = registries.mirrors.get(named.registry()).cloned().unwrap_or_default();
    let mut failed = None;
    for host in mirrors.iter().map(Some).chain([None]) {
        let mut there = named.clone();
        if let Some(host) = host {
            there.set_mirror_registry(host.clone());
        }
        let auth = logins.of(there.resolve_registry());
        let client = client(registries, bounds, there.resolve_registry())?;
        match describe(client, there, &auth, bounds).await {
            Ok(pulled) => return Ok(Pulled { source: reference.to_owned(), ..pulled }),
            // The registry's own word is what counts, and it is asked last.
            Err(error) => failed = Some(logins.explain(error)),
        }
    }
    Err(failed.unwrap_or_else(|| ImageError::new(ImageErrorKind::Unreachable, "there is no registry to ask")))
}

fn client(registries: &Registries, bounds: &Bounds, host: &str) -> Result<Client, ImageError> {
    // Whoever links us may have installed one already; either is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut plain = registries.insecure.clone();
    if is_loopback(host) {
        plain.push(host.to_owned());
    }
    let config = ClientConfig {
        protocol: ClientProtocol::HttpsExcept(plain),
        connect_timeout: Some(CONNECT),
        read_timeout: Some(bounds.silence),
        user_agent: concat!("belljar/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    Client::try_from(config)
        .map_err(|error| ImageError::new(ImageErrorKind::Unreachable, format!("no registry can be asked: {error}")))
}

/// Whether a host with its port is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn describe(
    client: Client,
    reference: Reference,
    auth: &RegistryAuth,
    bounds: &Bounds,
) -> Result<Pulled, ImageError> {
    let (first, digest) = document(&client, &reference, auth, bounds).await?;
    let (manifest, digest) = match first {
        Manifest::Image(image) => (image, digest),
        Manifest::Index(index) => {
            let chosen = index.for_this_machine()?;
            let inner = reference.clone_with_digest(chosen);
            match document(&client, &inner, auth, bounds).await? {
                (Manifest::Image(image), digest) => (image, digest),
                (Manifest::Index(_), _) => {
                    let words = "the image is an index of indexes";
                    return Err(ImageError::new(ImageErrorKind::Unsupported, words));
                }
            }
        }
    };
    manifest.check(bounds)?;
    let mut text = Vec::new();
    fetch_blob(&client, &reference, &manifest.config, bounds, &mut text, |_| {}).await?;
    let config = Config::parse(&text)?;
    let layers = config.layers(&manifest)?;
    Ok(Pulled { client, reference, source: String::new(), digest, layers, env: config.env() })
}

/// A manifest and its digest.
async fn document(
    client: &Client,
    reference: &Reference,
    auth: &RegistryAuth,
    bounds: &Bounds,
) -> Result<(Manifest, String), ImageError> {
    let mut patience = Patience::new(bounds);
    let body = loop {
        let pulled = tokio::time::timeout(DOCUMENT, client.pull_manifest_raw(reference, auth, &ACCEPTED)).await;
        match pulled {
            Ok(Ok((body, _))) => break body,
            Ok(Err(error)) => patience.after(Refused::of(&error, reference)).await?,
            Err(_) => patience.after(Refused::slow()).await?,
        }
    };
    if body.len() as u64 > bounds.document_bytes_max {
        return Err(ImageError::new(ImageErrorKind::TooLarge, "the image's manifest is larger than any honest one"));
    }
    let digest = format!("sha256:{}", sha256(&body));
    if reference.digest().is_some_and(|wanted| digits(wanted).is_none() || wanted != digest) {
        let words = format!("the registry's manifest has the digest {digest}, which is not the one asked for");
        return Err(ImageError::new(ImageErrorKind::Corrupt, words));
    }
    Ok((Manifest::parse(&body)?, digest))
}

impl Pulled {
    /// Downloads a layer as it is; whole and with its digest, or not at all.
    pub(crate) async fn fetch(
        &self,
        layer: &LayerBlob,
        to: &Path,
        bounds: &Bounds,
        tell: impl Fn(u64) + Send + Sync,
    ) -> Result<(), ImageError> {
        let mut file = std::fs::File::create(to).map_err(|error| ImageError::of_files("keeping a layer", &error))?;
        fetch_blob(&self.client, &self.reference, &layer.descriptor, bounds, &mut file, tell).await
    }
}
