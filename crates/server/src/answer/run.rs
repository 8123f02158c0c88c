//! How an agent reads a run: what it printed, its last value, what it showed, its error, its files, how it ended.
//!
//! A client shows its model either the text or the structured content, so each has everything, once, within the budget.
//! What does not fit is a resource. Pictures are blocks of their own, and of the rest nothing bulky is in a third place.

use std::fmt::Write;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::{Ending, Limit, State, Stream};
use belljar_engine::{Bundle, JobView, Lost, Run};
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::shorten::{Shortened, shorten, shorten_text};
use super::{around, called, on_new_line};
use crate::address::{self, Value as Which};
use crate::{clean, mime};

/// What one answer has of text in all, as text and again as structured content.
pub(crate) const TEXT_BYTES_MAX: usize = 20_000;

/// The most that each part gets of it before the output, which gets the rest.
const ERROR_BYTES_MAX: usize = 5_000;
const ERROR_VALUE_BYTES_MAX: usize = 1_000;
const RESULT_BYTES_MAX: usize = 5_000;
const SHOWN_BYTES_MAX: usize = 4_000;
const SHOWN_ONE_BYTES_MAX: usize = 2_000;
/// Notes, names and numbers around them.
const NOTES_BYTES: usize = 2_000;
/// Things shown that are told one by one.
const SHOWN_MAX: usize = 16;

/// Forms of one thing that are told.
const FORMS_MAX: usize = 8;

/// Richer forms of a value stand in the answer itself up to this, and are a resource past it.
const FORM_BYTES_MAX: usize = 2_000;

/// Pictures in one answer. A model pays for each, whatever its size in bytes.
const PICTURES_MAX: usize = 8;
const PICTURES_BYTES_MAX: usize = 3 * 1024 * 1024;

const FILES_MAX: usize = 10;

/// Longer paths have no address: nobody types them, and ten would fill the answer.
const PATH_BYTES_MAX: usize = 300;

/// What the structured part may have in all. Its texts keep to the same shares as those of the text, and this holds for
/// whatever else is in it.
const STRUCTURED_BYTES_MAX: usize = 2 * TEXT_BYTES_MAX;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// A run, and what of its output the caller is to see.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) run: &'a Run,
    pub(crate) stdout: &'a [u8],
    pub(crate) stderr: &'a [u8],
    pub(crate) wall: Duration,
    /// Whether what is not shown can be read later.
    pub(crate) kept: bool,
}

/// The report of a run that has ended.
pub(crate) fn ran(told: &Told<'_>) -> CallToolResult {
    let Told { run, wall, .. } = told;
    let report = &run.report;
    let mut room = TEXT_BYTES_MAX - NOTES_BYTES;
    let error = run.rich.error.as_ref().map(|error| {
        let value = shorten_text(&clean::clean(error.value.as_bytes()), ERROR_VALUE_BYTES_MAX);
        let traceback = shorten_text(&clean::clean(error.traceback.as_bytes()), ERROR_BYTES_MAX);
        room = room.saturating_sub(value.len() + traceback.len());
        json!({"name": short_name(&error.name), "value": value, "traceback": traceback})
    });
    let mut pictures = Pictures::default();
    let mut result = run.rich.result.as_ref().map(|bundle| {
        let text = text_of(bundle, RESULT_BYTES_MAX);
        room = room.saturating_sub(text.as_ref().map_or(0, String::len));
        pictures.take(bundle);
        Thing { bundle, which: Which::Result, text }
    });
    let mut shown_room = SHOWN_BYTES_MAX;
    let mut shown: Vec<Thing<'_>> = Vec::new();
    for (index, bundle) in run.rich.shown.iter().enumerate().take(SHOWN_MAX) {
        let text = if pictures.take(bundle) { None } else { text_of(bundle, SHOWN_ONE_BYTES_MAX.min(shown_room)) };
        let used = text.as_ref().map_or(0, String::len);
        (shown_room, room) = (shown_room.saturating_sub(used), room.saturating_sub(used));
        shown.push(Thing { bundle, which: Which::Shown(index + 1), text });
    }
    let files = Files::of(told);
    room = room.saturating_sub(files.text.len());
    let (stdout, stderr) = streams(told, room);
    room = room.saturating_sub(stdout.text.len() + stderr.text.len());

    let mut structured = output(&stdout, &stderr);
    structured.insert("exit_code".into(), report.ending.exit_code().into());
    structured.insert("ending".into(), report.ending.name().into());
    structured.insert("state".into(), json!(report.state));
    if let Some(lost) = &run.lost {
        structured.insert("lost".into(), lost_words(lost).into());
    }
    if let Some(thing) = &mut result {
        structured.insert("result".into(), thing.structured(told, &mut room));
    }
    if !shown.is_empty() {
        let shown: Vec<Value> = shown.iter().map(|thing| thing.structured(told, &mut room)).collect();
        structured.insert("shown".into(), shown.into());
    }
    if let Some(error) = &error {
        structured.insert("error".into(), error.clone());
    }
    if !files.structured.is_empty() {
        structured.insert("files".into(), files.structured.into());
        if files.more > 0 {
            structured.insert("files_more".into(), files.more.into());
        }
    }
    if let Some(sandbox) = &run.sandbox {
        structured.insert("sandbox_id".into(), sandbox.as_str().into());
    }
    if let Some(expires_in) = run.expires_in {
        structured.insert("expires_in_seconds".into(), expires_in.as_secs().into());
    }
    around::structured(run, &mut structured);
    called::structured(&run.calls, &mut structured);
    structured.insert("duration_ms".into(), millis(report.duration).into());
    structured.insert("usage".into(), json!(report.usage));
    structured.insert("isolation".into(), json!(report.isolation));
    let cut_by_limit = report.ending == Ending::Stopped { limit: Limit::Output };
    structured.insert("truncated".into(), (stdout.cut || stderr.cut || cut_by_limit).into());

    for bulky in ["shown", "files", "result"] {
        if structured.contains_key(bulky) && written_bytes(&structured) > STRUCTURED_BYTES_MAX {
            structured.remove(bulky);
        }
    }

    let mut text = output_text(stdout, stderr);
    for thing in &shown {
        on_new_line(&mut text, &thing.line(told));
    }
    if let Some(thing) = &result {
        let line = thing.line(told);
        // Alone it needs no name.
        let line = if text.is_empty() { line } else { format!("[result] {line}") };
        on_new_line(&mut text, &line);
    }
    if let Some(error) = &error {
        let traceback = error["traceback"].as_str().unwrap_or_default();
        on_new_line(
            &mut text,
            if traceback.is_empty() { error["value"].as_str().unwrap_or_default() } else { traceback },
        );
    }
    let untold = run.rich.shown.len().saturating_sub(SHOWN_MAX) + run.rich.left_out as usize;
    if untold > 0 {
        on_new_line(&mut text, &format!("[{untold} more were shown than fit here]"));
    }
    if !files.text.is_empty() {
        on_new_line(&mut text, files.text.trim_end());
    }
    // An error that tells itself is no news as an exit code.
    let told_itself = error.is_some() && report.ending == Ending::Exited { code: 1 };
    if let Some(note) = ending_note(run, *wall).filter(|_| !told_itself) {
        on_new_line(&mut text, &note);
    }
    if !report.ending.is_success()
        && let Some(note) = called::note(&run.calls)
    {
        on_new_line(&mut text, &note);
    }
    for note in around::notes(run) {
        on_new_line(&mut text, &note);
    }
    if let Some(note) = state_note(run) {
        on_new_line(&mut text, &note);
    }
    if text.trim().is_empty() {
        text = "(no output)".into();
    }
    // The parts keep to their shares; this holds whatever they come to.
    let text = shorten_text(&text, TEXT_BYTES_MAX);
    let mut answer = CallToolResult::success(vec![ContentBlock::text(text)]);
    answer.content.extend(pictures.blocks);
    answer.content.extend(files.links.into_iter().map(ContentBlock::resource_link));
    answer.structured_content = Some(Value::Object(structured));
    answer.is_error = Some(!report.ending.is_success());
    answer
}

/// How long something is as JSON, without writing it anywhere.
fn written_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What cannot be written is not sent either.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

/// A run that goes on as a job, and what it printed so far.
pub(crate) fn still_running(job: &JobView) -> CallToolResult {
    let room = TEXT_BYTES_MAX - NOTES_BYTES;
    let (stdout, stderr) = share(&job.stdout, &job.stderr, room, || None, || None);
    let mut structured = output(&stdout, &stderr);
    structured.insert("ending".into(), "running".into());
    structured.insert("job_id".into(), job.id.as_str().into());
    structured.insert("next_offset".into(), job.next_offset.into());
    if let Some(sandbox) = &job.sandbox {
        structured.insert("sandbox_id".into(), sandbox.as_str().into());
    }
    structured.insert("duration_ms".into(), millis(job.age).into());
    let mut text = output_text(stdout, stderr);
    if job.missed > 0 {
        structured.insert("missed_bytes".into(), job.missed.into());
        on_new_line(&mut text, &format!("[{} bytes before this are forgotten]", job.missed));
    }
    on_new_line(
        &mut text,
        &format!("[running for {} s as job {}; job waits, polls, sends stdin or signals]", job.age.as_secs(), job.id),
    );
    let mut answer = CallToolResult::success(vec![ContentBlock::text(text)]);
    answer.structured_content = Some(Value::Object(structured));
    answer
}

/// A last value, or something shown, as the answer has it.
struct Thing<'a> {
    bundle: &'a Bundle,
    which: Which,
    text: Option<String>,
}

impl Thing<'_> {
    fn structured(&self, told: &Told<'_>, room: &mut usize) -> Value {
        let mut thing = Map::new();
        if let Some(text) = &self.text {
            thing.insert("text".into(), text.as_str().into());
        }
        let mut listed: Vec<Value> = Vec::new();
        let richer = self.bundle.data.iter().filter(|(mime_type, _)| *mime_type != "text/plain");
        for (mime_type, value) in richer.take(FORMS_MAX) {
            let mut form = Map::new();
            form.insert("mime_type".into(), clean::reveal(mime_type).into());
            let size = match value {
                Value::String(text) if is_binary(mime_type) => text.len() / 4 * 3,
                Value::String(text) => text.len(),
                other => other.to_string().len(),
            };
            if !is_binary(mime_type) && size <= FORM_BYTES_MAX.min(*room) {
                *room -= size;
                let content = match value {
                    Value::String(text) => clean::reveal(text).into(),
                    other => clean::json(other),
                };
                form.insert("content".into(), content);
            } else if told.kept {
                form.insert("uri".into(), address::form(&told.run.id, self.which, mime_type).into());
                form.insert("size".into(), size.into());
            }
            listed.push(Value::Object(form));
        }
        for (name, side) in [("width", self.bundle.width), ("height", self.bundle.height)] {
            if let Some(side) = side {
                thing.insert(name.into(), side.into());
            }
        }
        if let Some(uri) = self.original(told) {
            thing.insert("original".into(), uri.into());
        }
        if !listed.is_empty() {
            thing.insert("forms".into(), listed.into());
        }
        Value::Object(thing)
    }

    /// Where the whole picture is, if the one that is shown is a smaller copy.
    fn original(&self, told: &Told<'_>) -> Option<String> {
        if let Some(path) = &self.bundle.original_path {
            let path = path.strip_prefix("/workspace/").unwrap_or(path);
            if path.len() > PATH_BYTES_MAX {
                return None;
            }
            return Some(told.run.sandbox.as_ref().map_or_else(
                || format!("{} (gone with its sandbox)", clean::reveal(path)),
                |sandbox| address::file(sandbox, path),
            ));
        }
        let original = self.bundle.original.as_ref().filter(|_| told.kept)?;
        Some(address::original(&told.run.id, self.which, &original.mime_type))
    }

    /// Its line in the text: its own text, or what it is and where.
    fn line(&self, told: &Told<'_>) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        let Some(mime_type) = self.bundle.data.keys().find(|mime_type| *mime_type != "text/plain") else {
            return "[shown: nothing that can be told here]".into();
        };
        let mut line = format!("[{}", clean::reveal(mime_type));
        if let (Some(width), Some(height)) = (self.bundle.width, self.bundle.height) {
            let _ = write!(line, " {width}x{height}");
        }
        match self.original(told) {
            Some(original) => line.push_str(&format!("; original: {original}")),
            None if told.kept => line.push_str(&format!("; {}", address::form(&told.run.id, self.which, mime_type))),
            None => {}
        }
        line.push(']');
        line
    }
}

/// What can be read of a thing, clean and short. The plain form goes first, unless it only says that there is an object.
fn text_of(bundle: &Bundle, budget: usize) -> Option<String> {
    let form = |mime_type: &str| bundle.data.get(mime_type)?.as_str();
    let plain = form("text/plain");
    let says_nothing = plain.is_none_or(|text| text.starts_with('<') && text.ends_with(" object>"));
    let richer = || ["text/markdown", "text/latex", "text/html"].into_iter().find_map(form);
    let text = if says_nothing { richer().or(plain) } else { plain }?;
    let mut text = shorten_text(&clean::clean(text.as_bytes()), budget);
    if let Some(types) = bundle.data.get(TABLE).and_then(types_of) {
        on_new_line(&mut text, &types);
    }
    Some(text)
}

const TABLE: &str = "application/vnd.belljar.table+json";

/// The columns of a data frame and their types, for a reader who sees only the text. Its shape is there already.
fn types_of(table: &Value) -> Option<String> {
    const SHOWN: usize = 20;
    let columns = table["columns"].as_array()?;
    let column = |column: &Value| Some(format!("{} {}", column[0].as_str()?, column[1].as_str()?));
    let mut types: Vec<String> = columns.iter().take(SHOWN).filter_map(column).collect();
    if columns.len() > SHOWN {
        types.push("...".into());
    }
    let types = shorten_text(&clean::clean(types.join(", ").as_bytes()), 1000);
    (!types.is_empty()).then(|| format!("[types: {types}]"))
}

/// Those that models look at, best first.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// Whether a form travels as base64.
fn is_binary(mime_type: &str) -> bool {
    PICTURES.contains(&mime_type) || mime_type == "application/pdf"
}

/// Whether text looks like base64, so that a client which decodes it is not surprised.
fn is_base64(text: &str) -> bool {
    let text = text.trim_end_matches('=');
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

/// Whether it begins as such a picture does. A client, or the model behind it, may refuse a whole answer for one that does
/// not.
fn is_picture(base64: &str, mime_type: &str) -> bool {
    let head = base64.get(..24).unwrap_or(base64);
    STANDARD.decode(head).is_ok_and(|bytes| mime::image(&bytes) == Some(mime_type))
}

#[derive(Default)]
struct Pictures {
    blocks: Vec<ContentBlock>,
    bytes: usize,
}

impl Pictures {
    /// Adds the picture that a bundle has, if it has one and there is room.
    fn take(&mut self, bundle: &Bundle) -> bool {
        let found = PICTURES.iter().find_map(|mime_type| Some((*mime_type, bundle.data.get(*mime_type)?.as_str()?)));
        let Some((mime_type, data)) = found else { return false };
        let has_room = self.blocks.len() < PICTURES_MAX && self.bytes + data.len() <= PICTURES_BYTES_MAX;
        if !has_room || !is_base64(data) || !is_picture(data, mime_type) {
            return false;
        }
        self.bytes += data.len();
        self.blocks.push(ContentBlock::image(data, mime_type));
        true
    }
}

/// The files that a run made or changed.
#[derive(Default)]
struct Files {
    text: String,
    structured: Vec<Value>,
    links: Vec<Resource>,
    more: u32,
}

impl Files {
    fn of(told: &Told<'_>) -> Files {
        let run = told.run;
        let mut files = Files::default();
        let entries = &run.changes.entries;
        files.more = run.changes.more + entries.len().saturating_sub(FILES_MAX) as u32;
        for entry in entries.iter().take(FILES_MAX) {
            let (size, mime_type) =
                (entry.metadata.size, mime::by_name(&entry.path).unwrap_or("application/octet-stream"));
            let name = clean::reveal(&entry.path).replace('\n', "\\n").replace('\r', "\\r");
            let name = shorten_text(&name, PATH_BYTES_MAX);
            let uri = match &run.sandbox {
                _ if entry.path.len() > PATH_BYTES_MAX => None,
                Some(sandbox) => Some(address::file(sandbox, &entry.path)),
                None if told.kept && run.left.iter().any(|file| file.path == entry.path) => {
                    Some(address::left_file(&run.id, &entry.path))
                }
                None => None,
            };
            let mut file = json!({"name": name, "mime_type": mime_type, "size": size});
            match uri {
                Some(uri) => {
                    let _ = writeln!(files.text, "[file] {name} ({mime_type}, {size} bytes) {uri}");
                    file["uri"] = uri.as_str().into();
                    let link = Resource::new(uri, name).with_mime_type(mime_type);
                    files.links.push(link.with_size(size));
                }
                None if run.sandbox.is_some() => {
                    let _ = writeln!(files.text, "[file] {name} ({size} bytes)");
                }
                None => {
                    let _ = writeln!(
                        files.text,
                        "[file] {name} ({size} bytes) is gone with its sandbox; create_sandbox keeps files"
                    );
                }
            }
            files.structured.push(file);
        }
        if files.more > 0 {
            let _ = writeln!(files.text, "[and {} more files; list_files shows them]", files.more);
        }
        files
    }
}

/// Both streams within `room`: what one does not need, the other gets.
fn streams(told: &Told<'_>, room: usize) -> (Shortened, Shortened) {
    let uri = |stream| told.kept.then(|| address::stream(&told.run.id, stream));
    share(told.stdout, told.stderr, room, || uri(Stream::Stdout), || uri(Stream::Stderr))
}

fn share(
    stdout: &[u8],
    stderr: &[u8],
    room: usize,
    stdout_uri: impl FnOnce() -> Option<String>,
    stderr_uri: impl FnOnce() -> Option<String>,
) -> (Shortened, Shortened) {
    let for_stderr = room.saturating_sub(stdout.len()).max(room / 3);
    let stderr = shorten(stderr, for_stderr, stderr_uri);
    let stdout = shorten(stdout, room.saturating_sub(stderr.text.len()), stdout_uri);
    (stdout, stderr)
}

fn output(stdout: &Shortened, stderr: &Shortened) -> Map<String, Value> {
    let mut structured = Map::new();
    structured.insert("stdout".into(), stdout.text.as_str().into());
    structured.insert("stderr".into(), stderr.text.as_str().into());
    let uris: Map<String, Value> = [("stdout", &stdout.uri), ("stderr", &stderr.uri)]
        .into_iter()
        .filter_map(|(name, uri)| Some((name.to_owned(), uri.clone()?.into())))
        .collect();
    if !uris.is_empty() {
        structured.insert("output_uris".into(), uris.into());
    }
    structured
}

fn output_text(stdout: Shortened, stderr: Shortened) -> String {
    let mut text = stdout.text;
    if !stderr.text.is_empty() {
        on_new_line(&mut text, "[stderr]\n");
        text.push_str(&stderr.text);
    }
    text
}

/// What the output alone does not say.
fn ending_note(run: &Run, wall: Duration) -> Option<String> {
    let limits = &run.limits;
    match run.report.ending {
        Ending::Exited { code: 0 } => None,
        Ending::Exited { code } => Some(format!("[exit {code}]")),
        Ending::Killed { signal } => Some(match signal_name(signal) {
            Some(name) => format!("[killed by signal {signal} ({name})]"),
            None => format!("[killed by signal {signal}]"),
        }),
        Ending::Stopped { limit: Limit::Wall } => {
            let stays = run.sandbox.is_some() && run.lost.is_none();
            let kept = if stays { "; what was there before is kept" } else { "" };
            Some(format!("[timeout after {} s{kept}; send a larger timeout, or do less at once]", wall.as_secs_f64()))
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
        Ending::NotInstalled => Some("[install-error: its packages could not be installed, and it did not run]".into()),
    }
}

fn state_note(run: &Run) -> Option<String> {
    match (&run.lost, run.report.state) {
        (Some(Lost::Sandbox), _) | (None, State::Lost) => {
            Some("[sandbox lost: nothing of it remains; call create_sandbox for a new one]".into())
        }
        (Some(lost), _) => Some(format!("[{}; files stay, and the next call starts a new kernel]", lost_words(lost))),
        (None, State::Reset) => {
            Some("[its kernel had ended before: this one began without earlier variables; files stayed]".into())
        }
        (None, State::Fresh | State::Preserved) => None,
    }
}

/// What was lost, in a few words.
fn lost_words(lost: &Lost) -> String {
    match lost {
        Lost::Sandbox => "the sandbox, with files and variables".into(),
        Lost::Kernel { language, names } if names.names.is_empty() => format!("{language} kernel lost"),
        Lost::Kernel { language, names } => {
            const SHOWN: usize = 20;
            let shown: Vec<String> = names.names.iter().take(SHOWN).map(|name| short_name(name)).collect();
            let more = names.count.max(names.names.len() as u64).saturating_sub(shown.len() as u64);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{language} kernel lost, with {}{more}", shown.join(", "))
        }
    }
}

fn short_name(name: &str) -> String {
    shorten_text(&clean::clean(name.chars().take(40).collect::<String>().as_bytes()), 100)
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
