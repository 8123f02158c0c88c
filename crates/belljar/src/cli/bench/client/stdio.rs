//! Over a pipe: one message a line, many requests at once if wanted.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};

use super::{Answer, Call, Client, result};

#[derive(Debug)]
pub(in super::super) struct Stdio {
    stdin: ChildStdin,
    stdout: Answers,
    next_id: u64,
    instructions: String,
}

/// An answer as it came in.
struct Arrived {
    id: u64,
    at: Instant,
    message: Value,
}

#[derive(Debug)]
struct Answers {
    reader: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Stdio {
    pub(in super::super) fn new(stdin: ChildStdin, stdout: ChildStdout) -> Stdio {
        let reader = BufReader::with_capacity(64 * 1024, stdout);
        Stdio { stdin, stdout: Answers { reader, line: Vec::new() }, next_id: 0, instructions: String::new() }
    }

    pub(in super::super) fn initialize(&mut self) -> anyhow::Result<()> {
        let client = json!({ "name": "belljar-bench", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let (id, line) = self.line("initialize", &params);
        self.send(&line)?;
        let answer = result(self.stdout.answer(id)?.message)?;
        self.instructions = answer["instructions"].as_str().unwrap_or_default().to_owned();
        self.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")
    }

    /// What the server says of itself.
    pub(in super::super) fn instructions(&self) -> &str {
        &self.instructions
    }

    /// The result of some other request.
    pub(in super::super) fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let (id, line) = self.line(method, params);
        self.send(&line)?;
        result(self.stdout.answer(id)?.message)
    }

    fn line(&mut self, method: &str, params: &Value) -> (u64, Vec<u8>) {
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params });
        (self.next_id, format!("{message}\n").into_bytes())
    }

    fn send(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.stdin.write_all(line).context("writing to the server")
    }

    /// `count` of the same call, each sent when its turn comes, whether those before it are answered or not.
    pub(in super::super) fn paced(&mut self, call: &Call, count: u32, gap: Duration) -> anyhow::Result<Vec<Answer>> {
        let params = call.params();
        let lines: Vec<_> = (0..count).map(|_| self.line("tools/call", &params)).collect();
        let (stdin, stdout) = (&mut self.stdin, &mut self.stdout);
        let (sent, arrived) = std::thread::scope(|scope| {
            let reading = scope.spawn(|| (0..count).map(|_| stdout.next()).collect::<anyhow::Result<Vec<_>>>());
            let mut sent = HashMap::new();
            let first = Instant::now();
            for ((id, line), turn) in lines.iter().zip(0..) {
                std::thread::sleep((gap * turn).saturating_sub(first.elapsed()));
                sent.insert(*id, Instant::now());
                stdin.write_all(line).context("writing to the server")?;
            }
            let arrived = reading.join().map_err(|_| anyhow!("the reader of answers failed"))??;
            anyhow::Ok((sent, arrived))
        })?;
        arrived.into_iter().map(|arrived| arrived.since(&sent)).collect()
    }

    /// `wide` of the same call at once, and another for each that is answered as long as there shall be `more`.
    pub(in super::super) fn flood(
        &mut self,
        call: &Call,
        wide: usize,
        mut more: impl FnMut() -> bool,
    ) -> anyhow::Result<Vec<Answer>> {
        let params = call.params();
        let mut sent = HashMap::new();
        let mut answers = Vec::new();
        loop {
            while sent.len() < wide && more() {
                let (id, line) = self.line("tools/call", &params);
                sent.insert(id, Instant::now());
                self.send(&line)?;
            }
            if sent.is_empty() {
                return Ok(answers);
            }
            let arrived = self.stdout.next()?;
            let id = arrived.id;
            answers.push(arrived.since(&sent)?);
            sent.remove(&id);
        }
    }
}

impl Client for Stdio {
    fn call(&mut self, call: &Call) -> anyhow::Result<Answer> {
        let (id, line) = self.line("tools/call", &call.params());
        let started = Instant::now();
        self.send(&line)?;
        let arrived = self.stdout.answer(id)?;
        Ok(Answer { took: arrived.at - started, result: result(arrived.message)? })
    }
}

impl Answers {
    /// The next message that answers something; word of sandboxes that come and go is passed over.
    fn next(&mut self) -> anyhow::Result<Arrived> {
        loop {
            self.line.clear();
            if self.reader.read_until(b'\n', &mut self.line).context("reading from the server")? == 0 {
                bail!("the server ended");
            }
            let at = Instant::now();
            let message: Value = serde_json::from_slice(&self.line).context("reading from the server")?;
            if let Some(id) = message["id"].as_u64() {
                return Ok(Arrived { id, at, message });
            }
        }
    }

    fn answer(&mut self, id: u64) -> anyhow::Result<Arrived> {
        let arrived = self.next()?;
        if arrived.id != id {
            bail!("the server answered request {} when {id} was asked", arrived.id);
        }
        Ok(arrived)
    }
}

impl Arrived {
    fn since(self, sent: &HashMap<u64, Instant>) -> anyhow::Result<Answer> {
        let started = sent.get(&self.id).with_context(|| format!("nobody asked request {}", self.id))?;
        Ok(Answer { took: self.at - *started, result: result(self.message)? })
    }
}
