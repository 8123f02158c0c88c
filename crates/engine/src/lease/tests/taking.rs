//! Who gets which.

use std::collections::HashSet;

use belljar_core::Ground;

use super::*;
use crate::{Template, Wish};

const PYTHON: Option<Language> = Some(Language::Python);

/// On threads, and by the clock: callers and keeper are at it at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_is_used_once_and_by_one_caller() {
    let settings = Settings { runs_max: 200, pool: Some(pool_of(32)), ..Settings::default() };
    let (fake, engine, _) = engine_on(Manners::default(), settings);
    fake.until_opened(1).await;
    let runs: Vec<_> = (0..200).map(|_| spawn(&engine, python("place"))).collect();
    let mut places = HashSet::new();
    for run in runs {
        assert!(places.insert(run.await.unwrap()), "two had the same sandbox");
    }
    let PoolInfo { taken, missed, .. } = pool(&engine, PYTHON);
    assert_eq!((taken + missed, places.len()), (200, 200));
    assert!(fake.opened() as u64 >= 200);
    engine.shutdown().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_prepared_sandbox_is_there_at_once_and_the_next_is_another() {
    let (fake, engine) = engine_with(Manners { open_takes: ms(100), ..Manners::default() }, pool_of(32));
    fake.until_opened(2).await;
    settle().await;
    let begun = tokio::time::Instant::now();
    assert_eq!(place(&engine, python("place")).await, 0);
    assert_eq!(place(&engine, python("place")).await, 1);
    assert!(begun.elapsed() < ms(10), "{:?}", begun.elapsed());
    assert_eq!((pool(&engine, PYTHON).taken, pool(&engine, PYTHON).missed), (2, 0));
    settle().await;
    assert_pool(&engine, PYTHON, 2, 2);
    assert_eq!((fake.opened(), fake.sandboxes()), (4, 2), "two more were prepared, and the used ones are gone");
}

#[tokio::test(start_paused = true)]
async fn a_burst_past_the_pool_opens_its_own() {
    let settings = Settings { runs_max: 10, pool: Some(pool_of(4)), ..Settings::default() };
    let (fake, engine, _) = engine_on(Manners { open_takes: ms(50), ..Manners::default() }, settings);
    settle().await;
    let runs: Vec<_> = (0..10).map(|_| spawn(&engine, python("place\nsleep 20"))).collect();
    let mut places = HashSet::new();
    for run in runs {
        places.insert(run.await.unwrap());
    }
    assert_eq!(places.len(), 10);
    assert_eq!((pool(&engine, PYTHON).taken, pool(&engine, PYTHON).missed), (2, 8));
    assert!(places.iter().all(|place| fake.spec_of(*place) == Some(usual(PYTHON))), "none has less of a wall");
    settle().await;
    assert_pool(&engine, PYTHON, 4, 4);
}

#[tokio::test(start_paused = true)]
async fn a_created_sandbox_may_be_a_prepared_one() {
    let (fake, engine) = engine();
    settle().await;
    assert_eq!(created(&engine, CreateRequest::default()).await, 0);
    settle().await;
    assert_eq!((pool(&engine, PYTHON).taken, engine.sandboxes(&me()).len()), (1, 1));
    engine.destroy(&me(), engine.sandboxes(&me())[0].id.as_str()).await.unwrap();
    assert_eq!((fake.sandboxes(), pool(&engine, PYTHON).ready), (2, 2), "it did not come back");
    assert_eq!(place(&engine, python("place")).await, 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_one_of_another_spec() {
    let manners = Manners {
        interpreters: vec![(Language::Python, "python-3.12".into()), (Language::JavaScript, "node-20".into())],
        ..Manners::default()
    };
    let own = Template { name: "own".into(), env: vec![("B".into(), "2".into())], ..Template::default() };
    let settings = Settings { pool: Some(pool_of(32)), templates: vec![own], ..Settings::default() };
    let (fake, engine, _) = engine_on(manners, settings);
    let limits = Limits { memory_bytes: 256 * MIB, disk_bytes: 192 * MIB, ..Limits::default() };
    let wish = Wish { memory_bytes: Some(256 * MIB), ..Wish::default() };
    let env = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let template = |name: &str| CreateRequest { template: Some(name.into()), ..CreateRequest::default() };
    let asked = [
        (CreateRequest::default(), usual(PYTHON)),
        (CreateRequest { wish, ..CreateRequest::default() }, Spec { limits, ..usual(PYTHON) }),
        (
            CreateRequest { env: env("A", "1"), ..CreateRequest::default() },
            Spec { env: env("A", "1"), ..usual(PYTHON) },
        ),
        (
            CreateRequest { env: env("A", "2"), ..CreateRequest::default() },
            Spec { env: env("A", "2"), ..usual(PYTHON) },
        ),
        (template("own"), Spec { env: env("B", "2"), ..usual(PYTHON) }),
        (template("python-3.12"), Spec { ground: Ground::of(&["python-3.12".into()]), ..usual(PYTHON) }),
        (template("node"), Spec { ground: Ground::of(&["node-20".into()]), ..usual(Some(Language::JavaScript)) }),
    ];
    for round in 0..3 {
        for (request, spec) in &asked {
            settle().await;
            assert_eq!(fake.spec_of(created(&engine, request.clone()).await).as_ref(), Some(spec), "round {round}");
        }
    }
    let taken: Vec<u64> = engine.prepared().iter().map(|pool| pool.taken).collect();
    // What has an environment is prepared from the second time on.
    assert_eq!(taken, [3, 2, 1, 1, 1, 2, 2], "each was prepared too, and handed out");
}

/// Nothing is asked of a kernel here, and all else still is.
#[tokio::test(start_paused = true)]
async fn nobody_gets_one_of_another_spec_though_any_kernel_will_do() {
    let manners = Manners { languages: vec![Language::JavaScript], ..Manners::default() };
    let own = Template { name: "own".into(), ground: Ground::of(&["own".into()]), ..Template::default() };
    let settings = Settings { pool: Some(pool_of(32)), templates: vec![own], ..Settings::default() };
    let (fake, engine, _) = engine_on(manners, settings);
    place(&engine, cell(Language::JavaScript, "place")).await;
    settle().await;
    let spec = async |request| fake.spec_of(created(&engine, request).await).unwrap();
    let usual = CreateRequest::default;
    let env = vec![("A".to_owned(), "1".to_owned())];
    let wish = Wish { processes: Some(9), ..Wish::default() };
    let limits = Limits { processes: 9, ..Limits::default() };
    let ground = Ground::of(&["own".to_owned()]);
    let template = Some("own".to_owned());
    assert_eq!(spec(CreateRequest { env: env.clone(), ..usual() }).await, Spec { env, ..super::usual(None) });
    assert_eq!(spec(CreateRequest { wish, ..usual() }).await, Spec { limits, ..super::usual(None) });
    assert_eq!(spec(CreateRequest { template, ..usual() }).await, Spec { ground, ..super::usual(None) });
    assert_eq!(spec(usual()).await, super::usual(Some(Language::JavaScript)), "this one fits");
}

#[tokio::test(start_paused = true)]
async fn a_program_asks_for_the_kernel_that_runs_it() {
    let (fake, engine) = engine();
    let waiting = async |request| fake.spec_of(place(&engine, request).await).unwrap().waiting;
    // Three of each at least, so that some come out of a pool.
    for _ in 0..3 {
        settle().await;
        assert_eq!(waiting(python("place")).await, PYTHON);
        assert_eq!(waiting(cell(Language::JavaScript, "place")).await, Some(Language::JavaScript));
        assert_eq!(waiting(cell(Language::TypeScript, "place")).await, Some(Language::JavaScript));
        assert_eq!(waiting(cell(Language::Shell, "place")).await, Some(Language::Shell));
    }
    assert!(engine.prepared().iter().all(|pool| pool.taken >= 2), "{:?}", engine.prepared());
}

#[tokio::test(start_paused = true)]
async fn who_needs_no_kernel_takes_what_there_is() {
    let code = Source::Code { language: Language::Python, code: "place".into() };
    for source in [Source::Command("place".into()), code, cell(Language::Go, "place").program.source] {
        let (fake, engine) = engine_with(Manners { open_takes: ms(50), ..Manners::default() }, pool_of(32));
        settle().await;
        let first = spawn(&engine, request(source.clone())).await.unwrap();
        let second = spawn(&engine, request(source.clone())).await.unwrap();
        assert_eq!((first, second), (0, 1), "the two that were prepared for Python");
        let third = spawn(&engine, request(source.clone())).await.unwrap();
        assert_eq!(fake.spec_of(third), Some(usual(None)), "there was none, and no kernel is started for nobody");
        settle().await;
        assert_pool(&engine, PYTHON, 2, 2);
        let fourth = spawn(&engine, request(source)).await.unwrap();
        assert_eq!(fake.spec_of(fourth), Some(usual(None)), "by now they have a pool of their own");
        assert_eq!((pool(&engine, None).taken, pool(&engine, None).missed), (3, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_environment_of_the_programs_own_needs_no_sandbox_of_its_own() {
    let (_, engine) = engine();
    settle().await;
    let mut request = python("env A\nplace");
    request.program.env = vec![("A".into(), "b".into())];
    let run = engine.run(&me(), request).await.unwrap();
    assert_eq!(run.report.stdout, b"b\n0\n");
}

#[tokio::test(start_paused = true)]
async fn one_that_fell_is_passed_over_and_closed() {
    let (fake, engine) = engine();
    settle().await;
    assert_pool(&engine, PYTHON, 2, 2);
    fake.topple();
    assert_eq!(place(&engine, python("place")).await, 2, "a new one, since both had fallen");
    assert_eq!((pool(&engine, PYTHON).taken, pool(&engine, PYTHON).missed), (0, 1));
    settle().await;
    assert_pool(&engine, PYTHON, 2, 2);
    assert_eq!(fake.sandboxes(), 2, "nothing is left of the fallen");
}

#[tokio::test(start_paused = true)]
async fn what_is_prepared_waits_for_no_teardown() {
    let manners = Manners { close_takes: secs(20), ..Manners::default() };
    let (fake, engine) = engine_with(manners, pool_of(2));
    settle().await;
    for _ in 0..64 {
        place(&engine, python("place")).await;
        sleep(ms(5)).await;
    }
    assert_eq!((fake.sandboxes(), pool(&engine, PYTHON).ready), (65, 1), "64 are on their way down");
    let begun = tokio::time::Instant::now();
    place(&engine, python("place")).await;
    assert!(begun.elapsed() < ms(10), "{:?}", begun.elapsed());
    settle().await;
    assert_eq!(pool(&engine, PYTHON).ready, 0, "no more are opened beside so many");
    place(&engine, python("place")).await;
    assert!(begun.elapsed() > secs(15), "who has to open one waits: {:?}", begun.elapsed());
    assert_eq!((pool(&engine, PYTHON).taken, pool(&engine, PYTHON).missed), (65, 1));
    settle().await;
    assert!(pool(&engine, PYTHON).ready > 0);
}
