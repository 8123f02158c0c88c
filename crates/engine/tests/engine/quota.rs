//! What one principal may have, and use up.

use belljar_core::Ending;
use belljar_engine::{Away, Bound, EngineError, JobAction, NetworkSettings, Over, Quota};
use belljar_testkit::fake::Manners;

use super::jobs::{away, job};
use super::*;

fn engine_of(quota: Quota) -> (Arc<Fake>, Engine) {
    let network = NetworkSettings { allow: vec!["example.test".parse().unwrap()], ..NetworkSettings::default() };
    let manners = Manners { network: true, ..Manners::default() };
    engine_with(manners, Settings { quota, network, ..Settings::default() })
}

/// Behind a wall that can tell how much processor time was used.
fn measuring(quota: Quota) -> (Arc<Fake>, Engine) {
    let manners = Manners { measures_cpu: true, ..Manners::default() };
    engine_with(manners, Settings { quota, ..Settings::default() })
}

#[track_caller]
fn stopped_for_cpu(run: &Run) {
    assert_eq!(run.report.ending, Ending::Cancelled, "{run:?}");
    let error = run.rich.error.as_ref().unwrap();
    assert_eq!(error.name, "QuotaError");
    assert!(error.value.contains("5 CPU seconds an hour is used up"), "{error:?}");
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, EngineError>, wanted: Bound) -> Over {
    match answer {
        Err(EngineError::OverQuota(over)) if over.bound == wanted => over,
        other => panic!("not refused for {wanted:?}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn sandboxes_count_until_nothing_of_them_is_left() {
    let (_, engine) = engine_of(Quota { sandboxes: Some(2), ..Quota::default() });
    let first = sandbox(&engine).await;
    sandbox(&engine).await;
    let over = refused(engine.create(&me(), CreateRequest::default()).await, Bound::Sandboxes);
    assert_eq!(over.limit, 2);
    engine.create(&Principal::new("other"), CreateRequest::default()).await.unwrap();
    engine.run(&me(), fresh("print a")).await.unwrap();
    engine.destroy(&me(), first.as_str()).await.unwrap();
    sandbox(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn memory_is_that_of_sandboxes_and_of_programs_under_way() {
    let one = belljar_core::Limits::default().memory_bytes >> 20;
    let (_, engine) = engine_of(Quota { memory_mb: Some(2 * one), ..Quota::default() });
    let id = sandbox(&engine).await;
    let run = spawn(&engine, fresh("sleep 1000"));
    tokio::time::sleep(ms(10)).await;
    refused(engine.run(&me(), fresh("print a")).await, Bound::Memory);
    refused(engine.create(&me(), CreateRequest::default()).await, Bound::Memory);
    engine.run(&me(), within(&id, "print a")).await.expect("the sandbox has its memory already");
    run.await.unwrap().unwrap();
    engine.run(&me(), fresh("print a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn processor_time_is_charged_at_the_end_of_each_run() {
    let (_, engine) = engine_of(Quota { cpu_seconds: Some(1), ..Quota::default() });
    // Of each the fake says 3 ms.
    for _ in 0..334 {
        engine.run(&me(), fresh("print a")).await.unwrap();
    }
    let over = refused(engine.run(&me(), fresh("print a")).await, Bound::Cpu);
    let frees = over.frees.unwrap();
    assert!(EngineError::OverQuota(over).to_string().contains(&format!("try again in about {} s", frees.as_secs())));
    tokio::time::sleep(frees).await;
    engine.run(&me(), fresh("print a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_program_that_uses_too_much_is_stopped_while_it_runs() {
    let (_, engine) = measuring(Quota { cpu_seconds: Some(5), ..Quota::default() });
    let begun = tokio::time::Instant::now();
    stopped_for_cpu(&engine.run(&me(), fresh("sleep 6000\nburn 5000\nsleep 20000")).await.unwrap());
    assert!(begun.elapsed() < ms(9000), "{:?}", begun.elapsed());
    an_hour().await;
    let idle = engine.run(&me(), fresh("sleep 29000")).await.unwrap();
    assert_eq!(idle.report.ending, Ending::Exited { code: 0 }, "who waits uses nothing");
    // Both together use too much, whichever is looked at first.
    let both = [3000, 3000].map(|used| spawn(&engine, fresh(&format!("sleep 1\nburn {used}\nsleep 20000"))));
    let mut stopped = 0;
    for run in both {
        let run = run.await.unwrap().unwrap();
        if run.report.ending != (Ending::Exited { code: 0 }) {
            stopped_for_cpu(&run);
            stopped += 1;
        }
    }
    assert_ne!(stopped, 0);
    an_hour().await;
    let id = sandbox(&engine).await;
    engine.run(&me(), within(&id, "burn 2000")).await.unwrap();
    let later = engine.run(&me(), within(&id, "burn 2000\nsleep 5000")).await.unwrap();
    assert_eq!(later.report.ending, Ending::Exited { code: 0 }, "what was used before is charged already");
}

#[tokio::test(start_paused = true)]
async fn what_was_used_in_a_sandbox_counts_once_for_all_programs_there() {
    let (_, engine) = measuring(Quota { cpu_seconds: Some(5), ..Quota::default() });
    let id = sandbox(&engine).await;
    let sleeping: Vec<_> = (0..7).map(|_| spawn(&engine, within(&id, "sleep 20000"))).collect();
    // A server in the background, in which nothing happens, pays for nothing that others pay for.
    let served = walled(within(&id, "sleep 3000000"), Duration::from_secs(4000));
    let served = job(engine.attend(&me(), served, away(Away::KeepsSandbox)).await.unwrap());
    let busy = engine.run(&me(), within(&id, "sleep 1000\nburn 2000\nsleep 5000")).await.unwrap();
    assert_eq!(busy.report.ending, Ending::Exited { code: 0 });
    engine.run(&me(), within(&id, "burn 2000\nsleep 5000")).await.unwrap();
    for run in sleeping {
        assert_eq!(run.await.unwrap().unwrap().report.ending, Ending::Exited { code: 0 }, "four of five seconds");
    }
    engine.run(&me(), within(&id, "burn 1000")).await.unwrap();
    refused(engine.run(&me(), within(&id, "print a")).await, Bound::Cpu);
    let ended = engine.job(&me(), served.id.as_str(), JobAction::Wait(ms(3000)), None).await.unwrap();
    stopped_for_cpu(&ended.ended.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_comes_while_a_program_runs_holds_for_it() {
    let (_, engine) = measuring(Quota::default());
    let quota = Quota { cpu_seconds: Some(5), ..Quota::default() };
    let run = spawn(&engine, fresh("burn 60000\nsleep 6000\nburn 5000\nsleep 20000"));
    tokio::time::sleep(ms(1000)).await;
    engine.change_quota(quota);
    let begun = tokio::time::Instant::now();
    stopped_for_cpu(&run.await.unwrap().unwrap());
    assert!((ms(5000)..ms(8000)).contains(&begun.elapsed()), "not for what it used before: {:?}", begun.elapsed());

    let (_, engine) = engine_of(Quota::default());
    let mut request = fresh("move 2097152\nsleep 6000\nmove 2097152\nsleep 20000");
    request.wants.network = vec!["example.test".to_owned()];
    let run = spawn(&engine, request);
    tokio::time::sleep(ms(3000)).await;
    engine.change_quota(Quota { egress_mb: Some(2), ..Quota::default() });
    let run = run.await.unwrap().unwrap();
    assert_eq!(run.report.ending, Ending::Cancelled);
    assert!((ms(6000)..ms(9000)).contains(&run.report.duration), "{:?}", run.report.duration);
}

#[tokio::test(start_paused = true)]
async fn a_principal_that_gets_a_quota_has_it_in_all_that_stands() {
    let (fake, engine) = engine_of(Quota::default());
    let ann = Principal::new("ann");
    let mut request = CreateRequest::default();
    request.wants.network = vec!["example.test".to_owned()];
    let id = engine.create(&ann, request.clone()).await.unwrap().id;
    let bounded = ann.with_quota(Arc::new(Quota { egress_mb: Some(2), ..Quota::default() }));
    engine.run(&bounded, within(&id, "move-later 10000 2097152")).await.unwrap();
    tokio::time::sleep(ms(20_000)).await;
    assert_eq!(fake.sandboxes(), 0, "what goes on in it is past the quota");
    refused(engine.create(&bounded, request).await, Bound::Egress);
}

#[tokio::test(start_paused = true)]
async fn who_has_used_up_his_own_has_nothing_built() {
    let quota = Quota { cpu_seconds: Some(1), egress_mb: Some(1), ..Quota::default() };
    for (used_up, bound) in [("burn 1000", Bound::Cpu), ("move 1048576", Bound::Egress)] {
        let network = NetworkSettings { allow: vec!["example.test".parse().unwrap()], ..NetworkSettings::default() };
        let manners = Manners { network: true, measures_cpu: true, ..Manners::default() };
        let (_, engine) = engine_with(manners, Settings { quota, network, ..Settings::default() });
        let mut request = fresh(used_up);
        request.wants.network = vec!["example.test".to_owned()];
        engine.run(&me(), request).await.unwrap();
        let mut with_packages = CreateRequest::default();
        with_packages.wants.packages = vec!["six".to_owned()];
        refused(engine.create(&me(), with_packages).await, bound);
        sandbox(&engine).await;
    }
}

#[tokio::test(start_paused = true)]
async fn behind_a_wall_that_cannot_tell_all_that_there_was_to_use_counts_until_the_end() {
    let (_, engine) = engine_of(Quota { cpu_seconds: Some(5), ..Quota::default() });
    let cpus = f64::from(belljar_core::Limits::default().cpu_milli) / 1000.0;
    let begun = tokio::time::Instant::now();
    stopped_for_cpu(&engine.run(&me(), fresh("sleep 29000")).await.unwrap());
    let took = begun.elapsed().as_secs_f64() * cpus;
    assert!((5.0..5.0 + 3.0 * cpus).contains(&took), "{took}");
    engine.run(&me(), fresh("print a")).await.expect("it is charged what it used, which was next to nothing");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_goes_down_costs_all_that_it_could_have_used() {
    let cpus = f64::from(belljar_core::Limits::default().cpu_milli) / 1000.0;
    let time = Duration::from_secs_f64(4.5 / cpus).as_millis();
    let quota = Quota { cpu_seconds: Some(5), ..Quota::default() };
    let (_, engine) = engine_of(quota);
    engine.run(&me(), fresh(&format!("sleep {time}\ncrash"))).await.unwrap();
    engine.run(&me(), fresh(&format!("sleep {}\ncrash", time / 8))).await.unwrap();
    refused(engine.run(&me(), fresh("print a")).await, Bound::Cpu);

    // What the wall can tell needs no guess.
    let (_, engine) = measuring(quota);
    for code in ["sleep 29000\ncrash", "burn 4000\ncrash", "burn 1000\ncrash"] {
        engine.run(&me(), fresh(code)).await.unwrap();
    }
    refused(engine.run(&me(), fresh("print a")).await, Bound::Cpu);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_moves_too_much_is_stopped_and_told_why() {
    let (_, engine) = engine_of(Quota { egress_mb: Some(3), ..Quota::default() });
    let reaching = |code: &str| {
        let mut request = fresh(code);
        request.wants.network = vec!["example.test".to_owned()];
        request
    };
    engine.run(&me(), reaching("move 1048576")).await.unwrap();
    let begun = tokio::time::Instant::now();
    let run = engine.run(&me(), reaching("print before\nmove 2097152\nsleep 20000")).await.unwrap();
    assert!(begun.elapsed() < ms(4000), "{:?}", begun.elapsed());
    assert_eq!((run.report.ending, run.report.stdout.as_slice()), (Ending::Cancelled, b"before\n".as_slice()));
    let error = run.rich.error.unwrap();
    assert_eq!(error.name, "QuotaError");
    assert!(error.value.contains("3 MB an hour over the network") && error.value.contains("try again"), "{error:?}");
    refused(engine.run(&me(), reaching("print a")).await, Bound::Egress);
    engine.run(&me(), fresh("print a")).await.expect("what has no network goes on");
    tokio::time::sleep(Duration::from_secs(3700)).await;
    engine.run(&me(), reaching("print a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_pays_once_for_what_it_moved() {
    let (_, engine) = engine_of(Quota { egress_mb: Some(4), ..Quota::default() });
    let create = || {
        let mut request = CreateRequest::default();
        request.wants.network = vec!["example.test".to_owned()];
        request
    };
    let id = engine.create(&me(), create()).await.unwrap().id;
    // Both look at the same count.
    let both = [spawn(&engine, within(&id, "move 1048576\nsleep 5000")), spawn(&engine, within(&id, "sleep 7000"))];
    for run in both {
        assert_eq!(run.await.unwrap().unwrap().report.ending, Ending::Exited { code: 0 });
    }
    engine.run(&me(), within(&id, "move 2097152")).await.unwrap();
    engine.run(&me(), within(&id, "print three of four")).await.unwrap();
    engine.run(&me(), within(&id, "move 1048576")).await.unwrap();
    refused(engine.run(&me(), within(&id, "print a")).await, Bound::Egress);
    refused(engine.create(&me(), create()).await, Bound::Egress);
    sandbox(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn programs_at_once_wait_for_each_other() {
    let (fake, engine) = engine_of(Quota { runs: Some(2), ..Quota::default() });
    let runs: Vec<_> = (0..6).map(|_| spawn(&engine, fresh("sleep 100"))).collect();
    for run in runs {
        run.await.unwrap().unwrap();
    }
    assert_eq!(fake.most_programs(), 2);
    engine.change_quota(Quota::default());
    assert_eq!(engine.quota(&me()), Quota::default());
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_in_which_nothing_goes_on_outlives_the_quota() {
    let (fake, engine) = engine_of(Quota { egress_mb: Some(2), ..Quota::default() });
    let mut request = CreateRequest::default();
    request.wants.network = vec!["example.test".to_owned()];
    let id = engine.create(&me(), request).await.unwrap().id;
    // Wherever its end falls between two looks.
    for wait in (0..4000).step_by(300) {
        let code = format!("write kept {wait}\nmove 1\nsleep {wait}\nmove 2097152");
        engine.run(&me(), within(&id, &code)).await.unwrap();
        tokio::time::sleep(ms(10_000)).await;
        assert_eq!(fake.sandboxes(), 1, "{wait}");
        refused(engine.run(&me(), within(&id, "print a")).await, Bound::Egress);
        an_hour_of(&engine, &id).await;
    }
    // A job that does not keep it is a program as well: that is stopped, and not what it is in.
    let begun = job(engine
        .attend(&me(), within(&id, "move 2097152\nsleep 1000\nmove 1\nsleep 20000"), away(Away::LetsSandboxExpire))
        .await
        .unwrap());
    let ended = engine.job(&me(), begun.id.as_str(), JobAction::Wait(ms(20_000)), None).await.unwrap();
    assert_eq!(ended.ended.unwrap().rich.error.as_ref().unwrap().name, "QuotaError");
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(fake.sandboxes(), 1);
}

/// Until the hour is over, with a look at the sandbox now and then, so that it stays.
async fn an_hour_of(engine: &Engine, id: &SandboxId) {
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(1000)).await;
        engine.list(&me(), id.as_str(), ".", 1, 1).await.unwrap();
    }
}

async fn an_hour() {
    tokio::time::sleep(Duration::from_secs(3700)).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_program_left_running_is_charged_and_ended() {
    let (fake, engine) = engine_of(Quota { egress_mb: Some(2), ..Quota::default() });
    let mut request = CreateRequest::default();
    request.wants.network = vec!["example.test".to_owned()];
    let (one, other) =
        (engine.create(&me(), request.clone()).await.unwrap().id, engine.create(&me(), request).await.unwrap().id);
    let code = "move-later 10000 1048576\nmove-later 60000 1048576\nprint gone";
    engine.run(&me(), within(&one, code)).await.unwrap();
    tokio::time::sleep(ms(30_000)).await;
    engine.run(&me(), within(&one, "print half")).await.unwrap();
    assert_eq!(fake.sandboxes(), 2);
    tokio::time::sleep(ms(60_000)).await;
    assert_eq!(fake.sandboxes(), 1, "that which moves, and not the other");
    let gone = engine.run(&me(), within(&one, "print a")).await.unwrap_err().to_string();
    assert!(gone.contains("your quota") && gone.contains("create_sandbox"), "{gone}");
    refused(engine.run(&me(), within(&other, "print a")).await, Bound::Egress);
}
