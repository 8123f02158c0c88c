//! How programs end, and what their callers are told.

use belljar_core::{Ending, FileErrorKind, Limit, State};
use belljar_engine::{CreateRequest, EngineError, Wish};
use belljar_testkit::fake::{Manners, script};
use tokio::time::Instant;

use super::*;

const WALL: Ending = Ending::Stopped { limit: Limit::Wall };
const OUTPUT: Ending = Ending::Stopped { limit: Limit::Output };

#[tokio::test(start_paused = true)]
async fn each_exit_is_its_ending() {
    let (fake, engine) = engine();
    for (code, ending) in [
        ("print hi", Ending::Exited { code: 0 }),
        ("exit 3", Ending::Exited { code: 3 }),
        ("signal 11", Ending::Killed { signal: 11 }),
        ("oom", Ending::Stopped { limit: Limit::Memory }),
    ] {
        let run = engine.run(&me(), fresh(code)).await.unwrap();
        assert_eq!(run.report.ending, ending, "{code}");
        assert_eq!(run.report.state, State::Fresh, "{code}");
        assert_eq!(run.report.usage, script::USAGE, "{code}");
        assert_eq!(run.sandbox, None);
    }
    settle().await;
    assert_eq!(fake.opened(), 4, "one sandbox for each");
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn the_program_gets_what_it_was_given_and_says_what_it_says() {
    let (_, engine) = engine();
    let mut request = fresh("print a\nerr b\nstdin\nenv NAME\nprint c");
    request.program.stdin = belljar_core::Stdin::Whole(b"from stdin\n".to_vec());
    request.program.env = vec![("NAME".into(), "value".into())];
    let report = engine.run(&me(), request).await.unwrap().report;
    assert_eq!(String::from_utf8(report.stdout).unwrap(), "a\nfrom stdin\nvalue\nc\n");
    assert_eq!(report.stderr, b"b\n");
    assert_eq!(report.isolation.backend, "fake");
}

#[tokio::test(start_paused = true)]
async fn the_answer_does_not_wait_for_the_teardown() {
    let (fake, engine) = engine_with(Manners { close_takes: ms(700), ..Manners::default() }, Settings::default());
    let before = Instant::now();
    engine.run(&me(), fresh("print hi")).await.unwrap();
    assert!(before.elapsed() < ms(100), "{:?}", before.elapsed());
    assert_eq!((fake.sandboxes(), fake.programs()), (1, 0));
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn the_wall_limit_keeps_what_was_printed() {
    let (fake, engine) = engine();
    let run = engine.run(&me(), walled(fresh("print a\nsleep 60000\nprint b"), ms(100))).await.unwrap();
    assert_eq!((run.report.ending, run.report.state), (WALL, State::Fresh));
    assert_eq!(run.report.stdout, b"a\n");
    assert!((ms(100)..ms(110)).contains(&run.report.duration), "{:?}", run.report.duration);
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn wall_time_and_duration_begin_with_the_program() {
    let manners = Manners { open_takes: ms(5000), start_takes: ms(2000), ..Manners::default() };
    let (_, engine) = engine_with(manners, Settings { runs_max: 1, ..Settings::default() });
    let (one, two) = (walled(fresh("sleep 800"), ms(1000)), walled(fresh("sleep 700"), ms(1000)));
    let me = me();
    let (one, two) = tokio::join!(engine.run(&me, one), engine.run(&me, two));
    for (run, slept) in [(one, ms(800)), (two, ms(700))] {
        let report = run.unwrap().report;
        assert_eq!(report.ending, Ending::Exited { code: 0 });
        assert!((slept..slept + ms(10)).contains(&report.duration), "{:?}", report.duration);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_leaves_a_created_sandbox_as_it_was() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let run = engine.run(&me(), walled(within(&id, "write note kept\nsleep 60000"), ms(100))).await.unwrap();
    assert_eq!((run.report.ending, run.report.state), (WALL, State::Fresh));
    assert_eq!(fake.programs(), 0);
    let run = engine.run(&me(), within(&id, "cat note")).await.unwrap();
    assert_eq!((run.report.stdout.as_slice(), run.report.state), (&b"kept"[..], State::Preserved));
    assert_eq!(run.sandbox, Some(id));
}

#[tokio::test(start_paused = true)]
async fn output_is_kept_to_the_byte() {
    let (_, engine) = engine();
    let wish = Wish { output_bytes: Some(10_000), ..Wish::default() };
    let id = engine.create(&me(), CreateRequest { wish, ..CreateRequest::default() }).await.unwrap().id;
    for (code, out, err, ending) in [
        ("flood 10000", 10_000, 0, Ending::Exited { code: 0 }),
        ("flood 10001", 10_000, 0, OUTPUT),
        ("flood 9997\nerr 12", 9_997, 3, Ending::Exited { code: 0 }),
        ("flood 9997\nerr 123", 9_997, 3, OUTPUT),
        ("err 123\nflood", 9_996, 4, OUTPUT),
    ] {
        let report = engine.run(&me(), within(&id, code)).await.unwrap().report;
        assert_eq!((report.stdout.len(), report.stderr.len(), report.ending), (out, err, ending), "{code}");
        assert_ne!(report.state, State::Lost, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_without_end_is_stopped_at_the_ceiling() {
    let (fake, engine) = engine();
    let wish = Wish { output_bytes: Some(16 << 20), ..Wish::default() };
    let id = engine.create(&me(), CreateRequest { wish, ..CreateRequest::default() }).await.unwrap().id;
    let run = engine.run(&me(), within(&id, "flood")).await.unwrap();
    assert_eq!((run.report.ending, run.report.stdout.len()), (OUTPUT, 16 << 20));
    assert_eq!(fake.programs(), 0);
}

/// On the real clock: the paused one stands still while a program floods.
#[tokio::test]
async fn a_flood_that_heeds_no_stop_does_not_put_off_the_answer() {
    let (fake, engine) = engine();
    let begun = std::time::Instant::now();
    let run = engine.run(&me(), fresh("deaf-flood")).await.unwrap();
    assert!((ms(300)..ms(3000)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!((run.report.ending, run.report.state), (OUTPUT, State::Lost));
    assert_eq!(run.report.stdout.len(), 1 << 20);
    engine.shutdown().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_heeds_no_stop_goes_with_its_throw_away_sandbox() {
    let (fake, engine) = engine();
    let before = Instant::now();
    let run = engine.run(&me(), walled(fresh("print a\nhang"), ms(100))).await.unwrap();
    assert!((ms(500)..ms(550)).contains(&before.elapsed()), "{:?}", before.elapsed());
    assert_eq!((run.report.ending, run.report.state), (WALL, State::Lost));
    assert_eq!(run.report.stdout, b"a\n");
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_heeds_no_stop_takes_its_created_sandbox_along() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let beside = spawn(&engine, within(&id, "print beside\nsleep 10000"));
    let run = engine.run(&me(), walled(within(&id, "hang"), ms(100))).await.unwrap();
    assert_eq!((run.report.ending, run.report.state), (WALL, State::Lost));
    let beside = beside.await.unwrap().unwrap().report;
    assert_eq!((beside.ending, beside.state), (Ending::Killed { signal: 9 }, State::Lost));
    assert_eq!(beside.stdout, b"beside\n");
    assert!(matches!(engine.run(&me(), within(&id, "print x")).await, Err(EngineError::SandboxGone { .. })));
    settle().await;
    assert_nothing_left(&fake);
}

/// On a busy host a guest may not get its turn at once; that is no reason to throw away what is in a sandbox.
#[tokio::test(start_paused = true)]
async fn a_guest_that_answers_late_does_not_cost_a_created_sandbox() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let run = engine.run(&me(), walled(within(&id, "write note kept\nlinger 2500"), ms(100))).await.unwrap();
    assert_eq!(run.report.ending, WALL);
    let kept = engine.run(&me(), within(&id, "cat note")).await.unwrap().report;
    assert_eq!(kept.stdout, b"kept");
    let run = engine.run(&me(), walled(within(&id, "linger 10000"), ms(100))).await.unwrap();
    assert_eq!((run.report.ending, run.report.state), (WALL, State::Lost), "but there is an end to patience");
    engine.shutdown().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_falls_is_lost_with_what_was_printed() {
    let (fake, engine) = engine();
    let run = engine.run(&me(), fresh("print a\ncrash")).await.unwrap();
    assert_eq!((run.report.ending, run.report.state), (Ending::Killed { signal: 9 }, State::Lost));
    assert_eq!(run.report.stdout, b"a\n");

    let id = sandbox(&engine).await;
    let run = engine.run(&me(), within(&id, "print b\nerr c\ncrash")).await.unwrap();
    assert_eq!((run.report.ending, run.report.state), (Ending::Killed { signal: 9 }, State::Lost));
    assert_eq!((run.report.stdout.as_slice(), run.report.stderr.as_slice()), (&b"b\n"[..], &b"c\n"[..]));
    assert_eq!(run.sandbox, Some(id.clone()));
    assert!(matches!(engine.run(&me(), within(&id, "print x")).await, Err(EngineError::SandboxGone { .. })));
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_falls_as_its_program_ends_is_lost_too() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let run = engine.run(&me(), within(&id, "print a\ncollapse")).await.unwrap();
    assert_eq!((run.report.ending, run.report.state), (Ending::Exited { code: 0 }, State::Lost));
    assert_eq!(engine.sandboxes(&me()), []);
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_fell_between_two_runs_is_said_to_be_lost() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    fake.topple();
    assert!(matches!(engine.run(&me(), within(&id, "print x")).await, Err(EngineError::Lost)));
    assert!(matches!(engine.run(&me(), within(&id, "print x")).await, Err(EngineError::SandboxGone { .. })));
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_is_our_error_and_leaves_the_sandbox() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let error = engine.run(&me(), within(&id, "refuse")).await.unwrap_err();
    assert!(matches!(error, EngineError::Backend(_)), "{error:?}");
    assert!(!error.to_string().contains("/host/path"), "{error}");
    let run = engine.run(&me(), within(&id, "print a")).await.unwrap();
    assert_eq!(run.report.state, State::Fresh, "nothing ran there before");

    let mut request = fresh("print a");
    request.program.cwd = Some("nowhere".into());
    let error = engine.run(&me(), request).await.unwrap_err();
    assert!(matches!(error, EngineError::BadCwd { kind: FileErrorKind::NotFound }), "{error:?}");
    engine.destroy(&me(), id.as_str()).await.unwrap();
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_panics_or_never_answers_loses_its_sandbox_only() {
    let (fake, engine) = engine();
    for code in ["panic", "stuck-start", "lose"] {
        let id = sandbox(&engine).await;
        let begun = Instant::now();
        assert!(engine.run(&me(), within(&id, code)).await.is_err(), "{code}");
        assert!(
            matches!(engine.run(&me(), within(&id, "print x")).await, Err(EngineError::SandboxGone { .. })),
            "{code}"
        );
        assert!(engine.run(&me(), fresh(code)).await.is_err(), "{code}");
        assert!(begun.elapsed() < Duration::from_secs(61), "{code}: {:?}", begun.elapsed());
        settle().await;
        assert_nothing_left(&fake);
    }
    assert!(engine.run(&me(), fresh("print a")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_failed_open_is_our_error() {
    let manners = Manners { open_fails: Some("mount /home/x"), ..Manners::default() };
    let (fake, engine) = engine_with(manners, Settings { sandboxes_max: 1, ..Settings::default() });
    for _ in 0..2 {
        let error = engine.create(&me(), CreateRequest::default()).await.unwrap_err();
        assert!(matches!(error, EngineError::Backend(_)), "the slot came back: {error:?}");
        assert!(!error.to_string().contains("/home"), "{error}");
    }
    assert!(engine.run(&me(), fresh("print a")).await.is_err());
    assert_nothing_left(&fake);
}
