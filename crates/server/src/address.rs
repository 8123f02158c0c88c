//! Where things can be read later: the addresses of files and of what runs came to. Reading them is `resources`' matter.

use belljar_core::Stream;
use belljar_engine::{RunId, SandboxId};

pub(crate) const SCHEME: &str = "belljar://";
/// The name in the sandbox's place that leads to outputs. No sandbox is called so.
pub(crate) const RUNS: &str = "runs";
pub(crate) const FILES: &str = "files";

/// Which of a run's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Result,
    /// Counted from 1.
    Shown(usize),
}

pub(crate) fn directory(sandbox: &SandboxId) -> String {
    format!("{SCHEME}{sandbox}/")
}

/// A file of a sandbox. A relative path begins at the workspace.
pub(crate) fn file(sandbox: &SandboxId, path: &str) -> String {
    format!("{SCHEME}{sandbox}/{}", percent_encode(path))
}

pub(crate) fn stream(run: &RunId, stream: Stream) -> String {
    let name = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    output(run, name)
}

/// A value in one of its forms.
pub(crate) fn form(run: &RunId, value: Value, mime_type: &str) -> String {
    let (ending, _) = ending(mime_type);
    match value {
        Value::Result => output(run, &format!("result.{ending}")),
        Value::Shown(number) => output(run, &format!("shown-{number}.{ending}")),
    }
}

/// The whole picture, where the value has a smaller copy.
pub(crate) fn original(run: &RunId, value: Value, mime_type: &str) -> String {
    let (ending, _) = ending(mime_type);
    match value {
        Value::Result => output(run, &format!("result.original.{ending}")),
        Value::Shown(number) => output(run, &format!("shown-{number}.original.{ending}")),
    }
}

pub(crate) fn left_file(run: &RunId, path: &str) -> String {
    format!("{SCHEME}{RUNS}/{run}/{FILES}/{}", percent_encode(path))
}

pub(crate) fn output(run: &RunId, name: &str) -> String {
    format!("{SCHEME}{RUNS}/{run}/{name}")
}

/// The ending that stands for a mime type, and that type as we tell it. The type itself may come from a program, so only
/// those that we know are passed on.
pub(crate) fn ending(mime_type: &str) -> (&'static str, &'static str) {
    match mime_type {
        "text/html" => ("html", "text/html"),
        "text/markdown" => ("md", "text/markdown"),
        "text/latex" => ("tex", "text/latex"),
        "text/plain" => ("txt", "text/plain"),
        "image/svg+xml" => ("svg", "image/svg+xml"),
        "image/png" => ("png", "image/png"),
        "image/jpeg" => ("jpg", "image/jpeg"),
        "image/gif" => ("gif", "image/gif"),
        "image/webp" => ("webp", "image/webp"),
        "application/pdf" => ("pdf", "application/pdf"),
        "application/json" => ("json", "application/json"),
        "application/javascript" | "text/javascript" => ("js", "text/javascript"),
        "application/vnd.plotly.v1+json" => ("plotly.json", "application/vnd.plotly.v1+json"),
        "application/vnd.belljar.chart+json" => ("chart.json", "application/vnd.belljar.chart+json"),
        "application/vnd.belljar.table+json" => ("table.json", "application/vnd.belljar.table+json"),
        other if other.ends_with("json") => ("json", "application/json"),
        other if other.starts_with("text/") => ("txt", "text/plain"),
        _ => ("bin", "application/octet-stream"),
    }
}

/// Decodes once. `None` for a `%` that is not followed by two digits, and for bytes that are not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let [high, low, after @ ..] = after else { return None };
            let digit = |byte: u8| char::from(byte).to_digit(16);
            bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

pub(crate) fn percent_encode(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.extend([byte >> 4, byte & 0xf].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])));
        }
    }
    text
}
