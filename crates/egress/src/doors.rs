//! How a sandbox's connections come to us.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use belljar_core::Host;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::audit::Via;
use crate::dial::Dialled;
use crate::http::exchange::say_and_linger;
use crate::http::head::{self, Asked, Bad};
use crate::http::{Exchange, Goal};
use crate::io::{Reader, Stream, within};
use crate::names::InUse;
use crate::policy::Allowed;
use crate::refusal::Refusal;
use crate::serving::Serving;
use crate::socks;
use crate::tunnel::{Tunnel, turn_away};

/// A connection to a stand-in.
pub(crate) async fn transparent(serving: Arc<Serving>, client: TcpStream, to: SocketAddr) {
    let name = match to.ip() {
        IpAddr::V4(address) => serving.stand_ins.take(address),
        IpAddr::V6(_) => None,
    };
    // Whoever came by another address means a server inside, which there is none of here.
    let Some(name) = name else { return };
    let Ok(host) = name.name.parse::<Host>() else { return };
    let port = to.port();
    let Some(allowed) = serving.policy.connection(&host, port) else {
        let words = serving.refuse(Via::Transparent, &host, port, None, &Refusal::NotGranted);
        return turn_away(client, serving.egress.bounds.first, &Refusal::NotGranted, &words).await;
    };
    Tunnel { serving, via: Via::Transparent, host, port, allowed, client, said: Vec::new(), dialled: None }.run().await;
}

/// A connection to the proxy's port: SOCKS, CONNECT or plain requests, told apart by the first byte.
pub(crate) async fn proxy(serving: Arc<Serving>, mut client: TcpStream) {
    let patience = serving.egress.bounds.first;
    let mut said = Vec::new();
    if !matches!(within(patience, client.read_buf(&mut said)).await, Ok(1..)) {
        return;
    }
    match said.first() {
        Some(&socks::words::VERSION) => socks::serve(serving, client, said).await,
        Some(4) => {
            serving.refuse_noise(Via::Socks, "SOCKS4 is not spoken; use SOCKS5");
            let _ = within(patience, client.write_all(&[0, 0x5b, 0, 0, 0, 0, 0, 0])).await;
        }
        Some(first) if first.is_ascii_alphabetic() || matches!(first, b'\r' | b'\n') => {
            http(serving, client, said).await
        }
        Some(_) | None => serving.refuse_noise(Via::Http, "neither HTTP nor SOCKS5 is spoken"),
    }
}

/// CONNECT, or plain requests.
async fn http(serving: Arc<Serving>, mut client: TcpStream, said: Vec<u8>) {
    let patience = serving.egress.bounds.first;
    let mut reader = Reader::behind(said, &mut client);
    let head = match within(patience, reader.head()).await {
        Ok(Some(head)) => Ok(head),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err(Bad("its head is too long")),
        Ok(None) | Err(_) => return,
    };
    let behind = reader.bytes().to_vec();
    let asked = head.as_ref().map_err(|bad| *bad).and_then(|head| head::request(head));
    let (host, port) = match (asked, head) {
        (Ok(Asked::Connect(host, port)), _) => (host, port),
        (Ok(Asked::Request(_)), Ok(mut head)) => {
            head.extend_from_slice(&behind);
            let client = Stream::Socket(client);
            return Exchange { serving, via: Via::Http, goal: Goal::Named }.run(head, client).await;
        }
        (Err(bad), _) | (_, Err(bad)) => {
            serving.refuse_noise(Via::Http, bad.0);
            let words = format!("the request was not understood: {bad}");
            return last_words(client, &Refusal::Malformed(bad).http(&words)).await;
        }
    };
    let (host, _in_use) = by_name(&serving, host);
    match open(&serving, &host, port).await {
        Ok((allowed, dialled)) => {
            let answered = within(patience, client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")).await;
            if answered.is_ok() {
                let dialled = Some(dialled);
                Tunnel { serving, via: Via::Connect, host, port, allowed, client, said: behind, dialled }.run().await;
            }
        }
        Err(refusal) => {
            let words = serving.refuse(Via::Connect, &host, port, None, &refusal);
            last_words(client, &refusal.http(&words)).await;
        }
    }
}

async fn last_words(mut client: TcpStream, words: &[u8]) {
    let (reader, mut writer) = client.split();
    say_and_linger(&mut Reader::new(reader), &mut writer, words).await;
}

/// A program that resolved a name itself asks for the stand-in: the name is meant.
pub(crate) fn by_name(serving: &Serving, host: Host) -> (Host, Option<InUse>) {
    let in_use = match host {
        Host::Address(IpAddr::V4(address)) => serving.stand_ins.take(address),
        Host::Address(IpAddr::V6(_)) | Host::Name(_) => None,
    };
    match in_use.as_ref().map(|in_use| in_use.name.parse()) {
        Some(Ok(name)) => (name, in_use),
        Some(Err(_)) | None => (host, None),
    }
}

/// Allowed, and dialled: whoever asks is told before it says anything to the host.
pub(crate) async fn open(serving: &Serving, host: &Host, port: u16) -> Result<(Allowed, Dialled), Refusal> {
    serving.pace().await;
    let allowed = serving.policy.connection(host, port).ok_or(Refusal::NotGranted)?;
    let dialled = serving.egress.dialler.dial(host, port, &allowed).await?;
    Ok((allowed, dialled))
}
