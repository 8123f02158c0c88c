use belljar_core::{Language, Program, Source, Stdin};
use belljar_engine::{CreateRequest, Engine, Outside, Principal, RunRequest, Settings, Wants};
use belljar_testkit::fake::{Fake, Manners};

use super::*;

fn traced() -> (Tracer, Spans, Engine) {
    let (tracer, spans) = Tracer::new(Arc::new(Meters::new()));
    let outside = Outside { observers: vec![Arc::new(tracer.clone())], ..Outside::default() };
    let engine = Engine::with_outside(Fake::new(Manners::default()), Settings::default(), outside);
    (tracer, spans, engine)
}

fn program(code: &str) -> RunRequest {
    let source = Source::Code { language: Language::Python, code: code.to_owned() };
    let (env, stdin, wall) = (Vec::new(), Stdin::empty(), Duration::from_secs(5));
    let program = Program { source, env, cwd: None, stdin, wall, changed_max: 0 };
    RunRequest { sandbox: None, program, wants: Wants::default() }
}

fn all(spans: &mut Spans) -> Vec<Span> {
    std::iter::from_fn(|| spans.try_recv().ok()).collect()
}

#[tokio::test]
async fn a_run_is_below_the_request_that_asked_for_it() {
    let (tracer, mut spans, engine) = traced();
    let request = tracer.begin(None).unwrap();
    let work = async {
        engine.run(&Principal::local(), program("exit 3")).await.unwrap();
        engine.create(&Principal::local(), CreateRequest::default()).await.unwrap();
    };
    tracer.within(request, work).await;
    let told = all(&mut spans);
    let find = |name: &str| told.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {told:?}"));
    let (run, wait, open) = (find("run"), find("wait"), find("open sandbox"));
    assert_eq!((run.parent, run.context.trace), (Some(request.span), request.trace));
    assert_eq!(wait.parent, Some(run.context.span));
    assert_eq!(open.parent, Some(request.span));
    assert!(run.attributes.contains(&("belljar.exit_code", Attribute::Number(3))), "{run:?}");
    assert_eq!(run.status, Status::Unset, "what a program did is no error of ours");
}

#[tokio::test]
async fn a_call_is_below_its_run_and_what_nobody_wants_kept_is_not() {
    let (tracer, mut spans, engine) = traced();
    let unwanted = SpanContext { is_sampled: false, ..tracer.begin(None).unwrap() };
    tracer.within(unwanted, engine.run(&Principal::local(), program("print a"))).await.unwrap();
    engine.run(&Principal::local(), program("print a")).await.unwrap();
    assert_eq!(all(&mut spans), [], "nor is what no request asked for");

    let request = tracer.begin(None).unwrap();
    let call = async { tracer.called("unknown", None, ("files", "read\n"), "timeout", Duration::from_millis(5)) };
    tracer.within(request, call).await;
    let told = all(&mut spans);
    assert_eq!((told[0].parent, told[0].name.as_str()), (Some(request.span), "tools/call files.read "));
    assert_eq!((told[0].kind, told[0].status), (Kind::Client, Status::Error));
    tracer.called("unknown", None, ("files", "read"), "ok", Duration::ZERO);
    assert_eq!(all(&mut spans), [], "a call of nobody's has no trace");
}

#[tokio::test]
async fn a_full_queue_drops_and_counts() {
    let meters = Arc::new(Meters::new());
    let (tracer, mut spans) = Tracer::new(meters.clone());
    let context = tracer.begin(None).unwrap();
    for _ in 0..QUEUE + 5 {
        tracer.lasted(&context, "wait", Duration::ZERO, Vec::new());
    }
    assert_eq!(all(&mut spans).len(), QUEUE);
    assert!(meters.text(&crate::Levels::default()).contains("belljar_spans_dropped_total 5\n"));
}

#[test]
fn runs_that_never_begin_are_forgotten() {
    let context = SpanContext::below(None).unwrap();
    let mut runs = Runs::default();
    for number in 0..RUNS_MAX + 10 {
        runs.add(&number.to_string(), Asked { context, parent: context.span, at: SystemTime::now() });
    }
    assert_eq!((runs.known.len(), runs.order.len()), (RUNS_MAX, RUNS_MAX));
    assert!(!runs.known.contains_key("9") && runs.known.contains_key("10"));
}

#[tokio::test]
async fn the_span_that_another_server_is_told_of_is_the_one_that_is_sent() {
    let (tracer, mut spans, _engine) = traced();
    let request = tracer.begin(None).unwrap();
    let call = async {
        let told = tracer.calling("direct").unwrap();
        tracer.called("direct", Some(told), ("files", "read"), "ok", Duration::ZERO);
        told
    };
    let told = tracer.within(request, call).await;
    let sent = all(&mut spans);
    assert_eq!((sent[0].context, sent[0].parent, told.trace), (told, Some(request.span), request.trace));
    assert_ne!(told.span, request.span);
    let elsewhere = tracer.within(request, async { tokio::spawn(carried(async { current() })).await }).await;
    assert_eq!(elsewhere.unwrap(), Some(request), "a task of its own works for the same");
    assert_eq!(tracer.calling("direct"), None, "a call of nobody's has no trace");
}

/// Tells of a run's beginning, as a gateway would be asked while it goes on.
#[derive(Debug)]
struct Calling(Tracer, Mutex<Vec<Option<SpanContext>>>);

impl Observer for Calling {
    fn observe(&self, event: &Event<'_>) {
        if let Event::RunBegan { run, .. } = event {
            self.1.lock().unwrap().push(self.0.calling(run.as_str()));
        }
    }
}

#[tokio::test]
async fn without_a_collector_a_callers_trace_is_passed_on_and_none_is_made() {
    let tracer = Tracer::quiet(Arc::new(Meters::new()));
    assert_eq!(tracer.begin(None), None);
    let theirs = SpanContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00").unwrap();
    assert_eq!(tracer.begin(Some(&theirs)), Some(theirs));
    let calling = Arc::new(Calling(tracer.clone(), Mutex::default()));
    let observers: Vec<Arc<dyn Observer>> = vec![Arc::new(tracer.clone()), calling.clone()];
    let outside = Outside { observers, ..Outside::default() };
    let engine = Engine::with_outside(Fake::new(Manners::default()), Settings::default(), outside);
    tracer.within(theirs, engine.run(&Principal::local(), program("print a"))).await.unwrap();
    engine.run(&Principal::local(), program("print a")).await.unwrap();
    assert_eq!(*calling.1.lock().unwrap(), [Some(theirs), None]);
    assert!(tracer.runs().known.is_empty());
}
