//! The names of resources, read.
//!
//! ```text
//! belljar://<sandbox>/<path>          a file; a directory if the path is empty or ends with a slash
//! belljar://runs/<run>/               what is kept of a run
//! belljar://runs/<run>/<output>       stdout, stderr, result.<ending>, shown-<n>.<ending>, and originals of pictures
//! belljar://runs/<run>/files/<path>   a file that a throw-away sandbox left
//! ```
//!
//! A part of a file or output is asked for by a query (see [`super::query`]).

use super::query::{Part, Query};
use crate::address::{FILES, RUNS, SCHEME, percent_decode};

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
