use std::time::UNIX_EPOCH;

use belljar_meters::{Attribute, Kind, Levels, Meters, Method, SpanContext, Status};
use serde_json::json;

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
    let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    Settings::read(find)
}

const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");

#[test]
fn without_a_collector_nothing_is_sent() {
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[BASE, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
    assert_eq!(read(&[BASE, ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")]), Ok(None));
    assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), Ok(None));
}

#[test]
fn the_usual_variables_are_read() {
    let all = [
        BASE,
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://metrics.example/in"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20secret, x=1"),
        ("OTEL_SERVICE_NAME", "glass"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=test%2Cone"),
    ];
    let settings = read(&all).unwrap().unwrap();
    assert_eq!(settings.traces.as_ref().unwrap().as_str(), "http://localhost:4318/v1/traces");
    assert_eq!(settings.metrics.as_ref().unwrap().as_str(), "https://metrics.example/in");
    assert_eq!(settings.headers["api-key"], "a secret");
    assert!(settings.headers["api-key"].is_sensitive() && !format!("{settings:?}").contains("secret"));
    assert_eq!(settings.resource[0], ("service.name".into(), "glass".into()));
    assert!(settings.resource.contains(&("deployment.environment".into(), "test,one".into())));
}

#[test]
fn what_cannot_be_read_is_told_without_its_secrets() {
    for (variables, word) in [
        ([BASE, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "4318"),
        ([BASE, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "secret:x")], "OTLP_TRACES_ENDPOINT"),
        ([BASE, ("OTEL_EXPORTER_OTLP_HEADERS", "secret")], "NAME=VALUE"),
        ([BASE, ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret")], "NAME=VALUE"),
        ([BASE, ("OTEL_RESOURCE_ATTRIBUTES", "=secret")], "NAME=VALUE"),
    ] {
        let sentence = read(&variables).unwrap_err();
        assert!(sentence.contains(word) && !sentence.contains("secret"), "{sentence}");
    }
}

#[test]
fn a_span_is_written_as_the_protocol_has_it() {
    let parent = SpanContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    let own = SpanContext::parse("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01").unwrap();
    let span = Span {
        context: own,
        parent: Some(parent.span),
        name: "tools/call run_code".into(),
        kind: Kind::Server,
        begun: UNIX_EPOCH + Duration::from_secs(1),
        ended: UNIX_EPOCH + Duration::from_millis(1500),
        attributes: vec![("mcp.method.name", "tools/call".into()), ("belljar.exit_code", Attribute::Number(-1))],
        status: Status::Error,
    };
    let message = json::traces(&[("service.name".into(), "belljar".into())], &[span]);
    let scope = &message["resourceSpans"][0];
    assert_eq!(scope["resource"]["attributes"][0]["value"]["stringValue"], "belljar");
    let expected = json!({
        "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b7", "flags": 1,
        "name": "tools/call run_code", "kind": 2,
        "startTimeUnixNano": "1000000000", "endTimeUnixNano": "1500000000",
        "attributes": [
            {"key": "mcp.method.name", "value": {"stringValue": "tools/call"}},
            {"key": "belljar.exit_code", "value": {"intValue": "-1"}},
        ],
        "status": {"code": 2}, "parentSpanId": "b7ad6b7169203331",
    });
    assert_eq!(scope["scopeSpans"][0]["spans"][0], expected);
}

#[test]
fn figures_are_those_of_the_registry() {
    let meters = Meters::new();
    meters.requested(Method::of("tools/call"), "ok", Duration::from_millis(30));
    let figures = exposition::parse(&meters.text(&Levels::default())).unwrap();
    let message = json::metrics(&[], &figures, UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(1));
    let all = message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let find =
        |name: &str| all.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("{name}: {all:?}"));
    let requests = &find("belljar_requests")["sum"];
    assert_eq!((&requests["isMonotonic"], &requests["dataPoints"][0]["asDouble"]), (&json!(true), &json!(1.0)));
    let duration = find("mcp.server.operation.duration");
    let point = &duration["histogram"]["dataPoints"][0];
    assert_eq!((&duration["unit"], &point["count"]), (&json!("s"), &json!("1")));
    assert_eq!(point["attributes"][0], json!({"key": "mcp.method.name", "value": {"stringValue": "tools/call"}}));
    let (bounds, counts) = (point["explicitBounds"].as_array().unwrap(), point["bucketCounts"].as_array().unwrap());
    assert_eq!(bounds.len() + 1, counts.len());
    assert!(find("belljar_queue")["gauge"]["dataPoints"].is_array());
}
