use belljar_core::Language;
use belljar_testkit::fake::{Fake, Manners};

use super::*;

const GOOD: &str = "print canary passed a\nprint network passed b\nprint processes none c\nprint seccomp passed d";

fn acted(checks: &'static str, memory: &'static str) -> Made {
    Made { programs: Programs::acted(checks, memory), _facts: None }
}

fn fine(_: &dyn Backend) -> Result<Made, String> {
    Ok(acted(GOOD, "oom"))
}

fn holed(_: &dyn Backend) -> Result<Made, String> {
    Ok(acted(
        "print canary fired it sings\nprint network passed b\nprint processes passed c\nprint seccomp passed d",
        "oom",
    ))
}

fn hangs(_: &dyn Backend) -> Result<Made, String> {
    Ok(acted("hang", "oom"))
}

fn states(verdicts: &[Verdict]) -> Vec<(&str, State)> {
    verdicts.iter().map(|verdict| (verdict.probe, verdict.state)).collect()
}

async fn tried(checks: &'static str, memory: &'static str) -> Result<Vec<Verdict>, NotTested> {
    let fake = Fake::new(Manners::default());
    let tested = attempt(&*fake, &acted(checks, memory).programs, &CancellationToken::new()).await;
    assert_eq!(fake.sandboxes(), 0, "whatever came of it, it is closed");
    tested
}

#[tokio::test(start_paused = true)]
async fn each_probe_has_its_verdict() {
    use State::{Fired, NotApplicable, Passed};
    let verdicts = tried(GOOD, "oom").await.unwrap();
    let expected = [
        ("canary", Passed),
        ("network", Passed),
        ("processes", NotApplicable),
        ("seccomp", Passed),
        ("memory", Passed),
    ];
    assert_eq!(states(&verdicts), expected);
    let verdicts = tried(GOOD, "print took").await.unwrap();
    assert_eq!(states(&verdicts)[4], ("memory", Fired));
    assert_eq!(states(&tried(GOOD, "crash").await.unwrap())[4], ("memory", Passed));
    let fired = GOOD.replace("network passed", "network fired").leak();
    let verdicts = tried(fired, "exit 0").await.unwrap();
    assert_eq!(verdicts[1], Verdict { probe: "network", state: Fired, words: "b".into() });
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_has_not_passed() {
    for (checks, memory) in [
        ("print canary passed", "oom"),
        ("exit 1", "oom"),
        ("oom", "oom"),
        ("hang", "oom"),
        ("crash", "oom"),
        ("print canary perhaps\nprint network passed\nprint processes passed\nprint seccomp passed", "oom"),
        (GOOD, "refuse"),
        // It may have all the memory that it wants by now, and be about to say so.
        (GOOD, "hang"),
        // The sandbox was gone before the program could take anything.
        (GOOD, "lose"),
    ] {
        let tested = tried(checks, memory).await;
        assert!(matches!(tested, Err(NotTested::Undone(_))), "{checks} {memory}: {tested:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_opened_before_it_has_passed() {
    let fake = Fake::new(Manners { start_takes: Duration::from_millis(100), ..Manners::default() });
    let (gate, readiness) = (Gate::new(), Readiness::default());
    let held = Held::around(fake.clone(), gate.clone());
    let test = SelfTest::begin_with(fake.clone(), gate, readiness.clone(), fine);
    assert!(readiness.check().is_err());
    let sandbox = held.open(&Spec::default()).await.unwrap();
    assert_eq!((readiness.check(), fake.started()), (Ok(()), 2));
    sandbox.close().await.unwrap();
    test.end().await;
    assert_eq!(fake.sandboxes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wall_with_a_hole_opens_nothing_and_says_which() {
    let fake = Fake::new(Manners::default());
    let (gate, readiness) = (Gate::new(), Readiness::default());
    let held = Held::around(fake.clone(), gate.clone());
    let test = SelfTest::begin_with(fake.clone(), gate, readiness.clone(), holed);
    assert_eq!(test.fired().await, "canary: it sings");
    let refused = held.open(&Spec::default()).await.unwrap_err();
    assert!(matches!(&refused, BackendError::Unavailable { why, .. } if why.contains("canary")), "{refused:?}");
    assert!(readiness.check().unwrap_err().contains("do not hold"));
    assert_eq!(fake.asked(), 1);
    test.end().await;
    assert_eq!(fake.sandboxes(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_it_could_not_be_done_it_is_tried_again_for_who_asks() {
    let fake = Fake::new(Manners { open_fails: Some("no room"), ..Manners::default() });
    let (gate, readiness) = (Gate::new(), Readiness::default());
    let held = Held::around(fake.clone(), gate.clone());
    let test = SelfTest::begin_with(fake.clone(), gate, readiness.clone(), fine);
    let refused = held.open(&Spec::default()).await.unwrap_err();
    assert!(matches!(&refused, BackendError::Unavailable { why, .. } if why.contains("no room")), "{refused:?}");
    assert!(readiness.check().unwrap_err().contains("could not be tested"));
    fake.fail_opens(None);
    held.open(&Spec::default()).await.unwrap().close().await.unwrap();
    assert_eq!(readiness.check(), Ok(()));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn where_it_could_not_be_done_it_is_tried_again_without_anybody() {
    let fake = Fake::new(Manners { open_fails: Some("no room"), ..Manners::default() });
    let readiness = Readiness::default();
    let test = SelfTest::begin_with(fake.clone(), Gate::new(), readiness.clone(), fine);
    tokio::time::sleep(PAUSE_MIN / 2).await;
    assert!(readiness.check().unwrap_err().contains("could not be tested"));
    fake.fail_opens(None);
    tokio::time::sleep(PAUSE_MIN).await;
    assert_eq!(readiness.check(), Ok(()));
    test.end().await;
}

/// The server may end at any moment of it.
#[tokio::test(start_paused = true)]
async fn its_sandbox_is_closed_however_soon_the_server_ends() {
    for after in [0, 1, 50, 150, 400] {
        let half = Duration::from_millis(100);
        let fake = Fake::new(Manners { open_takes: half, start_takes: half, close_takes: half, ..Manners::default() });
        let test = SelfTest::begin_with(fake.clone(), Gate::new(), Readiness::default(), hangs);
        tokio::time::sleep(Duration::from_millis(after)).await;
        test.end().await;
        assert_eq!((fake.sandboxes(), fake.programs()), (0, 0), "after {after} ms");
    }
}

#[test]
fn programs_are_in_what_is_there() {
    let facts = Facts::look().unwrap();
    let python = Programs::of(&[Language::Shell, Language::Python], &facts).unwrap();
    let shell = Programs::of(&[Language::Shell, Language::Go], &facts).unwrap();
    assert!(Programs::of(&[Language::Go], &facts).is_none());
    let is_in = |programs: &Programs, language: Language| match programs.checks() {
        belljar_core::Source::Code { language: of, code } => of == language && code.contains(&facts.song),
        _ => false,
    };
    assert!(is_in(&python, Language::Python) && is_in(&shell, Language::Shell));
}
