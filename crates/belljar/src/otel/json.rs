//! The messages of OTLP in their JSON form: times as decimal strings, ids as hexadecimal ones.

use std::time::{SystemTime, UNIX_EPOCH};

use belljar_meters::exposition::{Figure, FigureKind, HistogramPoint, Sample};
use belljar_meters::{Attribute, Kind, Span, Status};
use serde_json::{Value, json};

const CUMULATIVE: u8 = 2;

pub(super) fn traces(resource: &[(String, String)], spans: &[Span]) -> Value {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": self::resource(resource),
        "scopeSpans": [{"scope": scope(), "spans": spans}],
    }]})
}

fn span(span: &Span) -> Value {
    let kind = match span.kind {
        Kind::Internal => 1,
        Kind::Server => 2,
        Kind::Client => 3,
    };
    let mut value = json!({
        "traceId": span.context.trace.to_string(),
        "spanId": span.context.span.to_string(),
        "flags": u8::from(span.context.is_sampled),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(span.begun),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": span.attributes.iter().map(|(name, value)| attribute(name, value)).collect::<Vec<_>>(),
        "status": if span.status == Status::Error { json!({"code": 2}) } else { json!({}) },
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = parent.to_string().into();
    }
    value
}

pub(super) fn metrics(resource: &[(String, String)], figures: &[Figure], begun: SystemTime, now: SystemTime) -> Value {
    let times = Times { begun: nanoseconds(begun), now: nanoseconds(now) };
    let metrics: Vec<Value> = figures.iter().filter_map(|figure| metric(figure, &times)).collect();
    json!({"resourceMetrics": [{
        "resource": self::resource(resource),
        "scopeMetrics": [{"scope": scope(), "metrics": metrics}],
    }]})
}

struct Times {
    begun: String,
    now: String,
}

/// `None` for one that has nothing yet.
fn metric(figure: &Figure, times: &Times) -> Option<Value> {
    if figure.samples.is_empty() {
        return None;
    }
    let point = |sample: &Sample| {
        json!({
            "attributes": labels(&sample.labels),
            "startTimeUnixNano": times.begun,
            "timeUnixNano": times.now,
            "asDouble": sample.value,
        })
    };
    let (name, unit) = named(&figure.name);
    let mut metric = json!({"name": name, "description": figure.help, "unit": unit});
    let points = || figure.samples.iter().map(point).collect::<Vec<_>>();
    match figure.kind {
        FigureKind::Gauge => metric["gauge"] = json!({"dataPoints": points()}),
        FigureKind::Counter => {
            metric["sum"] = json!({"aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points()});
        }
        FigureKind::Histogram => {
            let points: Vec<Value> = figure.histograms()?.iter().map(|point| histogram(point, times)).collect();
            metric["histogram"] = json!({"aggregationTemporality": CUMULATIVE, "dataPoints": points});
        }
    }
    Some(metric)
}

fn histogram(point: &HistogramPoint, times: &Times) -> Value {
    json!({
        "attributes": labels(&point.labels),
        "startTimeUnixNano": times.begun,
        "timeUnixNano": times.now,
        "count": point.count.to_string(),
        "sum": point.sum,
        "bucketCounts": point.counts.iter().map(u64::to_string).collect::<Vec<_>>(),
        "explicitBounds": point.bounds,
    })
}

/// The conventions' own name where there is one; ours stay as Prometheus has them.
fn named(name: &str) -> (&str, &str) {
    let unit = match name {
        "mcp_server_operation_duration_seconds" => return ("mcp.server.operation.duration", "s"),
        _ if name.ends_with("_seconds") => "s",
        _ if name.ends_with("_bytes") => "By",
        _ => "1",
    };
    (name, unit)
}

fn labels(labels: &[(String, String)]) -> Vec<Value> {
    let name = |name: &str| if name == "mcp_method_name" { "mcp.method.name".to_owned() } else { name.to_owned() };
    labels.iter().map(|(key, value)| json!({"key": name(key), "value": {"stringValue": value}})).collect()
}

fn resource(attributes: &[(String, String)]) -> Value {
    json!({"attributes": labels(attributes)})
}

fn scope() -> Value {
    json!({"name": "belljar", "version": env!("CARGO_PKG_VERSION")})
}

fn attribute(name: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({"stringValue": text}),
        Attribute::Number(number) => json!({"intValue": number.to_string()}),
    };
    json!({"key": name, "value": value})
}

/// A number of this size is none that every reader of JSON can hold.
fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos()).to_string()
}
