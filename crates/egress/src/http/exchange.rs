//! Requests and answers on one connection of a sandbox's.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::Host;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use zeroize::{Zeroize as _, Zeroizing};

use super::answer::download;
use super::body::{Broken, Way};
use super::head::{self, After, Asked, Bad, Header, Request};
use crate::audit::Via;
use crate::dial::Dialled;
use crate::io::{ReadSide, Reader, Stream, WriteSide, within};
use crate::policy::Allowed;
use crate::refusal::Refusal;
use crate::secret::{Blanker, Wire};
use crate::serving::{Meter, Serving};

/// What is read of a client that was refused, so that it reads the answer before its own words come back as an error.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// Which host requests may be for.
#[derive(Debug)]
pub(crate) enum Goal {
    /// The one that each names: a proxy's requests.
    Named,
    /// The one that the connection was made for.
    Fixed { host: Host, port: u16, wire: Wire, dialled: Option<Dialled> },
}

#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) serving: Arc<Serving>,
    pub(crate) via: Via,
    pub(crate) goal: Goal,
}

/// A connection to the host that requests are for.
struct Upstream {
    host: Host,
    port: u16,
    dialled: Option<std::net::IpAddr>,
    reader: Reader<ReadSide>,
    writer: WriteSide,
    meter: Meter,
}

struct Target {
    host: Host,
    port: u16,
    wire: Wire,
    allowed: Allowed,
}

/// A request that gets no further, and whom it was for, if that is known.
struct Refused {
    whom: Option<(Host, u16)>,
    method: Option<String>,
    refusal: Refusal,
}

impl Exchange {
    /// Until one side ends it, or a request is refused. The client has said something already.
    pub(crate) async fn run(mut self, said: Vec<u8>, client: Stream) {
        let (reader, mut writer) = client.split();
        let mut reader = Reader::behind(said, reader);
        let mut upstream = None;
        loop {
            let head = match self.next_head(&mut reader, &mut upstream).await {
                Ok(Some(head)) => Zeroizing::new(head),
                Ok(None) => break,
                Err(bad) => {
                    self.refuse(&mut reader, &mut writer, self.malformed(bad)).await;
                    return;
                }
            };
            self.serving.pace().await;
            match self.answer(&head, &mut reader, &mut writer, &mut upstream).await {
                Ok(After::Stays) => {}
                Ok(After::Closes) => break,
                Err(refused) => {
                    self.refuse(&mut reader, &mut writer, refused).await;
                    return;
                }
            }
        }
        let _ = timeout(LINGER, writer.shutdown()).await;
    }

    /// `None` where there will be none: the client is gone, or the host, which the client then learns as it would have.
    async fn next_head(
        &self,
        reader: &mut Reader<ReadSide>,
        upstream: &mut Option<Upstream>,
    ) -> Result<Option<Vec<u8>>, Bad> {
        let bounds = &self.serving.egress.bounds;
        if reader.bytes().is_empty() {
            let patience = if upstream.is_some() { bounds.idle } else { bounds.first };
            let begun = async {
                match upstream {
                    Some(upstream) => tokio::select! {
                        read = reader.fill() => read,
                        // Whatever a host says unasked is not an answer.
                        _ = upstream.reader.fill() => Ok(0),
                    },
                    None => reader.fill().await,
                }
            };
            if !matches!(within(patience, begun).await, Ok(1..)) {
                return Ok(None);
            }
        }
        match within(bounds.first, reader.head()).await {
            Ok(head) => Ok(head),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err(Bad("its head is too long")),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(Bad("its head took too long")),
            Err(_) => Ok(None),
        }
    }

    async fn answer(
        &mut self,
        head: &[u8],
        reader: &mut Reader<ReadSide>,
        writer: &mut WriteSide,
        upstream: &mut Option<Upstream>,
    ) -> Result<After, Refused> {
        let request = match head::request(head) {
            Ok(Asked::Request(request)) => request,
            Ok(Asked::Connect(..)) => return Err(self.malformed(Bad("a CONNECT stands alone on its connection"))),
            Err(bad) => return Err(self.malformed(bad)),
        };
        let target = self.target(&request)?;
        let refused = |refusal| {
            let whom = Some((target.host.clone(), target.port));
            Refused { whom, method: Some(request.method.clone()), refusal }
        };
        if !target.allowed.methods.allow(&request.method) {
            return Err(refused(Refusal::Method(request.method.chars().take(24).collect())));
        }
        if request.wants_websocket {
            return Err(refused(Refusal::WebSocket));
        }
        if self.serving.is_spent() {
            return Err(refused(Refusal::Spent));
        }
        // What a host said beyond its answer would be taken for the next one.
        let is_there = upstream
            .as_ref()
            .is_some_and(|one| one.host == target.host && one.port == target.port && one.reader.bytes().is_empty());
        if !is_there {
            *upstream = None;
            *upstream = Some(self.connect(&target).await.map_err(refused)?);
        }
        let Some(upstream) = upstream.as_mut() else { return Ok(After::Closes) };
        self.serving.allow(self.via, &target.host, target.port, Some(&request.method), upstream.dialled);
        self.transfer(request.clone(), &target, reader, writer, upstream).await.map_err(refused)
    }

    fn malformed(&self, bad: Bad) -> Refused {
        let whom = match &self.goal {
            Goal::Named => None,
            Goal::Fixed { host, port, .. } => Some((host.clone(), *port)),
        };
        Refused { whom, method: None, refusal: Refusal::Malformed(bad) }
    }

    /// Whom a request is for; what it says of that in several places must agree.
    fn target(&self, request: &Request) -> Result<Target, Refused> {
        let (host, port, wire) = match (&self.goal, &request.authority) {
            (Goal::Named, Some((host, port))) => (host.clone(), port.unwrap_or(80), Wire::Clear),
            (Goal::Named, None) => {
                return Err(self.malformed(Bad("a proxy is asked for an address with http:// and a host")));
            }
            (Goal::Fixed { host, port, wire, .. }, _) => (host.clone(), *port, *wire),
        };
        let refused = |refusal| {
            let whom = Some((host.clone(), port));
            Refused { whom, method: Some(request.method.clone()), refusal }
        };
        let agrees =
            |(other, other_port): &(Host, Option<u16>)| *other == host && other_port.is_none_or(|other| other == port);
        let allowed = self.serving.policy.connection(&host, port).ok_or_else(|| refused(Refusal::NotGranted))?;
        if !request.authority.as_ref().is_none_or(agrees) {
            return Err(refused(Refusal::OtherHost("the host of the request's target")));
        }
        let named = matches!(self.goal, Goal::Named);
        let host_agrees = request.host.as_ref().map_or(named, agrees);
        if !host_agrees {
            return Err(refused(Refusal::OtherHost("the Host header")));
        }
        Ok(Target { host, port, wire, allowed })
    }

    async fn connect(&mut self, target: &Target) -> Result<Upstream, Refusal> {
        let egress = &self.serving.egress;
        let ready = match &mut self.goal {
            Goal::Fixed { dialled, .. } => dialled.take(),
            Goal::Named => None,
        };
        let Dialled { stream, address } = match ready {
            Some(dialled) => dialled,
            None => egress.dialler.dial(&target.host, target.port, &target.allowed).await?,
        };
        let stream = match target.wire {
            Wire::Clear => Stream::Socket(stream),
            Wire::Tls => {
                let connecting = egress.tls.connect(&target.host, Box::new(stream));
                let connected = timeout(egress.bounds.connect, connecting).await;
                let connected = connected
                    .unwrap_or_else(|_| Err("TLS took too long".to_owned()))
                    .map_err(|why| Refusal::Unreachable(format!("TLS: {why}")))?;
                Stream::Other(connected)
            }
        };
        let (reader, writer) = stream.split();
        let meter = Meter::new(&self.serving, self.via, &target.host, target.port);
        let (host, port) = (target.host.clone(), target.port);
        Ok(Upstream { host, port, dialled: address, reader: Reader::new(reader), writer, meter })
    }

    async fn transfer(
        &self,
        mut request: Request,
        target: &Target,
        reader: &mut Reader<ReadSide>,
        writer: &mut WriteSide,
        upstream: &mut Upstream,
    ) -> Result<After, Refusal> {
        let (egress, idle) = (&self.serving.egress, self.serving.egress.bounds.idle);
        let Target { host, port, wire, .. } = target;
        let concerned = egress.vault.concerns(host, *port, *wire);
        if concerned {
            egress.vault.fill_in(&mut request, host, *port, *wire);
            // What is compressed cannot be looked through.
            request.headers.retain(|header| !header.is("accept-encoding"));
            request.headers.push(Header { name: "Accept-Encoding".into(), value: b"identity".to_vec() });
        }
        let usual_port = if *wire == Wire::Tls { 443 } else { 80 };
        let head = Zeroizing::new(request.write(host, *port, usual_port));
        request.headers.iter_mut().for_each(|header| header.value.zeroize());
        let Upstream { reader: answers, writer: requests, meter, .. } = upstream;
        let upload = async {
            let mut way = Way { blanker: None, idle, count: |count| meter.sent(count) };
            way.put(&head, requests).await?;
            way.pass(reader, request.framing, requests, request.framing).await
        };
        let blanker = concerned.then(|| Blanker::new(&egress.vault.forms));
        let way = Way { blanker, idle, count: |count| meter.received(count) };
        let download = download(way, answers, writer, &request);
        tokio::pin!(upload, download);
        let mut uploading = true;
        loop {
            tokio::select! {
                sent = &mut upload, if uploading => match sent {
                    Ok(()) => uploading = false,
                    // It may have answered without reading all of it.
                    Err(Broken::Receiver) => uploading = false,
                    Err(Broken::Sender | Broken::Spent) => return Ok(After::Closes),
                },
                // What is left of a request that was answered early cannot be told from the next.
                answered = &mut download => return answered.map(|after| if uploading { After::Closes } else { after }),
            }
        }
    }

    async fn refuse(&self, reader: &mut Reader<ReadSide>, writer: &mut WriteSide, refused: Refused) {
        let Refused { whom, method, refusal } = refused;
        let words = match (&whom, &refusal) {
            (Some((host, port)), refusal) => self.serving.refuse(self.via, host, *port, method.as_deref(), refusal),
            (None, Refusal::Malformed(bad)) => {
                self.serving.refuse_noise(self.via, bad.0);
                format!("the request was not understood: {bad}")
            }
            (None, _) => return,
        };
        say_and_linger(reader, writer, &refusal.http(&words)).await;
    }
}

/// The last words on a connection.
pub(crate) async fn say_and_linger<R, W>(reader: &mut Reader<R>, writer: &mut W, words: &[u8])
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let said = async {
        writer.write_all(words).await?;
        writer.shutdown().await?;
        let mut left = LINGER_BYTES;
        loop {
            reader.consume(reader.bytes().len());
            let read = reader.fill().await?;
            if read == 0 || read > left {
                return Ok(());
            }
            left -= read;
        }
    };
    let _ = within(LINGER, said).await;
}
