//! `belljar bench`: what a fresh, sealed run and a call in a live sandbox cost over MCP, as a ratio to the bare program on
//! the same machine.
//!
//! They are measured in turn, so that a busy neighbour slows all alike; only the ratio is worth comparing.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use belljar_backends::Choice;
use clap::Args;
use serde_json::{Value, json};

use crate::complaint::Complaint;

#[derive(Debug, Args)]
pub(super) struct Bench {
    /// Runs of each kind
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(5..=100_000))]
    runs: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const CODE: &str = "print(1)";

impl Bench {
    pub(super) fn execute(self, choice: Choice) -> anyhow::Result<ExitCode> {
        let mut server = Server::start(choice)?;
        let python = server.python()?;
        let sandbox = server.create()?;
        // The first of each pays for cold caches.
        for _ in 0..3 {
            bare(&python)?;
            server.run()?;
            server.live(&sandbox)?;
        }
        let (mut bares, mut sealed, mut live) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.runs {
            bares.push(bare(&python)?);
            sealed.push(server.run()?);
            live.push(server.live(&sandbox)?);
        }
        let idle_kib = server.resident_kib()?;
        let printing_kib = server.print_much(&sandbox)?;
        let bare = Spread::of(bares);
        let sealed = Spread::of(sealed);
        let live = Spread::of(live);
        let ratio = sealed.p50.as_secs_f64() / bare.p50.as_secs_f64();
        let live_ratio = live.p50.as_secs_f64() / bare.p50.as_secs_f64();
        let mut stdout = std::io::stdout().lock();
        if self.json {
            let report = json!({
                "runs": self.runs,
                "bare_python": bare.as_json(),
                "run_code_fresh_sandbox": sealed.as_json(),
                "ratio_p50": ratio,
                "run_code_live_sandbox": live.as_json(),
                "live_ratio_p50": live_ratio,
                "server_resident_kib": idle_kib,
                "server_resident_kib_after_10_mb_printed": printing_kib,
            });
            writeln!(stdout, "{report:#}")?;
        } else {
            writeln!(stdout, "{python} -c '{CODE}'")?;
            writeln!(stdout, "  bare process               {bare}")?;
            writeln!(stdout, "  run_code, fresh sandbox    {sealed}")?;
            writeln!(stdout, "  run_code, live sandbox     {live}")?;
            writeln!(stdout, "  ratio of the medians       {ratio:.2} fresh, {live_ratio:.3} live")?;
            let mib = |kib: u64| kib as f64 / 1024.0;
            writeln!(stdout, "server resident after {} runs: {:.1} MiB", self.runs, mib(idle_kib))?;
            writeln!(stdout, "server's peak while a program printed 10 MB: {:.1} MiB", mib(printing_kib))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn bare(python: &str) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let output = Command::new(python).args(["-c", CODE]).stdin(Stdio::null()).output().context("running python")?;
    let took = started.elapsed();
    if output.stdout != b"1\n" {
        bail!("{python} printed {:?}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(took)
}

/// This same binary as an MCP server on a pipe.
struct Server {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl Server {
    fn start(choice: Choice) -> anyhow::Result<Server> {
        let own = std::env::current_exe().context("finding this program")?;
        let mut process = Command::new(own)
            .args(["serve", "--backend", choice.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the server")?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("the server has no streams");
        };
        let mut server = Server { process, stdin, stdout: BufReader::new(stdout), next_id: 0 };
        server.call(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": { "name": "belljar-bench", "version": env!("CARGO_PKG_VERSION") },
            }),
        )?;
        server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(server)
    }

    /// The interpreter that sandboxes use, so that both sides run the same one.
    fn python(&mut self) -> anyhow::Result<String> {
        let answer = self.tool("import sys; print(sys.executable)")?;
        match answer["structuredContent"]["stdout"].as_str() {
            Some(path) if path.starts_with('/') => Ok(path.trim().to_owned()),
            _ => Err(Complaint::new(
                format!("the server runs no python: {}", answer["content"][0]["text"]),
                "belljar doctor says what this machine lacks",
            )
            .into()),
        }
    }

    fn run(&mut self) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let answer = self.tool(CODE)?;
        let took = started.elapsed();
        if answer["structuredContent"]["stdout"] != "1\n" {
            bail!("the server answered {answer}");
        }
        Ok(took)
    }

    /// A sandbox whose kernel has a value, and room for much output.
    fn create(&mut self) -> anyhow::Result<String> {
        let arguments = json!({ "limits": { "output_kb": 16384 } });
        let answer = self.call("tools/call", json!({ "name": "create_sandbox", "arguments": arguments }))?;
        let Some(sandbox) = answer["structuredContent"]["sandbox_id"].as_str() else {
            bail!("the server answered {answer}");
        };
        self.tool_in(sandbox, "x = 41")?;
        Ok(sandbox.to_owned())
    }

    /// A call in a sandbox that stays: its answer needs what an earlier one left.
    fn live(&mut self, sandbox: &str) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let answer = self.tool_in(sandbox, "x+1")?;
        let took = started.elapsed();
        if answer["structuredContent"]["result"]["text"] != "42" {
            bail!("the server answered {answer}");
        }
        Ok(took)
    }

    /// The most memory that the server had, with a program that printed 10 MB.
    fn print_much(&mut self, sandbox: &str) -> anyhow::Result<u64> {
        let answer = self.tool_in(sandbox, "for _ in range(10_000): print('x' * 999)")?;
        if answer["structuredContent"]["ending"] != "exited" {
            bail!("the server answered {answer}");
        }
        self.status_kib("VmHWM:")
    }

    fn tool(&mut self, code: &str) -> anyhow::Result<Value> {
        self.call("tools/call", json!({ "name": "run_code", "arguments": { "language": "python", "code": code } }))
    }

    fn tool_in(&mut self, sandbox: &str, code: &str) -> anyhow::Result<Value> {
        let arguments = json!({ "language": "python", "code": code, "sandbox_id": sandbox });
        self.call("tools/call", json!({ "name": "run_code", "arguments": arguments }))
    }

    fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).context("reading from the server")? == 0 {
                bail!("the server ended");
            }
            let mut message: Value = serde_json::from_str(&line).context("reading from the server")?;
            if message["id"] == id {
                if message["error"].is_object() {
                    bail!("the server answered {}", message["error"]);
                }
                return Ok(message["result"].take());
            }
        }
    }

    fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        writeln!(self.stdin, "{message}").context("writing to the server")
    }

    fn resident_kib(&self) -> anyhow::Result<u64> {
        self.status_kib("VmRSS:")
    }

    fn status_kib(&self, name: &str) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        line.trim().trim_end_matches(" kB").parse().with_context(|| format!("reading {name}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Spread {
    p50: Duration,
    p90: Duration,
    min: Duration,
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Spread {
        times.sort();
        let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1))).copied();
        Spread { p50: at(50).unwrap_or_default(), p90: at(90).unwrap_or_default(), min: at(0).unwrap_or_default() }
    }

    fn as_json(&self) -> Value {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        json!({ "p50_ms": ms(self.p50), "p90_ms": ms(self.p90), "min_ms": ms(self.min) })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {:>8.2?}  p90 {:>8.2?}  min {:>8.2?}", self.p50, self.p90, self.min)
    }
}
