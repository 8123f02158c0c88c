//! Runs that nobody waits for, and callers that come back.

use belljar_core::{Ending, Stdin, Then};
use belljar_engine::{Answer, Attendance, Away, Departure, JobAction, JobView, Stays, StdinThen, Wants};
use tokio_util::sync::CancellationToken;

use super::*;

fn stays(time: Duration) -> Attendance {
    Attendance::new(Stays::For(time))
}

pub(super) fn away(away: Away) -> Attendance {
    Attendance::new(Stays::Away(away))
}

#[track_caller]
pub(super) fn job(answer: Answer) -> JobView {
    let Answer::Job(job) = answer else { panic!("{answer:?}") };
    job
}

async fn look(engine: &Engine, id: &str, action: JobAction) -> JobView {
    look_of(engine, &me(), id, action).await
}

async fn look_of(engine: &Engine, who: &Principal, id: &str, action: JobAction) -> JobView {
    engine.job(who, id, action, None).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_quick_run_is_no_job() {
    let (_, engine) = engine();
    let answer = engine.attend(&me(), fresh("print a"), stays(ms(1000))).await.unwrap();
    assert!(matches!(answer, Answer::Finished(run) if run.report.stdout == b"a\n"));
    assert!(engine.jobs(&me()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_long_run_becomes_a_job_and_its_end_is_told_as_often_as_it_is_asked() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    let begun = engine.attend(&me(), within(&id, "print a\nsleep 5000\nprint b"), stays(ms(1000))).await.unwrap();
    let begun = job(begun);
    assert_eq!((begun.stdout.as_slice(), begun.ended.is_none()), (&b"a\n"[..], true));
    let name = begun.id.as_str();
    assert_eq!(look(&engine, name, JobAction::Poll).await.stdout, b"", "told already");
    let waited = look(&engine, name, JobAction::Wait(ms(60_000))).await;
    assert_eq!((waited.stdout.as_slice(), waited.next_offset), (&b"b\n"[..], 4));
    for _ in 0..2 {
        let again = engine.job(&me(), name, JobAction::Poll, Some(0)).await.unwrap();
        let run = again.ended.unwrap();
        assert_eq!((again.stdout.as_slice(), run.report.ending), (&b"a\nb\n"[..], Ending::Exited { code: 0 }));
    }
    let stranger = engine.job(&Principal::new("other"), name, JobAction::Poll, None).await;
    assert!(matches!(stranger, Err(EngineError::UnknownJob)));
}

/// Begins a run, and leaves it after a moment.
async fn left(engine: &Engine, code: &str) -> JobView {
    let leave = CancellationToken::new();
    let attendance = Attendance { leave: Some(leave.clone()), ..stays(ms(60_000)) };
    let who = me();
    let attending = engine.attend(&who, fresh(code), attendance);
    let (answer, ()) = tokio::join!(attending, async {
        tokio::time::sleep(ms(100)).await;
        leave.cancel();
    });
    job(answer.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_left_goes_on_and_is_come_back_to() {
    let (fake, engine) = engine();
    let begun = tokio::time::Instant::now();
    let seen = left(&engine, "print a\nsleep 5000\nprint b").await;
    assert_eq!((seen.stdout.as_slice(), seen.ended.is_none()), (&b"a\n"[..], true));
    assert!(begun.elapsed() < ms(1000), "it was left at once");
    assert_eq!(fake.programs(), 1);
    let stranger = engine.rejoin(&Principal::new("other"), seen.id.as_str(), stays(ms(1000))).await;
    assert!(matches!(stranger, Err(EngineError::UnknownJob)));
    let soon = engine.rejoin(&me(), seen.id.as_str(), stays(ms(100))).await.unwrap();
    assert!(job(soon).ended.is_none());
    let answer = engine.rejoin(&me(), seen.id.as_str(), stays(ms(60_000))).await.unwrap();
    assert!(matches!(answer, Answer::Finished(run) if run.report.stdout == b"a\nb\n"));
}

#[tokio::test(start_paused = true)]
async fn who_came_back_may_hang_up_or_cancel() {
    for (hangs_up, programs) in [(true, 1), (false, 0)] {
        let (fake, engine) = engine();
        let seen = left(&engine, "sleep 20000").await;
        let departure = Departure::default();
        let attendance = Attendance { departure: departure.clone(), ..stays(ms(60_000)) };
        let gone = tokio::time::timeout(ms(100), async {
            if hangs_up {
                departure.hung_up();
            }
            engine.rejoin(&me(), seen.id.as_str(), attendance).await
        });
        assert!(gone.await.is_err());
        tokio::time::sleep(ms(10_000)).await;
        assert_eq!(fake.programs(), programs, "hangs up: {hangs_up}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_takes_nobodys_turn() {
    let settings = Settings { runs_max: 1, runs_per_sandbox_max: 1, ..Settings::default() };
    let (_, engine) = engine_with(Manners::default(), settings);
    let id = sandbox(&engine).await;
    for _ in 0..3 {
        job(engine.attend(&me(), within(&id, "sleep 9000"), away(Away::LetsSandboxExpire)).await.unwrap());
    }
    let run = engine.run(&me(), within(&id, "print a")).await.unwrap();
    assert_eq!(run.report.stdout, b"a\n");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_would_run_for_ever_does_not_keep_its_sandbox() {
    for (away_as, stands) in [(Away::LetsSandboxExpire, 0), (Away::KeepsSandbox, 1)] {
        let settings = Settings { idle: ms(10_000), ..Settings::default() };
        let (fake, engine) = engine_with(Manners::default(), settings);
        let id = sandbox(&engine).await;
        let request = walled(within(&id, "sleep 3600000"), ms(3_600_000));
        let begun = job(engine.attend(&me(), request, away(away_as)).await.unwrap());
        tokio::time::sleep(ms(30_000)).await;
        assert_eq!((engine.sandboxes(&me()).len(), fake.programs()), (stands, stands), "{away_as:?}");
        let seen = look(&engine, begun.id.as_str(), JobAction::Poll).await;
        assert_eq!(seen.ended.is_some(), stands == 0);
        engine.shutdown().await;
        assert_nothing_left(&fake);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_reads_what_is_sent_and_heeds_signals() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    let mut request = within(&id, "stdin\nprint end");
    request.program.stdin = Stdin::Live;
    let begun = job(engine.attend(&me(), request, away(Away::KeepsSandbox)).await.unwrap());
    let name = begun.id.as_str();
    look(&engine, name, JobAction::Stdin { bytes: b"one ".to_vec(), then: StdinThen::Open }).await;
    look(&engine, name, JobAction::Stdin { bytes: b"two ".to_vec(), then: StdinThen::End }).await;
    let ended = engine.job(&me(), name, JobAction::Wait(ms(1000)), Some(0)).await.unwrap();
    assert_eq!(ended.stdout, b"one two end\n");
    let late = look(&engine, name, JobAction::Stdin { bytes: b"x".to_vec(), then: StdinThen::Open }).await;
    assert!(late.ended.is_some(), "one that has ended takes everything");

    let begun = job(engine.attend(&me(), within(&id, "sleep 60000"), away(Away::KeepsSandbox)).await.unwrap());
    let refused =
        engine.job(&me(), begun.id.as_str(), JobAction::Stdin { bytes: Vec::new(), then: StdinThen::End }, None).await;
    assert!(matches!(refused, Err(EngineError::NoLiveStdin)));
    look(&engine, begun.id.as_str(), JobAction::Signal(2)).await;
    let ended = look(&engine, begun.id.as_str(), JobAction::Wait(ms(1000))).await;
    assert_eq!(ended.ended.unwrap().report.ending, Ending::Exited { code: 130 });
}

#[tokio::test(start_paused = true)]
async fn a_kernel_that_a_job_has_is_not_waited_for() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    let cell = |code: &str| {
        let source = Source::Cell { language: Language::Python, code: code.into(), then: Then::More };
        RunRequest {
            sandbox: Some(id.to_string()),
            program: Program { source, ..program(code) },
            wants: Wants::default(),
        }
    };
    let begun = job(engine.attend(&me(), cell("sleep 5000"), stays(ms(100))).await.unwrap());
    let refused = engine.run(&me(), cell("print a")).await;
    assert!(matches!(refused, Err(EngineError::KernelBusy { job, .. }) if job == begun.id.as_str()));
    look(&engine, begun.id.as_str(), JobAction::Wait(ms(10_000))).await;
    assert_eq!(engine.run(&me(), cell("print a")).await.unwrap().report.stdout, b"a\n");
}

#[tokio::test(start_paused = true)]
async fn a_talkative_job_forgets_its_oldest_output() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    let begun =
        job(engine.attend(&me(), within(&id, "flood 3000000\nprint end"), away(Away::KeepsSandbox)).await.unwrap());
    let ended = engine.job(&me(), begun.id.as_str(), JobAction::Wait(ms(10_000)), Some(0)).await.unwrap();
    assert_eq!((ended.stdout.len(), ended.missed, ended.next_offset), (1 << 20, 3_000_004 - (1 << 20), 3_000_004));
    assert!(ended.stdout.ends_with(b"end\n"));
    assert_eq!(ended.ended.unwrap().report.ending, Ending::Exited { code: 0 });
}

/// A caller that hangs up after a while.
async fn hang_up(engine: &Engine, request: RunRequest, departure: Departure) {
    let attendance = Attendance { departure: departure.clone(), ..stays(ms(60_000)) };
    let who = me();
    let mut call = std::pin::pin!(engine.attend(&who, request, attendance));
    tokio::select! {
        answer = &mut call => panic!("{answer:?}"),
        () = tokio::time::sleep(ms(50)) => departure.hung_up(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_again_gets_the_run_that_it_began() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let request = within(&id, "print once\nsleep 1000\nprint done");
    hang_up(&engine, request.clone(), Departure::default()).await;
    let other = engine.attend(&me(), within(&id, "print other"), stays(ms(5000))).await.unwrap();
    assert!(matches!(other, Answer::Finished(run) if run.report.stdout == b"other\n"), "not the same request");
    let answer = engine.attend(&me(), request.clone(), stays(ms(5000))).await.unwrap();
    assert!(matches!(answer, Answer::Finished(run) if run.report.stdout == b"once\ndone\n"));
    assert_eq!(fake.started(), 2);
    let again = engine.attend(&me(), request, stays(ms(5000))).await.unwrap();
    assert!(matches!(again, Answer::Finished(_)));
    assert_eq!(fake.started(), 3, "an answer is given once; then it is a new request");
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_its_caller_and_a_run_does_not_wait_long() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let quick = within(&id, "sleep 100\nprint quick");
    hang_up(&engine, quick.clone(), Departure::default()).await;
    let endless = within(&id, "sleep 3600000");
    hang_up(&engine, endless, Departure::default()).await;
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(fake.programs(), 0, "nobody came for it");
    let answer = engine.attend(&me(), quick, stays(ms(1000))).await.unwrap();
    assert!(matches!(answer, Answer::Finished(run) if run.report.stdout == b"quick\n"));
    assert_eq!(fake.started(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_cancels_does_not_come_back() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let call =
        tokio::time::timeout(ms(50), engine.attend(&me(), within(&id, "sleep 3600000"), stays(ms(60_000)))).await;
    assert!(call.is_err());
    settle().await;
    assert_eq!(fake.programs(), 0);
}

#[tokio::test(start_paused = true)]
async fn jobs_are_bounded() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    for _ in 0..32 {
        job(engine.attend(&me(), within(&id, "sleep 3600000"), away(Away::LetsSandboxExpire)).await.unwrap());
    }
    let one_more = engine.attend(&me(), within(&id, "sleep 3600000"), away(Away::LetsSandboxExpire)).await;
    assert!(matches!(one_more, Err(EngineError::TooManyJobs { max: 32 })));
    settle().await;
    assert_eq!(fake.programs(), 32, "the one that was refused does not run");
    engine.shutdown().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_sandbox_of_its_own_takes_the_room_of_a_created_one() {
    let manners = Manners { close_takes: ms(500), ..Manners::default() };
    let (fake, engine) = engine_with(manners, Settings { sandboxes_max: 2, ..Settings::default() });
    let id = sandbox(&engine).await;
    let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
    let begun = job(engine.attend(&ann, fresh("sleep 10000"), away(Away::KeepsSandbox)).await.unwrap());
    for who in [&bob, &me()] {
        let refused = engine.attend(who, fresh("sleep 10000"), away(Away::KeepsSandbox)).await;
        assert!(matches!(refused, Err(EngineError::TooManySandboxes { max: 2 })), "{refused:?}");
    }
    assert!(engine.create(&bob, CreateRequest::default()).await.is_err());
    job(engine.attend(&me(), within(&id, "sleep 1000"), away(Away::KeepsSandbox)).await.unwrap());
    let answer = engine.attend(&bob, fresh("sleep 2000\nprint b"), stays(ms(1000))).await.unwrap();
    assert!(matches!(answer, Answer::Finished(run) if run.report.stdout == b"b\n"), "there is no room for a job");

    let ended = engine.job(&ann, begun.id.as_str(), JobAction::Wait(ms(60_000)), None).await.unwrap();
    assert!(ended.ended.is_some());
    assert!(engine.create(&bob, CreateRequest::default()).await.is_err(), "something of its sandbox is left");
    tokio::time::sleep(ms(600)).await;
    let long = job(engine.attend(&bob, fresh("sleep 2000"), stays(ms(1000))).await.unwrap());
    assert!(engine.create(&bob, CreateRequest::default()).await.is_err());
    look_of(&engine, &bob, long.id.as_str(), JobAction::Wait(ms(60_000))).await;
    tokio::time::sleep(ms(600)).await;
    engine.create(&bob, CreateRequest::default()).await.unwrap();
    assert_eq!(fake.sandboxes(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_ended_job_is_forgotten_after_an_hour() {
    let (_, engine) =
        engine_with(Manners::default(), Settings { idle: Duration::from_secs(9000), ..Settings::default() });
    let id = sandbox(&engine).await;
    job(engine.attend(&me(), within(&id, "print a"), away(Away::KeepsSandbox)).await.unwrap());
    let long = walled(within(&id, "sleep 7000000"), Duration::from_secs(8000));
    let long = job(engine.attend(&me(), long, away(Away::KeepsSandbox)).await.unwrap());
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert_eq!(engine.jobs(&me()).len(), 2);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let known: Vec<_> = engine.jobs(&me()).into_iter().map(|job| job.id).collect();
    assert_eq!(known, std::slice::from_ref(&long.id));
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert!(look(&engine, long.id.as_str(), JobAction::Poll).await.ended.is_some(), "its hour begins at its end");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_old_once_something_else_was_done() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    engine.write(&me(), id.as_str(), "f", b"old".to_vec()).await.unwrap();
    let request = within(&id, "sleep 100\ncat f");
    hang_up(&engine, request.clone(), Departure::default()).await;
    tokio::time::sleep(ms(1000)).await;
    engine.write(&me(), id.as_str(), "f", b"new".to_vec()).await.unwrap();
    let answer = engine.attend(&me(), request.clone(), stays(ms(5000))).await.unwrap();
    assert!(matches!(answer, Answer::Finished(run) if run.report.stdout == b"new"));
    assert_eq!(fake.started(), 2);

    hang_up(&engine, request.clone(), Departure::default()).await;
    tokio::time::sleep(ms(1000)).await;
    engine.destroy(&me(), id.as_str()).await.unwrap();
    let gone = engine.attend(&me(), request, stays(ms(5000))).await;
    assert!(matches!(gone, Err(EngineError::SandboxGone { .. })), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_hang_up_has_its_own_grace() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let request = within(&id, "sleep 6000\nprint done");
    hang_up(&engine, request.clone(), Departure::default()).await;
    tokio::time::sleep(ms(2500)).await;
    hang_up(&engine, request.clone(), Departure::default()).await;
    // Past the first grace, within the second.
    tokio::time::sleep(ms(2000)).await;
    let answer = engine.attend(&me(), request, stays(ms(60_000))).await.unwrap();
    assert!(matches!(answer, Answer::Finished(run) if run.report.stdout == b"done\n"));
    assert_eq!(fake.started(), 1);
}

#[tokio::test(start_paused = true)]
async fn ended_jobs_take_no_more_than_their_share() {
    let (_, engine) = engine();
    let wish = belljar_engine::Wish { output_bytes: Some(8 << 20), ..Default::default() };
    let request = CreateRequest { wish, ..CreateRequest::default() };
    let id = engine.create(&me(), request).await.unwrap().id;
    let mut names = Vec::new();
    for _ in 0..6 {
        let begun = job(engine.attend(&me(), within(&id, "flood 5000000"), away(Away::KeepsSandbox)).await.unwrap());
        look(&engine, begun.id.as_str(), JobAction::Wait(ms(60_000))).await;
        names.push(begun.id);
    }
    let known: Vec<_> = engine.jobs(&me()).into_iter().map(|job| job.id).collect();
    assert_eq!(known, names[4..], "each takes ten megabytes, its log and its report");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_as_it_becomes_a_job_loses_nothing() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    for patience in 995..1005 {
        let answer =
            engine.attend(&me(), within(&id, "print a\nsleep 1000\nprint b"), stays(ms(patience))).await.unwrap();
        let stdout = match answer {
            Answer::Finished(run) => run.report.stdout.clone(),
            Answer::Job(begun) => {
                let rest = look(&engine, begun.id.as_str(), JobAction::Wait(ms(60_000))).await;
                assert!(rest.ended.is_some());
                [begun.stdout, rest.stdout].concat()
            }
        };
        assert_eq!(stdout, b"a\nb\n", "patience of {patience} ms");
    }
}
