//! What is told on stderr: lines for people, or objects of JSON, one a line, for what reads logs.

use std::env;
use std::fmt;
use std::io::IsTerminal;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::filter;
use crate::config::USUAL_LOG;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Human,
    Json,
}

/// People read stderr; stdout belongs to data and to the protocol.
pub(crate) fn log(wanted: Option<LogFormat>) {
    // The configuration is not read yet, and reading it may have something to tell.
    let filter = env::var("BELLJAR_LOG").ok().and_then(|words| EnvFilter::try_new(words).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(USUAL_LOG));
    let variable = env::var("BELLJAR_LOG_FORMAT").ok().filter(|word| !word.is_empty());
    let (format, is_unknown) = match (wanted, variable.as_deref()) {
        (Some(wanted), _) => (wanted, false),
        (None, None | Some("human")) => (LogFormat::Human, false),
        (None, Some("json")) => (LogFormat::Json, false),
        (None, Some(_)) => (LogFormat::Human, true),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Human => {
            let colours = std::io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none();
            let builder = builder.with_ansi(colours).with_target(false).with_filter_reloading();
            filter::keep(builder.reload_handle());
            builder.init();
        }
        LogFormat::Json => {
            let builder = builder.with_ansi(false).event_format(JsonLines).with_filter_reloading();
            filter::keep(builder.reload_handle());
            builder.init();
        }
    }
    if is_unknown {
        tracing::warn!("BELLJAR_LOG_FORMAT is neither human nor json; human is used");
    }
}

/// `time`, `level`, `target`, `message`, and then what the event has.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        writeln!(writer, "{}", object(time, event))
    }
}

fn object(time: String, event: &Event<'_>) -> Value {
    let metadata = event.metadata();
    let mut object = Map::new();
    object.insert("time".into(), time.into());
    object.insert("level".into(), metadata.level().to_string().to_lowercase().into());
    object.insert("target".into(), metadata.target().into());
    object.insert("message".into(), Value::Null);
    event.record(&mut Fields(&mut object));
    Value::Object(object)
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    /// A field of an event's never goes in place of what every line has.
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let is_ours = matches!(name, "time" | "level" | "target");
        self.0.insert(if is_ours { format!("field.{name}") } else { name.to_owned() }, value);
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_event_is_one_object_on_one_line() {
        let paper = Paper::default();
        let writer = paper.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).event_format(JsonLines).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(count = 3, level = "loud", what = ?"x", "two\nlines \"quoted\"");
            tracing::info!(is = true, "another");
        });
        let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!((&lines[0]["level"], &lines[0]["count"]), (&"warn".into(), &3.into()));
        assert_eq!(lines[0]["field.level"], "loud");
        assert_eq!(lines[0]["message"], "two\nlines \"quoted\"");
        assert!(lines[0]["time"].as_str().unwrap().ends_with('Z'), "{text}");
        assert_eq!((&lines[1]["is"], &lines[1]["message"]), (&true.into(), &"another".into()));
    }
}
