use std::pin::pin;

use belljar_core::{Capabilities, Language, Later, Probe};
use belljar_testkit::fake::{Fake, Manners};

use super::*;

const GOOD: &str = "print canary passed a\nprint network passed b\nprint processes none c\nprint seccomp passed d";

const HOLED: &str =
    "print canary fired it sings\nprint network passed b\nprint processes passed c\nprint seccomp passed d";

fn acted(checks: &'static str, memory: &'static str) -> Made {
    Made { programs: vec![Programs::acted(checks, memory)], _facts: None }
}

fn fine(_: &dyn Backend, _: &Ground) -> Result<Made, String> {
    Ok(acted(GOOD, "oom"))
}

fn holed(_: &dyn Backend, _: &Ground) -> Result<Made, String> {
    Ok(acted(HOLED, "oom"))
}

fn hangs(_: &dyn Backend, _: &Ground) -> Result<Made, String> {
    Ok(acted("hang", "oom"))
}

fn holed_beside(_: &dyn Backend, ground: &Ground) -> Result<Made, String> {
    Ok(acted(if ground.is_own() { GOOD } else { HOLED }, "oom"))
}

fn one_wall() -> Gates {
    Gates::new("fake", &[])
}

fn template(wall: Option<&str>, image: Option<&str>) -> Template {
    let own = |word: Option<&str>| word.map(str::to_owned);
    let ground = Ground { wall: own(wall), image: own(image), interpreters: vec!["node-20".into()] };
    Template { ground, ..Template::default() }
}

fn behind(wall: &str) -> Spec {
    Spec { ground: Ground { wall: Some(wall.to_owned()), ..Ground::default() }, ..Spec::default() }
}

/// A server's own wall, and another for what names one.
#[derive(Debug)]
struct Two {
    own: Arc<Fake>,
    other: Arc<Fake>,
}

impl Backend for Two {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn probe(&self) -> Probe {
        self.own.probe()
    }

    fn capabilities(&self) -> Capabilities {
        self.own.capabilities()
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        if spec.ground.wall.as_deref() == Some("other") { self.other.open(spec) } else { self.own.open(spec) }
    }
}

impl Two {
    fn new(other: Manners) -> (Arc<Two>, Gates) {
        let two = Two { own: Fake::new(Manners::default()), other: Fake::new(other) };
        (Arc::new(two), Gates::new("fake", &[template(Some("other"), None)]))
    }
}

fn states(verdicts: &[Verdict]) -> Vec<(&str, State)> {
    verdicts.iter().map(|verdict| (verdict.probe, verdict.state)).collect()
}

async fn tried(checks: &'static str, memory: &'static str) -> Result<Vec<Verdict>, NotTested> {
    let fake = Fake::new(Manners::default());
    let tested = attempt(&*fake, &Ground::default(), &acted(checks, memory).programs, &CancellationToken::new()).await;
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
    let (gates, readiness) = (one_wall(), Readiness::default());
    let held = Held::around(fake.clone(), gates.clone());
    let test = SelfTest::begin_with(fake.clone(), gates, readiness.clone(), fine);
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
    let (gates, readiness) = (one_wall(), Readiness::default());
    let held = Held::around(fake.clone(), gates.clone());
    let mut test = SelfTest::begin_with(fake.clone(), gates, readiness.clone(), holed);
    assert_eq!(test.fired().await, "canary: it sings (behind fake)");
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
    let (gates, readiness) = (one_wall(), Readiness::default());
    let held = Held::around(fake.clone(), gates.clone());
    let test = SelfTest::begin_with(fake.clone(), gates, readiness.clone(), fine);
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
    let test = SelfTest::begin_with(fake.clone(), one_wall(), readiness.clone(), fine);
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
        let test = SelfTest::begin_with(fake.clone(), one_wall(), Readiness::default(), hangs);
        tokio::time::sleep(Duration::from_millis(after)).await;
        test.end().await;
        assert_eq!((fake.sandboxes(), fake.programs()), (0, 0), "after {after} ms");
    }
}

#[test]
fn programs_are_in_what_is_there() {
    let facts = Facts::look().unwrap();
    let of = |languages: &[Language]| Programs::of(languages, &facts).unwrap();
    let both = of(&[Language::Shell, Language::Python]);
    let [python, _] = &both[..] else { panic!("{both:?}") };
    let only = of(&[Language::Shell, Language::Go]);
    let [shell] = &only[..] else { panic!("{only:?}") };
    assert!(of(&[Language::Go]).is_empty());
    let is_in = |programs: &Programs, language: Language| match programs.checks() {
        belljar_core::Source::Code { language: of, code } => of == language && code.contains(&facts.song),
        _ => false,
    };
    assert!(is_in(python, Language::Python) && is_in(shell, Language::Shell));
}

#[test]
fn each_wall_that_a_template_names_is_tested_once() {
    let gates = Gates::new(
        "native",
        &[
            template(None, Some("debian")),
            template(Some("native"), None),
            template(Some("docker"), Some("a")),
            template(Some("gvisor"), None),
            template(Some("docker"), Some("b")),
            template(Some("docker"), Some("a")),
        ],
    );
    let ground =
        |wall: &str, image: Option<&str>| Ground { interpreters: Vec::new(), ..template(Some(wall), image).ground };
    let told: Vec<_> = gates.0.iter().map(|gate| (gate.wall.as_str(), gate.grounds.clone())).collect();
    let expected = [
        ("native", vec![Ground::default()]),
        ("docker", vec![ground("docker", Some("a")), ground("docker", Some("b"))]),
        ("gvisor", vec![ground("gvisor", None)]),
    ];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_is_ready_when_all_its_walls_have_passed_and_opens_behind_each_as_soon_as_it_has() {
    let slow = Duration::from_secs(30);
    let (two, gates) = Two::new(Manners { open_takes: slow, ..Manners::default() });
    let readiness = Readiness::default();
    let held = Held::around(two.clone(), gates.clone());
    let test = SelfTest::begin_with(two.clone(), gates, readiness.clone(), fine);
    held.open(&Spec::default()).await.unwrap().close().await.unwrap();
    held.open(&behind("fake")).await.unwrap().close().await.unwrap();
    assert_eq!(two.other.opened(), 0);
    assert!(readiness.check().unwrap_err().contains("being tested"), "the other's is not");
    held.open(&behind("other")).await.unwrap().close().await.unwrap();
    assert_eq!((readiness.check(), two.other.opened()), (Ok(()), 2));
    let refused = held.open(&behind("unheard-of")).await.unwrap_err();
    assert!(matches!(&refused, BackendError::Unavailable { why, .. } if why.contains("not tested")), "{refused:?}");
    test.end().await;
    assert_eq!((two.own.sandboxes(), two.other.sandboxes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hole_in_a_templates_wall_ends_the_server_too() {
    let (two, gates) = Two::new(Manners::default());
    let readiness = Readiness::default();
    let held = Held::around(two.clone(), gates.clone());
    let mut test = SelfTest::begin_with(two.clone(), gates, readiness.clone(), holed_beside);
    assert_eq!(test.fired().await, "canary: it sings (behind other)");
    let refused = held.open(&behind("other")).await.unwrap_err();
    assert!(matches!(&refused, BackendError::Unavailable { why, .. } if why.contains("canary")), "{refused:?}");
    assert!(readiness.check().unwrap_err().contains("do not hold"));
    assert_eq!(two.other.asked(), 1, "by the test alone");
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_templates_wall_that_is_not_there_keeps_the_server_unready_and_nobody_else_waiting() {
    let (two, gates) = Two::new(Manners { open_fails: Some("no engine"), ..Manners::default() });
    let readiness = Readiness::default();
    let held = Held::around(two.clone(), gates.clone());
    let mut test = SelfTest::begin_with(two.clone(), gates, readiness.clone(), fine);
    held.open(&Spec::default()).await.unwrap().close().await.unwrap();
    let refused = held.open(&behind("other")).await.unwrap_err();
    assert!(matches!(&refused, BackendError::Unavailable { why, .. } if why.contains("no engine")), "{refused:?}");
    assert!(readiness.check().unwrap_err().contains("other could not be tested"));
    assert!(tokio::time::timeout(PAUSE_MAX, pin!(test.fired())).await.is_err(), "nothing has fired");
    two.other.fail_opens(None);
    held.open(&behind("other")).await.unwrap().close().await.unwrap();
    assert_eq!(readiness.check(), Ok(()));
    test.end().await;
}

/// A wall whose places lack what this one's template names.
#[derive(Debug)]
struct WithoutImage(Arc<Fake>);

impl Backend for WithoutImage {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn probe(&self) -> Probe {
        self.0.probe()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        let lacks = || BackendError::Lacks { what: "there is no image".into(), instead: "build it".into() };
        match spec.ground.image.as_deref() {
            Some("missing") => Box::pin(std::future::ready(Err(lacks()))),
            _ => self.0.open(spec),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_not_there_is_in_nobodys_way() {
    let wall = Arc::new(WithoutImage(Fake::new(Manners::default())));
    let templates = [template(Some("other"), Some("missing")), template(Some("other"), Some("there"))];
    let gates = Gates::new("fake", &templates);
    let readiness = Readiness::default();
    let held = Held::around(wall.clone(), gates.clone());
    let test = SelfTest::begin_with(wall, gates, readiness.clone(), fine);
    held.open(&behind("other")).await.unwrap().close().await.unwrap();
    assert_eq!(readiness.check(), Ok(()));
    test.end().await;
}
