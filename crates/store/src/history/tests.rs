use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use belljar_core::Isolation;

use super::*;
use crate::{Reader, Wanted};

fn settings(folder: &Path) -> HistorySettings {
    HistorySettings { file: folder.join("deep/history.db"), days: 30, bytes_max: 512 << 20, code: false }
}

fn isolation() -> Isolation {
    let word = || "fake".to_owned();
    Isolation {
        backend: word(),
        namespaces: word(),
        seccomp: word(),
        landlock: word(),
        cgroup: word(),
        network: word(),
        user: word(),
    }
}

fn opened(sandbox: &str) -> Entry {
    Entry::Opened(Opened {
        principal: "ann".into(),
        sandbox: sandbox.into(),
        template: None,
        memory_bytes: 1 << 20,
        took_ms: 3,
        backend: "fake".into(),
        isolation: isolation(),
    })
}

fn closed(sandbox: &str) -> Entry {
    Entry::Closed(Closed { principal: "ann".into(), sandbox: sandbox.into(), why: "idle" })
}

fn task(run: &str) -> Task {
    Task {
        principal: "ann".into(),
        tool: "run_code",
        run: run.into(),
        sandbox: Some("sb_1".into()),
        language: Some("python"),
        code_sha256: "0".repeat(64),
        code_bytes: 7,
        code: None,
    }
}

fn began(run: &str) -> Entry {
    Entry::Began(Began { task: task(run), waited_ms: 2 })
}

fn ended(run: &str) -> Entry {
    Entry::Ended(Box::new(Ended {
        task: task(run),
        backend: Some("fake".into()),
        isolation: Some(isolation()),
        ending: "exited",
        exit_code: Some(3),
        duration_ms: 40,
        cpu_ms: 30,
        memory_peak_bytes: 1,
        network_bytes: 9,
        stdout_bytes: 5,
        stderr_bytes: 6,
        refused: vec!["evil.test:443".into()],
        reached: vec![reached()],
        calls: vec!["github.list".into()],
        error_kind: None,
        error: None,
    }))
}

fn reached() -> Reached {
    Reached { host: "pypi.org:443".into(), connections: 2, bytes_out: 70, bytes_in: 4000 }
}

fn writer(settings: &HistorySettings) -> Writer {
    let database = schema::open(&settings.file).unwrap();
    let server = enrol(&database, &Process::this(), now_ms()).unwrap();
    Writer { database, server, settings: settings.clone() }
}

fn batch(entries: impl IntoIterator<Item = (i64, Entry)>) -> Batch {
    Batch { entries: entries.into_iter().collect(), ..Batch::default() }
}

fn all() -> Wanted {
    Wanted { limit: 10_000, ..Wanted::default() }
}

fn reader(settings: &HistorySettings) -> Reader {
    Reader::open(&settings.file).unwrap().unwrap()
}

#[test]
fn what_was_taken_is_read_again_when_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let history = History::open(settings.clone()).unwrap();
    let now = now_ms();
    history.push(now - 100, opened("sb_1"));
    history.push(now - 50, began("run_1"));
    let call = Call {
        principal: "ann".into(),
        run: "run_1".into(),
        server: "github".into(),
        tool: "list".into(),
        decision: "approved",
        outcome: "ok",
        milliseconds: 4,
    };
    history.called(call);
    for outcome in ["denied", "approved"] {
        let decision = Decision {
            principal: "ann".into(),
            run: None,
            what: "program",
            name: "python".into(),
            sha256: "0".repeat(64),
            outcome,
        };
        history.push(now, Entry::Decided(decision));
    }
    history.push(now, ended("run_1"));
    history.push(now + 1, began("run_2"));
    history.end();

    let reader = reader(&settings);
    let runs = reader.runs(&all()).unwrap();
    assert_eq!(
        runs.iter().map(|run| (run.id.as_str(), run.ending.as_str())).collect::<Vec<_>>(),
        [("run_2", "running"), ("run_1", "exited")]
    );
    let run = &runs[1];
    assert_eq!((run.exit_code, run.duration_ms, run.began_ms, run.waited_ms), (Some(3), Some(40), now - 50, 2));
    assert_eq!(
        (run.calls.as_slice(), run.refused.as_slice()),
        (&["github.list approved ok".to_owned()][..], &["evil.test:443".to_owned()][..])
    );
    assert_eq!(run.reached, [reached()]);
    let decisions = reader.decisions(&all()).unwrap();
    assert_eq!(
        decisions.iter().map(|decision| (decision.what.as_str(), decision.outcome.as_str())).collect::<Vec<_>>(),
        [("program", "approved"), ("program", "denied")]
    );
    assert_eq!(decisions[0].sha256, run.code_sha256, "a program is known by what its runs have");
    assert!(reader.decisions(&Wanted { principal: Some("bob".into()), ..all() }).unwrap().is_empty());
    let sandboxes = reader.sandboxes(&all()).unwrap();
    assert_eq!((sandboxes[0].state, sandboxes[0].runs), ("open", 2));
    assert_eq!(reader.runs(&Wanted { since_ms: Some(now), ..all() }).unwrap().len(), 1);
    assert_eq!(reader.runs(&Wanted { principal: Some("bob".into()), ..all() }).unwrap().len(), 0);
    assert_eq!(reader.runs(&Wanted { limit: 1, ..all() }).unwrap().len(), 1);
    for entry in std::fs::read_dir(folder.path().join("deep")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn an_older_file_becomes_a_newer_one_and_keeps_what_it_has() {
    for from in 0..schema::MIGRATIONS.len() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        let old = Connection::open(&settings.file).unwrap();
        for (at, step) in schema::MIGRATIONS.iter().enumerate().take(from) {
            old.execute_batch(step).unwrap();
            old.pragma_update(None, "user_version", at as i64 + 1).unwrap();
        }
        if from > 0 {
            write_opened(
                &old,
                1,
                5,
                &match opened("sb_old") {
                    Entry::Opened(opened) => opened,
                    _ => unreachable!(),
                },
            )
            .unwrap();
        }
        drop(old);
        let mut writer = writer(&settings);
        writer.write(&batch([(10, opened("sb_new")), (11, ended("run_1"))]), 12).unwrap();
        let reader = reader(&settings);
        let ids: Vec<_> = reader.sandboxes(&all()).unwrap().into_iter().map(|sandbox| sandbox.id).collect();
        assert_eq!(ids, if from > 0 { vec!["sb_new", "sb_old"] } else { vec!["sb_new"] });
        assert_eq!(reader.runs(&all()).unwrap()[0].refused, ["evil.test:443"], "from {from}");
    }
}

#[test]
fn what_is_no_history_of_ours_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |name: &str| HistorySettings { file: folder.path().join(name), ..settings(folder.path()) };
    let text = settings("text.db");
    std::fs::write(&text.file, "this is a letter to a friend, and not a database at all".repeat(50)).unwrap();
    assert!(matches!(History::open(text.clone()), Err(StoreError::Broken { .. })));
    assert!(std::fs::read_to_string(&text.file).unwrap().starts_with("this is a letter"));
    let newer = settings("newer.db");
    drop(schema::open(&newer.file).unwrap());
    Connection::open(&newer.file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(History::open(newer.clone()), Err(StoreError::Newer { version: 99, .. })));
    assert!(matches!(Reader::open(&newer.file), Err(StoreError::Newer { .. })));
    let foreign = settings("foreign.db");
    Connection::open(&foreign.file).unwrap().execute_batch("CREATE TABLE runs (a)").unwrap();
    assert!(matches!(History::open(foreign), Err(StoreError::NotOurs { .. })));
    assert!(Reader::open(&folder.path().join("nowhere.db")).unwrap().is_none());
    let blocked = settings("text.db/history.db");
    assert!(matches!(History::open(blocked), Err(StoreError::NoPlace { .. })));
}

#[test]
fn what_a_server_left_that_is_no_more_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let mut alive = writer(&settings);
    alive.write(&batch([(1, opened("sb_alive")), (2, began("run_alive"))]), 3).unwrap();
    let this = Process::this();
    for (name, process) in [
        ("reused", Process { started: this.started + 1, ..this.clone() }),
        ("rebooted", Process { boot: "an earlier one".into(), ..this.clone() }),
        ("elsewhere", Process { namespace: "pid:[7]".into(), ..this.clone() }),
    ] {
        let server = write_server(&alive.database, &process, 4).unwrap();
        let own = [format!("sb_{name}"), format!("run_{name}")];
        let database = schema::open(&settings.file).unwrap();
        let mut writer = Writer { database, server, settings: settings.clone() };
        let closed_before = format!("sb_closed_{name}");
        let entries = [opened(&own[0]), began(&own[1]), opened(&closed_before), closed(&closed_before)];
        writer.write(&batch(entries.map(|entry| (5, entry))), 6).unwrap();
    }
    let state = |reader: &Reader, id: &str| {
        let all = reader.sandboxes(&all()).unwrap();
        all.into_iter().find(|sandbox| sandbox.id == id).unwrap().state
    };
    let ending =
        |reader: &Reader, id: &str| reader.runs(&all()).unwrap().into_iter().find(|run| run.id == id).unwrap().ending;
    // Whoever looks sees it already, and the next start writes it down.
    for starts in 0..2 {
        let reader = reader(&settings);
        assert_eq!((state(&reader, "sb_alive"), ending(&reader, "run_alive").as_str()), ("open", "running"));
        assert_eq!(state(&reader, "sb_elsewhere"), "open", "of another namespace nothing is known");
        let principal = &reader.sandboxes(&all()).unwrap()[0].principal;
        let has_lost = |id: &str| reader.has_lost(principal, id).unwrap();
        assert!(has_lost("sb_reused") && has_lost("sb_rebooted") && !reader.has_lost("another", "sb_reused").unwrap());
        for known in ["sb_alive", "sb_elsewhere", "sb_closed_reused", "sb_nobody"] {
            assert!(!has_lost(known), "{known}");
        }
        for name in ["reused", "rebooted"] {
            assert_eq!(state(&reader, &format!("sb_{name}")), "lost", "{name} after {starts} starts");
            assert_eq!(ending(&reader, &format!("run_{name}")), "lost");
            assert_eq!(state(&reader, &format!("sb_closed_{name}")), "closed");
        }
        let lost: i64 = alive
            .database
            .query_row("SELECT count(*) FROM sandboxes WHERE why = 'lost'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(lost, starts * 2);
        enrol(&alive.database, &this, 7).unwrap();
    }
}

#[test]
fn what_is_too_old_or_too_much_goes() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let mut writer = writer(&settings);
    let now = now_ms();
    let old = now - 31 * 24 * 60 * 60 * 1000;
    let decision = Decision {
        principal: "ann".into(),
        run: Some("run_old".into()),
        what: "call",
        name: "github.list".into(),
        sha256: String::new(),
        outcome: "denied",
    };
    let entries = [
        (old, opened("sb_old")),
        (old, opened("sb_standing")),
        (old, closed("sb_old")),
        (old, Entry::Decided(decision)),
        (old, ended("run_old")),
    ];
    writer.write(&batch(entries.into_iter().chain([(now, ended("run_new"))])), now).unwrap();
    retention::tidy(&writer.database, &settings, now).unwrap();
    let ids = |settings: &HistorySettings| {
        let reader = reader(settings);
        let runs = reader.runs(&all()).unwrap().into_iter().map(|run| run.id);
        runs.chain(reader.sandboxes(&all()).unwrap().into_iter().map(|sandbox| sandbox.id)).collect::<Vec<_>>()
    };
    assert_eq!(ids(&settings), ["run_new", "sb_standing"], "what stands is kept, however old it is");
    assert!(reader(&settings).decisions(&all()).unwrap().is_empty());

    for number in 0..2000 {
        let code = Some("x".repeat(5000));
        let mut entry = began(&format!("run_{number:04}"));
        if let Entry::Began(began) = &mut entry {
            began.task.code = code;
        }
        writer.write(&batch([(now + number, entry)]), now).unwrap();
    }
    let before = retention::used_bytes(&writer.database).unwrap();
    let small = HistorySettings { bytes_max: before / 2, ..settings.clone() };
    retention::tidy(&writer.database, &small, now).unwrap();
    let after = retention::used_bytes(&writer.database).unwrap();
    assert!(after <= before / 2 && after > before / 4, "{before} became {after}");
    let left = ids(&settings);
    assert!(left.contains(&"run_1999".to_owned()) && !left.contains(&"run_0000".to_owned()), "the oldest go first");
    let mut steps = 1;
    while retention::give_back(&writer.database).unwrap() {
        steps += 1;
    }
    let pages: i64 = writer.database.pragma_query_value(None, "freelist_count", |row| row.get(0)).unwrap();
    assert_eq!((steps > 1, pages), (true, 0), "what is free is given back, and others may write in between");
}

#[test]
fn when_there_is_no_room_what_comes_is_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let queue = Queue::new(3);
    for number in 0..10 {
        queue.push(number, began(&format!("run_{number}")));
    }
    let batch = queue.next(Duration::ZERO);
    assert_eq!((batch.entries.len(), batch.dropped, batch.last), (3, 7, false));
    writer(&settings).write(&batch, 1).unwrap();
    let reader = reader(&settings);
    assert_eq!((reader.runs(&all()).unwrap().len(), reader.dropped().unwrap()), (3, 7));
    assert_eq!(queue.next(Duration::ZERO).dropped, 0, "each is counted once");
    queue.end();
    assert!(queue.next(Duration::from_secs(60)).last);
}

/// Another that writes.
fn holding_the_lock(settings: &HistorySettings) -> Connection {
    let other = schema::connect(&settings.file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[test]
fn what_cannot_be_written_is_counted_by_the_next_that_can() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let mut writer = writer(&settings);
    let queue = Queue::new(10);
    let failed = Batch { dropped: 2, ..batch([(1, began("run_1")), (2, ended("run_1")), (3, began("run_2"))]) };
    writer.database.busy_timeout(Duration::ZERO).unwrap();
    let other = holding_the_lock(&settings);
    writer.write_or_count(&failed, &queue);
    drop(other);
    let mut large = task("run_3");
    large.code = Some("x".repeat(1 << 20));
    let pages: i64 = writer.database.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    let limit = |pages: i64| format!("PRAGMA max_page_count = {pages}");
    writer.database.query_row(&limit(pages), [], |_| Ok(())).unwrap();
    writer.write_or_count(&batch([(4, Entry::Began(Began { task: large, waited_ms: 0 }))]), &queue);
    writer.database.query_row(&limit(1 << 20), [], |_| Ok(())).unwrap();
    writer.write_or_count(&queue.next(Duration::ZERO), &queue);
    let reader = reader(&settings);
    assert_eq!((reader.runs(&all()).unwrap().len(), reader.dropped().unwrap()), (0, 6));
    assert_eq!(queue.next(Duration::ZERO).dropped, 0, "each is counted once");
}

#[test]
fn while_another_writes_entries_are_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let mut writer = writer(&settings);
    let mut other = Some(holding_the_lock(&settings));
    let mut waits = 0;
    let wait = move |_| {
        waits += 1;
        // The first time it gives up; within the second the other is done.
        waits > 1 && other.take().is_some()
    };
    writer.database.busy_handler(Some(wait)).unwrap();
    let queue = Queue::new(10);
    writer.write_or_count(&batch([(1, ended("run_1"))]), &queue);
    assert_eq!(reader(&settings).runs(&all()).unwrap().len(), 1);
    assert_eq!(queue.next(Duration::ZERO).dropped, 0);
}

#[test]
fn a_file_in_use_is_not_told_as_a_broken_one() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let database = schema::open(&settings.file).unwrap();
    database.busy_timeout(Duration::ZERO).unwrap();
    let other = holding_the_lock(&settings);
    assert!(matches!(History::begin(database, settings.clone()), Err(StoreError::InUse { .. })));
    drop(other);
    History::open(settings).unwrap().end();
}

#[test]
fn an_end_without_its_beginning_is_a_run_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    writer(&settings).write(&batch([(100, ended("run_1"))]), 101).unwrap();
    let runs = reader(&settings).runs(&all()).unwrap();
    assert_eq!((runs[0].began_ms, runs[0].ended_ms, runs[0].ending.as_str()), (60, Some(100), "exited"));
}

#[test]
fn several_servers_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let histories: Vec<_> = (0..4).map(|_| History::open(settings.clone()).unwrap()).collect();
    std::thread::scope(|scope| {
        for (server, history) in histories.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..200 {
                    history.push(now_ms(), ended(&format!("run_{server}_{number}")));
                }
                history.end();
            });
        }
    });
    let reader = reader(&settings);
    assert_eq!((reader.runs(&all()).unwrap().len(), reader.dropped().unwrap()), (800, 0));
}
