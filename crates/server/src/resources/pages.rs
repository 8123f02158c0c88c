//! The list of resources, a page at a time: the directory of each sandbox, then the files in them that lie near the top.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_core::{Entry, FileKind};
use belljar_engine::{Engine, Principal, SandboxId};
use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, Resource};
use tokio::time::{Instant, timeout};

use crate::address;
use crate::{clean, mime};

const PAGE: usize = 200;
const DEPTH: u32 = 3;
const FILES_PER_SANDBOX_MAX: usize = 200;
/// Files on all pages together. Who has more finds them through the directories.
const FILES_MAX: usize = 1000;
/// What is looked at for that; some of it is hidden, or no file.
const ENTRIES_MAX: u32 = 2000;
const SANDBOX_WAIT: Duration = Duration::from_secs(2);
const PAGE_WAIT: Duration = Duration::from_secs(5);
const CURSOR_BYTES_MAX: usize = 160;

/// Where a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// So many sandboxes were told.
    Sandboxes(usize),
    Files {
        sandbox: String,
        /// Of this sandbox.
        skip: usize,
        /// Of all sandboxes, on the pages before.
        told: usize,
    },
}

impl Place {
    fn cursor(&self) -> String {
        let text = match self {
            Place::Sandboxes(told) => format!("s {told}"),
            Place::Files { sandbox, skip, told } => format!("f {sandbox} {skip} {told}"),
        };
        URL_SAFE_NO_PAD.encode(text)
    }

    fn parse(cursor: &str) -> Option<Place> {
        if cursor.len() > CURSOR_BYTES_MAX {
            return None;
        }
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
        let fields: Vec<&str> = text.split(' ').collect();
        let place = match fields[..] {
            ["s", told] => Place::Sandboxes(told.parse().ok()?),
            ["f", sandbox, skip, told] => {
                Place::Files { sandbox: sandbox.into(), skip: skip.parse().ok()?, told: told.parse().ok()? }
            }
            _ => return None,
        };
        // One way to write each, so that what we would not have written is not ours.
        (place.cursor() == cursor).then_some(place)
    }
}

pub(super) async fn list(
    engine: &Engine,
    who: &Principal,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let bad = || ErrorData::invalid_params("the cursor is none of ours; list again without a cursor", None);
    let place = cursor.map_or(Some(Place::Sandboxes(0)), Place::parse).ok_or_else(bad)?;
    let sandboxes: Vec<SandboxId> = engine.sandboxes(who).into_iter().map(|info| info.id).collect();
    let mut page = Page { resources: Vec::new(), next: None };
    let (first, skip, told) = match place {
        Place::Sandboxes(told) => {
            let rest = sandboxes.iter().skip(told);
            page.resources.extend(rest.take(PAGE).map(directory));
            if told + page.resources.len() < sandboxes.len() {
                page.next = Some(Place::Sandboxes(told + page.resources.len()));
                return Ok(page.into_result());
            }
            (0, 0, 0)
        }
        Place::Files { sandbox, skip, told } => {
            let gone = "the sandbox that the cursor points at is gone; list again without a cursor";
            let at = sandboxes.iter().position(|id| id.as_str() == sandbox);
            (at.ok_or_else(|| ErrorData::invalid_params(gone, None))?, skip, told)
        }
    };
    page.add_files(engine, who, sandboxes.get(first..).unwrap_or_default(), skip, told).await;
    Ok(page.into_result())
}

fn directory(id: &SandboxId) -> Resource {
    Resource::new(address::directory(id), id.as_str())
        .with_description("Files of a sandbox")
        .with_mime_type("text/plain")
}

#[derive(Debug)]
struct Page {
    resources: Vec<Resource>,
    next: Option<Place>,
}

impl Page {
    async fn add_files(
        &mut self,
        engine: &Engine,
        who: &Principal,
        sandboxes: &[SandboxId],
        mut skip: usize,
        mut told: usize,
    ) {
        let until = Instant::now() + PAGE_WAIT;
        for (at, id) in sandboxes.iter().enumerate() {
            // Each page has looked at one at least, so that slow ones hold up no list for ever.
            if at > 0 && Instant::now() >= until {
                self.next = Some(Place::Files { sandbox: id.as_str().into(), skip, told });
                return;
            }
            for file in files(engine, who, id).await.iter().skip(skip) {
                if told >= FILES_MAX {
                    return;
                }
                if self.resources.len() >= PAGE {
                    self.next = Some(Place::Files { sandbox: id.as_str().into(), skip, told });
                    return;
                }
                self.resources.push(resource(id, file));
                skip += 1;
                told += 1;
            }
            skip = 0;
        }
    }

    fn into_result(self) -> ListResourcesResult {
        let mut result = ListResourcesResult::with_all_items(self.resources);
        result.next_cursor = self.next.map(|place| place.cursor());
        result
    }
}

/// A sandbox that does not answer, or has just gone, has none.
async fn files(engine: &Engine, who: &Principal, id: &SandboxId) -> Vec<Entry> {
    let listed = timeout(SANDBOX_WAIT, engine.list(who, id.as_str(), ".", DEPTH, ENTRIES_MAX)).await;
    let Ok(Ok(listing)) = listed else { return Vec::new() };
    let is_shown = |entry: &Entry| {
        let hidden = entry.path.split('/').any(|part| part.starts_with('.'));
        entry.metadata.kind == FileKind::File && !hidden
    };
    let mut files: Vec<Entry> = listing.entries.into_iter().filter(is_shown).collect();
    // What lies nearest to the top goes first, and the order is the same on each page.
    files.sort_by(|a, b| {
        let depth = |entry: &Entry| entry.path.matches('/').count();
        depth(a).cmp(&depth(b)).then_with(|| a.path.cmp(&b.path))
    });
    files.truncate(FILES_PER_SANDBOX_MAX);
    files
}

fn resource(id: &SandboxId, entry: &Entry) -> Resource {
    let name = clean::reveal(&entry.path).replace(['\n', '\r'], " ");
    let resource = Resource::new(address::file(id, &entry.path), name).with_size(entry.metadata.size);
    match mime::by_name(&entry.path) {
        Some(mime_type) => resource.with_mime_type(mime_type),
        None => resource,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cursors_of_ours_are_read() {
        for place in [Place::Sandboxes(200), Place::Files { sandbox: "sb_x".into(), skip: 3, told: 400 }] {
            assert_eq!(Place::parse(&place.cursor()), Some(place));
        }
        for text in ["", "s", "s -1", "s +1", "s 01", "s 99999999999999999999", "f a 1", "f a 1 2 3", "x 1", "s  1"] {
            assert_eq!(Place::parse(&URL_SAFE_NO_PAD.encode(text)), None, "{text:?}");
        }
        for cursor in ["", "!", "s 1", &"A".repeat(10_000), &format!("{}=", Place::Sandboxes(1).cursor())] {
            assert_eq!(Place::parse(cursor), None, "{cursor:?}");
        }
    }
}
