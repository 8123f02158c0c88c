//! Over HTTP/1.1 on loopback: one connection that is kept, one request in flight on it.
//!
//! The stateless form of 2026-07-28, in which the headers say again what the body says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::json;

use super::{Answer, Call, Client, result};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(in super::super) struct Http {
    stream: TcpStream,
    address: SocketAddr,
    /// A header line, if the server wants to know who asks.
    authorization: String,
    buffer: Vec<u8>,
}

impl Http {
    pub(in super::super) fn connect(address: SocketAddr) -> anyhow::Result<Http> {
        let stream = TcpStream::connect(address).context("connecting to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let authorization = String::new();
        Ok(Http { stream, address, authorization, buffer: Vec::with_capacity(64 * 1024) })
    }

    /// The same connection, on behalf of whoever has this token.
    pub(in super::super) fn with_token(mut self, token: &str) -> Http {
        self.authorization = format!("Authorization: Bearer {token}\r\n");
        self
    }

    /// Asks, and never reads the answer.
    pub(in super::super) fn send(&mut self, call: &Call) -> anyhow::Result<()> {
        let request = self.request(call);
        self.stream.write_all(&request).context("writing to the server")
    }

    /// The same call on each connection, sent when its turn comes, whether the others' are answered or not.
    pub(in super::super) fn paced(clients: Vec<Http>, call: &Call, gap: Duration) -> anyhow::Result<Vec<Answer>> {
        let first = Instant::now();
        on_each(clients, |mut client, turn| {
            std::thread::sleep((gap * turn).saturating_sub(first.elapsed()));
            Ok(vec![client.call(call)?])
        })
    }

    /// The same call on each connection again and again, until the time has come.
    pub(in super::super) fn flood(clients: Vec<Http>, call: &Call, until: Instant) -> anyhow::Result<Vec<Answer>> {
        on_each(clients, |mut client, _| {
            let mut answers = Vec::new();
            while Instant::now() < until {
                answers.push(client.call(call)?);
            }
            Ok(answers)
        })
    }

    fn request(&self, call: &Call) -> Vec<u8> {
        let mut params = call.params();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "belljar-bench", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let sandbox = match call.arguments["sandbox_id"].as_str() {
            Some(sandbox) => format!("Mcp-Param-Sandbox: {sandbox}\r\n"),
            None => String::new(),
        };
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: {}\r\n{sandbox}{}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            call.tool,
            self.authorization,
            body.len()
        )
        .into_bytes()
    }

    /// One answer, whole in the buffer; where its body begins.
    fn receive(&mut self) -> anyhow::Result<usize> {
        self.buffer.clear();
        let mut whole: Option<(usize, usize)> = None;
        let mut part = [0; 16 * 1024];
        loop {
            if let Some((body, length)) = whole
                && self.buffer.len() >= body + length
            {
                return Ok(body);
            }
            let read = self.stream.read(&mut part).context("reading from the server")?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            self.buffer.extend(part.iter().take(read));
            if whole.is_none() {
                whole = head(&self.buffer)?;
            }
        }
    }
}

impl Client for Http {
    fn call(&mut self, call: &Call) -> anyhow::Result<Answer> {
        let request = self.request(call);
        let started = Instant::now();
        self.stream.write_all(&request).context("writing to the server")?;
        let body = self.receive()?;
        let took = started.elapsed();
        let message = self.buffer.get(body..).unwrap_or_default();
        let message = serde_json::from_slice(message).context("reading from the server")?;
        Ok(Answer { took, result: result(message)? })
    }
}

/// All connections at once, each with a thread.
fn on_each(
    clients: Vec<Http>,
    work: impl Fn(Http, u32) -> anyhow::Result<Vec<Answer>> + Sync,
) -> anyhow::Result<Vec<Answer>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            clients.into_iter().zip(0..).map(|(client, turn)| scope.spawn(move || work(client, turn))).collect();
        let mut answers = Vec::new();
        for thread in threads {
            answers.extend(thread.join().map_err(|_| anyhow!("a client failed"))??);
        }
        Ok(answers)
    })
}

/// Where the body begins and how long it is, once the head is there. Our server always says how long.
fn head(bytes: &[u8]) -> anyhow::Result<Option<(usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_lowercase();
    let status = text.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        bail!("the server answered with status {status}");
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    Ok(Some((end + 4, length.context("the server did not say how long its answer is")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_where_the_body_is() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(head(answer).unwrap(), Some((38, 5)));
        assert_eq!(head(&answer[..30]).unwrap(), None);
        assert!(head(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").is_err());
        assert!(head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
