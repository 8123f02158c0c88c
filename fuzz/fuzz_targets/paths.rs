//! Paths as callers write them: one spelling for each, the same as a simple model finds, and the names of resources say the
//! path that they were made of.
#![no_main]

use std::path::{Component, Path, PathBuf};

use belljar_engine::fuzzing::is_path;
use belljar_engine::workspace_path;
use belljar_server::fuzzing::{path_in_uri, uri_of};
use libfuzzer_sys::fuzz_target;

const WORKSPACE: &str = "/workspace";

fuzz_target!(|text: &str| {
    let found = workspace_path(text);
    assert_eq!(found, model(text), "{text:?}");
    assert_eq!(workspace_path(&found), found, "{text:?}");
    assert!(!found.split('/').any(|part| part == ".." || part == "."), "{text:?}");
    if is_path(text) {
        assert!(!text.contains('\0') && !text.is_empty() && text.len() <= 4096);
        let named = path_in_uri(&uri_of(text)).expect("a path has a name");
        assert_eq!(named, text);
    }
    // A caller may send any other name, too: it is read, or refused.
    if let Some(path) = path_in_uri(text) {
        assert!(!path.contains('\0') && !path.is_empty(), "{text:?}");
    }
});

/// By the standard library's way of taking a path apart.
fn model(text: &str) -> String {
    let mut at = PathBuf::new();
    for component in Path::new(WORKSPACE).join(text).components() {
        match component {
            Component::RootDir => at = PathBuf::from("/"),
            Component::ParentDir => drop(at.pop()),
            Component::Normal(part) => at.push(part),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let path = at.strip_prefix(WORKSPACE).unwrap_or(&at);
    path.to_str().expect("parts of a text").to_owned()
}
