//! What a tool's result is to a program: one rule, without surprises.
//!
//! 1. A structured result is the value; the wrapper that some servers put around a plain one is taken off.
//! 2. One text that is an object or an array of JSON is that; any other text stays a text.
//! 3. Several texts are one, joined by newlines.
//! 4. Pictures, sounds and blobs are files, of which the value tells where they are; mixed with text, a list.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::Spool;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Map, Value, json};

use crate::catalogue::Tool;
use crate::error::{CallError, ErrorKind};

/// An answer that is longer goes into a file.
pub(super) const INLINE_MAX: usize = 1 << 20;

/// Blocks of one result that are looked at.
const BLOCKS_MAX: usize = 1_000;

#[derive(Debug)]
pub(super) struct Told {
    pub(super) value: Value,
    /// Whether a text was read as JSON.
    pub(super) parsed: bool,
    /// The blocks as a program gets them: with files in place of what is in them.
    pub(super) content: Vec<Value>,
    pub(super) files: Vec<Value>,
}

/// The words of a result, as the model itself would have got them.
pub(super) fn words(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text.as_str()),
            _ => None,
        },
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// What is wanted besides the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    Value,
    Blocks,
}

pub(super) async fn told(
    tool: &Tool,
    parses: bool,
    result: CallToolResult,
    keeps: Keeps,
    prefix: &str,
    spool: &dyn Spool,
) -> Result<Told, CallError> {
    let mut content = Vec::new();
    let mut files = Vec::new();
    let mut parts = Vec::new();
    for (index, block) in result.content.into_iter().take(BLOCKS_MAX).enumerate() {
        let (part, file) = match block {
            ContentBlock::Text(text) => (Value::String(text.text), None),
            ContentBlock::Image(image) => keep(spool, prefix, index, &image.data, &image.mime_type).await?,
            ContentBlock::Audio(audio) => keep(spool, prefix, index, &audio.data, &audio.mime_type).await?,
            ContentBlock::Resource(resource) => match resource.resource {
                ResourceContents::TextResourceContents { text, .. } => (Value::String(text), None),
                ResourceContents::BlobResourceContents { blob, mime_type, .. } => {
                    let mime_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                    keep(spool, prefix, index, &blob, &mime_type).await?
                }
                other => (serde_json::to_value(other).unwrap_or_default(), None),
            },
            other => (serde_json::to_value(other).unwrap_or_default(), None),
        };
        if keeps == Keeps::Blocks {
            content.push(match &part {
                Value::String(text) => json!({"type": "text", "text": text}),
                other => other.clone(),
            });
        }
        files.extend(file);
        parts.push(part);
    }
    let (value, parsed) = match result.structured_content {
        Some(structured) => (unwrapped(tool, structured), false),
        None => value(parts, parses),
    };
    Ok(Told { value, parsed, content, files })
}

/// FastMCP puts a value that is no object into `{"result": value}`, and says so in its schema.
fn unwrapped(tool: &Tool, structured: Value) -> Value {
    let wraps = |schema: &Map<String, Value>| schema.get("x-fastmcp-wrap-result") == Some(&Value::Bool(true));
    match structured {
        Value::Object(mut fields) if fields.len() == 1 && tool.output_schema.as_ref().is_some_and(wraps) => {
            fields.remove("result").unwrap_or(Value::Object(fields))
        }
        other => other,
    }
}

fn value(mut parts: Vec<Value>, parses: bool) -> (Value, bool) {
    if let [Value::String(text)] = parts.as_slice() {
        let looks = parses && text.trim_start().starts_with(['{', '[']);
        if let Some(read) = looks.then(|| serde_json::from_str::<Value>(text).ok()).flatten() {
            return (read, true);
        }
    }
    if !parts.is_empty() && parts.iter().all(Value::is_string) {
        let texts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
        return (Value::String(texts.join("\n")), false);
    }
    match parts.len() {
        0 => (Value::Null, false),
        1 => (parts.remove(0), false),
        _ => (Value::Array(parts), false),
    }
}

/// Puts what is in base64 into a file of the sandbox; a program never has it as text.
async fn keep(
    spool: &dyn Spool,
    prefix: &str,
    index: usize,
    data: &str,
    mime_type: &str,
) -> Result<(Value, Option<Value>), CallError> {
    let bad =
        || CallError::new(ErrorKind::Upstream, "the server sent a binary that is not base64; nothing of it was kept");
    let bytes = STANDARD.decode(data).map_err(|_| bad())?;
    let name = format!("{prefix}-{index}.{}", extension(mime_type));
    let size = bytes.len();
    let path = spool.keep(&name, bytes).await.map_err(|error| no_room(&error))?;
    let mime_type: String = mime_type.chars().filter(|c| !c.is_control()).take(100).collect();
    let file = json!({"file": path, "mime_type": mime_type, "bytes": size});
    Ok((file.clone(), Some(file)))
}

pub(super) fn no_room(error: &belljar_core::BackendError) -> CallError {
    let message =
        format!("the result is a file, and could not be written into the sandbox: {error}; make room below /workspace");
    CallError::new(ErrorKind::BudgetExceeded, message)
}

fn extension(mime_type: &str) -> &'static str {
    match mime_type.split(';').next().unwrap_or_default().trim() {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/mpeg" => "mp3",
        "audio/ogg" => "ogg",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        "text/csv" => "csv",
        "text/html" => "html",
        "text/plain" => "txt",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> (Value, bool) {
        value(texts.iter().map(|&text| Value::String(text.to_owned())).collect(), true)
    }

    #[test]
    fn only_objects_and_arrays_are_read() {
        assert_eq!(texts(&["{\"a\": 1}"]), (json!({"a": 1}), true));
        assert_eq!(texts(&[" [1, 2]"]), (json!([1, 2]), true));
        for plain in ["42", "true", "null", "\"x\"", "{not json", "2026-11-15", ""] {
            assert_eq!(texts(&[plain]), (json!(plain), false));
        }
        assert_eq!(value(vec![json!("[1]")], false), (json!("[1]"), false));
    }

    #[test]
    fn several_texts_are_one_and_mixed_blocks_a_list() {
        assert_eq!(texts(&["{\"a\": 1}", "b"]), (json!("{\"a\": 1}\nb"), false));
        let file = json!({"file": "/workspace/x.png"});
        assert_eq!(value(vec![file.clone()], true), (file.clone(), false));
        assert_eq!(value(vec![json!("see"), file.clone()], true), (json!(["see", file]), false));
        assert_eq!(value(Vec::new(), true), (Value::Null, false));
    }
}
