//! An answer while it is made: what the other system would have said, and beside it pictures and notes, all within the
//! characters that a model is given at once.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value};

use crate::answer::shorten_text;
use crate::clean;

/// Of all text of an answer together.
const CHARS_MAX: usize = 20_000;
const NOTES_CHARS_MAX: usize = 1_500;
/// Kept free for the note that something was left out.
const SLACK_CHARS: usize = 300;
/// No more of a stream than this is looked at from either end.
const WINDOW_BYTES: usize = 64 * 1024;
const IMAGES_MAX: usize = 16;
const IMAGES_CHARS_MAX: usize = 12 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: Body,
    pub(super) images: Vec<Image>,
    /// What the other system has no place for.
    pub(super) notes: Vec<String>,
    /// Where the whole can be read, should the body be shortened.
    pub(super) whole: Option<String>,
    pub(super) verdict: Verdict,
}

#[derive(Debug)]
pub(super) enum Body {
    Text(String),
    /// JSON as text.
    Json(Value),
    /// The same, and as structured content too.
    Object(Value),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    /// Base64.
    pub(super) data: String,
    pub(super) mime_type: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Bad,
}

impl Verdict {
    pub(super) fn of(is_good: bool) -> Verdict {
        if is_good { Verdict::Good } else { Verdict::Bad }
    }
}

impl Reply {
    pub(super) fn new(body: Body, verdict: Verdict) -> Reply {
        Reply { body, images: Vec::new(), notes: Vec::new(), whole: None, verdict }
    }

    pub(super) fn text(text: impl Into<String>) -> Reply {
        Reply::new(Body::Text(text.into()), Verdict::Good)
    }

    pub(super) fn finish(self) -> CallToolResult {
        let mut notes = self.notes;
        let spoken: usize = notes.iter().map(|note| chars(note) + 1).sum::<usize>().min(NOTES_CHARS_MAX);
        let budget = CHARS_MAX - SLACK_CHARS - spoken;
        let mut structured = None;
        let (text, cut) = match self.body {
            Body::Text(text) => fit_text(text, budget),
            Body::Json(value) => {
                let (value, cut) = fit(value, budget);
                (value.to_string(), cut)
            }
            Body::Object(value) => {
                let (value, cut) = fit(value, budget);
                let text = value.to_string();
                structured = Some(value);
                (text, cut)
            }
        };
        if cut {
            let place = self.whole.map(|uri| format!("; whole output: {uri}")).unwrap_or_default();
            notes.push(format!("[the answer was shortened{place}]"));
        }
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        result.structured_content = structured;
        result.is_error = Some(self.verdict == Verdict::Bad);
        let mut room = IMAGES_CHARS_MAX;
        for image in self.images.into_iter().take(IMAGES_MAX) {
            let Some(left) = room.checked_sub(image.data.len()) else { break };
            room = left;
            result.content.push(ContentBlock::image(image.data, image.mime_type));
        }
        if !notes.is_empty() {
            let (notes, _) = fit_text(notes.join("\n"), NOTES_CHARS_MAX + SLACK_CHARS);
            result.content.push(ContentBlock::text(notes));
        }
        result
    }
}

/// What a program printed, clean; of very much only its head and its tail.
pub(super) fn stream(bytes: &[u8]) -> String {
    if bytes.len() <= 2 * WINDOW_BYTES {
        return clean::clean(bytes);
    }
    let (head, tail) = (&bytes[..WINDOW_BYTES], &bytes[bytes.len() - WINDOW_BYTES..]);
    let left_out = bytes.len() - 2 * WINDOW_BYTES;
    format!("{}\n... [{left_out} bytes left out] ...\n{}", clean::clean(head), clean::clean(tail))
}

pub(super) fn chars(text: &str) -> usize {
    text.chars().count()
}

fn fit_text(text: String, budget: usize) -> (String, bool) {
    if chars(&text) <= budget {
        return (text, false);
    }
    (shorten_text(&text, budget), true)
}

/// The value with its strings, and if need be its lists, so much shorter that it fits as text.
fn fit(value: Value, budget: usize) -> (Value, bool) {
    if chars(&value.to_string()) <= budget {
        return (value, false);
    }
    let strings = [budget, 14_000, 10_000, 7_000, 5_000, 3_500, 2_500, 1_500, 1_000, 500, 250, 120];
    let lists = [200, 100, 50, 20, 10, 5, 2, 0];
    let steps = strings.iter().map(|max| (*max, usize::MAX)).chain(lists.iter().map(|max| (120, *max)));
    for (string_max, items_max) in steps {
        let shorter = cut(&value, string_max, items_max);
        if chars(&shorter.to_string()) <= budget {
            return (shorter, true);
        }
    }
    (Value::String("there is more here than an answer can hold".into()), true)
}

fn cut(value: &Value, string_max: usize, items_max: usize) -> Value {
    match value {
        Value::String(text) if text.len() > string_max => Value::String(shorten_text(text, string_max)),
        Value::Array(items) => items.iter().take(items_max).map(|item| cut(item, string_max, items_max)).collect(),
        Value::Object(map) => {
            let entry = |(key, inner): (&String, &Value)| {
                // A part of a picture shows nothing; whoever puts one here keeps it small.
                let is_picture = ["png", "jpeg", "data"].contains(&key.as_str());
                let inner = if is_picture { inner.clone() } else { cut(inner, string_max, items_max) };
                (key.clone(), inner)
            };
            map.iter().map(entry).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all_text(result: &CallToolResult) -> usize {
        result.content.iter().filter_map(|block| block.as_text()).map(|text| chars(&text.text)).sum()
    }

    #[test]
    fn every_answer_fits() {
        let long = "é\n\"".repeat(20_000);
        let items: Vec<Value> = (0..10_000).map(|n| json!({"name": format!("file {n}"), "size": n})).collect();
        for body in [
            Body::Text(long.clone()),
            Body::Json(json!({"stdout": long, "stderr": long, "more": [long, long, {"deep": long}]})),
            Body::Json(json!(items)),
            Body::Object(json!({"a": long})),
            Body::Json(json!(vec![long.clone(); 40])),
        ] {
            let mut reply = Reply::new(body, Verdict::Good);
            reply.notes = vec![long.clone(), "second".into()];
            reply.whole = Some("belljar://runs/run_0/stdout".into());
            let result = reply.finish();
            assert!(all_text(&result) <= CHARS_MAX, "{}", all_text(&result));
            let notes = &result.content.last().unwrap().as_text().unwrap().text;
            assert!(notes.contains("belljar://runs/run_0/stdout"), "{notes}");
        }
    }

    #[test]
    fn what_fits_is_not_touched() {
        let result = Reply::text("as it is").finish();
        assert_eq!((result.content.len(), result.content[0].as_text().unwrap().text.as_str()), (1, "as it is"));
        let text = "x".repeat(CHARS_MAX - SLACK_CHARS);
        assert_eq!(Reply::text(text.clone()).finish().content[0].as_text().unwrap().text, text);
    }

    #[test]
    fn head_and_tail_stay() {
        let shown = shorten_text(&format!("begin{}end", "é".repeat(1000)), 200);
        assert!(shown.starts_with("begin") && shown.ends_with("end") && chars(&shown) <= 200, "{shown}");
        let seen = stream(&[b"a".repeat(200_000), b"z".to_vec()].concat());
        assert!(seen.ends_with('z') && seen.contains("bytes left out"), "{}", seen.len());
    }

    #[test]
    fn pictures_are_bounded() {
        let mut reply = Reply::text("");
        let image = Image { data: "A".repeat(IMAGES_CHARS_MAX / 3), mime_type: "image/png" };
        reply.images = vec![image; 20];
        assert_eq!(reply.finish().content.len(), 1 + 3);
    }
}
