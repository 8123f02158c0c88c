use std::sync::Arc;

use tokio::task::JoinHandle;

use super::*;

fn who(name: &str) -> Principal {
    Principal::new(name)
}

/// One who waits for a turn on a task of its own, and holds it until told otherwise.
struct Caller {
    phase: Phase,
    task: JoinHandle<Result<Turn, EngineError>>,
}

fn call(admission: &Admission, name: &str, runs_max: Option<u32>) -> Caller {
    let (admission, who, phase) = (admission.clone(), who(name), Phase::default());
    let told = phase.clone();
    Caller { phase, task: tokio::spawn(async move { admission.turn(&who, runs_max, None, &told).await }) }
}

/// Lets everybody come as far as they can.
async fn breathe() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn now(admission: &Admission, name: &str) -> Turn {
    admission.turn(&who(name), None, None, &Phase::default()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_flood_puts_nobody_off_by_more_than_a_turn() {
    // Without the spare one, so that it is the order alone that does it.
    let admission = Admission::new(2, 2048);
    admission.line().spare = 0;
    let (first, _second) = (now(&admission, "ann").await, now(&admission, "ann").await);
    let flood: Vec<_> = (0..500).map(|_| call(&admission, "ann", None)).collect();
    breathe().await;
    let bob = call(&admission, "bob", None);
    breathe().await;
    assert_eq!(admission.line().waiting, 501);
    assert_eq!(bob.phase.now(), "waiting for a turn: 1 before it");
    drop(first);
    breathe().await;
    let ended: Vec<_> = flood.iter().filter(|caller| caller.task.is_finished()).collect();
    assert_eq!((ended.len(), bob.task.is_finished()), (1, false), "one of the flood, and it had come first");
    flood[0].task.abort();
    breathe().await;
    // An aborted task that had ended keeps its turn in its handle.
    let mut flood = flood.into_iter();
    drop(flood.next().unwrap().task.await.unwrap().unwrap());
    breathe().await;
    assert!(bob.task.is_finished(), "the next turn is Bob's, with 499 before him in the order of their coming");
}

#[tokio::test(start_paused = true)]
async fn all_lanes_are_served_in_turn() {
    let admission = Admission::new(1, 2048);
    admission.line().spare = 0;
    let mut turn = Some(now(&admission, "zoe").await);
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for name in ["ann", "ann", "ann", "bob", "carol", "carol"] {
        let (admission, sender) = (admission.clone(), sender.clone());
        tokio::spawn(async move {
            let turn = admission.turn(&who(name), None, None, &Phase::default()).await;
            sender.send((name, turn)).unwrap();
        });
        breathe().await;
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        drop(turn.take());
        let (name, next) = order.recv().await.unwrap();
        served.push(name);
        turn = Some(next.unwrap());
    }
    assert_eq!(served, ["ann", "bob", "carol", "ann", "carol", "ann"]);
    drop(turn);
    let line = admission.line();
    assert_eq!((line.taken, line.waiting, line.lanes.len()), (0, 0, 0), "nothing is kept of those who are gone");
}

#[tokio::test(start_paused = true)]
async fn a_few_turns_are_for_those_who_have_none() {
    let admission = Admission::new(8, 2048);
    let mut long = Vec::new();
    for _ in 0..8 {
        long.push(now(&admission, "ann").await);
    }
    let more = call(&admission, "ann", None);
    let (bob, carol) = (now(&admission, "bob").await, now(&admission, "carol").await);
    let dora = call(&admission, "dora", None);
    let second = call(&admission, "bob", None);
    breathe().await;
    assert!(!more.task.is_finished() && !dora.task.is_finished() && !second.task.is_finished(), "8 and 2 are all");
    drop(carol);
    breathe().await;
    assert!(dora.task.is_finished(), "who has none goes before those who have");
    drop(bob);
    breathe().await;
    assert!(second.task.is_finished() && !more.task.is_finished());
    drop(long);
    breathe().await;
    assert!(more.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_the_queue_is_out_of_it_at_once() {
    let admission = Admission::new(1, 4);
    admission.line().spare = 0;
    let turn = now(&admission, "ann").await;
    let gone = call(&admission, "bob", None);
    let stays = call(&admission, "bob", None);
    breathe().await;
    tokio::time::sleep(TOLD_EVERY).await;
    assert_eq!(stays.phase.now(), "waiting for a turn: 1 before it");
    assert!(matches!(call(&admission, "bob", None).task.await.unwrap(), Err(EngineError::Busy)), "half of it is full");
    gone.task.abort();
    breathe().await;
    assert_eq!(admission.line().waiting, 1);
    let other = call(&admission, "bob", None);
    breathe().await;
    assert!(!other.task.is_finished(), "there is room again");
    tokio::time::sleep(TOLD_EVERY).await;
    assert_eq!(stays.phase.now(), "waiting for a turn: 0 before it");
    assert_eq!(other.phase.now(), "waiting for a turn: 1 before it");
    drop(turn);
    breathe().await;
    assert!(stays.task.is_finished() && !other.task.is_finished());
    assert_eq!(stays.phase.now(), "", "it runs");
}

#[tokio::test(start_paused = true)]
async fn one_fills_half_of_the_queue_and_others_still_get_in() {
    let admission = Admission::new(1, 10);
    admission.line().spare = 0;
    let turn = now(&admission, "ann").await;
    let ann: Vec<_> = (0..8).map(|_| call(&admission, "ann", None)).collect();
    breathe().await;
    let refused = ann.iter().filter(|caller| caller.task.is_finished()).count();
    assert_eq!(refused, 3, "five wait");
    let others: Vec<_> =
        ["bob", "carol"].iter().flat_map(|name| (0..3).map(|_| call(&admission, name, None))).collect();
    breathe().await;
    let refused: Vec<_> = others.iter().filter(|caller| caller.task.is_finished()).collect();
    assert_eq!((refused.len(), admission.line().waiting), (1, 10), "the whole has its bound, too");
    drop(turn);
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_runs_lets_the_others_pass() {
    let admission = Admission::new(8, 100);
    let turn = |name: &'static str| {
        let admission = admission.clone();
        async move { admission.turn(&who(name), Some(2), None, &Phase::default()).await.unwrap() }
    };
    let (first, second) = (turn("ann").await, turn("ann").await);
    let third = call(&admission, "ann", Some(2));
    breathe().await;
    assert!(!third.task.is_finished());
    let _bob = turn("bob").await;
    drop(first);
    breathe().await;
    let third = third.task.await.unwrap().unwrap();
    drop((second, third));
}

#[tokio::test(start_paused = true)]
async fn jobs_count_and_take_no_turns() {
    let admission = Admission::new(1, 100);
    let mut job = admission.turn(&who("ann"), Some(2), None, &Phase::default()).await.unwrap();
    job.leave_to_others();
    job.leave_to_others();
    assert_eq!(admission.line().taken, 0, "once");
    let mut other = admission.turn(&who("ann"), Some(2), None, &Phase::default()).await.unwrap();
    let waits = call(&admission, "ann", Some(2));
    breathe().await;
    assert!(!waits.task.is_finished(), "two programs of hers run");
    other.leave_to_others();
    let refused = admission.turn(&who("ann"), Some(2), None, &Phase::default()).await.unwrap_err();
    assert!(refused.to_string().contains("2 programs at once"), "{refused}");
    drop(now(&admission, "bob").await);
    drop(job);
    breathe().await;
    assert!(waits.task.is_finished());
    drop((other, waits.task.await));
    assert!(admission.line().lanes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_full_place_is_waited_for_without_a_turn() {
    let admission = Admission::new(1, 100);
    admission.line().spare = 0;
    let place = seats(1);
    let seat = place.clone().try_acquire_owned().unwrap();
    let (other, at, phase) = (admission.clone(), place.clone(), Phase::default());
    let told = phase.clone();
    let waits = tokio::spawn(async move { other.turn(&who("ann"), None, Some(&at), &told).await });
    breathe().await;
    assert_eq!(phase.now(), "waiting for its sandbox");
    let turn = now(&admission, "ann").await;
    drop(seat);
    breathe().await;
    assert_eq!(phase.now(), "waiting for a turn: 0 before it");
    drop(turn);
    let mut turn = waits.await.unwrap().unwrap();
    assert_eq!(place.available_permits(), 0);
    turn.leave_to_others();
    assert_eq!(place.available_permits(), 1);
}

/// Many on real threads, who come, leave and give back at moments of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_never_has_more_turns_than_there_are() {
    let admission = Admission::new(4, 4000);
    let running = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut crowd = tokio::task::JoinSet::new();
    for n in 0..600u64 {
        let (admission, running) = (admission.clone(), running.clone());
        crowd.spawn(async move {
            let who = who(["ann", "bob", "carol"][n as usize % 3]);
            let patience = Duration::from_micros(n * 7919 % 30_000);
            let phase = Phase::default();
            let turn = tokio::time::timeout(patience, admission.turn(&who, Some(3), None, &phase)).await;
            if let Ok(turn) = turn {
                let _turn = turn.unwrap();
                let now = running.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                assert!(now <= 5, "{now}");
                tokio::time::sleep(Duration::from_micros(n % 700)).await;
                running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
    }
    while let Some(one) = crowd.join_next().await {
        one.unwrap();
    }
    let line = admission.line();
    assert_eq!((line.taken, line.waiting, line.lanes.len(), line.order.len()), (0, 0, 0, 0));
}
