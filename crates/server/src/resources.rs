//! Files of sandboxes, and whole outputs of runs, as resources: `belljar://<sandbox>/<path>` and
//! `belljar://runs/<run>/<stdout or stderr>`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::{BackendError, FileErrorKind, Range, Stream};
use belljar_engine::{Engine, EngineError, Principal};
use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use crate::{answer, clean, mime};

const SCHEME: &str = "belljar://";
/// The name in the sandbox's place that leads to outputs. No sandbox is called so.
const RUNS: &str = "runs";
const BYTES_MAX: u64 = 8 * 1024 * 1024;
const LIST_ENTRIES_MAX: u32 = 1000;
const URI_BYTES_MAX: usize = 16 * 1024;

/// One resource for each sandbox of the caller: its directory. Files are found through it, and by the template.
pub(crate) fn list(engine: &Engine, who: &Principal) -> Vec<Resource> {
    engine
        .sandboxes(who)
        .iter()
        .map(|info| {
            Resource::new(format!("{SCHEME}{}/", info.id), info.id.as_str())
                .with_description("Files of a sandbox")
                .with_mime_type("text/plain")
        })
        .collect()
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("belljar://{sandbox_id}/{+path}", "sandbox file").with_description("A file of a sandbox"),
        ResourceTemplate::new("belljar://runs/{run_id}/{stream}", "run output")
            .with_description("The whole stdout or stderr of a run whose result was shortened")
            .with_mime_type("text/plain"),
    ]
}

pub(crate) async fn read(engine: &Engine, who: &Principal, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let contents = match parse(uri).map_err(|sentence| ErrorData::invalid_params(sentence, None))? {
        Target::Output { run, stream } => {
            let bytes = engine.kept_output(who, &run, stream).ok_or_else(|| {
                not_found("no such output; it is kept for a while only, so run the program again, writing to a file")
            })?;
            ResourceContents::text(clean::clean(&bytes), uri)
        }
        Target::Directory { sandbox, path } => {
            let listing = engine.list(who, &sandbox, &path, 1, LIST_ENTRIES_MAX).await.map_err(failed)?;
            ResourceContents::text(answer::listing_text(&listing), uri)
        }
        Target::File { sandbox, path } => {
            let range = Range { offset: 0, length: BYTES_MAX };
            let content = engine.read(who, &sandbox, &path, range).await.map_err(failed)?;
            if content.size > BYTES_MAX {
                let sentence = format!("{path} has {} bytes; read it in parts with read_file", content.size);
                return Err(ErrorData::invalid_params(sentence, None));
            }
            let mime_type = mime::of(&path, &content.bytes);
            match String::from_utf8(content.bytes) {
                Ok(text) if !text.contains('\0') => {
                    ResourceContents::text(clean::reveal(&text), uri).with_mime_type(mime_type)
                }
                Ok(text) => ResourceContents::blob(STANDARD.encode(text), uri).with_mime_type(mime_type),
                Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri).with_mime_type(mime_type),
            }
        }
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn failed(error: EngineError) -> ErrorData {
    match &error {
        EngineError::UnknownSandbox => not_found(error.to_string()),
        EngineError::Backend(BackendError::File(file)) if file.kind == FileErrorKind::NotFound => {
            not_found(error.to_string())
        }
        EngineError::Backend(BackendError::File(_)) => ErrorData::invalid_params(error.to_string(), None),
        _ => ErrorData::internal_error(error.to_string(), None),
    }
}

fn not_found(sentence: impl Into<std::borrow::Cow<'static, str>>) -> ErrorData {
    ErrorData::resource_not_found(sentence, None)
}

#[derive(Debug, PartialEq, Eq)]
enum Target {
    File { sandbox: String, path: String },
    Directory { sandbox: String, path: String },
    Output { run: String, stream: Stream },
}

/// Reads a URI strictly: what could be read in two ways is refused.
fn parse(uri: &str) -> Result<Target, &'static str> {
    let shape = "a resource is belljar://SANDBOX_ID/PATH or belljar://runs/RUN_ID/stdout; list_files shows the paths";
    if uri.len() > URI_BYTES_MAX {
        return Err("the URI is too long; use read_file");
    }
    let rest = uri.strip_prefix(SCHEME).ok_or(shape)?;
    if rest.contains(['?', '#']) {
        return Err("a resource has no query and no fragment; write ? as %3F and # as %23");
    }
    let (place, path) = rest.split_once('/').ok_or(shape)?;
    if place.is_empty() || !place.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Err(shape);
    }
    let path = percent_decode(path).ok_or("the path is not percent-encoded UTF-8; write % as %25")?;
    if path.chars().any(|c| c == '\0') {
        return Err("the path has a NUL byte; leave it out");
    }
    if place == RUNS {
        let (run, stream) = path.split_once('/').ok_or(shape)?;
        let stream = match stream {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            _ => return Err(shape),
        };
        return Ok(Target::Output { run: run.to_owned(), stream });
    }
    let sandbox = place.to_owned();
    Ok(match path.as_str() {
        "" => Target::Directory { sandbox, path: ".".into() },
        directory if directory.ends_with('/') => Target::Directory { sandbox, path },
        _ => Target::File { sandbox, path },
    })
}

/// Decodes once. `None` for a `%` that is not followed by two digits, and for bytes that are not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Result<Target, &'static str> {
        Ok(Target::File { sandbox: "sb_1".into(), path: path.into() })
    }

    #[test]
    fn a_uri_names_a_file_a_directory_or_an_output() {
        assert_eq!(parse("belljar://sb_1/a/b.txt"), file("a/b.txt"));
        assert_eq!(parse("belljar://sb_1//etc/hostname"), file("/etc/hostname"));
        assert_eq!(parse("belljar://sb_1/a%20b%3F%23%25"), file("a b?#%"));
        assert_eq!(parse("belljar://sb_1/%252e%252e"), file("%2e%2e"), "decoded once only");
        assert_eq!(parse("belljar://sb_1/"), Ok(Target::Directory { sandbox: "sb_1".into(), path: ".".into() }));
        assert_eq!(parse("belljar://sb_1/d/"), Ok(Target::Directory { sandbox: "sb_1".into(), path: "d/".into() }));
        let output = Target::Output { run: "run_9".into(), stream: Stream::Stderr };
        assert_eq!(parse("belljar://runs/run_9/stderr"), Ok(output));
    }

    #[test]
    fn anything_else_is_refused() {
        for uri in [
            "",
            "file:///etc/passwd",
            "belljar:",
            "belljar://",
            "belljar:///x",
            "belljar://sb_1",
            "BELLJAR://sb_1/x",
            "belljar://u@sb_1/x",
            "belljar://sb_1:80/x",
            "belljar://sb%5f1/x",
            "belljar://../x",
            "belljar://sb_1/x?y",
            "belljar://sb_1/x#y",
            "belljar://sb_1/%",
            "belljar://sb_1/%zz",
            "belljar://sb_1/%ff",
            "belljar://sb_1/%00",
            "belljar://sb_1/a\0b",
            "belljar://runs/",
            "belljar://runs/run_9",
            "belljar://runs/run_9/stdin",
            "belljar://runs/run_9/stdout/x",
            "belljar://sb_1/%+1",
        ] {
            assert!(parse(uri).is_err(), "{uri:?} gave {:?}", parse(uri));
        }
        assert!(parse(&format!("belljar://sb_1/{}", "a".repeat(20_000))).is_err());
    }
}
