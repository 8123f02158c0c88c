//! `write_file`, `read_file`, `list_files`. The work is done inside the sandbox's walls.

use belljar_core::{Content, Range};
use rmcp::model::CallToolResult;

use super::arguments::base64_decode;
use super::{Arguments, BadArgument, Call, ToolError, upload};
use crate::answer::{self, Encoding, FilePart};
use crate::mime;

/// What is read when the caller names no length: enough for any source file, and not a context full.
const READ_BYTES_DEFAULT: u64 = 256 * 1024;
/// An answer has it twice, escaped, and a caller that does not read keeps it in memory.
const READ_BYTES_MAX: u64 = 1024 * 1024;
const IMAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
const WRITE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How far into a file lines are counted.
const LINES_BYTES_MAX: u64 = belljar_engine::READ_BYTES_MAX;
const LIST_DEPTH_MAX: u64 = 16;
const LIST_ENTRIES_DEFAULT: u64 = 500;
const LIST_ENTRIES_MAX: u32 = belljar_engine::LIST_ENTRIES_MAX;

pub(super) async fn write(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), &["sandbox_id", "path", "content", "encoding"])?;
    let sandbox = arguments.text("sandbox_id")?;
    let path = arguments.text("path")?;
    let content = arguments.text("content")?;
    let encoding = arguments.choice("encoding", &["utf-8", "base64", "tar"])?;
    let bytes = match encoding {
        "base64" | "tar" => base64_decode(&content)
            .ok_or_else(|| BadArgument::new("content is not base64; encode it, or leave out encoding to send text"))?,
        _ => content.into_bytes(),
    };
    if bytes.len() > WRITE_BYTES_MAX {
        let sentence =
            format!("content is longer than {WRITE_BYTES_MAX} bytes; write it in parts and join them with exec");
        return Err(BadArgument::new(sentence).into());
    }
    if encoding == "tar" {
        let files = upload::unpacked(&bytes, &path)?;
        let count = files.len();
        let size = upload::write_all(&call, &sandbox, files).await?;
        return Ok(answer::unpacked(&path, count, size));
    }
    let size = bytes.len();
    call.engine.write(call.who, &sandbox, &path, bytes).await?;
    Ok(answer::wrote(&path, size))
}

pub(super) async fn read(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let allowed = &["sandbox_id", "path", "offset", "length", "lines", "encoding"];
    let mut arguments = Arguments::new(call.arguments.take(), allowed)?;
    let sandbox = arguments.text("sandbox_id")?;
    let path = arguments.text("path")?;
    let offset = arguments.optional_whole("offset", 0, i64::MAX as u64)?.unwrap_or(0);
    let length = arguments.optional_whole("length", 1, READ_BYTES_MAX)?;
    let encoding = match arguments.choice("encoding", &["auto", "utf-8", "base64"])? {
        "utf-8" => Encoding::Utf8,
        "base64" => Encoding::Base64,
        _ => Encoding::Auto,
    };
    if let Some(lines) = arguments.optional_text("lines")? {
        let lines = Lines::parse(&lines)?;
        let range = Range { offset: 0, length: LINES_BYTES_MAX };
        let content = call.engine.read(call.who, &sandbox, &path, range).await?;
        return Ok(answer::read_lines(&path, &content, lines.from, lines.to));
    }
    let range = Range { offset, length: length.unwrap_or(READ_BYTES_DEFAULT) };
    let mut content = call.engine.read(call.who, &sandbox, &path, range).await?;
    if encoding == Encoding::Auto && length.is_none() && is_cut_image(offset, &content) {
        // A part of a picture shows nothing.
        content = call.engine.read(call.who, &sandbox, &path, Range { offset, length: IMAGE_BYTES_MAX }).await?;
    }
    Ok(answer::read(FilePart { path: &path, offset, content, encoding }))
}

/// Lines by number, from 1 on, both ends included.
#[derive(Debug, PartialEq, Eq)]
struct Lines {
    from: usize,
    to: usize,
}

impl Lines {
    /// `10-20`, `10-` or `10`.
    fn parse(text: &str) -> Result<Lines, BadArgument> {
        let wrong = || BadArgument::new("lines must be like 10-20, 10- or 10, counted from 1");
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number > 0).ok_or_else(wrong);
        let lines = match text.split_once('-') {
            None => Lines { from: number(text)?, to: number(text)? },
            Some((from, "")) => Lines { from: number(from)?, to: usize::MAX },
            Some((from, to)) => Lines { from: number(from)?, to: number(to)? },
        };
        if lines.from <= lines.to { Ok(lines) } else { Err(wrong()) }
    }
}

fn is_cut_image(offset: u64, content: &Content) -> bool {
    let read = content.bytes.len() as u64;
    offset == 0 && read < content.size && content.size <= IMAGE_BYTES_MAX && mime::image(&content.bytes).is_some()
}

pub(super) async fn list(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), &["sandbox_id", "path", "depth", "limit"])?;
    let sandbox = arguments.text("sandbox_id")?;
    let path = arguments.optional_text("path")?.unwrap_or_else(|| ".".into());
    let depth = arguments.optional_whole("depth", 1, LIST_DEPTH_MAX)?.unwrap_or(1);
    let limit = arguments.optional_whole("limit", 1, LIST_ENTRIES_MAX.into())?.unwrap_or(LIST_ENTRIES_DEFAULT);
    let listing = call.engine.list(call.who, &sandbox, &path, depth as u32, limit as u32).await?;
    Ok(answer::listed(&listing))
}
