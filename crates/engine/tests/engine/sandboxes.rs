//! Whose sandboxes they are, and when they end.

use belljar_core::{Ending, Limits, Range, State};
use belljar_engine::{EngineError, Wants, Wish};
use belljar_testkit::fake::Manners;
use tokio::time::{Instant, sleep};

use super::*;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn idle(n: u64) -> Settings {
    Settings { idle: secs(n), ..Settings::default() }
}

#[tokio::test(start_paused = true)]
async fn a_created_sandbox_says_what_it_is() {
    let (_, engine) = engine_with(Manners::default(), idle(600));
    let wish = Wish { memory_bytes: Some(256 << 20), ..Wish::default() };
    let request = CreateRequest { wish, env: vec![("A".into(), "b".into())], ..CreateRequest::default() };
    let info = engine.create(&me(), request).await.unwrap();
    let limits = Limits { memory_bytes: 256 << 20, disk_bytes: 192 << 20, ..Limits::default() };
    assert_eq!(info.limits, limits);
    assert_eq!((info.idle, info.expires_in, info.age, info.runs), (secs(600), secs(600), secs(0), 0));
    assert_eq!(info.isolation.backend, "fake");

    let run = engine.run(&me(), within(&info.id, "env A")).await.unwrap();
    assert_eq!((run.report.stdout.as_slice(), run.report.state), (&b"b\n"[..], State::Fresh));
    sleep(secs(5)).await;
    let second = sandbox(&engine).await;
    let listed = engine.sandboxes(&me());
    assert_eq!(listed.iter().map(|info| &info.id).collect::<Vec<_>>(), [&info.id, &second]);
    assert_eq!(listed[0].runs, 1);
    assert!(listed[0].age >= secs(5) && listed[0].expires_in <= secs(595), "{:?}", listed[0]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_id_is_as_unknown_as_one_that_never_was() {
    let (fake, engine) = engine();
    let (mine, other) = (sandbox(&engine).await, Principal::new("other"));
    let range = Range { offset: 0, length: 1 };
    for id in [mine.as_str(), "sb_00000000000000000000000000000000", "", "../x"] {
        let request = RunRequest { sandbox: Some(id.into()), program: program("print a"), wants: Wants::default() };
        let errors = [
            engine.run(&other, request).await.unwrap_err(),
            engine.destroy(&other, id).await.unwrap_err(),
            engine.read(&other, id, "a", range).await.unwrap_err(),
            engine.write(&other, id, "a", b"x".to_vec()).await.unwrap_err(),
            engine.list(&other, id, ".", 1, 10).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, EngineError::UnknownSandbox), "{id}: {error:?}");
        }
    }
    assert_eq!(engine.sandboxes(&other), []);
    assert_eq!((fake.sandboxes(), fake.started()), (1, 0));
    assert!(engine.run(&me(), within(&mine, "print a")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn sandboxes_are_bounded_until_nothing_of_them_is_left() {
    let manners = Manners { close_takes: ms(100), ..Manners::default() };
    let (fake, engine) = engine_with(manners, Settings { sandboxes_max: 2, ..Settings::default() });
    let (one, _two) = (sandbox(&engine).await, sandbox(&engine).await);
    let refused = engine.create(&Principal::new("other"), CreateRequest::default()).await.unwrap_err();
    assert!(matches!(refused, EngineError::TooManySandboxes { max: 2 }), "{refused:?}");

    let destroying = {
        let (engine, one) = (engine.clone(), one.clone());
        tokio::spawn(async move { engine.destroy(&me(), one.as_str()).await })
    };
    sleep(ms(50)).await;
    assert!(matches!(engine.destroy(&me(), one.as_str()).await, Err(EngineError::SandboxGone { .. })));
    assert!(engine.create(&me(), CreateRequest::default()).await.is_err(), "it is not gone yet");
    destroying.await.unwrap().unwrap();
    assert_eq!(fake.sandboxes(), 1);
    sandbox(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_sandbox_is_closed_when_its_time_is_over() {
    let (fake, engine) = engine_with(Manners::default(), idle(10));
    let id = sandbox(&engine).await;
    sleep(secs(8)).await;
    engine.run(&me(), within(&id, "print a")).await.unwrap();
    sleep(ms(9_900)).await;
    assert_eq!(fake.sandboxes(), 1, "the run counted as use");
    sleep(ms(200)).await;
    assert_nothing_left(&fake);
    assert!(matches!(engine.run(&me(), within(&id, "print a")).await, Err(EngineError::SandboxGone { .. })));
    assert_eq!(engine.sandboxes(&me()), []);
}

#[tokio::test(start_paused = true)]
async fn each_sandbox_has_its_own_idle_time() {
    let (fake, engine) = engine_with(Manners::default(), Settings { age_max: secs(3600), ..idle(100) });
    let of = |idle| CreateRequest { idle: Some(idle), ..CreateRequest::default() };
    let refused = engine.create(&me(), of(secs(3601))).await.unwrap_err();
    assert_eq!(refused.to_string(), "timeout is more than this server allows; ask for at most 3600 seconds");
    let long = engine.create(&me(), of(secs(3600))).await.unwrap();
    assert_eq!(long.idle, secs(3600));
    sleep(ms(10)).await; // by now the engine waits for the end of the long one
    let short = engine.create(&me(), of(ms(1))).await.unwrap();
    assert_eq!(short.idle, secs(1));
    sleep(ms(1_100)).await;
    assert_eq!(fake.sandboxes(), 1, "the shorter one ended, though it came later");
    assert_eq!(engine.sandboxes(&me())[0].id, long.id);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_in_use_is_not_idle() {
    let settings = Settings { runs_max: 1, ..idle(10) };
    let (fake, engine) = engine_with(Manners::default(), settings);
    let (one, two) = (sandbox(&engine).await, sandbox(&engine).await);
    let running = spawn(&engine, walled(within(&one, "sleep 60000"), secs(100)));
    sleep(ms(10)).await;
    let waiting = spawn(&engine, within(&two, "print b"));
    sleep(secs(50)).await;
    assert_eq!(fake.sandboxes(), 2, "one is running, and one waits for its turn");
    assert_eq!(running.await.unwrap().unwrap().report.ending, Ending::Exited { code: 0 });
    assert_eq!(waiting.await.unwrap().unwrap().report.state, State::Fresh);
    sleep(ms(9_900)).await;
    assert_eq!(fake.sandboxes(), 2);
    sleep(ms(200)).await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn nothing_outlives_the_longest_age() {
    let (fake, engine) = engine_with(Manners::default(), Settings { age_max: secs(60), ..idle(50) });
    let id = sandbox(&engine).await;
    sleep(secs(45)).await;
    let run = engine.run(&me(), within(&id, "print a\nsleep 25000")).await.unwrap();
    assert_eq!((run.report.ending, run.report.state), (Ending::Killed { signal: 9 }, State::Lost));
    assert_eq!(run.report.stdout, b"a\n");
    assert!((secs(15)..secs(16)).contains(&run.report.duration), "{:?}", run.report.duration);
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_sandbox_ends_its_programs_and_is_gone_on_return() {
    let manners = Manners { close_takes: ms(50), ..Manners::default() };
    let settings = Settings { runs_per_sandbox_max: 2, ..Settings::default() };
    for (code, at_most) in [("print a\nsleep 20000", ms(70)), ("print a\nhang", ms(500))] {
        let (fake, engine) = engine_with(manners.clone(), settings.clone());
        let id = sandbox(&engine).await;
        let running = [spawn(&engine, within(&id, code)), spawn(&engine, within(&id, code))];
        sleep(ms(10)).await;
        let waiting = spawn(&engine, within(&id, "print never"));
        sleep(ms(10)).await;
        let begun = Instant::now();
        engine.destroy(&me(), id.as_str()).await.unwrap();
        assert!(begun.elapsed() <= at_most, "{code}: {:?}", begun.elapsed());
        assert_nothing_left(&fake);
        for run in running {
            let report = run.await.unwrap().unwrap().report;
            assert_eq!((report.ending, report.state), (Ending::Killed { signal: 9 }, State::Lost));
            assert_eq!(report.stdout, b"a\n");
        }
        assert!(matches!(waiting.await.unwrap(), Err(EngineError::UnknownSandbox)));
        assert_eq!(fake.started(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_falls_is_nobodys_at_once() {
    let quota = belljar_engine::Quota { sandboxes: Some(1), ..belljar_engine::Quota::default() };
    let (fake, engine) = engine_with(Manners::default(), Settings { quota, ..Settings::default() });
    let id = sandbox(&engine).await;
    fake.topple();
    settle().await;
    assert_nothing_left(&fake);
    let gone = engine.run(&me(), within(&id, "print a")).await.unwrap_err();
    assert!(matches!(gone, EngineError::SandboxGone { why: belljar_engine::Gone::Lost }), "{gone:?}");
    sandbox(&engine).await;
}

/// It never began, and so does not say that the place went down.
#[tokio::test(start_paused = true)]
async fn a_program_that_gives_up_waiting_leaves_no_fallen_sandbox() {
    let (fake, engine) = engine_with(Manners::default(), Settings { runs_max: 1, ..Settings::default() });
    let id = sandbox(&engine).await;
    let running = spawn(&engine, fresh("sleep 20000"));
    sleep(ms(10)).await;
    let waiting = spawn(&engine, within(&id, "print a"));
    sleep(ms(10)).await;
    fake.topple();
    waiting.abort();
    running.await.unwrap().unwrap();
    let _ = waiting.await;
    settle().await;
    assert_eq!(fake.started(), 1);
    assert_nothing_left(&fake);
}

/// A caller that holds a started call without polling it must not hang another.
#[tokio::test(start_paused = true)]
async fn destroy_does_not_need_other_callers_to_move() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let who = me();
    let mut running = std::pin::pin!(engine.run(&who, within(&id, "print a\nsleep 20000")));
    let mut reading = std::pin::pin!(engine.read(&who, id.as_str(), "/stuck", Range { offset: 0, length: 1 }));
    tokio::select! { biased; _ = &mut running => unreachable!(), _ = &mut reading => unreachable!(), () = sleep(ms(10)) => {} }
    engine.destroy(&who, id.as_str()).await.unwrap();
    assert_nothing_left(&fake);
    assert_eq!(running.await.unwrap().report.state, State::Lost);
    assert!(matches!(reading.await, Err(EngineError::UnknownSandbox)));
}
