//! What is kept of a run, each piece by its name: its streams, its values in all their forms, the files it left.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::Stream;
use belljar_engine::{Bundle, Run, RunId};
use serde_json::Value as Json;

use crate::address::{self, Value};
use crate::{clean, mime};

#[derive(Debug)]
pub(super) struct Output<'a> {
    uri: String,
    pub(super) mime_type: &'static str,
    pub(super) content: Content<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'a> {
    Stream(&'a [u8]),
    /// A picture, or whatever else is no text.
    Base64(&'a str),
    Text(&'a str),
    Json(&'a Json),
}

impl Content<'_> {
    /// As it came. `None` if a program said that something was base64, and it is not.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Content::Stream(bytes) => Some(bytes.to_vec()),
            Content::Base64(text) => {
                // Some encoders break lines.
                let dense: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
                STANDARD.decode(dense).ok()
            }
            Content::Text(text) => Some(text.as_bytes().to_vec()),
            Content::Json(value) => Some(value.to_string().into_bytes()),
        }
    }

    fn size(&self) -> usize {
        match self {
            Content::Stream(bytes) => bytes.len(),
            Content::Base64(text) => text.trim_end_matches(['=', '\n']).len() * 3 / 4,
            Content::Text(text) => text.len(),
            Content::Json(value) => value.to_string().len(),
        }
    }
}

/// The URI, mime type and size in bytes of all that is kept of a run.
pub(crate) fn names(run: &Run) -> Vec<(String, String, usize)> {
    let outputs = outputs(run).into_iter().map(|output| {
        let size = output.content.size();
        (output.uri, output.mime_type.to_owned(), size)
    });
    let left = run.left.iter().map(|file| {
        (address::left_file(&run.id, &file.path), mime::of(&file.path, &file.bytes).to_owned(), file.bytes.len())
    });
    outputs.chain(left).collect()
}

/// Of those that are not files.
pub(super) fn find<'a>(run: &'a Run, name: &str) -> Option<Output<'a>> {
    let uri = address::output(&run.id, name);
    outputs(run).into_iter().find(|output| output.uri == uri)
}

fn outputs(run: &Run) -> Vec<Output<'_>> {
    let mut outputs = Vec::new();
    for (stream, bytes) in [(Stream::Stdout, &run.report.stdout), (Stream::Stderr, &run.report.stderr)] {
        if !bytes.is_empty() {
            let uri = address::stream(&run.id, stream);
            outputs.push(Output { uri, mime_type: "text/plain", content: Content::Stream(bytes) });
        }
    }
    if let Some(result) = &run.rich.result {
        forms(&run.id, Value::Result, result, &mut outputs);
    }
    for (at, bundle) in run.rich.shown.iter().enumerate() {
        forms(&run.id, Value::Shown(at + 1), bundle, &mut outputs);
    }
    outputs
}

fn forms<'a>(run: &RunId, value: Value, bundle: &'a Bundle, outputs: &mut Vec<Output<'a>>) {
    // Two types may have one ending; then the first has it.
    let mut taken = BTreeSet::new();
    for (mime_type, form) in &bundle.data {
        let (ending, mime_type) = address::ending(mime_type);
        if taken.insert(ending) {
            let uri = address::form(run, value, mime_type);
            outputs.push(Output { uri, mime_type, content: content(mime_type, form) });
        }
    }
    if let Some(original) = &bundle.original {
        let (_, mime_type) = address::ending(&original.mime_type);
        let uri = address::original(run, value, mime_type);
        let content =
            if is_binary(mime_type) { Content::Base64(&original.data) } else { Content::Text(&original.data) };
        outputs.push(Output { uri, mime_type, content });
    }
}

fn content<'a>(mime_type: &str, form: &'a Json) -> Content<'a> {
    match form {
        Json::String(text) if is_binary(mime_type) => Content::Base64(text),
        Json::String(text) if !mime_type.ends_with("json") => Content::Text(text),
        value => Content::Json(value),
    }
}

fn is_binary(mime_type: &str) -> bool {
    let is_picture = mime_type.starts_with("image/") && mime_type != "image/svg+xml";
    is_picture || matches!(mime_type, "application/pdf" | "application/octet-stream")
}

/// A stream as a terminal shows it.
pub(super) fn shown(content: &Content<'_>) -> Option<Vec<u8>> {
    match content {
        Content::Stream(bytes) => Some(clean::clean(bytes).into_bytes()),
        other => other.bytes(),
    }
}
