//! The resources that surfaces have of their own: `kernel://<session>/<file>` and `sandbox://environments`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::{BackendError, FileErrorKind, Language, Range, Source};
use belljar_engine::{Engine, EngineError, Principal, RunRequest, Wants};
use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use super::act::{expired, program};
use super::memory::Memory;
use super::table::Style;
use crate::{clean, mime};

const KERNEL: &str = "kernel://";
const ENVIRONMENTS: &str = "sandbox://environments";
const BYTES_MAX: u64 = 8 * 1024 * 1024;
const URI_BYTES_MAX: usize = 16 * 1024;

/// Prints which of the libraries that the surface's users expect are there.
const LIBRARIES: &str = r#"
from importlib.util import find_spec
known = {"numpy": "numpy", "pandas": "pandas", "matplotlib": "matplotlib", "sklearn": "scikit-learn", "scipy": "scipy",
    "seaborn": "seaborn", "plotly": "plotly", "sympy": "sympy", "PIL": "pillow", "requests": "requests"}
print(", ".join(name for module, name in known.items() if find_spec(module)))
"#;

pub(super) fn list(style: Style) -> Vec<Resource> {
    match style {
        Style::CodeSandbox => {
            let environments = Resource::new(ENVIRONMENTS, "environment_details")
                .with_description("The languages and the libraries that they have")
                .with_mime_type("text/plain");
            vec![environments]
        }
        _ => Vec::new(),
    }
}

pub(super) fn templates(style: Style) -> Vec<ResourceTemplate> {
    match style {
        Style::Interpreter => {
            let file = ResourceTemplate::new("kernel://{session_id}/{filename}", "get_session_file")
                .with_description("A file of a session");
            vec![file]
        }
        _ => Vec::new(),
    }
}

/// `None` for what is none of the surface's own.
pub(super) async fn read(
    style: Style,
    engine: &Engine,
    who: &Principal,
    memory: &Memory,
    uri: &str,
) -> Option<Result<ReadResourceResult, ErrorData>> {
    match style {
        Style::Interpreter if uri.starts_with(KERNEL) => Some(session_file(engine, who, memory, uri).await),
        Style::CodeSandbox if uri == ENVIRONMENTS => {
            let text = environments(engine, who).await;
            Some(Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type("text/plain")])))
        }
        _ => None,
    }
}

async fn session_file(
    engine: &Engine,
    who: &Principal,
    memory: &Memory,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let bad = |sentence: &'static str| ErrorData::invalid_params(sentence, None);
    let not_found = |sentence: String| ErrorData::resource_not_found(sentence, None);
    let (session, path) = parse(uri).map_err(bad)?;
    let gone = || not_found(expired(&session, engine.tenure().idle));
    let sandbox = memory.desk(who).sandbox_of(&session).ok_or_else(gone)?;
    let content = engine.read(who, &sandbox, &path, Range { offset: 0, length: BYTES_MAX }).await;
    let content = content.map_err(|error| match &error {
        EngineError::UnknownSandbox | EngineError::SandboxGone { .. } | EngineError::Lost => gone(),
        EngineError::Backend(BackendError::File(file)) if file.kind == FileErrorKind::NotFound => {
            not_found("there is no such file in the session; list_session_files shows what is there".into())
        }
        EngineError::Backend(BackendError::File(file)) => ErrorData::invalid_params(file.kind.to_string(), None),
        _ => ErrorData::internal_error(error.to_string(), None),
    })?;
    if content.size > BYTES_MAX {
        return Err(ErrorData::invalid_params(format!("the file has more than {BYTES_MAX} bytes"), None));
    }
    let mime_type = mime::of(&path, &content.bytes);
    let is_text = mime_type.starts_with("text/") || ["application/json", "application/xml"].contains(&mime_type);
    let contents = match std::str::from_utf8(&content.bytes) {
        Ok(text) if is_text && !text.contains('\0') => ResourceContents::text(clean::reveal(text), uri),
        _ => ResourceContents::blob(STANDARD.encode(&content.bytes), uri),
    };
    Ok(ReadResourceResult::new(vec![contents.with_mime_type(mime_type)]))
}

/// The session and the file's path, which stays below the session's directory.
fn parse(uri: &str) -> Result<(String, String), &'static str> {
    let shape = "a session's file is kernel://SESSION_ID/FILENAME; list_session_files shows them";
    if uri.len() > URI_BYTES_MAX {
        return Err("the URI is too long");
    }
    let (session, path) = uri.strip_prefix(KERNEL).and_then(|rest| rest.split_once('/')).ok_or(shape)?;
    if session.is_empty() || path.is_empty() || path.contains(['?', '#']) {
        return Err(shape);
    }
    let path = percent_decode(path).ok_or("the path is not percent-encoded UTF-8; write % as %25")?;
    if path.starts_with('/') || path.ends_with('/') || path.contains('\0') || path.split('/').any(|part| part == "..") {
        return Err("a session's file has a path below the session's directory");
    }
    Ok((session.to_owned(), path))
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let byte = match *first {
            b'%' => {
                let [high, low, after @ ..] = rest else { return None };
                rest = after;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

async fn environments(engine: &Engine, who: &Principal) -> String {
    let languages = engine.languages();
    let mut map = serde_json::Map::new();
    if languages.contains(&Language::Python) {
        let source = Source::Code { language: Language::Python, code: LIBRARIES.into() };
        let request =
            RunRequest { sandbox: None, program: program(source, Duration::from_secs(10)), wants: Wants::default() };
        let looked = engine.run(who, request).await.ok().filter(|run| run.report.ending.is_success());
        let found = looked.map(|run| clean::clean(&run.report.stdout)).unwrap_or_default();
        let found: String = found.trim().chars().take(1000).collect();
        let found = if found.is_empty() { "standard library".to_owned() } else { found };
        map.insert("python".into(), json!({"image": "belljar sandbox", "installed_libraries": found}));
    }
    if languages.contains(&Language::JavaScript) {
        map.insert(
            "javascript".into(),
            json!({"image": "belljar sandbox", "installed_libraries": "Node's own modules"}),
        );
    }
    serde_json::to_string_pretty(&map).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_file_below_the_sessions_directory() {
        assert_eq!(parse("kernel://s/a.png"), Ok(("s".into(), "a.png".into())));
        assert_eq!(parse("kernel://s/d/a%20b.csv"), Ok(("s".into(), "d/a b.csv".into())));
        for uri in [
            "kernel://",
            "kernel://s",
            "kernel://s/",
            "kernel:///x",
            "kernel://s//etc/passwd",
            "kernel://s/%2fetc/passwd",
            "kernel://s/../x",
            "kernel://s/a/%2e%2e/%2e%2e/x",
            "kernel://s/a%00",
            "kernel://s/%zz",
            "kernel://s/a?b",
            "kernel://s/d/",
            "belljar://s/x",
        ] {
            assert!(parse(uri).is_err(), "{uri}: {:?}", parse(uri));
        }
    }
}
