//! A certificate authority that lives as long as the server, in its memory alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::Host;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::EgressError;

/// Hosts whose certificates are kept; past that all are made anew, which takes less than a millisecond each.
const KEPT_MAX: usize = 256;

pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    kept: Mutex<HashMap<Host, Arc<ServerConfig>>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    pub(crate) fn new() -> Result<Authority, EgressError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Belljar egress of one server");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(failed)?.der().clone();
        Ok(Authority { certificate, issuer: Issuer::new(params, key), kept: Mutex::default() })
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// What is needed to speak as a host.
    pub(crate) fn for_host(&self, host: &Host) -> Result<Arc<ServerConfig>, EgressError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = kept.get(host) {
            return Ok(config.clone());
        }
        let config = self.make(host)?;
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(host.clone(), config.clone());
        Ok(config)
    }

    fn make(&self, host: &Host) -> Result<Arc<ServerConfig>, EgressError> {
        let name = match host {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(vec![name]).map_err(failed)?;
        // The name is in the extension that clients read; the other place for it takes 64 letters, and must not be empty.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Belljar egress");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        super::server_config(vec![certificate.der().clone()], key)
            .map_err(|error| EgressError::Authority { why: error.to_string() })
    }
}

fn failed(error: rcgen::Error) -> EgressError {
    EgressError::Authority { why: error.to_string() }
}
