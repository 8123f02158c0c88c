//! What a cell showed, in the forms that the surfaces have places for. All of it came from inside the walls: a picture
//! is one only if its bytes say so, and text is cleaned.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_engine::{Bundle, Run};
use serde_json::{Map, Value, json};

use super::reply::{Image, chars};
use crate::{clean, mime};

/// Of one form besides the plain text, such as a page.
const FORM_CHARS_MAX: usize = 4_000;
/// Base64 of pictures within text, of all together.
const INLINE_CHARS_MAX: usize = 6_000;

/// The places of E2B's `Result` by type.
const PLACES: &[(&str, &str)] = &[
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("application/vnd.belljar.chart+json", "chart"),
];

/// Everything shown, in order, the last value at the end.
pub(super) fn bundles(run: &Run) -> impl Iterator<Item = (&Bundle, bool)> {
    let shown = run.rich.shown.iter().map(|bundle| (bundle, false));
    shown.chain(run.rich.result.iter().map(|bundle| (bundle, true)))
}

pub(super) fn images(run: &Run) -> Vec<Image> {
    bundles(run).filter_map(|(bundle, _)| picture(bundle).map(|(image, _)| image)).collect()
}

/// The picture of a bundle, if it has one, and its bytes.
pub(super) fn picture(bundle: &Bundle) -> Option<(Image, Vec<u8>)> {
    ["image/png", "image/jpeg", "image/gif", "image/webp"].iter().find_map(|kind| {
        let data = bundle.data.get(*kind)?.as_str()?;
        let bytes = STANDARD.decode(data).ok()?;
        let mime_type = mime::image(&bytes)?;
        Some((Image { data: data.to_owned(), mime_type }, bytes))
    })
}

pub(super) fn text(bundle: &Bundle) -> Option<String> {
    bundle.data.get("text/plain")?.as_str().map(|text| clean::clean(text.as_bytes()))
}

/// The results of E2B's `Execution`, and notes on what did not fit.
pub(super) fn results(run: &Run) -> (Vec<Value>, Vec<String>) {
    let mut notes = Vec::new();
    let mut inline_left = INLINE_CHARS_MAX;
    let results = bundles(run).enumerate().map(|(at, (bundle, is_main))| {
        let (mut result, mut extra) = (Map::new(), Map::new());
        for (kind, value) in &bundle.data {
            let place = PLACES.iter().find(|(known, _)| known == kind).map(|(_, place)| *place);
            let shown = match place {
                Some("png" | "jpeg") => match picture(bundle) {
                    Some((image, _)) if image.data.len() <= inline_left => {
                        inline_left -= image.data.len();
                        Some(Value::String(image.data))
                    }
                    Some(_) => {
                        notes.push(format!("[{kind} of result {at} is in an image block]"));
                        None
                    }
                    None => None,
                },
                Some("text") => Some(clean::json(value)),
                // Half a document is none.
                _ => Some(clean::json(value)).filter(|value| {
                    let fits = chars(&value.to_string()) <= FORM_CHARS_MAX;
                    if !fits {
                        let kind = clean::clean(kind.chars().take(80).collect::<String>().as_bytes());
                        notes.push(format!("[{kind} of result {at} was left out: too long]"));
                    }
                    fits
                }),
            };
            match (place, shown) {
                (_, None) => {}
                (Some(place), Some(shown)) => drop(result.insert(place.to_owned(), shown)),
                (None, Some(shown)) => drop(extra.insert(clean::clean(kind.as_bytes()), shown)),
            }
        }
        if !extra.is_empty() {
            result.insert("extra".into(), extra.into());
        }
        result.insert("isMainResult".into(), json!(is_main));
        Value::Object(result)
    });
    let results = results.collect();
    (results, notes)
}
