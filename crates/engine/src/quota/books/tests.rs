use super::*;

fn ann() -> Principal {
    Principal::new("ann")
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, EngineError>, bound: Bound, limit: u64) -> Option<Duration> {
    match answer {
        Err(EngineError::OverQuota(over)) => {
            assert_eq!((over.bound, over.limit), (bound, limit));
            over.frees
        }
        other => panic!("not refused for {bound:?}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn sandboxes_and_memory_are_held_and_given_back() {
    let books = Books::new(Quota { sandboxes: Some(2), memory_mb: Some(100), ..Quota::default() });
    let one = books.hold_sandbox(&ann(), 40 * MIB).unwrap();
    let two = books.hold_sandbox(&ann(), 40 * MIB).unwrap();
    refused(books.hold_sandbox(&ann(), MIB), Bound::Sandboxes, 2);
    refused(books.hold_memory(&ann(), 21 * MIB), Bound::Memory, 100);
    let run = books.hold_memory(&ann(), 20 * MIB).unwrap();
    books.hold_sandbox(&Principal::new("bob"), 100 * MIB).unwrap();
    drop(one);
    refused(books.hold_sandbox(&ann(), 41 * MIB), Bound::Memory, 100);
    books.hold_sandbox(&ann(), 40 * MIB).unwrap();
    drop((two, run));
    assert_eq!(books.known(), 0, "nothing is kept of who has nothing");
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_processor_time_is_used_up_and_comes_back() {
    let books = Books::new(Quota { cpu_seconds: Some(60), ..Quota::default() });
    books.charge_cpu(&ann(), Duration::from_millis(59_999));
    books.may_run(&ann()).unwrap();
    tokio::time::advance(Duration::from_secs(600)).await;
    books.charge_cpu(&ann(), Duration::from_secs(5));
    let frees = refused(books.may_run(&ann()), Bound::Cpu, 60).unwrap();
    assert_eq!(frees, Duration::from_secs(3060));
    books.may_run(&Principal::new("bob")).unwrap();
    tokio::time::advance(frees - Duration::from_secs(1)).await;
    refused(books.may_run(&ann()), Bound::Cpu, 60);
    tokio::time::advance(Duration::from_secs(1)).await;
    books.may_run(&ann()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn traffic_is_charged_by_the_megabyte() {
    let books = Books::new(Quota { egress_mb: Some(1), ..Quota::default() });
    books.charge_egress(&ann(), MIB - 1);
    books.may_move(&ann()).unwrap();
    books.charge_egress(&ann(), 1);
    let frees = refused(books.may_move(&ann()), Bound::Egress, 1).unwrap();
    assert_eq!(frees, Duration::from_secs(3660));
    let told = EngineError::OverQuota(Over { bound: Bound::Egress, limit: 1, frees: Some(frees) }).to_string();
    assert_eq!(told, "your quota of 1 MB an hour over the network is used up; try again in about 3660 s");
    books.may_run(&ann()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_own_word_goes_before_everyones_field_by_field() {
    let books = Books::new(Quota { sandboxes: Some(1), memory_mb: Some(10), ..Quota::default() });
    let own = ann().with_quota(Arc::new(Quota { sandboxes: Some(2), ..Quota::default() }));
    let _one = books.hold_sandbox(&own, MIB).unwrap();
    let _two = books.hold_sandbox(&own, MIB).unwrap();
    refused(books.hold_sandbox(&own, MIB), Bound::Sandboxes, 2);
    refused(books.hold_memory(&own, 9 * MIB), Bound::Memory, 10);
    books.change(Quota { memory_mb: Some(20), ..Quota::default() });
    books.hold_memory(&own, 9 * MIB).unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_quota_nothing_is_refused_or_kept() {
    let books = Books::new(Quota::default());
    books.charge_cpu(&Principal::local(), Duration::from_secs(1_000_000));
    books.charge_egress(&Principal::local(), u64::MAX);
    books.may_run(&Principal::local()).unwrap();
    books.may_move(&Principal::local()).unwrap();
    let holds: Vec<_> = (0..1000).map(|_| books.hold_sandbox(&Principal::local(), u64::MAX / 2).unwrap()).collect();
    drop(holds);
    assert_eq!(books.known(), 0);
}

#[tokio::test(start_paused = true)]
async fn accounts_are_bounded() {
    let books = Books::new(Quota { cpu_seconds: Some(1), ..Quota::default() });
    for n in 0..ACCOUNTS_MAX {
        books.charge_cpu(&Principal::new(&n.to_string()), Duration::from_secs(1));
    }
    assert_eq!(books.known(), ACCOUNTS_MAX);
    assert!(matches!(books.may_run(&ann()), Err(EngineError::Busy)));
    refused(books.may_run(&Principal::new("0")), Bound::Cpu, 1);
    tokio::time::advance(Duration::from_secs(3700)).await;
    books.may_run(&ann()).unwrap();
    assert_eq!(books.known(), 1, "those of another hour are gone");
}

#[test]
fn two_at_once_never_get_more_than_there_is() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let books =
        runtime.block_on(async { Books::new(Quota { sandboxes: Some(3), memory_mb: Some(5), ..Quota::default() }) });
    let most = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let Ok(hold) = books.hold_sandbox(&ann(), 2 * MIB) else { continue };
                    let (have, memory) = {
                        let accounts = books.accounts();
                        let account = &accounts.of[&ann()];
                        (account.sandboxes, account.memory_bytes)
                    };
                    assert!(have <= 2 && memory <= 5 * MIB, "{have} {memory}");
                    most.fetch_max(have as usize, std::sync::atomic::Ordering::Relaxed);
                    drop(hold);
                }
            });
        }
    });
    assert!(most.into_inner() >= 1);
    assert_eq!(books.known(), 0);
}
