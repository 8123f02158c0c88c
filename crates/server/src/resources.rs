//! Files of sandboxes, and what is kept of runs, as resources. [`uri`] says what they are called, [`query`] which parts of
//! them can be asked for.

mod outputs;
mod pages;
mod query;
mod scan;
pub(crate) mod uri;

use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::{BackendError, FileErrorKind, Range};
use belljar_engine::{Engine, EngineError, Principal, Run};
use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, ReadResourceResult, ResourceContents, ResourceTemplate};
use tokio::task::spawn_blocking;

pub(crate) use self::outputs::names;
use self::query::{BYTES_MAX, Form, Lines, Part, Query};
use self::scan::{Grep, Picker};
use self::uri::Target;
use crate::{answer, clean, mime};

const LIST_ENTRIES_MAX: u32 = 1000;
/// A file is looked through in pieces, and only so far.
const PIECE_BYTES: u64 = 2 * 1024 * 1024;
const SCAN_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(crate) async fn list(
    engine: &Engine,
    who: &Principal,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    pages::list(engine, who, cursor).await
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let parts = "lines=100-200 (or -50, the last 50), offset and length in bytes, or grep with context, and regex=1 for \
         a regular expression; ?raw for the exact bytes";
    vec![
        ResourceTemplate::new(
            "belljar://{sandbox_id}/{+path}{?lines,offset,length,grep,context,regex}",
            "file of a sandbox",
        )
        .with_description(format!(
            "A file of a sandbox, or a part of it: {parts}. A path that ends with / is a directory"
        )),
        ResourceTemplate::new(
            "belljar://runs/{run_id}/{output}{?lines,offset,length,grep,context,regex}",
            "output of a run",
        )
        .with_description(format!(
            "What a recent run printed and showed: stdout, stderr, result.ENDING, shown-N.ENDING; without an output, \
             the list of them. Or a part: {parts}"
        )),
        ResourceTemplate::new(
            "belljar://runs/{run_id}/files/{+path}{?lines,offset,length,grep,context,regex}",
            "file that a run left",
        )
        .with_description("A file that a recent run without a sandbox_id left behind"),
    ]
}

pub(crate) async fn read(engine: &Engine, who: &Principal, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let (target, query) = uri::parse(uri).map_err(refused)?;
    let contents = match target {
        Target::Directory { sandbox, path } => {
            let listing = engine.list(who, &sandbox, &path, 1, LIST_ENTRIES_MAX).await.map_err(failed)?;
            ResourceContents::text(answer::listing_text(&listing), uri)
        }
        Target::File { sandbox, path } => File { engine, who, sandbox, path, uri }.read(query).await?,
        Target::Run { ref run } | Target::Output { ref run, .. } | Target::LeftFile { ref run, .. } => {
            let run = engine.kept(who, run).ok_or_else(|| {
                not_found("no such output; it is kept for a while only, so run the program again, writing to a file")
            })?;
            // Some megabytes of output are cleaned and searched, which takes a while.
            let uri = uri.to_owned();
            spawn_blocking(move || of_run(&run, &target, &query, &uri)).await.map_err(|error| bug(&error))??
        }
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn of_run(run: &Run, target: &Target, query: &Query, uri: &str) -> Result<ResourceContents, ErrorData> {
    let (bytes, mime_type) = match target {
        Target::Output { name, .. } => {
            let output = outputs::find(run, name)
                .ok_or_else(|| not_found(format!("the run has no such output; read belljar://runs/{}/", run.id)))?;
            let bytes = match query.form {
                Form::Shown => outputs::shown(&output.content),
                Form::Raw => output.content.bytes(),
            };
            let wrong = "the program said that this is base64, and it is not; make it again";
            (bytes.ok_or_else(|| refused(wrong.to_owned()))?, output.mime_type)
        }
        Target::LeftFile { path, .. } => {
            let file = run.left.iter().find(|file| file.path == *path);
            let file =
                file.ok_or_else(|| not_found(format!("the run left no such file; read belljar://runs/{}/", run.id)))?;
            (file.bytes.clone(), mime::of(path, &file.bytes))
        }
        Target::Run { .. } | Target::File { .. } | Target::Directory { .. } => {
            let line = |(uri, mime_type, size)| format!("{mime_type} {size} {uri}\n");
            return Ok(ResourceContents::text(names(run).into_iter().map(line).collect::<String>(), uri));
        }
    };
    part(bytes, mime_type, query, uri)
}

/// A part of what is in memory as a whole.
fn part(bytes: Vec<u8>, mime_type: &str, query: &Query, uri: &str) -> Result<ResourceContents, ErrorData> {
    if matches!(query.part, Part::Lines(_) | Part::Grep(_)) && bytes.contains(&0) {
        return Err(refused("it is no text; read it whole, or by offset and length".into()));
    }
    match &query.part {
        Part::Whole if bytes.len() as u64 > BYTES_MAX => Err(too_long(bytes.len() as u64)),
        Part::Whole => Ok(whole(bytes, mime_type, query.form, uri)),
        Part::Bytes { offset, length } => {
            let start = usize::try_from(*offset).unwrap_or(usize::MAX).min(bytes.len());
            let end = start.saturating_add(*length as usize).min(bytes.len());
            let slice = Slice { bytes: &bytes[start..end], offset: *offset, size: bytes.len() as u64 };
            Ok(slice.contents(mime_type, query.form, uri))
        }
        Part::Lines(Lines::From { first, last }) => {
            let mut picker = Picker::new(*first, *last);
            let _ = picker.feed(&bytes);
            Ok(ResourceContents::text(picker.into_text(), uri))
        }
        Part::Lines(Lines::Last(count)) => last_lines(&bytes, *count, true, uri),
        Part::Grep(grep) => {
            let mut grep = Grep::new(grep).map_err(refused)?;
            let _ = grep.feed(&bytes);
            Ok(ResourceContents::text(grep.into_text(None), uri))
        }
    }
}

fn last_lines(bytes: &[u8], count: u64, is_whole: bool, uri: &str) -> Result<ResourceContents, ErrorData> {
    let lines = scan::last_lines(bytes, count, is_whole).filter(|lines| lines.len() as u64 <= BYTES_MAX);
    let lines = lines.ok_or_else(|| refused(format!("these lines have more than {BYTES_MAX} bytes; ask for fewer")))?;
    Ok(ResourceContents::text(clean::reveal(&String::from_utf8_lossy(lines)), uri))
}

/// All of it: as text if that is what it is, as a blob otherwise.
fn whole(bytes: Vec<u8>, mime_type: &str, form: Form, uri: &str) -> ResourceContents {
    let size = bytes.len() as u64;
    Slice { bytes: &bytes, offset: 0, size }.contents(mime_type, form, uri)
}

/// Some bytes of something longer.
#[derive(Debug)]
struct Slice<'a> {
    bytes: &'a [u8],
    offset: u64,
    size: u64,
}

impl Slice<'_> {
    fn contents(&self, mime_type: &str, form: Form, uri: &str) -> ResourceContents {
        let blob = || ResourceContents::blob(STANDARD.encode(self.bytes), uri).with_mime_type(mime_type);
        match form {
            Form::Raw => match std::str::from_utf8(self.bytes) {
                Ok(text) => ResourceContents::text(text, uri).with_mime_type(mime_type),
                Err(_) => blob(),
            },
            Form::Shown => match self.text() {
                Some(text) => ResourceContents::text(clean::reveal(text), uri).with_mime_type(mime_type),
                None => blob(),
            },
        }
    }

    /// As text, without the parts of characters that a cut left at its ends. `None` if it is none that anyone reads.
    fn text(&self) -> Option<&str> {
        let is_inner = |byte: &&u8| **byte & 0xc0 == 0x80;
        let skipped = if self.offset == 0 { 0 } else { self.bytes.iter().take(3).take_while(is_inner).count() };
        let bytes = &self.bytes[skipped..];
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let is_cut = error.error_len().is_none() && self.offset + (self.bytes.len() as u64) < self.size;
                is_cut.then(|| std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()).flatten()?
            }
        };
        // Each would grow when it is shown.
        let hidden = text.bytes().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
        (!text.contains('\0') && hidden <= text.len() / 16).then_some(text)
    }
}

/// A file of a sandbox, which is never in memory as a whole if it is large.
#[derive(Debug)]
struct File<'a> {
    engine: &'a Engine,
    who: &'a Principal,
    sandbox: String,
    path: String,
    uri: &'a str,
}

impl File<'_> {
    async fn read(&self, query: Query) -> Result<ResourceContents, ErrorData> {
        match query.part {
            Part::Whole => {
                let (bytes, size) = self.piece(0, BYTES_MAX).await?;
                if size > BYTES_MAX {
                    return Err(too_long(size));
                }
                let mime_type = mime::of(&self.path, &bytes);
                Ok(whole(bytes, mime_type, query.form, self.uri))
            }
            Part::Bytes { offset, length } => {
                let (bytes, size) = self.piece(offset, length).await?;
                let mime_type = mime::of(&self.path, &bytes);
                Ok(Slice { bytes: &bytes, offset, size }.contents(mime_type, query.form, self.uri))
            }
            Part::Lines(Lines::From { first, last }) => {
                let mut picker = Picker::new(first, last);
                let mut pieces = Pieces::of(self);
                while let Some(piece) = pieces.next().await? {
                    if picker.feed(&piece).is_break() {
                        break;
                    }
                }
                if pieces.gave_up && !picker.has_any() {
                    let reached = pieces.offset;
                    let sentence =
                        format!("line {first} is not in the first {reached} bytes; read by offset and length");
                    return Err(refused(sentence));
                }
                Ok(ResourceContents::text(picker.into_text(), self.uri))
            }
            Part::Lines(Lines::Last(count)) => {
                let (mut bytes, size) = self.piece(0, BYTES_MAX).await?;
                if size > BYTES_MAX {
                    bytes = self.piece(size - BYTES_MAX, BYTES_MAX).await?.0;
                }
                last_lines(&bytes, count, size <= BYTES_MAX, self.uri)
            }
            Part::Grep(grep) => {
                let mut grep = Grep::new(&grep).map_err(refused)?;
                let mut pieces = Pieces::of(self);
                let mut goes_on = ControlFlow::Continue(());
                while goes_on.is_continue()
                    && let Some(piece) = pieces.next().await?
                {
                    let searched = spawn_blocking(move || {
                        let goes_on = grep.feed(&piece);
                        (grep, goes_on)
                    });
                    (grep, goes_on) = searched.await.map_err(|error| bug(&error))?;
                }
                Ok(ResourceContents::text(grep.into_text(pieces.gave_up.then_some(pieces.offset)), self.uri))
            }
        }
    }

    async fn piece(&self, offset: u64, length: u64) -> Result<(Vec<u8>, u64), ErrorData> {
        let range = Range { offset, length };
        let content = self.engine.read(self.who, &self.sandbox, &self.path, range).await.map_err(failed)?;
        Ok((content.bytes, content.size))
    }
}

/// A file on its way through a search.
#[derive(Debug)]
struct Pieces<'a> {
    file: &'a File<'a>,
    offset: u64,
    ended: bool,
    /// There is more of it than we look through.
    gave_up: bool,
}

impl Pieces<'_> {
    fn of<'a>(file: &'a File<'a>) -> Pieces<'a> {
        Pieces { file, offset: 0, ended: false, gave_up: false }
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>, ErrorData> {
        self.gave_up = !self.ended && self.offset >= SCAN_BYTES_MAX;
        if self.ended || self.gave_up {
            return Ok(None);
        }
        let (bytes, size) = self.file.piece(self.offset, PIECE_BYTES).await?;
        if self.offset == 0 && bytes.contains(&0) {
            return Err(refused(format!("{} is no text; read it by offset and length", self.file.path)));
        }
        self.offset += bytes.len() as u64;
        self.ended = bytes.is_empty() || self.offset >= size;
        Ok(Some(bytes))
    }
}

fn failed(error: EngineError) -> ErrorData {
    match &error {
        EngineError::UnknownSandbox | EngineError::SandboxGone { .. } => not_found(error.to_string()),
        EngineError::Backend(BackendError::File(file)) if file.kind == FileErrorKind::NotFound => {
            not_found(error.to_string())
        }
        EngineError::Backend(BackendError::File(_)) => refused(error.to_string()),
        _ => ErrorData::internal_error(error.to_string(), None),
    }
}

fn bug(error: &tokio::task::JoinError) -> ErrorData {
    tracing::error!(%error, "reading a resource met a bug");
    ErrorData::internal_error("the server met a bug; its log says more", None)
}

fn refused(sentence: String) -> ErrorData {
    ErrorData::invalid_params(sentence, None)
}

fn too_long(size: u64) -> ErrorData {
    refused(format!(
        "it has {size} bytes; read a part, with ?lines=1-1000, ?grep=PATTERN or ?offset=0&length={BYTES_MAX}"
    ))
}

fn not_found(sentence: impl Into<std::borrow::Cow<'static, str>>) -> ErrorData {
    ErrorData::resource_not_found(sentence, None)
}

#[cfg(test)]
mod tests;
