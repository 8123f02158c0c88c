//! The command line: data on stdout, talk on stderr, and an exit code that says who failed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::{mark, until, until_gone};
use crate::server::{User, folder};

fn belljar(words: &[&str]) -> Output {
    User::same().command(words).stdin(Stdio::null()).output().unwrap()
}

fn shell(code: &str) -> Output {
    belljar(&["run", "-l", "shell", "-c", code])
}

#[track_caller]
fn wrote(output: &Output, stdout: &str, stderr: &str, code: i32) {
    let got = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr), output.status.code());
    assert_eq!(got, (stdout.into(), stderr.into(), Some(code)));
}

/// With its streams as pipes.
fn piped(words: &[&str]) -> Child {
    let mut command = User::same().command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn ends(child: &mut Child, at_most: Duration) -> Option<i32> {
    let mut status = None;
    until("the command ends", at_most, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code())
}

/// As `head` does; a shell takes that number for what it is.
#[test]
fn a_reader_that_has_had_enough_is_no_failure_of_ours() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = User::same().command(&["config", "schema"]).stdout(writer).output().unwrap();
    wrote(&output, "", "", 141);
}

#[test]
fn a_file_is_run_by_its_ending() {
    let folder = folder(0o755);
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    wrote(&belljar(&["run", &file("a.py", "print(6 * 7)")]), "42\n", "", 0);
    wrote(&belljar(&["run", &file("a.js", "console.log(6 * 7)")]), "42\n", "", 0);
    wrote(&belljar(&["run", &file("a.sh", "echo $((6 * 7)); exit 7")]), "42\n", "", 7);
    wrote(&belljar(&["run", "--language", "shell", &file("noext", "echo by name")]), "by name\n", "", 0);
    wrote(&belljar(&["run", "-l", "shell", &file("b.py", "echo by flag")]), "by flag\n", "", 0);
    // The file is all that comes along.
    let beside = file("beside.py", "import os; print(os.listdir('.'))");
    wrote(&belljar(&["run", &beside]), "[]\n", "", 0);
}

#[test]
fn code_on_the_command_line_and_its_streams() {
    wrote(&shell("echo out; echo err >&2"), "out\n", "err\n", 0);
    for code in [1, 2, 42, 125, 255] {
        wrote(&shell(&format!("exit {code}")), "", "", code);
    }
    wrote(&shell("echo before; kill -9 $$"), "before\n", "belljar: killed by signal 9\n", 137);
    // Bytes stay bytes.
    let bytes = shell(r"printf 'a\0\377\033[31m\r\n'");
    assert_eq!(bytes.stdout, b"a\0\xff\x1b[31m\r\n");
}

#[test]
fn standard_input_is_passed_through() {
    let mut child = piped(&["run", "-l", "shell", "-c", "wc -c"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&vec![b'x'; 5_000_000]).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "5000000", "{output:?}");
    wrote(&shell("cat; echo end"), "end\n", "", 0);
    let python = ["run", "-l", "python", "-c", "import sys; print(sys.stdin.buffer.read())"];
    let mut child = piped(&python);
    child.stdin.take().unwrap().write_all(b"\0\xff\n").unwrap();
    wrote(&child.wait_with_output().unwrap(), "b'\\x00\\xff\\n'\n", "", 0);
}

/// A question is asked before it is answered: neither stream waits for the program's end.
#[test]
fn streams_pass_as_they_come() {
    let mut child = piped(&["run", "-l", "shell", "-c", "echo name?; read name; echo hello $name >&2; cat >/dev/null"]);
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut stdout = BufReader::new(stdout);
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "name?\n");
    writeln!(stdin, "ann").unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    line.clear();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "hello ann\n");
    drop(stdin);
    assert_eq!(ends(&mut child, Duration::from_secs(10)), Some(0));
}

/// Standard input that nobody ends, and output that nobody reads, are the terminal's usual state.
#[test]
fn a_program_that_does_not_read_ends_anyway() {
    let mut child = piped(&["run", "-l", "shell", "-c", "echo done"]);
    let stdin = child.stdin.take().unwrap();
    assert_eq!(ends(&mut child, Duration::from_secs(20)), Some(0));
    drop(stdin);

    let mut child = piped(&["run", "-l", "shell", "-c", "seq 20000; exit 3"]);
    drop(child.stdout.take());
    assert_eq!(ends(&mut child, Duration::from_secs(20)), Some(3));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn a_timeout_is_124() {
    let mark = mark();
    let started = Instant::now();
    let code = format!("echo before; trap '' TERM; setsid sleep {mark} & sleep {mark}");
    let output = belljar(&["run", "--timeout", "0.7", "-l", "shell", "-c", &code]);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"before\n"[..], Some(124)), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("belljar: stopped after ") && said.contains("--timeout"), "{said}");
    until_gone(&mark, Duration::from_secs(1));
}

#[test]
fn limits_are_told() {
    let flood = shell("yes");
    assert_eq!(flood.status.code(), Some(137));
    assert_eq!(flood.stdout.len(), 1024 * 1024, "what was kept of a flood");
    assert_eq!(String::from_utf8_lossy(&flood.stderr), "belljar: stopped: it printed more than its output limit\n");
}

#[test]
fn a_report_as_json() {
    let output = belljar(&["run", "--json", "-l", "shell", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(3), &b""[..]));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let fields = [
        "stdout",
        "stderr",
        "exit_code",
        "ending",
        "state",
        "duration_ms",
        "usage",
        "isolation",
        "packages",
        "refused_hosts",
    ];
    assert_eq!(names, fields);
    assert_eq!((&report["stdout"], &report["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!(
        (&report["exit_code"], &report["ending"], &report["state"]),
        (&json!(3), &json!("exited"), &json!("fresh"))
    );
    assert!(report["duration_ms"].is_u64() && report["usage"]["cpu_ms"].is_u64(), "{report}");
    assert!(report["usage"]["memory_peak_bytes"].as_u64().unwrap() > 100_000, "{report}");
    assert_eq!(report["isolation"]["backend"], "native");

    let output = belljar(&["run", "--json", "--timeout", "0.3", "-l", "shell", "-c", r"printf '\377'; sleep 60"]);
    assert_eq!(output.status.code(), Some(124));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["stdout"], &report["ending"]), (&json!("\u{fffd}"), &json!("timeout")));
}

#[test]
fn the_doctor_says_what_is_there() {
    for user in User::all() {
        let output = user.command(&["doctor"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "as {}: {output:?}", user.name);
        for word in ["backend native", "namespaces", "seccomp", "landlock", "cgroup", "network", "languages", "python"]
        {
            assert!(text.contains(word), "{word} is not in: {text}");
        }
        let output = user.command(&["doctor", "--json"]).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&report["backend"], &report["usable"], &report["sandbox"]["state"]),
            (&json!("native"), &json!(true), &json!("ok"))
        );
        for list in ["walls", "languages"] {
            let entries = report[list].as_array().unwrap();
            assert!(entries.len() >= 3, "{report}");
            for entry in entries {
                let told = match entry["state"].as_str() {
                    Some("ok") => entry["detail"].is_string(),
                    Some("weaker" | "missing") => entry["why"].is_string() && entry["fix"].is_string(),
                    _ => false,
                };
                assert!(told && entry["name"].is_string(), "{entry}");
            }
        }
    }
}

/// A host without interpreters is told what to install.
#[test]
fn the_doctor_says_what_is_missing() {
    let empty = folder(0o755);
    let with_path =
        |words: &[&str]| User::same().command(words).env("PATH", empty.path()).stdin(Stdio::null()).output().unwrap();
    let report: Value = serde_json::from_slice(&with_path(&["doctor", "--json"]).stdout).unwrap();
    for language in report["languages"].as_array().unwrap() {
        assert_eq!(language["state"], "missing", "{language}");
        assert!(
            language["why"].as_str().unwrap().contains("PATH") && language["fix"].as_str().unwrap().len() > 10,
            "{language}"
        );
    }
    let output = with_path(&["run", "-l", "python", "-c", "print(1)"]);
    our_failure(&output, &["python is not available here", "hint: ", "belljar doctor"]);
}

#[test]
fn wrong_usage_is_2() {
    for (words, said) in [
        (&["frob"][..], "frob"),
        (&["run"], "<FILE>"),
        (&["run", "-c", "1"], "--language"),
        (&["run", "a.py", "-c", "1", "-l", "python"], "cannot be used with"),
        (&["run", "-c", "1", "-l", "cobol"], "python, javascript, typescript, shell, go, rust"),
        (&["run", "-c", "1", "-l", "python", "--timeout", "0"], "seconds above 0"),
        (&["run", "-c", "1", "-l", "python", "--timeout", "soon"], "such as 30"),
        (&["run", "--frob", "a.py"], "--frob"),
        (&["serve", "--http", "nowhere"], "--http"),
        (&["serve", "--token-file", "x"], "--http"),
        (&["--backend", "hope", "doctor"], "native"),
        (&["doctor", "now"], "now"),
        (&[], "Usage"),
    ] {
        let output = belljar(words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words:?}: {output:?}");
        assert!(text.contains(said), "{words:?}: {said:?} is not in: {text}");
    }
    for words in [&["--help"][..], &["help", "run"], &["run", "--help"], &["--version"]] {
        let output = belljar(words);
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("belljar"), "{words:?}: {output:?}");
    }
}

#[track_caller]
fn our_failure(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{output:?}");
    assert!(said.starts_with("error: ") && said.contains("\nhint: "), "no error and hint in: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

#[test]
fn our_own_failure_is_125() {
    let folder = folder(0o755);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("notes.txt"), "hello").unwrap();
    our_failure(&belljar(&["run", &at("notes.txt")]), &["cannot tell the language", "--language"]);
    fs::write(at("latin.py"), b"print('\xe9')").unwrap();
    our_failure(&belljar(&["run", &at("latin.py")]), &["is not UTF-8"]);
}

/// design.md: a `hint:` line with each error.
#[test]
fn every_failure_has_a_hint() {
    let folder = folder(0o755);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("empty.py"), "").unwrap();
    fs::write(at("nul.py"), "print(1)\0").unwrap();
    fs::write(at("long.py"), "#".repeat(2 << 20)).unwrap();
    fs::create_dir(at("folder.py")).unwrap();
    let mut without: Vec<String> = Vec::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for words in [
        &["run", &at("none.py")][..],
        &["run", &at("folder.py")],
        &["run", &at("empty.py")],
        &["run", &at("nul.py")],
        &["run", &at("long.py")],
        &["run", "-l", "python", "-c", "1", "--timeout", "100000"],
        &["serve", "--http", "0.0.0.0:0"],
        &["serve", "--http", &address],
        &["serve", "--http", "127.0.0.1:0", "--token-file", &at("none")],
        &["serve", "--http", "127.0.0.1:0", "--token-file", &at("empty.py")],
    ] {
        let output = belljar(words);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("error: ") && !said.contains("panicked"), "{words:?}: {said}");
        if !said.lines().any(|line| line.starts_with("hint: ")) {
            without.push(said.replace(folder.path().to_str().unwrap(), "FOLDER"));
        }
    }
    assert!(without.is_empty(), "no hint with:\n{}", without.concat());
}

/// Nothing of the caller's own place shows inside.
#[test]
fn the_callers_place_is_not_the_programs() {
    let folder = folder(0o755);
    fs::write(folder.path().join("secret"), "s").unwrap();
    let code = format!("pwd; ls -A; ls {0}; cat {0}/secret; echo $E2E_SECRET; hostname", folder.path().display());
    let mut command = User::same().command(&["run", "-l", "shell", "-c", &code]);
    let output = command.current_dir(folder.path()).env("E2E_SECRET", "leaked").stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "/workspace\n\nbelljar\n", "{output:?}");
}
