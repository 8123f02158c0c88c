//! A connection to one host that was allowed: what is spoken on it, and whether that agrees.

use std::io;
use std::sync::Arc;

use belljar_core::Host;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::audit::Via;
use crate::dial::Dialled;
use crate::http::exchange::say_and_linger;
use crate::http::{Exchange, Goal};
use crate::io::{PIECE, Prefixed, Reader, Stream};
use crate::policy::{Allowed, Methods, Protocols};
use crate::refusal::Refusal;
use crate::relay::relay;
use crate::secret::Wire;
use crate::serving::{Meter, Serving};
use crate::sniff::{First, look, may_be_request};

#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) serving: Arc<Serving>,
    pub(crate) via: Via,
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) allowed: Allowed,
    pub(crate) client: TcpStream,
    /// What the client said already.
    pub(crate) said: Vec<u8>,
    pub(crate) dialled: Option<Dialled>,
}

impl Tunnel {
    pub(crate) async fn run(mut self) {
        let first = match self.listen().await {
            Ok(First::Silent) if self.allowed.protocols == Protocols::Any => match self.let_server_speak().await {
                Ok(first) => first,
                Err(refusal) => return self.refuse(refusal, &First::Silent).await,
            },
            Ok(first) => first,
            // The client is gone.
            Err(_) => return,
        };
        if let Err(refusal) = self.check(&first) {
            return self.refuse(refusal, &first).await;
        }
        match first {
            First::Http => self.exchange(Wire::Clear).await,
            First::Tls(_) if self.is_opened() => self.exchange(Wire::Tls).await,
            First::Tls(_) | First::Other | First::Silent => {
                if let Err(refusal) = self.pass().await {
                    self.refuse(refusal, &first).await;
                }
            }
        }
    }

    /// The client's first bytes.
    async fn listen(&mut self) -> io::Result<First> {
        let bounds = &self.serving.egress.bounds;
        let end = Instant::now() + bounds.first;
        loop {
            if let Some(first) = look(&self.said, self.allowed.protocols) {
                return Ok(first);
            }
            // Whoever speaks another protocol may have said all that it will for now.
            let courtesy = Instant::now() + bounds.courtesy;
            let until = if self.allowed.protocols == Protocols::Any { end.min(courtesy) } else { end };
            match timeout_at(until, read_more(&mut self.client, &mut self.said)).await {
                Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read.map(|_| ())?,
                Err(_) if self.said.is_empty() => return Ok(First::Silent),
                // The beginning of a hello is no other protocol.
                Err(_) if crate::tls::hello::is_tls(&self.said) && Instant::now() < end => {}
                // Nor is that of a request, however slowly it is said.
                Err(_) if may_be_request(&self.said) && Instant::now() < end => {}
                Err(_) if may_be_request(&self.said) => return Ok(First::Http),
                Err(_) => return Ok(First::Other),
            }
        }
    }

    /// Passes on what the server says, until the client says something, which is looked at as if it had come first.
    async fn let_server_speak(&mut self) -> Result<First, Refusal> {
        let mut dialled = self.dial().await?;
        let mut buffer = vec![0; PIECE];
        let idle = self.serving.egress.bounds.idle;
        loop {
            let spoken = async {
                tokio::select! {
                    read = read_more(&mut self.client, &mut self.said) => read.map(|_| None),
                    read = dialled.stream.read(&mut buffer) => read.map(Some),
                }
            };
            match timeout(idle, spoken).await {
                Ok(Ok(None)) if self.said.is_empty() => return Err(Refusal::Silent),
                Ok(Ok(None)) => break,
                Ok(Ok(Some(0))) | Ok(Err(_)) | Err(_) => return Err(Refusal::Silent),
                Ok(Ok(Some(count))) => {
                    let written = timeout(idle, self.client.write_all(&buffer[..count])).await;
                    if !matches!(written, Ok(Ok(()))) {
                        return Err(Refusal::Silent);
                    }
                }
            }
        }
        self.dialled = Some(dialled);
        self.listen().await.map_err(|_| Refusal::Silent)
    }

    fn check(&self, first: &First) -> Result<(), Refusal> {
        match (first, &self.host) {
            (First::Http, _) => Ok(()),
            (First::Tls(_), _) if self.port == 80 => Err(Refusal::Protocol),
            (First::Tls(Some(name)), host) if name == host => Ok(()),
            (First::Tls(None), Host::Address(_)) => Ok(()),
            (First::Tls(_), _) => Err(Refusal::OtherHost("the name that TLS asks for")),
            (First::Other, _) if self.allowed.protocols == Protocols::Any => Ok(()),
            (First::Other, _) => Err(Refusal::Protocol),
            (First::Silent, _) => Err(Refusal::Silent),
        }
    }

    /// Whether TLS ends here: for a secret to be put in, or for methods to be seen.
    fn is_opened(&self) -> bool {
        self.allowed.methods != Methods::Any || self.serving.egress.vault.concerns(&self.host, self.port, Wire::Tls)
    }

    async fn dial(&mut self) -> Result<Dialled, Refusal> {
        match self.dialled.take() {
            Some(dialled) => Ok(dialled),
            None => self.serving.egress.dialler.dial(&self.host, self.port, &self.allowed).await,
        }
    }

    async fn exchange(self, wire: Wire) {
        let Tunnel { serving, via, host, port, client, said, dialled, .. } = self;
        let (said, client) = match wire {
            Wire::Clear => (said, Stream::Socket(client)),
            Wire::Tls => {
                let accepting = serving.egress.tls.accept(&host, Box::new(Prefixed::new(said, client)));
                let accepted = timeout(serving.egress.bounds.first, accepting).await;
                match accepted.unwrap_or_else(|_| Err("it took too long".to_owned())) {
                    Ok(client) => (Vec::new(), Stream::Other(client)),
                    Err(why) => {
                        let why = format!("TLS with the program inside: {why}");
                        serving.refuse(via, &host, port, None, &Refusal::Unreachable(why));
                        return;
                    }
                }
            }
        };
        Exchange { serving, via, goal: Goal::Fixed { host, port, wire, dialled } }.run(said, client).await;
    }

    /// Byte for byte.
    async fn pass(&mut self) -> Result<(), Refusal> {
        if self.serving.is_spent() {
            return Err(Refusal::Spent);
        }
        let Dialled { mut stream, address } = self.dial().await?;
        self.serving.allow(self.via, &self.host, self.port, None, address);
        let meter = Meter::new(&self.serving, self.via, &self.host, self.port);
        let idle = self.serving.egress.bounds.idle;
        if let Ok(Ok(())) = timeout(idle, stream.write_all(&self.said)).await
            && meter.sent(self.said.len()).is_ok()
        {
            // However it ends, it has ended.
            let _ = relay(&mut self.client, &mut stream, &meter, idle).await;
        }
        Ok(())
    }

    async fn refuse(mut self, refusal: Refusal, first: &First) {
        let words = self.serving.refuse(self.via, &self.host, self.port, None, &refusal);
        let (reader, mut writer) = self.client.split();
        let mut reader = Reader::new(reader);
        match first {
            First::Http => say_and_linger(&mut reader, &mut writer, &refusal.http(&words)).await,
            First::Tls(_) => say_and_linger(&mut reader, &mut writer, &refusal.tls()).await,
            First::Other | First::Silent => {}
        }
    }
}

/// A connection that was refused before anything was said on it: told in the client's own protocol.
pub(crate) async fn turn_away(mut client: TcpStream, patience: std::time::Duration, refusal: &Refusal, words: &str) {
    let mut said = Vec::new();
    let listening = async {
        loop {
            match look(&said, Protocols::Web) {
                Some(first) => return Some(first),
                None => match read_more(&mut client, &mut said).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                },
            }
        }
    };
    let first = timeout(patience, listening).await;
    let (reader, mut writer) = client.split();
    let mut reader = Reader::new(reader);
    match first {
        Ok(Some(First::Http)) => say_and_linger(&mut reader, &mut writer, &refusal.http(words)).await,
        Ok(Some(First::Tls(_))) => say_and_linger(&mut reader, &mut writer, &refusal.tls()).await,
        Ok(Some(First::Other | First::Silent)) | Ok(None) | Err(_) => {}
    }
}

async fn read_more(client: &mut TcpStream, said: &mut Vec<u8>) -> io::Result<usize> {
    said.reserve(4096);
    client.read_buf(said).await
}
