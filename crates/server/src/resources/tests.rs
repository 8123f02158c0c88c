use std::time::Duration;

use belljar_core::{Language, Program, Source, Stdin};
use belljar_engine::{CreateRequest, RunRequest, SandboxId, Settings, Wants};
use belljar_testkit::fake::{Fake, Manners};

use super::*;
use crate::address::{self, Value};

fn parsed(uri: &str) -> Result<Target, String> {
    uri::parse(uri).map(|(target, _)| target)
}

fn file(path: &str) -> Result<Target, String> {
    Ok(Target::File { sandbox: "sb_1".into(), path: path.into() })
}

#[test]
fn a_uri_names_a_file_a_directory_or_an_output() {
    assert_eq!(parsed("belljar://sb_1/a/b.txt"), file("a/b.txt"));
    assert_eq!(parsed("belljar://sb_1//etc/hostname"), file("/etc/hostname"));
    assert_eq!(parsed("belljar://sb_1/a%20b%3F%23%25"), file("a b?#%"));
    assert_eq!(parsed("belljar://sb_1/%252e%252e"), file("%2e%2e"), "decoded once only");
    assert_eq!(parsed("belljar://sb_1/"), Ok(Target::Directory { sandbox: "sb_1".into(), path: ".".into() }));
    assert_eq!(parsed("belljar://sb_1/d/"), Ok(Target::Directory { sandbox: "sb_1".into(), path: "d/".into() }));
    let output = |name: &str| Ok(Target::Output { run: "run_9".into(), name: name.into() });
    assert_eq!(parsed("belljar://runs/run_9/stderr"), output("stderr"));
    assert_eq!(parsed("belljar://runs/run_9/shown-2.original.png"), output("shown-2.original.png"));
    assert_eq!(parsed("belljar://runs/run_9/"), Ok(Target::Run { run: "run_9".into() }));
    let left = Target::LeftFile { run: "run_9".into(), path: "a b/c?".into() };
    assert_eq!(parsed("belljar://runs/run_9/files/a%20b/c%3F"), Ok(left));
    assert_eq!(parsed("belljar://sb_1/x?lines=1-2"), file("x"));
}

#[test]
fn anything_else_is_refused() {
    for uri in [
        "",
        "file:///etc/passwd",
        "belljar:",
        "belljar://",
        "belljar:///x",
        "belljar://sb_1",
        "BELLJAR://sb_1/x",
        "belljar://u@sb_1/x",
        "belljar://sb_1:80/x",
        "belljar://sb%5f1/x",
        "belljar://../x",
        "belljar://sb_1/x?y",
        "belljar://sb_1/x?",
        "belljar://sb_1/x?raw#y",
        "belljar://sb_1/x?lines=1?lines=1",
        "belljar://sb_1/?lines=1",
        "belljar://sb_1/d/?grep=x",
        "belljar://sb_1?raw",
        "belljar://sb_1/x#y",
        "belljar://sb_1/%",
        "belljar://sb_1/%zz",
        "belljar://sb_1/%ff",
        "belljar://sb_1/%00",
        "belljar://sb_1/a\0b",
        "belljar://runs/",
        "belljar://runs/run_9",
        "belljar://runs/run_9%2Fstdout",
        "belljar://runs//stdout",
        "belljar://runs/run_9/std%6Fut",
        "belljar://runs/run_9/stdout/x",
        "belljar://runs/run_9/files/",
        "belljar://runs/run_9/?lines=1",
        "belljar://sb_1/%+1",
    ] {
        assert!(parsed(uri).is_err(), "{uri:?} gave {:?}", parsed(uri));
    }
    assert!(parsed(&format!("belljar://sb_1/{}", "a".repeat(20_000))).is_err());
}

struct House {
    engine: Engine,
    who: Principal,
    sandbox: SandboxId,
}

impl House {
    async fn new() -> House {
        let engine = Engine::new(Fake::new(Manners::default()), Settings::default());
        let who = Principal::local();
        let sandbox = engine.create(&who, CreateRequest::default()).await.unwrap().id;
        House { engine, who, sandbox }
    }

    async fn write(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.engine.write(&self.who, self.sandbox.as_str(), path, content.into()).await.unwrap();
    }

    async fn read(&self, uri: &str) -> Result<ResourceContents, ErrorData> {
        read(&self.engine, &self.who, uri).await.map(|mut result| result.contents.remove(0))
    }

    async fn text(&self, uri: &str) -> String {
        match self.read(uri).await {
            Ok(ResourceContents::TextResourceContents { text, .. }) => text,
            other => panic!("{uri} gave {other:?}"),
        }
    }

    async fn blob(&self, uri: &str) -> Vec<u8> {
        match self.read(uri).await {
            Ok(ResourceContents::BlobResourceContents { blob, .. }) => STANDARD.decode(blob).unwrap(),
            other => panic!("{uri} gave {other:?}"),
        }
    }

    async fn run(&self, acts: &str) -> Run {
        let source = Source::Cell { language: Language::Python, code: acts.into(), then: belljar_core::Then::End };
        let program = Program {
            source,
            env: Vec::new(),
            cwd: None,
            stdin: Stdin::empty(),
            wall: Duration::from_secs(20),
            changed_max: 20,
        };
        self.engine.run(&self.who, RunRequest { sandbox: None, program, wants: Wants::default() }).await.unwrap()
    }

    fn file(&self, path: &str) -> String {
        address::file(&self.sandbox, path)
    }
}

#[tokio::test]
async fn parts_of_a_file_are_read() {
    let house = House::new().await;
    let text: String = (1..=100).map(|n| format!("line {n} é\n")).collect();
    house.write("a b?.txt", text.clone()).await;
    let uri = house.file("a b?.txt");
    assert!(uri.ends_with("/a%20b%3F.txt"), "{uri}");
    assert_eq!(house.text(&uri).await, text);
    assert_eq!(house.text(&format!("{uri}?lines=2-3")).await, "line 2 é\nline 3 é\n");
    assert_eq!(house.text(&format!("{uri}?lines=-2")).await, "line 99 é\nline 100 é\n");
    assert_eq!(house.text(&format!("{uri}?lines=101-")).await, "(there is no line 101; it has 100)");
    assert_eq!(house.text(&format!("{uri}?offset=0&length=6")).await, "line 1");
    // The range begins and ends within a character, of which nothing is told.
    assert_eq!(house.text(&format!("{uri}?offset=8&length=10")).await, "\nline 2 ");
    assert_eq!(house.blob(&format!("{uri}?raw&offset=8&length=2")).await, b"\xa9\n");
    assert_eq!(house.text(&format!("{uri}?grep=100")).await, "100:line 100 é\n");
    let around = house.text(&format!("{uri}?grep=%5Eline%2050%20&regex=1&context=1")).await;
    assert_eq!(around, "49-line 49 é\n50:line 50 é\n51-line 51 é\n");
    let error = house.read(&format!("{uri}?grep=(&regex=1")).await.unwrap_err();
    assert!(error.message.contains("leave out regex=1"), "{error:?}");
}

#[tokio::test]
async fn a_large_file_is_read_in_parts_and_never_whole() {
    let house = House::new().await;
    let line = format!("{}\n", "x".repeat(1023));
    let many = 9 * 1024;
    let mut text = line.repeat(many);
    text.push_str("needle\nlast\n");
    house.write("big", text).await;
    let uri = house.file("big");
    let error = house.read(&uri).await.unwrap_err();
    assert!(error.message.contains("?lines="), "{error:?}");
    assert_eq!(house.text(&format!("{uri}?lines={}-", many + 1)).await, "needle\nlast\n");
    assert_eq!(house.text(&format!("{uri}?lines=-1")).await, "last\n");
    assert_eq!(house.text(&format!("{uri}?grep=needle")).await, format!("{}:needle\n", many + 1));
    assert_eq!(house.text(&format!("{uri}?offset={}&length=4", many * 1024)).await, "need");
    assert!(house.read(&format!("{uri}?lines=-9000")).await.is_err(), "more than an answer holds");
}

#[tokio::test]
async fn what_is_no_text_is_a_blob_and_has_no_lines() {
    let house = House::new().await;
    house.write("a.bin", b"\0\x01\xff".to_vec()).await;
    let uri = house.file("a.bin");
    assert_eq!(house.blob(&uri).await, b"\0\x01\xff");
    assert!(house.read(&format!("{uri}?lines=1")).await.unwrap_err().message.contains("no text"));
    assert!(house.read(&format!("{uri}?grep=a")).await.unwrap_err().message.contains("no text"));
    house.write("a.txt", "a\u{202e}b\x1b[2J, and enough text for it to be some").await;
    assert!(house.text(&house.file("a.txt")).await.starts_with("a\\u{202e}b\\u{1b}[2J,"));
    assert!(house.text(&format!("{}?raw", house.file("a.txt"))).await.starts_with("a\u{202e}b\x1b[2J,"));
}

#[tokio::test]
async fn outputs_of_a_run_are_read_by_their_names() {
    let house = House::new().await;
    let picture = STANDARD.encode(b"\x89PNG\r\n\x1a\nsmall");
    let original = STANDARD.encode(b"\x89PNG\r\n\x1a\nlarge");
    let shown = serde_json::json!({"show": {"data": {"image/png": picture, "text/plain": "<Figure>"},
        "original": {"mime_type": "image/png", "data": original}}});
    let result = serde_json::json!({"result": {"data": {"text/html": "<b>\u{202e}</b>",
        "application/vnd.belljar.table+json": {"rows": [1]}, "image/png": "not base64!", "x/yz": "aGk="}}});
    let run = house.run(&format!("print 10%\nprint 20%\nrecord {shown}\nrecord {result}\nwrite out/a.csv x,y")).await;
    let names = names(&run);
    let base = format!("belljar://runs/{}", run.id);
    let told: Vec<(&str, &str, usize)> = names
        .iter()
        .map(|(uri, mime_type, size)| (uri.strip_prefix(&base).unwrap(), mime_type.as_str(), *size))
        .collect();
    let expected = [
        ("/stdout", "text/plain", 8),
        ("/result.html", "text/html", 10),
        ("/result.table.json", "application/vnd.belljar.table+json", 12),
        ("/result.png", "image/png", 8),
        ("/result.bin", "application/octet-stream", 2),
        ("/shown-1.png", "image/png", 13),
        ("/shown-1.txt", "text/plain", 8),
        ("/shown-1.original.png", "image/png", 13),
        ("/files/out/a.csv", "text/csv", 3),
    ];
    assert_eq!(told, expected);
    assert_eq!(address::stream(&run.id, belljar_core::Stream::Stdout), names[0].0);
    assert_eq!(address::form(&run.id, Value::Result, "text/html"), names[1].0);
    assert_eq!(address::form(&run.id, Value::Shown(1), "image/png"), names[5].0);
    assert_eq!(address::original(&run.id, Value::Shown(1), "image/png"), names[7].0);
    assert_eq!(address::left_file(&run.id, "out/a.csv"), names[8].0);

    let listing = house.text(&format!("{base}/")).await;
    assert_eq!(listing.lines().count(), expected.len(), "{listing}");
    assert_eq!(house.text(&format!("{base}/stdout")).await, "10%\n20%\n");
    assert_eq!(house.text(&format!("{base}/stdout?lines=2")).await, "20%\n");
    assert_eq!(house.text(&format!("{base}/stdout?grep=2")).await, "2:20%\n");
    assert_eq!(house.text(&format!("{base}/result.html")).await, "<b>\\u{202e}</b>");
    assert_eq!(house.text(&format!("{base}/result.table.json")).await, r#"{"rows":[1]}"#);
    assert_eq!(house.blob(&format!("{base}/shown-1.png")).await, b"\x89PNG\r\n\x1a\nsmall");
    assert_eq!(house.blob(&format!("{base}/shown-1.original.png")).await, b"\x89PNG\r\n\x1a\nlarge");
    assert_eq!(house.text(&format!("{base}/files/out/a.csv")).await, "x,y");
    assert!(house.read(&format!("{base}/shown-1.png?offset=0&length=4")).await.is_ok());
    assert!(house.read(&format!("{base}/result.png")).await.unwrap_err().message.contains("not; make it again"));
    for absent in ["stderr", "result.pdf", "shown-2.png", "shown-0.png", "files/out/b.csv"] {
        let error = house.read(&format!("{base}/{absent}")).await.unwrap_err();
        assert_eq!(error.code, rmcp::model::ErrorCode::RESOURCE_NOT_FOUND, "{absent}");
    }
    let other = read(&house.engine, &Principal::new("other"), &format!("{base}/stdout")).await;
    assert_eq!(other.unwrap_err().code, rmcp::model::ErrorCode::RESOURCE_NOT_FOUND);
}

#[tokio::test]
async fn a_stream_is_shown_as_a_terminal_would_and_raw_as_it_came() {
    let house = House::new().await;
    let run = house.run(&format!("print 10%\r20%\r100%\nprint {}", "y".repeat(2000))).await;
    let uri = address::stream(&run.id, belljar_core::Stream::Stdout);
    assert_eq!(house.text(&format!("{uri}?lines=1")).await, "100%\n");
    assert_eq!(house.text(&format!("{uri}?raw&offset=0&length=9")).await, "10%\r20%\r1");
}

async fn pages(house: &House) -> Vec<Vec<(String, Option<String>, Option<u64>)>> {
    let mut pages = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..20 {
        let page = list(&house.engine, &house.who, cursor.as_deref()).await.unwrap();
        let told = page.resources.into_iter().map(|told| (told.uri, told.mime_type, told.size));
        pages.push(told.collect());
        cursor = page.next_cursor;
        if cursor.is_none() {
            return pages;
        }
    }
    panic!("the list has no end");
}

#[tokio::test]
async fn the_list_has_directories_and_files_near_the_top() {
    let house = House::new().await;
    for path in ["b.py", "a/b/c.md", "a/b/c/d.md", ".hidden", ".git/config", "a/.x/y", "odd name.zzz"] {
        house.write(path, "12345").await;
    }
    let pages = pages(&house).await;
    let base = address::directory(&house.sandbox);
    let told = |path: &str, mime_type: Option<&str>| (format!("{base}{path}"), mime_type.map(str::to_owned), Some(5));
    let expected = vec![
        (base.clone(), Some("text/plain".to_owned()), None),
        told("b.py", Some("text/x-python")),
        told("odd%20name.zzz", None),
        told("a/b/c.md", Some("text/markdown")),
    ];
    assert_eq!(pages, [expected]);
}

#[tokio::test]
async fn a_long_list_comes_in_pages_and_has_bounds() {
    let house = House::new().await;
    let mut ids = vec![house.sandbox.clone()];
    for _ in 0..6 {
        ids.push(house.engine.create(&house.who, CreateRequest::default()).await.unwrap().id);
    }
    for id in &ids {
        for n in 0..230 {
            house.engine.write(&house.who, id.as_str(), &format!("f{n:03}"), Vec::new()).await.unwrap();
        }
    }
    let pages = pages(&house).await;
    assert!(pages.iter().all(|page| page.len() <= 200), "{:?}", pages.iter().map(Vec::len).collect::<Vec<_>>());
    let all: Vec<String> = pages.into_iter().flatten().map(|(uri, ..)| uri).collect();
    let distinct: std::collections::HashSet<&String> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (7 + 1000, 7 + 1000), "each once, up to the bound");
    assert!(all.iter().take(7).all(|uri| uri.ends_with('/')), "directories first");

    let first = list(&house.engine, &house.who, None).await.unwrap();
    let cursor = first.next_cursor.unwrap();
    let other = list(&house.engine, &Principal::new("other"), Some(&cursor)).await;
    assert!(other.is_err(), "a cursor leads nobody into another's sandboxes");
    house.engine.destroy(&house.who, ids.iter().map(SandboxId::as_str).next().unwrap()).await.unwrap();
    let gone = list(&house.engine, &house.who, Some(&cursor)).await.unwrap_err();
    assert!(gone.message.contains("without a cursor"), "{gone:?}");
}
