//! Completion of arguments: languages, the caller's own sandboxes and runs, and paths in them.

use belljar_core::FileKind;
use belljar_engine::{Engine, Principal};
use rmcp::ErrorData;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};

use crate::prompts::{ANALYSE_DATA, CODE_MODE};
use crate::resources;

/// Entries of a directory that are looked at.
const ENTRIES_MAX: u32 = 1000;
/// Of what somebody has typed so far.
const BEGUN_BYTES_MAX: usize = 4096;

/// What an argument may become; `None` when the reference is to nothing of ours.
pub(crate) async fn complete(
    engine: &Engine,
    who: &Principal,
    request: &CompleteRequestParams,
) -> Option<Result<CompleteResult, ErrorData>> {
    let known = match &request.r#ref {
        Reference::Prompt(prompt) => [CODE_MODE, ANALYSE_DATA].contains(&prompt.name.as_str()),
        Reference::Resource(template) => {
            let ours = resources::templates();
            ours.iter().any(|own| own.uri_template == template.uri) || template.uri.starts_with("belljar://")
        }
        _ => false,
    };
    known.then_some(())?;
    let begun = request.argument.value.as_str();
    if begun.len() > BEGUN_BYTES_MAX {
        return Some(Err(ErrorData::invalid_params("the value is too long to be completed", None)));
    }
    let given = |name: &str| {
        let given = request.context.as_ref().and_then(|context| context.arguments.as_ref());
        given.and_then(|given| given.get(name)).cloned()
    };
    let values: Vec<String> = match request.argument.name.as_str() {
        "language" => engine.languages().iter().map(|language| language.name().to_owned()).collect(),
        "sandbox_id" => engine.sandboxes(who).iter().map(|info| info.id.as_str().to_owned()).collect(),
        "run_id" => engine.jobs(who).iter().rev().map(|job| job.id.as_str().to_owned()).collect(),
        "output" => ["stdout", "stderr"].map(str::to_owned).to_vec(),
        "path" => match given("sandbox_id") {
            Some(sandbox) => paths(engine, who, &sandbox, begun).await,
            None => Vec::new(),
        },
        _ => Vec::new(),
    };
    Some(Ok(of(values, begun)))
}

/// What is in the directory that the path so far leads to. A foreign sandbox and one that is not there have the same: nothing.
async fn paths(engine: &Engine, who: &Principal, sandbox: &str, begun: &str) -> Vec<String> {
    let directory = begun.rfind('/').map_or("", |at| &begun[..=at]);
    let place = if directory.is_empty() { "." } else { directory };
    let Ok(listing) = engine.list(who, sandbox, place, 1, ENTRIES_MAX).await else { return Vec::new() };
    let path = |entry: &belljar_core::Entry| {
        let name = entry.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let more = if entry.metadata.kind == FileKind::Directory { "/" } else { "" };
        format!("{directory}{name}{more}")
    };
    listing.entries.iter().map(path).filter(|path| !path.chars().any(char::is_control)).collect()
}

/// Those that begin with what was typed.
fn of(values: Vec<String>, begun: &str) -> CompleteResult {
    let mut values: Vec<String> = values.into_iter().filter(|value| value.starts_with(begun)).collect();
    let total = u32::try_from(values.len()).unwrap_or(u32::MAX);
    values.truncate(CompletionInfo::MAX_VALUES);
    let has_more = values.len() < total as usize;
    let completion = CompletionInfo::with_pagination(values, Some(total), has_more).unwrap_or_default();
    CompleteResult::new(completion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_protocol_allows() {
        let all: Vec<String> = (0..250).map(|number| format!("a{number:03}")).collect();
        let completed = of(all.clone(), "").completion;
        assert_eq!((completed.values.len(), completed.total, completed.has_more), (100, Some(250), Some(true)));
        let few = of(all, "a00").completion;
        assert_eq!((few.values.len(), few.total, few.has_more), (10, Some(10), Some(false)));
    }
}
