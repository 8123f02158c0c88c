//! Files of created sandboxes.

use belljar_core::{BackendError, FileErrorKind, Range};
use belljar_engine::{EngineError, Wish};
use belljar_testkit::fake::script::STUCK;
use tokio::time::{Instant, timeout};

use super::*;

const ALL: Range = Range { offset: 0, length: u64::MAX };

fn kind(error: EngineError) -> FileErrorKind {
    match error {
        EngineError::Backend(BackendError::File(error)) => error.kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn files_are_written_read_and_listed() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    let id = id.as_str();
    engine.write(&me(), id, "dir/a.txt", b"hello".to_vec()).await.unwrap();
    let content = engine.read(&me(), id, "/workspace/dir/a.txt", Range { offset: 1, length: 3 }).await.unwrap();
    assert_eq!((content.bytes.as_slice(), content.size), (&b"ell"[..], 5));
    let listing = engine.list(&me(), id, ".", 2, 10).await.unwrap();
    let paths: Vec<_> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!((paths, listing.truncated), (vec!["dir", "dir/a.txt"], false));
    assert!(engine.list(&me(), id, ".", 2, 1).await.unwrap().truncated);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_is_said_and_the_sandbox_stays() {
    let (_, engine) = engine();
    let wish = Wish { disk_bytes: Some(1 << 20), ..Wish::default() };
    let id = engine.create(&me(), CreateRequest { wish, ..CreateRequest::default() }).await.unwrap().id;
    let id = id.as_str();
    assert_eq!(kind(engine.read(&me(), id, "none", ALL).await.unwrap_err()), FileErrorKind::NotFound);
    assert_eq!(kind(engine.read(&me(), id, ".", ALL).await.unwrap_err()), FileErrorKind::IsDirectory);
    for path in ["", "a\0b", &"x".repeat(5000)] {
        assert_eq!(kind(engine.write(&me(), id, path, Vec::new()).await.unwrap_err()), FileErrorKind::BadPath);
    }
    let too_much = vec![0; (1 << 20) + 1];
    assert_eq!(kind(engine.write(&me(), id, "big", too_much).await.unwrap_err()), FileErrorKind::NoSpace);
    engine.write(&me(), id, "big", vec![0; 1 << 20]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_answer_is_given_up_for_this_once() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    let begun = Instant::now();
    let error = engine.read(&me(), id.as_str(), STUCK, ALL).await.unwrap_err();
    assert!(matches!(error, EngineError::NotAnswering), "{error:?}");
    assert!((Duration::from_secs(30)..Duration::from_secs(31)).contains(&begun.elapsed()));
    engine.list(&me(), id.as_str(), ".", 1, 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_read_no_longer_keeps_its_sandbox_from_being_idle() {
    let settings = Settings { idle: Duration::from_secs(5), ..Settings::default() };
    let (fake, engine) = engine_with(belljar_testkit::fake::Manners::default(), settings);
    let id = sandbox(&engine).await;
    assert!(timeout(ms(100), engine.read(&me(), id.as_str(), STUCK, ALL)).await.is_err());
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_fell_is_lost_once_and_unknown_from_then_on() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    fake.topple();
    assert!(matches!(engine.read(&me(), id.as_str(), "a", ALL).await, Err(EngineError::Lost)));
    assert!(matches!(engine.read(&me(), id.as_str(), "a", ALL).await, Err(EngineError::SandboxGone { .. })));
    settle().await;
    assert_nothing_left(&fake);
}
