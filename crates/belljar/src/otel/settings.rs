//! What the variables of OpenTelemetry say, as far as it concerns us.

use std::fmt;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// More than anyone writes.
const ATTRIBUTES_MAX: usize = 64;

#[derive(Clone, PartialEq)]
pub(crate) struct Settings {
    /// `None` where this kind is not wanted.
    pub(super) traces: Option<Url>,
    pub(super) metrics: Option<Url>,
    /// Most often a key.
    pub(super) headers: HeaderMap,
    pub(super) resource: Vec<(String, String)>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

impl Settings {
    /// `None` where nobody named a collector, or nothing is to be sent. `Err` has a sentence for the operator.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Settings>, String> {
        let variable =
            |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        if variable("OTEL_SDK_DISABLED").is_some_and(|word| word.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let address = |signal: &str, path: &str| -> Result<Option<Url>, String> {
            if variable(&format!("OTEL_{signal}_EXPORTER")).is_some_and(|word| word.eq_ignore_ascii_case("none")) {
                return Ok(None);
            }
            let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
            if let Some(whole) = variable(&own) {
                return url(&own, &whole).map(Some);
            }
            let Some(base) = variable("OTEL_EXPORTER_OTLP_ENDPOINT") else { return Ok(None) };
            url("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("{}{path}", base.trim_end_matches('/'))).map(Some)
        };
        let traces = address("TRACES", "/v1/traces")?;
        let metrics = address("METRICS", "/v1/metrics")?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        if variable("OTEL_EXPORTER_OTLP_PROTOCOL").is_some_and(|word| word.eq_ignore_ascii_case("grpc")) {
            let sentence = "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, which is not spoken here; name the collector's address for \
                            HTTP (mostly port 4318) and http/json";
            return Err(sentence.to_owned());
        }
        let mut resource = pairs("OTEL_RESOURCE_ATTRIBUTES", variable("OTEL_RESOURCE_ATTRIBUTES").as_deref())?;
        let named = variable("OTEL_SERVICE_NAME")
            .or_else(|| resource.iter().find(|(name, _)| name == "service.name").map(|(_, value)| value.clone()));
        resource.retain(|(name, _)| name != "service.name" && name != "service.version");
        resource.insert(0, ("service.name".to_owned(), named.unwrap_or_else(|| "belljar".to_owned())));
        resource.insert(1, ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        let mut headers = HeaderMap::new();
        let name = "OTEL_EXPORTER_OTLP_HEADERS";
        for (key, value) in pairs(name, variable(name).as_deref())? {
            let wrong = || format!("{name} has a header that cannot be sent; write NAME=VALUE,NAME=VALUE");
            let key = HeaderName::try_from(key).map_err(|_| wrong())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(Some(Settings { traces, metrics, headers, resource }))
    }
}

fn url(name: &str, text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| format!("{name} is no address; write such as http://localhost:4318"))
}

/// `name=value` with commas between, and what is neither of them written as `%2C`. The values are in no sentence.
fn pairs(name: &str, text: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    for pair in text.unwrap_or_default().split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let wrong = || format!("{name} cannot be read; write NAME=VALUE,NAME=VALUE, at most {ATTRIBUTES_MAX}");
        let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
        let (key, value) = (decoded(key.trim()), decoded(value.trim()));
        if key.is_empty() || pairs.len() >= ATTRIBUTES_MAX {
            return Err(wrong());
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
