//! A web server that stands in for one on the internet.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::http::head::{self, Asked, Framing, Request};
use crate::io::Reader;

pub(super) const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 10, 10);
pub(super) const DENIED: Ipv4Addr = Ipv4Addr::new(127, 0, 10, 20);
pub(super) const BIG: usize = 200 * 1000 * 1000;

/// Whom the origins' certificates come from.
pub(super) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "whom everybody trusts");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    pub(super) fn pem(&self) -> String {
        self.pem.clone()
    }

    fn config(&self, names: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        crate::tls::server_config(vec![certificate], key).unwrap()
    }
}

/// What came to it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) connections: usize,
    pub(super) heads: Vec<String>,
}

/// The same over both, on two ports.
pub(super) struct Origin {
    pub(super) plain: u16,
    pub(super) tls: u16,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl Origin {
    /// At these ports; 0 for any.
    pub(super) async fn new(address: Ipv4Addr, ports: [u16; 2], zone: &'static str, authority: &Authority) -> Origin {
        let plain = TcpListener::bind((address, ports[0])).await.unwrap();
        let tls = TcpListener::bind((address, ports[1])).await.unwrap();
        let names: &[&str] = &["allowed.test", "sub.allowed.test", "denied.test"];
        let acceptor = TlsAcceptor::from(authority.config(names));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let origin = Origin { plain: plain.local_addr().unwrap().port(), tls: tls.local_addr().unwrap().port(), seen };
        let seen = origin.seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = plain.accept().await {
                seen.lock().unwrap().connections += 1;
                tokio::spawn(serve(stream, zone, seen.clone()));
            }
        });
        let seen = origin.seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = tls.accept().await {
                seen.lock().unwrap().connections += 1;
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, zone, seen).await;
                    }
                });
            }
        });
        origin
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.seen.lock().unwrap().heads.clone()
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Send + 'static, zone: &'static str, seen: Arc<Mutex<Seen>>) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = Reader::new(reader);
    while let Ok(Some(bytes)) = reader.head().await {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        seen.lock().unwrap().heads.push(text.clone());
        let Ok(Asked::Request(request)) = head::request(&bytes) else { return };
        if let Framing::Length(length) = request.framing {
            while (reader.bytes().len() as u64) < length {
                if reader.fill().await.unwrap_or(0) == 0 {
                    return;
                }
            }
            let length = length as usize;
            seen.lock().unwrap().heads.push(String::from_utf8_lossy(&reader.bytes()[..length]).into_owned());
            reader.consume(length);
        }
        if answer(&mut writer, zone, &request, &text).await.is_err() || request.after == head::After::Closes {
            break;
        }
    }
    let _ = writer.shutdown().await;
}

async fn answer(
    writer: &mut (impl AsyncWrite + Unpin),
    zone: &str,
    request: &Request,
    text: &str,
) -> std::io::Result<()> {
    // A front end of several sites, which serves whichever the Host names.
    let fronted = text.to_ascii_lowercase().contains("host: denied.test");
    let zone = if fronted { "DENIED-ZONE" } else { zone };
    match request.path.split('?').next().unwrap_or_default() {
        "/redirect" => {
            let to = request.path.split_once("to=").map_or("", |(_, to)| to).replace("%3A", ":").replace("%2F", "/");
            let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            writer.write_all(head.as_bytes()).await?;
        }
        "/echo" => {
            let secret = request.headers.iter().find(|header| header.is("authorization"));
            let secret = String::from_utf8_lossy(secret.map_or(b"none", |header| &header.value)).into_owned();
            let head = format!("HTTP/1.1 200 OK\r\nX-Echo: {secret}\r\nTransfer-Encoding: chunked\r\n\r\n");
            writer.write_all(head.as_bytes()).await?;
            for piece in text.as_bytes().chunks(7) {
                let mut chunk = Vec::new();
                crate::http::chunks::write(piece, &mut chunk);
                writer.write_all(&chunk).await?;
                writer.flush().await?;
            }
            writer.write_all(crate::http::chunks::LAST).await?;
        }
        "/gzip" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc";
            writer.write_all(head.as_bytes()).await?;
        }
        "/big" => {
            writer.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n").as_bytes()).await?;
            let piece = vec![b'x'; 1024 * 1024];
            let mut left = BIG;
            while left > 0 {
                let count = left.min(piece.len());
                writer.write_all(&piece[..count]).await?;
                left -= count;
            }
        }
        _ => {
            let body = if request.method == "HEAD" { String::new() } else { format!("{zone}\n") };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", zone.len() + 1);
            writer.write_all(head.as_bytes()).await?;
        }
    }
    writer.flush().await
}

/// A server of no protocol that we know: it speaks first, and then says everything twice.
pub(super) async fn parrot(address: Ipv4Addr, greeting: &'static str) -> u16 {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(parrot_one(stream, greeting));
        }
    });
    port
}

async fn parrot_one(stream: TcpStream, greeting: &'static str) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = Reader::new(reader);
    let _ = writer.write_all(greeting.as_bytes()).await;
    while reader.fill().await.is_ok_and(|count| count > 0) {
        let said = reader.bytes().to_vec();
        reader.consume(said.len());
        let _ = writer.write_all(&[said.clone(), said].concat()).await;
    }
}
