//! How an agent reads us. Every result says the same thing twice: as structured content, and as text in the fewest
//! tokens, since a client shows its model either one.
//!
//! What a program did is a result, however badly it ended; what we failed to do is one sentence with the next step.

use std::fmt::Write;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::{Content, Ending, FileKind, Limit, Limits, Listing, State, Stream};
use belljar_engine::{Run, SandboxInfo};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::{clean, mime};

/// What a model is shown of each stream. The rest is a resource.
const STDOUT_BYTES_MAX: usize = 16 * 1024;
const STDERR_BYTES_MAX: usize = 8 * 1024;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The report of a run. `kept` says whether a whole stream can be read later.
pub(crate) fn ran(run: &Run, wall: Duration, kept: impl Fn(Stream) -> bool) -> CallToolResult {
    let report = &run.report;
    let uri = |stream, name| kept(stream).then(|| format!("belljar://runs/{}/{name}", run.id));
    let stdout = shorten(&report.stdout, STDOUT_BYTES_MAX, || uri(Stream::Stdout, "stdout"));
    let stderr = shorten(&report.stderr, STDERR_BYTES_MAX, || uri(Stream::Stderr, "stderr"));
    let cut_by_limit = report.ending == Ending::Stopped { limit: Limit::Output };

    let mut structured = json!({
        "stdout": stdout.text,
        "stderr": stderr.text,
        "exit_code": report.ending.exit_code(),
        "ending": report.ending.name(),
        "state": report.state,
        "duration_ms": millis(report.duration),
        "usage": report.usage,
        "isolation": report.isolation,
        "truncated": stdout.cut || stderr.cut || cut_by_limit,
    });
    if let Some(sandbox) = &run.sandbox {
        structured["sandbox_id"] = sandbox.as_str().into();
    }
    let uris: serde_json::Map<String, Value> = [("stdout", &stdout.uri), ("stderr", &stderr.uri)]
        .into_iter()
        .filter_map(|(name, uri)| Some((name.to_owned(), uri.clone()?.into())))
        .collect();
    if !uris.is_empty() {
        structured["output_uris"] = uris.into();
    }

    let mut text = stdout.text;
    if !stderr.text.is_empty() {
        on_new_line(&mut text, "[stderr]\n");
        text.push_str(&stderr.text);
    }
    if let Some(note) = ending_note(report.ending, wall, &run.limits) {
        on_new_line(&mut text, &note);
    }
    if let Some(note) = state_note(report.state) {
        on_new_line(&mut text, note);
    }
    if text.trim().is_empty() {
        text = "(no output)".into();
    }
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    result.is_error = Some(!report.ending.is_success());
    result
}

/// What the output alone does not say.
fn ending_note(ending: Ending, wall: Duration, limits: &Limits) -> Option<String> {
    match ending {
        Ending::Exited { code: 0 } => None,
        Ending::Exited { code } => Some(format!("[exit {code}]")),
        Ending::Killed { signal } => Some(match signal_name(signal) {
            Some(name) => format!("[killed by signal {signal} ({name})]"),
            None => format!("[killed by signal {signal}]"),
        }),
        Ending::Stopped { limit: Limit::Wall } => {
            Some(format!("[timeout after {} s; send a larger timeout, or do less at once]", wall.as_secs_f64()))
        }
        Ending::Stopped { limit: Limit::Memory } => {
            let limit = limits.memory_bytes / MIB;
            Some(format!(
                "[out of memory: limit {limit} MiB; use less, or create_sandbox with a larger limits.memory_mb]"
            ))
        }
        Ending::Stopped { limit: Limit::Output } => {
            let limit = limits.output_bytes / KIB;
            Some(format!("[stopped for too much output: limit {limit} KiB; print less, or write to a file]"))
        }
        Ending::Cancelled => Some("[cancelled]".into()),
    }
}

fn state_note(state: State) -> Option<&'static str> {
    match state {
        State::Fresh | State::Preserved => None,
        State::Reset => Some("[the sandbox was reset: what earlier calls left in it is gone]"),
        State::Lost => Some("[sandbox lost: nothing of it remains; call create_sandbox for a new one]"),
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS, a system call that the sandbox forbids",
        _ => return None,
    })
}

pub(crate) fn created(info: &SandboxInfo) -> CallToolResult {
    let limits = info.limits;
    let (memory, disk, output) = (limits.memory_bytes / MIB, limits.disk_bytes / MIB, limits.output_bytes / KIB);
    let cpus = f64::from(limits.cpu_milli) / 1000.0;
    let text = format!(
        "sandbox_id: {}\nremoved after {} s without use; memory {memory} MiB, {cpus} CPUs, disk {disk} MiB, no network; files in {}",
        info.id,
        info.idle.as_secs(),
        belljar_core::WORKSPACE,
    );
    let structured = json!({
        "sandbox_id": info.id.as_str(),
        "idle_seconds": info.idle.as_secs(),
        "expires_in_seconds": info.expires_in.as_secs(),
        "limits": {
            "memory_mb": memory,
            "cpus": cpus,
            "processes": limits.processes,
            "open_files": limits.open_files,
            "disk_mb": disk,
            "output_kb": output,
        },
        "isolation": info.isolation,
    });
    done(text, structured)
}

pub(crate) fn destroyed(sandbox: &str) -> CallToolResult {
    done("destroyed".into(), json!({"sandbox_id": sandbox}))
}

pub(crate) fn wrote(path: &str, size: usize) -> CallToolResult {
    let path = clean::reveal(path);
    done(format!("wrote {size} bytes to {path}"), json!({"path": path, "size": size}))
}

/// How a file's bytes are to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Text as text, pictures as pictures, the rest as base64.
    Auto,
    Utf8,
    Base64,
}

#[derive(Debug)]
pub(crate) struct FilePart<'a> {
    pub(crate) path: &'a str,
    pub(crate) offset: u64,
    pub(crate) content: Content,
    pub(crate) encoding: Encoding,
}

pub(crate) fn read(part: FilePart<'_>) -> CallToolResult {
    let FilePart { path, offset, content: Content { bytes, size }, encoding } = part;
    let is_whole = offset == 0 && bytes.len() as u64 >= size;
    if encoding == Encoding::Auto
        && is_whole
        && let Some(mime_type) = mime::image(&bytes)
    {
        let structured =
            json!({"size": size, "offset": 0, "length": bytes.len(), "mime_type": mime_type, "more": false});
        let mut result = done(format!("{mime_type}, {size} bytes"), structured);
        result.content.push(ContentBlock::image(STANDARD.encode(&bytes), mime_type));
        return result;
    }
    let whole_characters = (encoding == Encoding::Auto).then(|| text_part(&bytes, offset, size)).flatten();
    let (skipped, text) = match (encoding, whole_characters) {
        (Encoding::Auto, Some((skipped, text))) => (skipped, Some(std::borrow::Cow::Borrowed(text))),
        (Encoding::Utf8, _) => (0, Some(String::from_utf8_lossy(&bytes))),
        (_, _) => (0, None),
    };
    // With utf-8 asked for, what is not text is replaced in place: the offsets stay those of the bytes.
    let length = match (&text, encoding) {
        (Some(text), Encoding::Auto) => text.len(),
        (_, _) => bytes.len(),
    };
    let offset = offset.saturating_add(skipped as u64);
    let end = offset.saturating_add(length as u64);
    let more = end < size;
    let mut structured = json!({
        "size": size,
        "offset": offset,
        "length": length,
        "mime_type": mime::of(path, &bytes),
        "more": more,
    });
    let mut note = String::new();
    let mut body = match text {
        Some(text) => {
            let shown = clean::reveal(&text);
            if matches!(shown, std::borrow::Cow::Owned(_)) {
                note.push_str("[hidden characters are shown as \\u{..}; encoding base64 gives the exact bytes]\n");
            }
            structured["encoding"] = "utf-8".into();
            shown.into_owned()
        }
        None => {
            structured["encoding"] = "base64".into();
            STANDARD.encode(&bytes)
        }
    };
    structured["content"] = body.as_str().into();
    if more {
        // Writing to a String cannot fail.
        let _ = write!(note, "[bytes {offset} to {end} of {size}; go on with offset {end}]");
    } else if body.is_empty() {
        note = if size == 0 {
            "(empty file)".into()
        } else {
            format!("(nothing at offset {offset}; the file has {size} bytes)")
        };
    }
    if !note.is_empty() {
        on_new_line(&mut body, note.trim_end());
    }
    done(body, structured)
}

/// The bytes as text, if they are text but for characters that the range cut at its ends; and how many bytes of one were
/// left out at the beginning.
fn text_part(bytes: &[u8], offset: u64, size: u64) -> Option<(usize, &str)> {
    let skipped = if offset == 0 { 0 } else { bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count() };
    let bytes = &bytes[skipped..];
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let is_cut_end = error.error_len().is_none() && offset + ((skipped + bytes.len()) as u64) < size;
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            if !is_cut_end || rest.len() > 3 || valid.is_empty() {
                return None;
            }
            std::str::from_utf8(valid).ok()?
        }
    };
    // What is mostly hidden characters is no text that anyone reads, and grows when they are shown.
    let hidden = text.bytes().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
    (!text.contains('\0') && hidden <= text.len() / 16).then_some((skipped, text))
}

pub(crate) fn listed(listing: &Listing) -> CallToolResult {
    let entries: Vec<Value> = listing
        .entries
        .iter()
        .map(|entry| {
            json!({
                "path": clean::reveal(&entry.path),
                "kind": entry.metadata.kind,
                "size": entry.metadata.size,
                "modified": entry.metadata.modified,
            })
        })
        .collect();
    done(listing_text(listing), json!({"entries": entries, "truncated": listing.truncated}))
}

/// One line for each entry: kind, size, path.
pub(crate) fn listing_text(listing: &Listing) -> String {
    let mut text = String::new();
    for entry in &listing.entries {
        let kind = match entry.metadata.kind {
            FileKind::File => "file",
            FileKind::Directory => "dir",
            FileKind::Symlink => "link",
            FileKind::Other => "other",
        };
        // A name may hold a newline; it must not look like another entry.
        let path = clean::reveal(&entry.path).replace('\n', "\\n").replace('\r', "\\r");
        let _ = writeln!(text, "{kind} {} {path}", entry.metadata.size);
    }
    if listing.truncated {
        text.push_str("[there is more; list a subdirectory, or with a smaller depth]");
    }
    if text.is_empty() {
        text.push_str("(empty directory)");
    }
    text
}

/// Our own failure: one sentence with the next step.
pub(crate) fn refused(sentence: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(format!("error: {}", clean::reveal(sentence)))])
}

fn done(text: String, structured: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    result
}

fn on_new_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
struct Shortened {
    text: String,
    cut: bool,
    uri: Option<String>,
}

/// A stream as clean text of about `budget` bytes: all of it, or its head and its tail.
fn shorten(bytes: &[u8], budget: usize, uri: impl FnOnce() -> Option<String>) -> Shortened {
    // Cleaning can shrink a stream (colours) and grow it (NULs); only what can be shown is worth cleaning.
    let window = budget * 4;
    let (head, tail) = if bytes.len() <= 2 * window {
        (clean::clean(bytes), None)
    } else {
        let (head, tail) = (&bytes[..window], &bytes[bytes.len() - window..]);
        let tail = &tail[tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()..];
        (clean::clean(head), Some(clean::clean(tail)))
    };
    if tail.is_none() && head.len() <= budget {
        return Shortened { text: head, cut: false, uri: None };
    }
    let head_shown = head_of(&head, budget / 2);
    let tail_shown = tail_of(tail.as_deref().unwrap_or(&head), budget / 2);
    // Of the text as it is shown, where all of it was made; else of the stream, which is longer by far.
    let whole = if tail.is_none() { head.len() } else { bytes.len() };
    let left_out = whole.saturating_sub(head_shown.len() + tail_shown.len());
    let uri = uri();
    let mut text = head_shown.to_owned();
    let place = uri.as_ref().map(|uri| format!("; whole output: {uri}")).unwrap_or_default();
    on_new_line(&mut text, &format!("... [{left_out} bytes left out{place}] ...\n"));
    text.push_str(tail_shown);
    Shortened { text, cut: true, uri }
}

/// The first `budget` bytes or a little less, up to the end of a line if one is near.
fn head_of(text: &str, budget: usize) -> &str {
    let end = text.floor_char_boundary(budget);
    let near = text.floor_char_boundary(budget - budget / 4);
    match text[near..end].rfind('\n') {
        Some(at) => &text[..near + at + 1],
        None => &text[..end],
    }
}

/// The last `budget` bytes or a little less, from the beginning of a line if one is near.
fn tail_of(text: &str, budget: usize) -> &str {
    let start = text.ceil_char_boundary(text.len().saturating_sub(budget));
    let near = text.ceil_char_boundary((start + budget / 4).min(text.len()));
    match text[start..near].find('\n') {
        Some(at) => &text[start + at + 1..],
        None => &text[start..],
    }
}

#[cfg(test)]
mod tests;
