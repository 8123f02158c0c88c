//! Both sides of TLS: whom we trust, and whom sandboxes trust because of us.

mod authority;
pub mod hello;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::Host;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use self::authority::Authority;
use crate::io::BoxIo;
use crate::{EgressError, Roots};

const HTTP_1_1: &[u8] = b"http/1.1";

#[derive(Debug)]
pub(crate) struct Tls {
    roots: Vec<CertificateDer<'static>>,
    client: Arc<ClientConfig>,
    authority: Authority,
}

impl Tls {
    pub(crate) fn new(roots: &Roots) -> Result<Tls, EgressError> {
        let failed = |error: &dyn std::fmt::Display| EgressError::Roots { why: error.to_string() };
        let roots: Vec<CertificateDer<'static>> = match roots {
            Roots::Host => {
                let found = rustls_native_certs::load_native_certs();
                for error in &found.errors {
                    tracing::warn!(%error, "some certificates of this host could not be read");
                }
                found.certs
            }
            Roots::These(pem) => CertificateDer::pem_slice_iter(pem.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|error| failed(&error))?,
        };
        let mut store = RootCertStore::empty();
        // Hosts have odd ones among theirs; without any, what needs one fails when it is needed.
        store.add_parsable_certificates(roots.iter().cloned());
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(store)
            .with_no_client_auth();
        client.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(Tls { roots, client: Arc::new(client), authority: Authority::new()? })
    }

    /// What a sandbox is to trust, as PEM: what we do, and ourselves.
    pub(crate) fn trust(&self) -> String {
        self.roots.iter().map(|der| pem(der)).chain([pem(self.authority.certificate())]).collect()
    }

    /// Speaks as the host to a client that takes us for it.
    pub(crate) async fn accept(&self, host: &Host, client: BoxIo) -> Result<BoxIo, String> {
        let config = self.authority.for_host(host).map_err(|error| error.to_string())?;
        let stream = TlsAcceptor::from(config).accept(client).await.map_err(|error| error.to_string())?;
        Ok(Box::new(stream))
    }

    /// Speaks to the host, and makes sure that it is that.
    pub(crate) async fn connect(&self, host: &Host, server: BoxIo) -> Result<BoxIo, String> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(|error| error.to_string())?,
            Host::Address(address) => ServerName::from(*address),
        };
        let connector = TlsConnector::from(self.client.clone());
        let stream = connector.connect(name, server).await.map_err(|error| error.to_string())?;
        Ok(Box::new(stream))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: rustls::pki_types::PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok(Arc::new(config))
}

fn pem(der: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for (at, letter) in text.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            pem.push('\n');
        }
        pem.push(letter);
    }
    pem.push_str("\n-----END CERTIFICATE-----\n");
    pem
}
