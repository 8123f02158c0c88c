//! SOCKS5, for programs that are told of a proxy and do not speak HTTP.

pub mod words;

use std::sync::Arc;

use belljar_core::Host;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::words::{Parsed, Reply};
use crate::audit::Via;
use crate::doors::{by_name, open};
use crate::io::within;
use crate::serving::Serving;
use crate::tunnel::Tunnel;

/// The longest that a client says before it is understood.
const BYTES_MAX: usize = 1024;

/// SOCKS5, up to where the tunnel begins.
pub(crate) async fn serve(serving: Arc<Serving>, mut client: TcpStream, mut said: Vec<u8>) {
    let patience = serving.egress.bounds.first;
    let asked = timeout(patience, socks_request(&mut client, &mut said)).await;
    let (host, port) = match asked {
        Ok(Ok(asked)) => asked,
        Ok(Err(answer)) => {
            if answer == Reply::NotAllowed.bytes() {
                serving.refuse_noise(Via::Socks, "what it names is no host");
            }
            let _ = within(patience, client.write_all(&answer)).await;
            return;
        }
        Err(_) => return,
    };
    let (host, _in_use) = by_name(&serving, host);
    let (reply, opened) = match open(&serving, &host, port).await {
        Ok(opened) => (Reply::Done, Some(opened)),
        Err(refusal) => {
            serving.refuse(Via::Socks, &host, port, None, &refusal);
            (if refusal.status() == 403 { Reply::NotAllowed } else { Reply::Unreachable }, None)
        }
    };
    let answered = within(patience, client.write_all(&reply.bytes())).await;
    if let (Some((allowed, dialled)), Ok(())) = (opened, answered) {
        let dialled = Some(dialled);
        Tunnel { serving, via: Via::Socks, host, port, allowed, client, said, dialled }.run().await;
    }
}

/// What a SOCKS client asks for, or the answer that it gets. What is behind that stays in `said`.
async fn socks_request(client: &mut TcpStream, said: &mut Vec<u8>) -> Result<(Host, u16), Vec<u8>> {
    loop {
        match words::greeting(said) {
            Parsed::Whole(true, used) => {
                said.drain(..used);
                break;
            }
            Parsed::Whole(false, _) => return Err(words::NO_METHOD.to_vec()),
            Parsed::More => more(client, said).await?,
        }
    }
    client.write_all(&words::WELCOME).await.map_err(|_| Vec::new())?;
    loop {
        match words::request(said).map_err(|reply| reply.bytes().to_vec())? {
            Parsed::Whole(asked, used) => {
                said.drain(..used);
                return Ok(asked);
            }
            Parsed::More => more(client, said).await?,
        }
    }
}

async fn more(client: &mut TcpStream, said: &mut Vec<u8>) -> Result<(), Vec<u8>> {
    match client.read_buf(said).await {
        Ok(1..) if said.len() <= BYTES_MAX => Ok(()),
        Ok(_) | Err(_) => Err(Vec::new()),
    }
}
