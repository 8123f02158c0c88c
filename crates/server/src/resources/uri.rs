//! The names of resources, read and written.
//!
//! ```text
//! belljar://<sandbox>/<path>          a file; a directory if the path is empty or ends with a slash
//! belljar://runs/<run>/               what is kept of a run
//! belljar://runs/<run>/<output>       stdout, stderr, result.<ending>, shown-<n>.<ending>, and originals of pictures
//! belljar://runs/<run>/files/<path>   a file that a throw-away sandbox left
//! ```
//!
//! A part of a file or output is asked for by a query (see [`super::query`]).

use belljar_core::Stream;
use belljar_engine::{RunId, SandboxId};

use super::query::{Part, Query};

const SCHEME: &str = "belljar://";
/// The name in the sandbox's place that leads to outputs. No sandbox is called so.
const RUNS: &str = "runs";
const FILES: &str = "files";
const URI_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    File {
        sandbox: String,
        path: String,
    },
    Directory {
        sandbox: String,
        path: String,
    },
    /// What there is of a run.
    Run {
        run: String,
    },
    Output {
        run: String,
        name: String,
    },
    LeftFile {
        run: String,
        path: String,
    },
}

/// Which of a run's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Result,
    /// Counted from 1.
    Shown(usize),
}

const SHAPE: &str =
    "a resource is belljar://SANDBOX_ID/PATH or belljar://runs/RUN_ID/stdout; list_files shows the paths";

/// Reads a URI strictly: what could be read in two ways is refused.
pub(crate) fn parse(uri: &str) -> Result<(Target, Query), String> {
    if uri.len() > URI_BYTES_MAX {
        return Err("the URI is too long; use read_file".into());
    }
    let rest = uri.strip_prefix(SCHEME).ok_or(SHAPE)?;
    if rest.contains('#') {
        return Err("a resource has no fragment; write # as %23".into());
    }
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Query::parse(query)?),
        None => (rest, Query::default()),
    };
    let (place, path) = rest.split_once('/').ok_or(SHAPE)?;
    if !is_id(place) {
        return Err(SHAPE.into());
    }
    let target = if place == RUNS { of_run(path)? } else { in_sandbox(place, path)? };
    if query.part != Part::Whole && matches!(target, Target::Directory { .. } | Target::Run { .. }) {
        return Err("a directory has no parts; leave out what follows the ?".into());
    }
    Ok((target, query))
}

fn in_sandbox(sandbox: &str, path: &str) -> Result<Target, String> {
    let sandbox = sandbox.to_owned();
    let path = decoded_path(path)?;
    Ok(match path.as_str() {
        "" => Target::Directory { sandbox, path: ".".into() },
        directory if directory.ends_with('/') => Target::Directory { sandbox, path },
        _ => Target::File { sandbox, path },
    })
}

fn of_run(path: &str) -> Result<Target, String> {
    let (run, name) = path.split_once('/').ok_or(SHAPE)?;
    if !is_id(run) {
        return Err(SHAPE.into());
    }
    let run = run.to_owned();
    if let Some(path) = name.strip_prefix(FILES).and_then(|rest| rest.strip_prefix('/')) {
        let path = decoded_path(path)?;
        return if path.is_empty() { Err(SHAPE.into()) } else { Ok(Target::LeftFile { run, path }) };
    }
    if name.is_empty() {
        return Ok(Target::Run { run });
    }
    // Ours, so nothing in it needs to be encoded.
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')) {
        return Err(SHAPE.into());
    }
    Ok(Target::Output { run, name: name.to_owned() })
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn decoded_path(path: &str) -> Result<String, String> {
    let path = percent_decode(path).ok_or("the path is not percent-encoded UTF-8; write % as %25")?;
    if path.contains('\0') {
        return Err("the path has a NUL byte; leave it out".into());
    }
    Ok(path)
}

/// Decodes once. `None` for a `%` that is not followed by two digits, and for bytes that are not UTF-8.
pub(super) fn percent_decode(text: &str) -> Option<String> {
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

fn percent_encode(path: &str) -> String {
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

pub(super) fn output(run: &RunId, name: &str) -> String {
    format!("{SCHEME}{RUNS}/{run}/{name}")
}

/// The ending that stands for a mime type, and that type as we tell it. The type itself may come from a program, so only
/// those that we know are passed on.
pub(super) fn ending(mime_type: &str) -> (&'static str, &'static str) {
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
