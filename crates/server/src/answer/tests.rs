use std::time::Duration;

use belljar_core::{Changes, Ending, Entry, Isolation, Language, Limit, Metadata, Report, State, Usage};
use belljar_engine::{
    Bundle, CreateRequest, Engine, Failure, Lost, Names, Principal, Rich, Run, RunRequest, Settings, Wants,
};
use belljar_testkit::fake::{Fake, Manners};

use super::run::TEXT_BYTES_MAX;
use super::shorten::shorten;
use super::*;

fn report(stdout: &[u8], stderr: &[u8], ending: Ending) -> Report {
    Report {
        stdout: stdout.into(),
        stderr: stderr.into(),
        ending,
        state: State::Fresh,
        duration: Duration::from_millis(12),
        usage: Usage { cpu_ms: 3, memory_peak_bytes: 4096 },
        isolation: Isolation {
            backend: "fake".into(),
            namespaces: "none".into(),
            seccomp: "none".into(),
            landlock: "none".into(),
            cgroup: "none".into(),
            network: "none".into(),
            user: "none".into(),
        },
    }
}

/// A real run, which is then changed: only the engine makes run ids.
async fn answered(report: Report) -> CallToolResult {
    answered_with(|run| run.report = report).await
}

async fn answered_with(change: impl FnOnce(&mut Run)) -> CallToolResult {
    let engine = Engine::new(Fake::new(Manners::default()), Settings::default());
    let program = belljar_core::Program {
        source: belljar_core::Source::Command("exit 0".into()),
        env: vec![],
        cwd: None,
        stdin: belljar_core::Stdin::empty(),
        wall: Duration::from_secs(5),
        changed_max: 0,
    };
    let mut run =
        engine.run(&Principal::local(), RunRequest { sandbox: None, program, wants: Wants::default() }).await.unwrap();
    change(&mut run);
    let (stdout, stderr) = (&run.report.stdout, &run.report.stderr);
    ran(&Told { run: &run, stdout, stderr, wall: Duration::from_secs(30), kept: true })
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

fn structured(result: &CallToolResult) -> &Value {
    result.structured_content.as_ref().unwrap()
}

#[tokio::test]
async fn success_is_the_output_and_nothing_else() {
    let result = answered(report(b"42\n", b"", Ending::Exited { code: 0 })).await;
    assert_eq!(text(&result), "42\n");
    assert_eq!(result.is_error, Some(false));
    let structured = structured(&result);
    assert_eq!(structured["stdout"], "42\n");
    assert_eq!((&structured["exit_code"], &structured["ending"]), (&json!(0), &json!("exited")));
    assert_eq!((&structured["state"], &structured["truncated"]), (&json!("fresh"), &json!(false)));
    assert_eq!(structured["usage"], json!({"cpu_ms": 3, "memory_peak_bytes": 4096}));
    assert_eq!(structured["isolation"]["backend"], "fake");
    assert!(structured.get("sandbox_id").is_none() && structured.get("output_uris").is_none());
}

#[tokio::test]
async fn silence_is_said() {
    assert_eq!(text(&answered(report(b"", b"", Ending::Exited { code: 0 })).await), "(no output)");
}

#[tokio::test]
async fn every_bad_ending_is_an_error_with_its_note() {
    for (ending, note) in [
        (Ending::Exited { code: 3 }, "[exit 3]"),
        (Ending::Killed { signal: 11 }, "[killed by signal 11 (SIGSEGV)]"),
        (Ending::Killed { signal: 63 }, "[killed by signal 63]"),
        (Ending::Stopped { limit: Limit::Wall }, "[timeout after 30 s; send a larger timeout, or do less at once]"),
        (
            Ending::Stopped { limit: Limit::Memory },
            "[out of memory: limit 1024 MiB; use less, or create_sandbox with a larger limits.memory_mb]",
        ),
        (
            Ending::Stopped { limit: Limit::Output },
            "[stopped for too much output: limit 1024 KiB; print less, or write to a file]",
        ),
        (Ending::Cancelled, "[cancelled]"),
    ] {
        let result = answered(report(b"out", b"oops\n", ending)).await;
        assert_eq!(text(&result), format!("out\n[stderr]\noops\n{note}"));
        assert_eq!(result.is_error, Some(true));
        assert_eq!(structured(&result)["ending"], ending.name());
        assert_eq!(structured(&result)["truncated"], ending == Ending::Stopped { limit: Limit::Output });
    }
}

#[tokio::test]
async fn a_lost_sandbox_is_said() {
    let lost = Report { state: State::Lost, ..report(b"", b"", Ending::Killed { signal: 9 }) };
    let result = answered(lost).await;
    assert_eq!(structured(&result)["state"], "lost");
    assert!(text(&result).ends_with("[sandbox lost: nothing of it remains; call create_sandbox for a new one]"));
}

#[tokio::test]
async fn long_output_is_head_and_tail_with_the_way_to_the_rest() {
    let lines: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
    let result = answered(report(lines.as_bytes(), b"", Ending::Exited { code: 0 })).await;
    let shown = text(&result);
    assert!(shown.len() <= TEXT_BYTES_MAX && shown.len() > TEXT_BYTES_MAX / 2, "{}", shown.len());
    assert!(shown.starts_with("line 0\n") && shown.ends_with("line 9999\n"));
    let mark = shown.lines().find(|line| line.starts_with("... [")).unwrap();
    let structured = structured(&result);
    let uri = structured["output_uris"]["stdout"].as_str().unwrap();
    assert!(uri.starts_with("belljar://runs/run_") && uri.ends_with("/stdout"), "{uri}");
    assert!(mark.ends_with(&format!("bytes left out; whole output: {uri}] ...")), "{mark}");
    assert!(shown.lines().all(|line| line == mark || line.starts_with("line ")), "cut at line borders");
    assert_eq!(structured["truncated"], true);
    assert_eq!(structured["stdout"], shown);
    assert!(structured["output_uris"].get("stderr").is_none());
}

#[test]
fn output_is_cut_between_characters() {
    for length in [20_000, 50_000, 300_000] {
        for text in ["é".repeat(length), "日".repeat(length), "😀".repeat(length)] {
            let short = shorten(text.as_bytes(), 1000, || None);
            assert!(short.cut && short.text.len() < 1200, "{}", short.text.len());
            assert!(!short.text.contains('\u{fffd}'));
        }
    }
}

#[test]
fn output_that_grows_when_cleaned_stays_in_its_budget() {
    for bytes in [vec![0u8; 900], vec![0; 100_000], b"\x1b[31m".repeat(100_000), vec![0xff; 100_000]] {
        let short = shorten(&bytes, 1000, || None);
        assert!(short.text.len() < 1200, "{}", short.text.len());
    }
    let coloured = [b"\x1b[31m".repeat(300), b"x".to_vec()].concat();
    let short = shorten(&coloured, 1000, || None);
    assert_eq!((short.text.as_str(), short.cut), ("x", false));
}

#[test]
fn a_budget_is_used_to_the_byte() {
    assert!(!shorten(&[b'x'; 1000], 1000, || None).cut);
    let short = shorten(&[b'x'; 1001], 1000, || None);
    assert!(short.cut && short.text.contains("... [1 bytes left out] ..."), "{}", short.text);
}

fn part(bytes: &[u8], offset: u64, size: u64, encoding: Encoding) -> CallToolResult {
    read(FilePart { path: "a.txt", offset, content: Content { bytes: bytes.into(), size }, encoding })
}

#[test]
fn a_text_file_is_text() {
    let result = part(b"hello\r\n", 0, 7, Encoding::Auto);
    assert_eq!(text(&result), "hello\r\n");
    let expected = json!({"size": 7, "offset": 0, "length": 7, "mime_type": "text/plain", "more": false,
        "encoding": "utf-8", "content": "hello\r\n"});
    assert_eq!(structured(&result), &expected);
    assert_eq!(text(&part(b"", 0, 0, Encoding::Auto)), "(empty file)");
    assert_eq!(text(&part(b"", 9, 7, Encoding::Auto)), "(nothing at offset 9; the file has 7 bytes)");
}

#[test]
fn a_part_says_where_to_go_on() {
    let result = part(b"abc", 10, 100, Encoding::Auto);
    assert_eq!(text(&result), "abc\n[bytes 10 to 13 of 100; go on with offset 13]");
    assert_eq!(structured(&result)["more"], true);
}

#[test]
fn a_part_never_splits_a_character() {
    let whole = "aé日😀z".as_bytes();
    for start in 0..whole.len() {
        for end in start + 1..=whole.len() {
            let result = part(&whole[start..end], start as u64, whole.len() as u64, Encoding::Auto);
            let structured = structured(&result);
            if structured["encoding"] == "utf-8" {
                let content = structured["content"].as_str().unwrap();
                let at = structured["offset"].as_u64().unwrap() as usize;
                assert_eq!(content.as_bytes(), &whole[at..at + content.len()], "{start}..{end}");
            }
        }
    }
}

#[test]
fn binary_is_base64_and_pictures_are_pictures() {
    let binary = part(b"\xff\x00\x01", 0, 3, Encoding::Auto);
    assert_eq!(structured(&binary)["encoding"], "base64");
    assert_eq!(text(&binary), "/wAB");
    let png = part(b"\x89PNG\r\n\x1a\n12", 0, 10, Encoding::Auto);
    assert_eq!(text(&png), "image/png, 10 bytes");
    assert_eq!(png.content[1].as_image().unwrap().mime_type, "image/png");
    assert!(structured(&png).get("content").is_none());
    assert_eq!(structured(&part(b"hi", 0, 2, Encoding::Base64))["content"], "aGk=");
    assert_eq!(structured(&part(b"h\xff", 0, 2, Encoding::Utf8))["content"], "h\u{fffd}");
}

#[test]
fn hidden_characters_of_a_file_are_shown_and_told() {
    let result = part("a\u{202e}b".as_bytes(), 0, 5, Encoding::Auto);
    assert!(text(&result).starts_with("a\\u{202e}b\n[hidden characters are shown"), "{}", text(&result));
}

#[test]
fn a_listing_is_one_line_an_entry_whatever_the_names() {
    let entry = |path: &str, kind, size| Entry { path: path.into(), metadata: Metadata { kind, size, modified: 5 } };
    let listing = Listing {
        entries: vec![entry("a b", FileKind::File, 3), entry("x\nfile 9 y", FileKind::Symlink, 0)],
        truncated: true,
    };
    let result = listed(&listing);
    assert_eq!(
        text(&result),
        "file 3 a b\nlink 0 x\\nfile 9 y\n[there is more; list a subdirectory, or with a smaller depth]"
    );
    assert_eq!(structured(&result)["entries"][0], json!({"path": "a b", "kind": "file", "size": 3, "modified": 5}));
    assert_eq!(text(&listed(&Listing { entries: vec![], truncated: false })), "(empty directory)");
}

#[test]
fn our_failures_are_one_sentence_and_no_structure() {
    let result = refused("no such sandbox; create one");
    assert_eq!(text(&result), "error: no such sandbox; create one");
    assert_eq!((result.is_error, result.structured_content), (Some(true), None));
}

#[tokio::test]
async fn a_new_sandbox_tells_its_limits() {
    let engine = Engine::new(Fake::new(Manners::default()), Settings::default());
    let info = engine.create(&Principal::local(), CreateRequest::default()).await.unwrap();
    let result = created(&info);
    assert!(text(&result).starts_with(&format!("sandbox_id: {}\n", info.id)), "{}", text(&result));
    assert_eq!(structured(&result)["limits"]["memory_mb"], 1024);
    assert_eq!(structured(&result)["limits"]["cpus"], 2.0);
}

fn bundle(forms: &[(&str, Value)]) -> Bundle {
    let data = forms.iter().map(|(mime_type, value)| ((*mime_type).to_owned(), value.clone())).collect();
    Bundle { data, ..Bundle::default() }
}

#[tokio::test]
async fn a_last_value_stands_alone_or_after_the_output() {
    let value = || Rich { result: Some(bundle(&[("text/plain", json!("42"))])), ..Rich::default() };
    let alone = answered_with(|run| run.rich = value()).await;
    assert_eq!(text(&alone), "42");
    assert_eq!(structured(&alone)["result"], json!({"text": "42"}));
    let after = answered_with(|run| (run.rich, run.report.stdout) = (value(), b"hi\n".to_vec())).await;
    assert_eq!(text(&after), "hi\n[result] 42");
}

#[tokio::test]
async fn a_picture_is_a_block_and_its_other_forms_are_told() {
    let mut shown = bundle(&[("image/png", json!("iVBORw0KGgo=")), ("text/html", json!("<b>x</b>"))]);
    (shown.width, shown.height) = (Some(640), Some(480));
    let large = bundle(&[("text/plain", json!("frame")), ("text/html", json!("<td>".repeat(9000)))]);
    let result =
        answered_with(|run| run.rich = Rich { shown: vec![shown], result: Some(large), ..Rich::default() }).await;
    let image = result.content[1].as_image().unwrap();
    assert_eq!((image.data.as_str(), image.mime_type.as_str()), ("iVBORw0KGgo=", "image/png"));
    let told = structured(&result);
    assert_eq!(
        (&told["shown"][0]["width"], &told["shown"][0]["forms"][1]["content"]),
        (&json!(640), &json!("<b>x</b>"))
    );
    assert!(!told.to_string().contains("iVBORw0KGgo="), "nothing bulky is told twice");
    let uri = told["result"]["forms"][0]["uri"].as_str().unwrap();
    assert!(uri.starts_with("belljar://runs/run_") && uri.ends_with("/result.html"), "{uri}");
    assert!(text(&result).starts_with("[image/png 640x480; belljar://runs/run_"), "{}", text(&result));
    assert!(text(&result).ends_with("[result] frame"), "{}", text(&result));
}

#[tokio::test]
async fn an_error_is_told_once() {
    let error = Failure { name: "E".into(), value: "v".into(), traceback: "Traceback\nE: v".into() };
    let result = answered_with(|run| {
        run.report.ending = Ending::Exited { code: 1 };
        run.rich.error = Some(error);
    })
    .await;
    assert_eq!(text(&result), "Traceback\nE: v");
    assert_eq!(structured(&result)["error"], json!({"name": "E", "value": "v", "traceback": "Traceback\nE: v"}));
    assert_eq!((result.is_error, &structured(&result)["stderr"]), (Some(true), &json!("")));
}

#[tokio::test]
async fn a_lost_kernel_says_what_went_with_it() {
    let names = Names { names: vec!["df".into(), "x\u{202e}".into()], count: 7 };
    let result = answered_with(|run| {
        run.report.state = State::Lost;
        run.report.ending = Ending::Killed { signal: 11 };
        run.lost = Some(Lost::Kernel { language: Language::Python, names });
    })
    .await;
    assert_eq!(
        text(&result),
        "[killed by signal 11 (SIGSEGV)]\n[python kernel lost, with df, x\\u{202e} and 5 more; files stay, and the next \
         call starts a new kernel]"
    );
    assert_eq!(structured(&result)["state"], "lost");
}

#[tokio::test]
async fn files_are_listed_and_linked() {
    let entry = |path: String| Entry { path, metadata: Metadata { kind: FileKind::File, size: 3, modified: 0 } };
    let result = answered_with(|run| {
        let entries = (0..30).map(|n| entry(format!("a b/{n}\n.csv"))).collect();
        run.changes = Changes { entries, more: 9_970 };
        run.left = vec![belljar_engine::LeftFile { path: "a b/0\n.csv".into(), bytes: b"1,2".to_vec() }];
    })
    .await;
    let told = structured(&result);
    assert_eq!((told["files"].as_array().unwrap().len(), &told["files_more"]), (10, &json!(9_990)));
    assert!(told["files"][0]["uri"].as_str().unwrap().ends_with("/files/a%20b/0%0A.csv"), "{told}");
    assert_eq!((&told["files"][0]["mime_type"], told["files"][1].get("uri")), (&json!("text/csv"), None));
    assert!(text(&result).contains("is gone with its sandbox") && text(&result).contains("and 9990 more files"));
    assert_eq!(result.content.iter().filter(|block| block.as_resource_link().is_some()).count(), 1);
    assert!(text(&result).lines().all(|line| line.starts_with('[')), "no name makes a line of its own");
}

#[tokio::test]
async fn everything_at_once_keeps_to_the_budget() {
    let long = || json!("long line of text\n".repeat(20_000));
    let result = answered_with(|run| {
        run.report.stdout = b"out\n".repeat(100_000);
        run.report.stderr = b"err\n".repeat(100_000);
        run.rich.result = Some(bundle(&[("text/plain", long()), ("text/html", long()), ("application/json", long())]));
        run.rich.shown = (0..50)
            .map(|_| bundle(&[("text/plain", long()), ("image/png", json!("iVBORw0KGgoA".repeat(100_000)))]))
            .collect();
        let (value, traceback) = (long(), long());
        let text = |value: Value| value.as_str().unwrap().to_owned();
        run.rich.error = Some(Failure { name: "E".into(), value: text(value), traceback: text(traceback) });
    })
    .await;
    assert!(text(&result).len() <= TEXT_BYTES_MAX + 50, "{}", text(&result).len());
    let told = structured(&result).to_string();
    assert!(told.len() < 2 * TEXT_BYTES_MAX, "{}", told.len());
    assert!(text(&result).contains("out") && text(&result).contains("err"));
}

#[tokio::test]
async fn calls_are_told_and_after_a_failure_in_the_text_too() {
    let made = |outcome: &str| belljar_core::Made {
        tool: "github.create_issue".into(),
        outcome: outcome.into(),
        milliseconds: 4,
    };
    let calls = belljar_core::Calls { made: vec![made("ok"), made("ok"), made("Upstream")], more: 0, direct_tokens: 9 };
    let worked = answered_with(|run| run.calls = calls.clone()).await;
    assert_eq!(structured(&worked)["calls"][0]["count"], 2);
    assert_eq!(text(&worked), "(no output)", "what worked is told by what it prints");
    let failed = answered_with(|run| {
        run.report.ending = Ending::Exited { code: 1 };
        run.calls = calls;
    })
    .await;
    let note = "[calls made before the error: github.create_issue ok x2, github.create_issue Upstream]";
    assert!(text(&failed).contains(note), "{}", text(&failed));
    assert_eq!(answered_with(|_| {}).await.structured_content.unwrap().get("calls"), None);
}
