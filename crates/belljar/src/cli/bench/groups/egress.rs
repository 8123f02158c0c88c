//! What the way out costs: a large download and small requests, against the same without a sandbox.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use super::{Bench, note};
use crate::cli::bench::client::{Call, Client, Sample};
use crate::cli::bench::measure::Tally;
use crate::cli::bench::report::{Column, Findings, Outcome};

const LARGE_BYTES: usize = 200_000_000;
/// What a granted name stands for here; an address of loopback that nobody else listens at.
const ADDRESS: &str = "127.0.10.40";
const NAME: &str = "bench.test";
const LARGE_ROUNDS: u32 = 8;

/// The ways that a program may take, as curl's options.
const WAYS: [(&str, &str); 3] = [("transparent", "--noproxy '*'"), ("CONNECT", "--proxytunnel"), ("plain proxy", "")];

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    let what = "egress: 200 MB, and small requests";
    bench.progress.step(what);
    if Command::new("curl").arg("--version").output().is_err() {
        return Ok(Outcome::Absent("there is no curl; install it".to_owned()));
    }
    let listener = TcpListener::bind((ADDRESS, 0)).with_context(|| format!("listening at {ADDRESS}"))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || drop(serve(stream)));
        }
    });
    let folder = tempfile::tempdir()?;
    let host = format!("{NAME}:{port}");
    let text =
        format!("[network]\nallow = [{host:?}]\nprivate = [\"{ADDRESS}\"]\nhosts = {{ {NAME:?} = \"{ADDRESS}\" }}\n");
    let mut stdio = bench.launch.with(&folder, &text)?.stdio(&[])?;
    let created = stdio.client.call(&Call::new("create_sandbox", json!({ "network": [host] })))?;
    let sandbox = created.field("sandbox_id").as_str().context("no sandbox with a network")?.to_owned();

    let mut findings = Findings::default();
    for (path, rounds) in [("large", LARGE_ROUNDS), ("small", bench.plan.node_runs)] {
        let [bare, one, two, three] = bench.rounds(&[], rounds).run(|lane, round| {
            bench.progress.at(what, round, rounds);
            if lane == 0 {
                let line = curl("", &format!("http://{ADDRESS}:{port}/{path}"));
                let output = Command::new("sh").args(["-c", &line]).output()?;
                return Ok(seconds(&String::from_utf8_lossy(&output.stdout)));
            }
            let line = curl(WAYS[lane - 1].1, &format!("http://{host}/{path}"));
            let call = Call::new("exec", json!({ "sandbox_id": sandbox, "command": line, "timeout": 60 }));
            let answer = stdio.client.call(&call)?;
            Ok(seconds(answer.field("stdout").as_str().unwrap_or_default()))
        })?;
        let floor = bare.spread();
        findings.rows.push(bare.row(format!("{path}, no sandbox"), &floor));
        for ((way, _), tally) in WAYS.iter().zip([&one, &two, &three]) {
            let name = format!("{path}, {way}");
            findings.rows.push(row(&name, tally, &bare));
            note(&mut findings, &name, tally);
        }
    }
    Ok(Outcome::Measured(findings))
}

/// The same as of others, and for the large one how fast it was besides.
fn row(name: &str, tally: &Tally, bare: &Tally) -> crate::cli::bench::report::Row {
    let (spread, floor) = (tally.spread(), bare.spread());
    let added = spread.p50.saturating_sub(floor.p50).as_secs_f64() * 1000.0;
    let row = tally.row(name, &floor).with(Column::Added, added);
    let ratio = floor.p50.as_secs_f64() / spread.p50.as_secs_f64();
    if ratio.is_finite() { row.with(Column::RateRatio, ratio) } else { row }
}

/// Its own word on how long it took: the start of a program is not the network's.
fn curl(options: &str, url: &str) -> String {
    format!("curl -s {options} -o /dev/null -w '%{{time_total}} %{{http_code}}' {url}")
}

fn seconds(told: &str) -> Sample {
    let (time, code) = told.split_once(' ').unwrap_or((told, ""));
    match time.parse::<f64>().ok().filter(|_| code == "200").map(Duration::try_from_secs_f64) {
        Some(Ok(took)) => Ok(took),
        _ => Err(format!("curl said {told:?}")),
    }
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let zeros = vec![0; 1 << 20];
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut left = if line.contains("/large") { LARGE_BYTES } else { 100 };
        while line.trim() != "" {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n")?;
        while left > 0 {
            let now = left.min(zeros.len());
            stream.write_all(&zeros[..now])?;
            left -= now;
        }
    }
}
