//! Asking the authorization server: one small document at a time.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use serde_json::Value;
use url::{Host, Url};

const BYTES_MAX: usize = 64 * 1024;
const WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("it does not answer: {0}")]
    Silent(#[from] reqwest::Error),
    #[error("it answers with status {0}")]
    Status(u16),
    #[error("its answer is longer than {BYTES_MAX} bytes")]
    TooLong,
    #[error("{0}")]
    Wrong(&'static str),
}

#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client,
}

/// Whom keys can be had from without anybody changing them on the way.
pub(super) fn may_fetch(url: &Url) -> bool {
    match url.scheme() {
        "https" => url.has_host(),
        "http" => is_loopback(url),
        _ => false,
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}

impl Fetcher {
    pub(super) fn new(issuer: &Url) -> Result<Fetcher, reqwest::Error> {
        // Somebody may have chosen one before us, and then it is that.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(Policy::none())
            .connect_timeout(WAIT)
            .timeout(WAIT)
            .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")));
        // No proxy knows what is on this machine.
        let client = if is_loopback(issuer) { client.no_proxy() } else { client };
        Ok(Fetcher { client: client.build()? })
    }

    pub(super) async fn json(&self, url: &Url) -> Result<Value, FetchError> {
        let mut response = self.client.get(url.clone()).send().await?;
        if response.status() != 200 {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let mut bytes = Vec::new();
        while let Some(more) = response.chunk().await? {
            if bytes.len() + more.len() > BYTES_MAX {
                return Err(FetchError::TooLong);
            }
            bytes.extend_from_slice(&more);
        }
        serde_json::from_slice(&bytes).map_err(|_| FetchError::Wrong("its answer is no JSON"))
    }
}
