//! What we failed to do.

#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// Never with a word of its value.
    #[error("the secret {name} cannot be used: {why}")]
    Secret { name: String, why: &'static str },
    #[error("{text:?} is no range of addresses; write it as 10.1.0.0/16 or 10.1.2.3")]
    Subnet { text: String },
    #[error("{text:?} is no host with an address: {why}")]
    Pinned { text: String, why: &'static str },
    #[error("the proxy of this host cannot be used: {why}; write it as http://user:password@proxy.example.com:3128")]
    Proxy { why: &'static str },
    #[error("the certificates to trust could not be read: {why}; set SSL_CERT_FILE to a file of them")]
    Roots { why: String },
    #[error("no certificates could be made for sandboxes: {why}")]
    Authority { why: String },
    #[error("secrets could not be prepared: {why}")]
    Forms { why: String },
}
