//! How an agent reads us. Every result says the same thing twice: as structured content, and as text in the fewest
//! tokens, since a client shows its model either one.
//!
//! What a program did is a result, however badly it ended; what we failed to do is one sentence with the next step.

mod around;
mod called;
mod run;
mod shorten;

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::{Content, Entry, FileKind, Listing};
use belljar_engine::SandboxInfo;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

pub(crate) use self::called::{call_failed, note as calls_note};
pub(crate) use self::run::{Told, ran, still_running};
pub(crate) use self::shorten::shorten_text;
use crate::{clean, mime};

/// What a listing has at most.
const LISTING_BYTES_MAX: usize = 1024 * 1024;

/// What a part by lines has at most.
const LINES_BYTES_MAX: usize = 256 * 1024;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

pub(crate) fn created(info: &SandboxInfo) -> CallToolResult {
    let limits = info.limits;
    let (memory, disk, output) = (limits.memory_bytes / MIB, limits.disk_bytes / MIB, limits.output_bytes / KIB);
    let cpus = f64::from(limits.cpu_milli) / 1000.0;
    let text = format!(
        "sandbox_id: {}\nremoved after {} s without use; memory {memory} MiB, {cpus} CPUs, disk {disk} MiB, network {}; files in {}",
        info.id,
        info.idle.as_secs(),
        clean::clean(info.isolation.network.as_bytes()),
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

pub(crate) fn unpacked(path: &str, count: usize, size: usize) -> CallToolResult {
    let path = clean::reveal(path);
    let text = format!("wrote {count} files, {size} bytes in all, to {path}");
    done(text, json!({"path": path, "size": size, "files": count}))
}

/// Lines `from` to `to` of a file, of which `content` is the beginning.
pub(crate) fn read_lines(path: &str, content: &Content, from: usize, to: usize) -> CallToolResult {
    let text = String::from_utf8_lossy(&content.bytes);
    let is_whole = content.bytes.len() as u64 >= content.size;
    let total = text.lines().count();
    let (mut shown, mut last, mut more) = (String::new(), from.saturating_sub(1), false);
    for line in text.lines().skip(from - 1).take(to.saturating_sub(from).saturating_add(1)) {
        let line = clean::reveal(line);
        if shown.len() + line.len() >= LINES_BYTES_MAX {
            more = true;
            break;
        }
        shown.push_str(&line);
        shown.push('\n');
        last += 1;
    }
    let structured = json!({
        "size": content.size,
        "mime_type": mime::of(path, &content.bytes),
        "encoding": "utf-8",
        "content": shown,
        "lines": format!("{from}-{last}"),
        "total_lines": total,
        "more": more || last < total || !is_whole,
    });
    let about = if is_whole { format!("{total}") } else { format!("more than {total}") };
    if last < from {
        shown = format!("(nothing from line {from} on; the file has {about} lines)");
    } else if more || last < total || from > 1 {
        on_new_line(&mut shown, &format!("[lines {from} to {last} of {about}]"));
    }
    done(shown, structured)
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
    let listing = &within(listing, LISTING_BYTES_MAX);
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

/// As many entries as fit when they are shown.
fn within(listing: &Listing, mut bytes: usize) -> Listing {
    let fits = |entry: &&Entry| {
        let shown = clean::reveal(&entry.path).len() + 32;
        let fits = shown <= bytes;
        bytes = bytes.saturating_sub(shown);
        fits
    };
    let entries: Vec<Entry> = listing.entries.iter().take_while(fits).cloned().collect();
    Listing { truncated: listing.truncated || entries.len() < listing.entries.len(), entries }
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

#[cfg(test)]
mod tests;
