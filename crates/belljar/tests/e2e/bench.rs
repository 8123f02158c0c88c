//! The bench, as far as that it measures what it says; the figures are the machine's.

use std::fs;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::host::{descendants, signal, until};
use crate::server::{User, folder};

fn bench(words: &[&str]) -> Output {
    let words: Vec<&str> = ["bench", "--quick"].into_iter().chain(words.iter().copied()).collect();
    User::same().command(&words).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_bench_runs() {
    let folder = folder(0o755);
    let chart = folder.path().join("chart.svg");
    let output = bench(&["--json", "--chart", chart.to_str().unwrap()]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(output.status.success(), "{output:?}");
    for (group, row, figure) in [
        ("fresh", "python, stdio, sequential", "ratio_p50"),
        ("fresh", "python, http, burst of 8", "p99_ms"),
        ("fresh", "shell, stdio, staggered", "p50_ms"),
        ("live", "python, http", "ratio_p50"),
        ("throughput", "4 over http", "ratio_of_rates"),
        ("memory", "server", "rss_mib"),
        ("files", "write_file, read_file", "ratio_p50"),
        ("output", "python, kept sandbox", "peak_mib"),
    ] {
        let row = &report["groups"][group]["rows"][row];
        assert!(row[figure].as_f64().is_some_and(|value| value > 0.0), "{group}: {row} of {report}");
        assert!(row.get("success_percent").is_none_or(|percent| *percent == 100), "{group}: {row}");
    }
    let target = report["targets"].as_array().unwrap().iter().find(|target| target["measure"] == "live python, p50");
    assert!(target.is_some_and(|target| target["met"].is_boolean()), "{report}");
    assert!(fs::read_to_string(&chart).unwrap().starts_with("<svg "));
}

/// A table, a verdict, and an exit code that follows it: in one run a call in a live sandbox takes as long as it takes.
#[test]
fn the_bench_checks_what_it_was_asked_for() {
    let output = bench(&["--only", "live", "--check"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\nlive: ") && !text.contains("\nfresh: "), "{output:?}");
    let verdict = text.lines().find(|line| line.contains("live python, p50")).unwrap();
    assert_eq!(output.status.code(), Some(if verdict.ends_with("MISSED") { 1 } else { 0 }), "{verdict}");
}

/// A server over HTTP has nothing that tells it of our end but us.
#[test]
fn a_bench_that_is_ended_ends_its_servers() {
    let user = User::same();
    let mut child = user
        .command(&["bench", "--only", "throughput"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Two servers with a jail each.
    until("its servers run", Duration::from_secs(30), || descendants(child.id()).len() >= 4);
    let family = descendants(child.id());
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    until("its servers are gone", Duration::from_secs(10), || !family.iter().any(|process| process.lives()));
}

/// Small numbers of all that it asks of a server, but for the long load.
#[test]
fn the_bench_of_a_server_runs() {
    let words = ["bench", "serve", "--quick", "--json", "--only", "rss,http,neighbour,burst,idle,kill", "--kills", "2"];
    let output = User::same().command(&words).stdin(Stdio::null()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(output.status.success(), "{output:?}");
    for (group, row, figure) in [
        ("rss", "with a pool", "rss_mib"),
        ("http", "over http", "p50_ms"),
        ("neighbour", "beside the flood", "p99_ms"),
        ("burst", "40 at once", "p99_ms"),
        ("idle", "with a live python", "pss_each_mib"),
        ("kill", "until all is dead", "p99_ms"),
    ] {
        let row = &report["groups"][group]["rows"][row];
        assert!(row[figure].as_f64().is_some_and(|value| value > 0.0), "{group}: {row} of {report}");
        assert!(row.get("success_percent").is_none_or(|percent| *percent == 100), "{group}: {row} of {report}");
    }
    // How long things take is the machine's; that nothing is left is ours.
    let targets = report["targets"].as_array().unwrap();
    for measure in
        ["left after the next start", "idle sandboxes that outlive their end", "40 requests at once, answered"]
    {
        let target = targets.iter().find(|target| target["measure"] == measure);
        assert!(target.is_some_and(|target| target["met"] == true), "{measure}: {report}");
    }
}
