use belljar_meters::Spans;

use super::*;

fn watch() -> (Watch, Spans) {
    let meters = Arc::new(Meters::new());
    let (tracer, spans) = Tracer::new(meters.clone());
    (Watch { meters, tracer: Some(tracer), readiness: Readiness::default() }, spans)
}

fn about(method: &str, parent: Option<&str>) -> About {
    let parent = parent.and_then(SpanContext::parse);
    About { method: Method::of(method), tool: None, version: None, transport: "pipe", parent }
}

#[tokio::test]
async fn a_request_is_counted_and_told_with_its_parent() {
    let (watch, mut spans) = watch();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    watch.over(about("tools/list", Some(parent)), async { Ok(()) }).await.unwrap();
    let span = spans.try_recv().unwrap();
    assert_eq!(span.parent.map(|id| id.to_string()).as_deref(), Some("b7ad6b7169203331"));
    assert_eq!(span.context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!((span.name.as_str(), span.status), ("tools/list", Status::Unset));

    let unwanted = parent.replace("-01", "-00");
    watch.over(about("tools/list", Some(&unwanted)), async { Ok(()) }).await.unwrap();
    assert!(spans.try_recv().is_err(), "whoever began the trace does not want it");

    let error = || ErrorData::invalid_params("no", None);
    let refused: Result<(), _> = watch.over(about("made/up", None), async { Err(error()) }).await;
    assert!(refused.is_err());
    let span = spans.try_recv().unwrap();
    assert_eq!((span.name.as_str(), span.status, span.parent), ("other", Status::Error, None));
    assert!(span.attributes.contains(&("error.type", "-32602".into())), "{span:?}");
    let text = watch.meters.text(&Levels::default());
    assert!(text.contains("belljar_requests_total{method=\"tools/list\",outcome=\"ok\"} 2\n"), "{text}");
    assert!(text.contains("belljar_requests_total{method=\"other\",outcome=\"error\"} 1\n"), "{text}");
}

#[tokio::test]
async fn a_request_that_is_given_up_is_told_all_the_same() {
    let (watch, mut spans) = watch();
    let given_up = watch.over(about("tools/call", None), std::future::pending::<Result<(), ErrorData>>());
    assert!(tokio::time::timeout(Duration::from_millis(1), given_up).await.is_err());
    assert!(spans.try_recv().unwrap().attributes.contains(&("error.type", "cancelled".into())));
    assert!(watch.meters.text(&Levels::default()).contains("outcome=\"cancelled\"} 1\n"));
}
