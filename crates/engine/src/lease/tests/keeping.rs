//! How many there are, and when.

use super::super::budget::Budget;
use super::super::pools::{Next, Pools};
use super::*;
use crate::Wish;
use crate::teardown::{Tasks, Teardowns};

const PYTHON: Option<Language> = Some(Language::Python);
const NODE: Option<Language> = Some(Language::JavaScript);

#[tokio::test(start_paused = true)]
async fn python_is_prepared_at_the_start_and_stays() {
    let (fake, engine) = engine();
    sleep(ms(20)).await;
    assert_eq!(fake.asked(), 0, "the first answer goes before it");
    settle().await;
    assert_pool(&engine, PYTHON, 2, 2);
    sleep(secs(70)).await;
    assert_pool(&engine, PYTHON, 1, 1);
    sleep(secs(3600)).await;
    assert_pool(&engine, PYTHON, 1, 1);
    assert_eq!(fake.sandboxes(), 1);
    drop(engine);
    settle().await;
    assert_nothing_left(&fake);
    assert_eq!(Arc::strong_count(&fake), 1, "no task of the engine is left");
}

#[tokio::test(start_paused = true)]
async fn without_python_nothing_is_prepared_unasked() {
    let (fake, engine) = engine_with(Manners { languages: vec![Language::Shell], ..Manners::default() }, pool_of(32));
    sleep(secs(60)).await;
    assert_eq!((fake.asked(), engine.prepared()), (0, vec![]));
    assert_eq!(fake.spec_of(created(&engine, CreateRequest::default()).await), Some(usual(None)));
}

#[tokio::test(start_paused = true)]
async fn as_many_are_kept_as_were_asked_for_at_once() {
    let (fake, engine) = engine();
    for _ in 0..20 {
        place(&engine, cell(Language::JavaScript, "place")).await;
        sleep(ms(200)).await;
    }
    assert_pool(&engine, NODE, 1, 1);
    assert_eq!(pool(&engine, NODE).missed, 1, "one was enough for all but the first");
    for _ in 0..5 {
        place(&engine, cell(Language::JavaScript, "place")).await;
    }
    settle().await;
    assert_pool(&engine, NODE, 5, 5);
    sleep(secs(35)).await;
    assert_pool(&engine, NODE, 3, 3);
    sleep(secs(30)).await;
    assert_pool(&engine, NODE, 1, 1);
    sleep(secs(4 * 60)).await;
    assert_eq!(engine.prepared().len(), 1, "nobody asked for minutes: {:?}", engine.prepared());
    assert_eq!(fake.sandboxes(), 1, "Python's");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_not_disturbed_by_what_is_prepared_for_the_next() {
    let (fake, engine) = engine();
    sleep(secs(70)).await;
    assert_pool(&engine, PYTHON, 1, 1);
    let opened = fake.opened();
    let short = spawn(&engine, python("place\nsleep 40"));
    sleep(ms(39)).await;
    assert_eq!((fake.opened(), fake.programs()), (opened, 1));
    short.await.unwrap();
    sleep(ms(1)).await;
    assert_eq!(fake.opened(), opened + 1, "as soon as it has ended");

    sleep(secs(2)).await;
    let long = spawn(&engine, python("place\nsleep 60000"));
    sleep(ms(49)).await;
    assert_eq!(fake.opened(), opened + 1);
    sleep(ms(10)).await;
    assert_eq!((fake.opened(), fake.programs()), (opened + 2, 1), "a long one is not waited for");
    long.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_refilled_while_it_lasts() {
    let settings = Settings { runs_max: 64, pool: Some(pool_of(8)), ..Settings::default() };
    let (fake, engine, _) = engine_on(Manners { open_takes: ms(2), ..Manners::default() }, settings);
    for _ in 0..8 {
        place(&engine, python("place")).await;
    }
    settle().await;
    assert_pool(&engine, PYTHON, 8, 8);
    let opened = fake.opened();
    let runs: Vec<_> = (0..5).map(|_| spawn(&engine, python("place\nsleep 60000"))).collect();
    sleep(ms(60)).await;
    assert!(fake.opened() > opened);
    assert_eq!(fake.programs(), 5);
    for run in runs {
        run.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn few_are_opened_at_once() {
    let settings = Settings { runs_max: 64, pool: Some(pool_of(8)), ..Settings::default() };
    let (fake, engine, _) = engine_on(Manners { open_takes: ms(100), ..Manners::default() }, settings);
    let runs: Vec<_> = (0..8).map(|_| spawn(&engine, python("place"))).collect();
    for run in runs {
        run.await.unwrap();
    }
    let mut most = 0;
    for _ in 0..100 {
        sleep(ms(10)).await;
        most = most.max(fake.sandboxes() - pool(&engine, PYTHON).ready);
    }
    assert_pool(&engine, PYTHON, 8, 8);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(most, (cores / 2).clamp(1, 4), "half of the cores are left to the callers");
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_kept_to() {
    for (memory_mib, max, node, python_ready) in [(100, 32, 2, 6), (256, 5, 3, 2), (2, 32, 0, 0), (256, 0, 0, 0)] {
        let pool = PoolSettings { memory_bytes: Some(memory_mib * MIB), max };
        let (fake, engine) = engine_with(Manners::default(), pool);
        let mut most = 0;
        for _ in 0..40 {
            place(&engine, cell(Language::JavaScript, "place")).await;
            place(&engine, python("place")).await;
            most = most.max(engine.prepared().iter().map(|pool| pool.ready).sum());
        }
        settle().await;
        let ready = |waiting| super::pool(&engine, waiting).ready;
        assert!(ready(NODE) <= node && ready(PYTHON) >= python_ready, "{memory_mib} {max}: {:?}", engine.prepared());
        let bytes = ready(NODE) as u64 * 40 * MIB + ready(PYTHON) as u64 * 3 * MIB;
        assert!(bytes <= memory_mib * MIB, "{memory_mib} {max}: {:?}", engine.prepared());
        assert!(most <= max && fake.sandboxes() <= max, "{memory_mib} {max}: {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn openings_that_fail_are_tried_ever_less_often_and_callers_open_their_own() {
    let (fake, engine) = engine_with(Manners { open_fails: Some("told to"), ..Manners::default() }, pool_of(32));
    sleep(secs(3600)).await;
    let asked = fake.asked();
    // 1, 2, 4 ... 32 seconds, and then one each minute, of the two that are wanted at the start.
    assert!((60..=70).contains(&asked), "{asked}");
    fake.fail_opens(None);
    assert_eq!(place(&engine, python("place")).await, 0, "a caller's own attempt is not put off");
    assert_eq!((fake.asked(), pool(&engine, PYTHON).missed), (asked + 1, 1));
    sleep(secs(61)).await;
    assert_pool(&engine, PYTHON, 1, 1);

    fake.fail_opens(Some("told to"));
    fake.topple();
    let asked = fake.asked();
    sleep(secs(10)).await;
    assert!((2..=4).contains(&(fake.asked() - asked)), "after a success it begins anew: {}", fake.asked() - asked);
}

/// A backend that panics ends an opening as an error does.
#[tokio::test(start_paused = true)]
async fn an_opening_that_never_ended_has_failed() {
    let budget = Budget { memory_bytes: 256 * MIB, max: 4 };
    let pools = Pools::new(Some(&usual(PYTHON)), budget, Teardowns::new(Tasks::new()));
    let now = tokio::time::Instant::now();
    pools.tidy(now, false);
    let Next::Open(opening) = pools.next(now) else { panic!("nothing is lacking") };
    drop(opening);
    pools.tidy(now, false);
    assert!(matches!(pools.next(now), Next::Wait(Some(until)) if until == now + secs(1)));
    pools.tidy(now + secs(1), false);
    assert!(matches!(pools.next(now + secs(1)), Next::Open(_)));
}

#[tokio::test(start_paused = true)]
async fn all_are_given_back_when_memory_is_short() {
    let settings = Settings { pool: Some(pool_of(32)), ..Settings::default() };
    let (fake, engine, available) = engine_on(Manners::default(), settings);
    for _ in 0..6 {
        place(&engine, python("place")).await;
    }
    settle().await;
    assert_eq!((pool(&engine, PYTHON).ready, fake.sandboxes()), (6, 6));
    available.store(9, Ordering::SeqCst);
    sleep(secs(6)).await;
    assert_nothing_left(&fake);
    let asked = fake.asked();
    place(&engine, python("place")).await;
    sleep(secs(20)).await;
    assert_eq!(fake.asked(), asked + 1, "the caller's own, and none ahead");
    available.store(11, Ordering::SeqCst);
    sleep(secs(20)).await;
    assert_nothing_left(&fake);
    available.store(13, Ordering::SeqCst);
    sleep(secs(6)).await;
    assert!(pool(&engine, PYTHON).ready > 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_waited_long_is_replaced() {
    let (fake, engine) = engine();
    sleep(secs(9 * 60)).await;
    let opened = fake.opened();
    sleep(secs(120)).await;
    assert_eq!((fake.opened(), fake.sandboxes()), (opened + 1, 1));
    assert_eq!(place(&engine, python("place")).await, opened);
}

#[tokio::test(start_paused = true)]
async fn an_environment_that_was_asked_for_once_is_not_prepared() {
    let (fake, engine) = engine();
    settle().await;
    let request = |value: &str| CreateRequest { env: vec![("KEY".into(), value.into())], ..CreateRequest::default() };
    for n in 0..30 {
        created(&engine, request(&n.to_string())).await;
    }
    settle().await;
    assert_eq!(fake.opened(), 32, "two for Python, and none ahead for the others");
    assert_eq!(engine.prepared().len(), 16, "no more than so many are remembered");
    sleep(secs(2)).await;
    created(&engine, request("29")).await;
    settle().await;
    assert_eq!(fake.opened(), 34, "now one is");
    for n in 100..130 {
        created(&engine, request(&n.to_string())).await;
    }
    settle().await;
    assert_eq!(fake.sandboxes(), 31 + 30 + 3, "those who come once do not displace it");
}

#[tokio::test(start_paused = true)]
async fn the_spec_that_was_asked_for_longest_ago_makes_room() {
    let (fake, engine) = engine();
    let of = |mib: u64| CreateRequest {
        wish: Wish { memory_bytes: Some(mib * MIB), ..Wish::default() },
        ..CreateRequest::default()
    };
    for mib in 100..115 {
        created(&engine, of(mib)).await;
        sleep(secs(1)).await;
    }
    assert_eq!((engine.prepared().len(), fake.sandboxes()), (16, 15 + 15 + 2), "one for each, and two for Python");
    created(&engine, of(115)).await;
    settle().await;
    assert_eq!((engine.prepared().len(), fake.sandboxes()), (16, 16 + 15 + 2));
    created(&engine, of(100)).await;
    assert_eq!(engine.prepared().iter().map(|pool| pool.taken).sum::<u64>(), 0, "the first was forgotten");
    created(&engine, of(115)).await;
    assert_eq!(engine.prepared().iter().map(|pool| pool.taken).sum::<u64>(), 1);
    assert!(pool(&engine, PYTHON).ready > 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_none() {
    let manners = Manners { open_takes: ms(300), close_takes: ms(200), ..Manners::default() };
    // In the midst of the first openings, with some ready and some on their way, and with all ready.
    for opened in [0, 3, 5] {
        let (fake, engine) = engine_with(manners.clone(), pool_of(32));
        sleep(ms(100)).await;
        let runs: Vec<_> = (0..opened).map(|_| spawn(&engine, python("place"))).collect();
        for run in runs {
            run.await.unwrap();
        }
        if opened == 5 {
            sleep(secs(3)).await;
            assert_pool(&engine, PYTHON, 5, 5);
        }
        assert!(fake.sandboxes() > 0);
        engine.shutdown().await;
        assert_nothing_left(&fake);
        assert_eq!(fake.dropped(), 0, "each was closed, and what was half open was opened for it");
        let asked = fake.asked();
        settle().await;
        assert_eq!((fake.asked(), fake.sandboxes()), (asked, 0), "and none comes later");
    }
    let (fake, engine) = engine_with(manners, pool_of(32));
    engine.shutdown().await;
    assert_eq!(fake.asked(), 0, "one that ends at once has prepared nothing");
}

#[test]
fn a_runtime_that_ends_first_leaves_none() {
    let fake = Fake::new(Manners::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let settings = Settings { pool: Some(pool_of(4)), ..Settings::default() };
    let engine = runtime.block_on(async {
        let engine = Engine::with_gauge(fake.clone(), settings, crate::Outside::default(), || Box::new(Vec::new));
        tokio::time::timeout(secs(10), fake.until_opened(2)).await.unwrap();
        engine
    });
    assert_eq!(fake.sandboxes(), 2);
    drop(runtime);
    drop(engine);
    assert_nothing_left(&fake);
}
