//! What a program needs: by what it says, and by what it imports.

mod glance;
mod reader;
mod script;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use belljar_core::{Backend, Language};

use crate::facts::Facts;
use crate::{Needs, names};

use reader::{Module, Reader};

#[derive(Debug)]
pub(crate) struct Asker {
    reader: Reader,
}

impl Asker {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Asker {
        Asker { reader: Reader::new(backend) }
    }

    /// Lets go of the sandbox that it keeps.
    pub(crate) async fn end(&self) {
        self.reader.end().await;
    }

    /// `facts` tells what the interpreter has; it is only asked where that matters.
    pub(crate) async fn needs<F: Future<Output = Option<Arc<Facts>>>>(
        &self,
        language: Language,
        code: &str,
        local: &[String],
        facts: impl FnOnce() -> F,
    ) -> Needs {
        if language == Language::Python {
            // Who says what he needs is not second-guessed.
            match script::read(code) {
                Some(Ok(script)) => {
                    let python = script.requires_python;
                    return Needs { required: script.dependencies, python, ..Needs::default() };
                }
                Some(Err(malformed)) => return Needs { malformed: Some(malformed), ..Needs::default() },
                None => {}
            }
        }
        if !glance::mentions(language, code) {
            return Needs::default();
        }
        let Some(facts) = facts().await else { return Needs::default() };
        if language != Language::Python {
            return node(&self.reader.modules(language, code).await, &facts.modules, local);
        }
        match glance::modules(code, &facts.modules, local) {
            Some(modules) => python(&modules, &facts.modules, local),
            None => python(&self.reader.modules(language, code).await, &facts.modules, local),
        }
    }
}

/// What a sandbox has of ours, under names that the registries have too.
const OURS: [&str; 2] = ["tools", "mcp_runtime"];

fn python(modules: &[Module], known: &BTreeSet<String>, local: &[String]) -> Needs {
    let is_there = |name: &str| {
        let top = name.split('.').next().unwrap_or_default();
        known.contains(top) && !names::is_shared(top) || OURS.contains(&top) || local.iter().any(|one| one == top)
    };
    let missing = modules.iter().filter(|module| !module.optional && !is_there(&module.name));
    let inferred = missing.filter_map(|module| names::distribution(&module.name)).collect::<BTreeSet<_>>();
    Needs { inferred: inferred.into_iter().collect(), ..Needs::default() }
}

fn node(modules: &[Module], known: &BTreeSet<String>, local: &[String]) -> Needs {
    let mut needs = Needs::default();
    for module in modules {
        let Some(package) = names::npm_package(&module.name) else { continue };
        match &module.version {
            // What is written with `npm:` is meant.
            Some(version) => needs.required.push(format!("{package}@{version}")),
            None => {
                let is_there =
                    known.contains(package) || OURS.contains(&package) || local.iter().any(|one| one == package);
                if !is_there && !module.optional && !needs.inferred.iter().any(|one| one == package) {
                    needs.inferred.push(package.to_owned());
                }
            }
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(names: &[&str]) -> Vec<Module> {
        let module = |text: &&str| {
            let (name, optional) = text.strip_suffix('?').map_or((*text, false), |name| (name, true));
            let (name, version) = match name.split_once('=') {
                Some((name, version)) => (name, Some(version.to_owned())),
                None => (name, None),
            };
            Module { name: name.to_owned(), version, optional }
        };
        names.iter().map(module).collect()
    }

    fn known(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_what_is_missing_and_not_optional_is_inferred() {
        let found = modules(&[
            "os.path",
            "pandas",
            "cv2",
            "ujson?",
            "mine.x",
            "utils",
            "sklearn.svm",
            "sklearn",
            "tools.github",
            "mcp_runtime",
        ]);
        let needs = python(&found, &known(&["os", "pandas"]), &["mine".to_owned()]);
        assert_eq!(needs.inferred, ["opencv-python-headless", "scikit-learn"]);
    }

    #[test]
    fn a_part_of_a_shared_package_is_missing_although_another_part_is_there() {
        let needs = python(&modules(&["google.cloud.storage"]), &known(&["google"]), &[]);
        assert_eq!(needs.inferred, ["google-cloud-storage"]);
    }

    #[test]
    fn what_npm_is_told_is_required_and_what_is_imported_is_inferred() {
        let found =
            modules(&["dayjs=1.11.0", "lodash/fp", "lodash", "@a/b/c", "fs", "near", "maybe?", "_bad", "tools"]);
        let needs = node(&found, &known(&["fs"]), &["near".to_owned()]);
        assert_eq!(needs.required, ["dayjs@1.11.0"]);
        assert_eq!(needs.inferred, ["lodash", "@a/b"]);
    }
}
