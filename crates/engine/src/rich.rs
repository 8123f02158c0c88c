//! What a kernel told of a cell besides its output: the last value, what was shown, the error.
//!
//! It comes from inside the walls, so it is read strictly, in bounds, and what does not fit is left out.

use serde::Deserialize;
use serde_json::{Map, Value};

/// All records of one run together, as they came. A picture has at most some megabytes.
const BYTES_MAX: usize = 24 * 1024 * 1024;

/// The driver keeps to less.
const SHOWN_MAX: usize = 128;

/// Values in the JSON of all records together. Each takes many times the two bytes that it needs in the text.
const VALUES_MAX: usize = 500_000;

/// Forms of one thing, and the bytes of a mime type.
const FORMS_MAX: usize = 24;
const MIME_BYTES_MAX: usize = 100;

const NAMES_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 100;
const PATH_BYTES_MAX: usize = 4096;
const TEXT_BYTES_MAX: usize = 100_000;

/// The last value and whatever else is no plain output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rich {
    /// Shown on the way, in order.
    pub shown: Vec<Bundle>,
    /// The value of the last expression.
    pub result: Option<Bundle>,
    pub error: Option<Failure>,
    /// Records that were past the bounds.
    pub left_out: u32,
}

/// One thing in each of its forms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Bundle {
    /// By mime type: text, base64 for pictures, JSON for types that end so.
    pub data: Map<String, Value>,
    #[serde(default)]
    pub width: Option<u32>,
    #[serde(default)]
    pub height: Option<u32>,
    /// The whole picture, where the one in `data` is a smaller copy.
    #[serde(default)]
    pub original: Option<Original>,
    /// Where the whole picture lies in the sandbox, if it was too large to be told.
    #[serde(default)]
    pub original_path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Original {
    pub mime_type: String,
    /// Base64.
    pub data: String,
}

/// An exception that nobody caught.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Failure {
    pub name: String,
    pub value: String,
    pub traceback: String,
}

/// The names that live in a kernel, as far as it told them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Names {
    pub names: Vec<String>,
    pub count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Record {
    Show(Bundle),
    Result(Bundle),
    Error(Failure),
}

/// The records of a run while they come.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) rich: Rich,
    pub(crate) names: Option<Names>,
    bytes: usize,
    values: usize,
}

impl Told {
    /// Of a run whose own word it is not.
    pub(crate) fn failed(error: Failure) -> Told {
        Told { rich: Rich { error: Some(error), ..Rich::default() }, ..Told::default() }
    }

    pub(crate) fn take(&mut self, record: &[u8]) {
        self.bytes = self.bytes.saturating_add(record.len());
        self.values = self.values.saturating_add(values_in(record));
        if self.bytes > BYTES_MAX || self.values > VALUES_MAX {
            self.leave_out();
            return;
        }
        if let Ok(names) = serde_json::from_slice::<Names>(record) {
            self.names = Some(names.bounded());
            return;
        }
        match serde_json::from_slice(record) {
            Ok(Record::Show(bundle)) if self.rich.shown.len() < SHOWN_MAX => self.rich.shown.push(bundle.bounded()),
            Ok(Record::Show(_)) => self.leave_out(),
            Ok(Record::Result(bundle)) => self.rich.result = Some(bundle.bounded()),
            Ok(Record::Error(failure)) => self.rich.error = Some(failure.bounded()),
            Err(error) => {
                tracing::debug!(%error, "a kernel told something that is no record");
                self.leave_out();
            }
        }
    }

    fn leave_out(&mut self) {
        self.rich.left_out = self.rich.left_out.saturating_add(1);
    }
}

/// About how many values a JSON text has, without reading it as JSON.
fn values_in(json: &[u8]) -> usize {
    let (mut values, mut in_string, mut escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

/// The beginning of a text, between characters.
fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.shrink_to_fit();
    }
    text
}

impl Names {
    fn bounded(mut self) -> Names {
        self.names.truncate(NAMES_MAX);
        self.names.shrink_to_fit();
        self.names = self.names.into_iter().map(|name| cut(name, NAME_BYTES_MAX)).collect();
        self
    }
}

impl Failure {
    fn bounded(self) -> Failure {
        Failure {
            name: cut(self.name, NAME_BYTES_MAX),
            value: cut(self.value, TEXT_BYTES_MAX),
            traceback: cut(self.traceback, TEXT_BYTES_MAX),
        }
    }
}

impl Rich {
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty() && self.result.is_none() && self.error.is_none()
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let bundles = self.shown.iter().chain(&self.result).map(Bundle::bytes).sum::<usize>();
        let error = self.error.as_ref();
        bundles + error.map_or(0, |error| error.name.len() + error.value.len() + error.traceback.len())
    }
}

impl Bundle {
    /// What names no mime type, or has too many, is left out.
    fn bounded(mut self) -> Bundle {
        let is_type = |name: &str| {
            name.len() <= MIME_BYTES_MAX && name.contains('/') && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let mut left = FORMS_MAX;
        self.data.retain(|mime_type, _| {
            let kept = is_type(mime_type) && left > 0;
            left -= usize::from(kept);
            kept
        });
        self.original = self.original.filter(|original| is_type(&original.mime_type));
        self.original_path = self.original_path.filter(|path| path.len() <= PATH_BYTES_MAX);
        self
    }

    fn bytes(&self) -> usize {
        let forms = self.data.iter().map(|(mime_type, value)| mime_type.len() + size(value)).sum::<usize>();
        let original = self.original.as_ref().map_or(0, |original| original.data.len());
        forms + original + self.original_path.as_ref().map_or(0, String::len)
    }
}

/// About as much memory as it takes.
fn size(value: &Value) -> usize {
    const ITSELF: usize = 64;
    ITSELF
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(map) => map.iter().map(|(key, value)| key.len() + ITSELF + size(value)).sum(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(records: &[&str]) -> Told {
        let mut told = Told::default();
        records.iter().for_each(|record| told.take(record.as_bytes()));
        told
    }

    #[test]
    fn every_kind_of_record_is_understood() {
        let told = told(&[
            r#"{"show": {"data": {"text/plain": "a"}, "width": 3}}"#,
            r#"{"result": {"data": {"text/plain": "42"}}}"#,
            r#"{"error": {"name": "E", "value": "v", "traceback": "t"}}"#,
            r#"{"names": ["x"], "count": 1}"#,
        ]);
        assert_eq!((told.rich.shown.len(), told.rich.shown[0].width), (1, Some(3)));
        assert_eq!(told.rich.result.unwrap().data["text/plain"], "42");
        assert_eq!(told.rich.error.unwrap().name, "E");
        assert_eq!(told.names, Some(Names { names: vec!["x".into()], count: 1 }));
        assert_eq!(told.rich.left_out, 0);
    }

    #[test]
    fn what_is_no_record_is_counted_and_hurts_nobody() {
        let deep = "[".repeat(100_000);
        let told = told(&["", "null", "{", r#"{"show": 5}"#, r#"{"result": {"data": []}}"#, "\u{0}", &deep]);
        assert!(told.rich.is_empty());
        assert_eq!(told.rich.left_out, 7);
    }

    #[test]
    fn many_small_values_are_as_much_as_a_large_one() {
        let many = format!(r#"{{"show": {{"data": {{"a/b": [{}[]]}}}}}}"#, "[],".repeat(VALUES_MAX));
        assert_eq!((told(&[&many]).rich.shown.len(), told(&[&many]).rich.left_out), (0, 1));
        let text = format!(r#"{{"show": {{"data": {{"text/plain": "{}"}}}}}}"#, "[,{".repeat(VALUES_MAX));
        assert_eq!(told(&[&text]).rich.shown.len(), 1, "within a string they are no values");
        let some = Bundle {
            data: Map::from_iter([("a/b".to_owned(), Value::Array(vec![Value::Null; 1000]))]),
            ..Bundle::default()
        };
        assert!(some.bytes() > 50_000);
    }

    #[test]
    fn every_name_has_its_bound() {
        let keys: String = (0..1000).map(|n| format!(r#""x/{n}": 1,"#)).collect();
        let long = "n".repeat(2_000_000);
        let told = told(&[
            &format!(
                r#"{{"show": {{"data": {{{keys} "x/{long}": 1, "no type": 1, "a/\\nb": 1}}, "original_path": "{long}"}}}}"#
            ),
            &format!(r#"{{"error": {{"name": "{long}", "value": "{long}", "traceback": "{long}"}}}}"#),
            &format!(r#"{{"names": [{} "{long}"], "count": 9}}"#, "\"\",".repeat(1000)),
        ]);
        assert_eq!((told.rich.shown[0].data.len(), &told.rich.shown[0].original_path), (FORMS_MAX, &None));
        assert!(told.rich.bytes() < 300_000, "{}", told.rich.bytes());
        let names = told.names.unwrap().names;
        assert!(names.len() == NAMES_MAX && names.iter().all(|name| name.len() <= NAME_BYTES_MAX));
    }

    #[test]
    fn too_much_is_left_out() {
        let one = format!(r#"{{"show": {{"data": {{"image/png": "{}"}}}}}}"#, "A".repeat(BYTES_MAX / 2));
        let told = told(&[&one, &one, &one]);
        assert_eq!((told.rich.shown.len(), told.rich.left_out), (1, 2));
    }
}
