use belljar_core::{Language, Program, Source, Stdin};
use tokio::sync::Semaphore;

use super::*;
use crate::{Phase, RunId, Wants};

const MIB: usize = 1 << 20;

/// One that takes so much. Pages of nothing are nobody's until they are written to.
fn flight(owner: &str, bytes: usize) -> Arc<Flight> {
    let program = Program {
        source: Source::Code { language: Language::Python, code: String::new() },
        env: Vec::new(),
        cwd: None,
        stdin: Stdin::Whole(vec![0; bytes]),
        wall: Duration::from_secs(1),
        changed_max: 0,
    };
    let request = RunRequest { sandbox: None, program, wants: Wants::default() };
    let (id, owner, cancel) = (RunId::random().unwrap(), Principal::new(owner), CancellationToken::new());
    Flight::new(id, owner, request, None, Phase::default(), None, cancel).0
}

fn known(jobs: &Jobs) -> Vec<String> {
    jobs.known().iter().map(|flight| flight.owner.as_str().to_owned()).collect()
}

fn add(jobs: &Jobs, owner: &str, bytes: usize) -> Arc<Flight> {
    let flight = flight(owner, bytes);
    jobs.add(&flight, None).unwrap();
    flight
}

fn add_ended(jobs: &Jobs, owner: &str, bytes: usize) {
    add(jobs, owner, bytes).finish(Err(EngineError::ShuttingDown));
    jobs.forget();
}

#[tokio::test(start_paused = true)]
async fn ended_jobs_of_all_owners_together_are_bounded_and_the_oldest_go_first() {
    let jobs = Jobs::default();
    let runs = add(&jobs, "runs", 20 * MIB);
    for owner in 0..30 {
        add_ended(&jobs, &owner.to_string(), 20 * MIB);
    }
    let latest = (18..30).map(|owner| owner.to_string());
    let wanted: Vec<String> = ["runs".to_owned()].into_iter().chain(latest).collect();
    assert_eq!(known(&jobs), wanted, "twelve times twenty and what runs");
    runs.finish(Err(EngineError::ShuttingDown));
    jobs.forget();
    assert!(!known(&jobs).contains(&"runs".to_owned()), "it is the oldest");
}

#[tokio::test(start_paused = true)]
async fn what_was_given_to_a_program_is_its_jobs_too() {
    let jobs = Jobs::default();
    for bytes in [MIB, 10 * MIB, 30 * MIB] {
        add_ended(&jobs, "ann", bytes);
    }
    assert_eq!(known(&jobs).len(), 1, "the latest stays, and leaves no room for others");
    for _ in 0..3 {
        add_ended(&jobs, "bob", 10 * MIB);
    }
    assert_eq!(known(&jobs), ["ann", "bob", "bob"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_as_it_becomes_a_job_keeps_no_room() {
    let (jobs, room) = (Jobs::default(), Arc::new(Semaphore::new(2)));
    let slot = || room.clone().try_acquire_owned().ok();
    let (runs, ended) = (flight("ann", 0), flight("ann", 0));
    ended.finish(Err(EngineError::ShuttingDown));
    jobs.add(&ended, slot()).unwrap();
    assert_eq!(room.available_permits(), 2, "nobody is left who would give it back");
    jobs.add(&runs, slot()).unwrap();
    assert_eq!(room.available_permits(), 1);
    runs.finish(Err(EngineError::ShuttingDown));
    assert!(runs.leave_slot().is_some());
}
