use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn settings(folder: &Path) -> AuditSettings {
    let file = folder.join("audit.jsonl");
    AuditSettings { file, bytes_max: 1 << 20, keep: 8, code: false, required: true }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line at the end of {}", path.display());
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn a_line_is_json_and_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    for _ in 0..2 {
        AuditFile::open(settings.clone()).unwrap().note("run", &json!({"tool": "a\n\u{1b}[31mb"}));
    }
    let text = fs::read_to_string(&settings.file).unwrap();
    assert_eq!(text.lines().count(), 2, "it is added to");
    assert!(!text.contains('\u{1b}'), "control characters are escaped: {text}");
    let line = &lines(&settings.file)[0];
    assert_eq!((&line["event"], &line["tool"]), (&"run".into(), &"a\n\u{1b}[31mb".into()));
    assert_eq!(line["time"], rfc3339(line["time_ms"].as_i64().unwrap()));
    assert_eq!(fs::metadata(&settings.file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Several servers, each with several writers, and a file that is full all the time.
#[test]
fn no_line_is_torn_or_lost_when_the_file_is_put_aside_under_many_writers() {
    const SERVERS: usize = 3;
    const WRITERS: usize = 3;
    const LINES: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let settings = AuditSettings { bytes_max: 4096, keep: 500, ..settings(folder.path()) };
    std::thread::scope(|scope| {
        for server in 0..SERVERS {
            let shared = Arc::new(AuditFile::open(settings.clone()).unwrap());
            for writer in 0..WRITERS {
                let shared = shared.clone();
                scope.spawn(move || {
                    for number in 0..LINES {
                        let id = format!("{server}-{writer}-{number}");
                        shared.note("run", &json!({"id": id, "padding": "x".repeat(number % 97)}));
                    }
                });
            }
        }
    });
    let mut ids = BTreeSet::new();
    let mut files = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(fs::metadata(&path).unwrap().len() <= 4096, "{} is too large", path.display());
        files += 1;
        for line in lines(&path) {
            assert!(ids.insert(line["id"].as_str().unwrap().to_owned()), "twice: {line}");
        }
    }
    assert_eq!(ids.len(), SERVERS * WRITERS * LINES);
    assert!(files > 20, "only {files} files");
}

#[test]
fn of_those_put_aside_only_so_many_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let settings = AuditSettings { bytes_max: 1, keep: 2, ..settings(folder.path()) };
    let audit = AuditFile::open(settings.clone()).unwrap();
    for number in 0..6 {
        audit.note("run", &json!({"number": number}));
    }
    let number = |suffix: &str| {
        let mut name = settings.file.clone().into_os_string();
        name.push(suffix);
        lines(Path::new(&name))[0]["number"].as_u64().unwrap()
    };
    assert_eq!([number(""), number(".1"), number(".2")], [5, 4, 3]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_file_that_was_taken_away_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let audit = AuditFile::open(settings.clone()).unwrap();
    audit.note("run", &json!({"number": 1}));
    fs::rename(&settings.file, folder.path().join("taken")).unwrap();
    audit.note("run", &json!({"number": 2}));
    assert_eq!(lines(&settings.file)[0]["number"], 2);
    assert_eq!(lines(&folder.path().join("taken")).len(), 1);
}

#[test]
fn where_it_is_required_nothing_runs_until_it_can_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("deep");
    fs::create_dir(&deep).unwrap();
    let required = settings(&deep);
    let optional = AuditSettings { required: false, ..required.clone() };
    let (required, optional) = (AuditFile::open(required).unwrap(), AuditFile::open(optional).unwrap());
    assert!(required.can_be_written());
    fs::remove_dir_all(&deep).unwrap();
    required.note("run", &json!({}));
    optional.note("run", &json!({}));
    assert!(!required.can_be_written() && optional.can_be_written());
    fs::create_dir(&deep).unwrap();
    assert!(required.can_be_written());
    assert_eq!(lines(&deep.join("audit.jsonl"))[0]["event"], "audit-resumed");
}

#[test]
fn that_lines_were_lost_is_said_by_the_next_whoever_writes_it() {
    for required in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("deep");
        fs::create_dir(&deep).unwrap();
        let settings = AuditSettings { required, ..settings(&deep) };
        let audit = AuditFile::open(settings.clone()).unwrap();
        fs::remove_dir_all(&deep).unwrap();
        audit.note("run", &json!({}));
        fs::create_dir(&deep).unwrap();
        audit.note("sandbox-closed", &json!({}));
        assert!(audit.can_be_written());
        audit.note("run", &json!({}));
        let lines = lines(&settings.file);
        let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["audit-resumed", "sandbox-closed", "run"], "required: {required}");
    }
}

#[test]
fn after_a_full_disk_nothing_runs_before_there_is_room_for_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    // Where nothing can be written.
    std::os::unix::fs::symlink("/dev/full", &settings.file).unwrap();
    let audit = AuditFile::open(settings.clone()).unwrap();
    audit.note("run", &json!({}));
    assert!(!audit.can_be_written());
    fs::remove_file(&settings.file).unwrap();
    let event = |at: usize| lines(&settings.file)[at]["event"].as_str().unwrap().to_owned();
    // More than any disk has.
    audit.place().short_of = i64::MAX as u64;
    assert!(!audit.can_be_written());
    assert!(fs::read(&settings.file).unwrap().is_empty(), "nothing is promised that does not hold");
    audit.note("egress-ended", &json!({}));
    assert!(!audit.can_be_written(), "a short line tells nothing of the room");
    audit.place().short_of = ROOM_BYTES;
    assert!(audit.can_be_written() && audit.can_be_written());
    audit.note("run", &json!({}));
    assert_eq!([event(0), event(1), event(2)], ["audit-resumed", "egress-ended", "run"]);
    assert_eq!(lines(&settings.file).len(), 3, "no room that was taken is seen");
}

#[test]
fn a_full_file_that_cannot_be_put_aside_is_written_on() {
    let folder = tempfile::tempdir().unwrap();
    let settings = AuditSettings { bytes_max: 1, keep: 2, ..settings(folder.path()) };
    let aside = |number: u32| folder.path().join(format!("audit.jsonl.{number}"));
    fs::create_dir(aside(2)).unwrap();
    let audit = AuditFile::open(settings.clone()).unwrap();
    for number in 0..5 {
        audit.note("run", &json!({"number": number}));
    }
    assert!(audit.can_be_written());
    let numbers = |path: &Path| lines(path).iter().map(|line| line["number"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers(&aside(1)), [0]);
    assert_eq!(numbers(&settings.file), [1, 2, 3, 4]);
    fs::remove_dir(aside(2)).unwrap();
    audit.note("run", &json!({"number": 5}));
    assert_eq!([&aside(2), &aside(1), &settings.file].map(|path| numbers(path)), [vec![0], vec![1, 2, 3, 4], vec![5]]);
}
