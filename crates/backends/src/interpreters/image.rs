//! The interpreters of a root file system that is not the host's. Nothing of it is run to find them.

use belljar_core::{BackendError, Language, Network};
use belljar_images::Found;

use super::{Chosen, FRONTS, plain_names, runs_by};
use crate::layout::{self, Trust};

/// Where an image's programs are if it does not say.
pub(crate) const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What an image has to run programs with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfImage<'a> {
    pub(crate) found: &'a [Found],
    /// What its programs are to have.
    pub(crate) env: &'a [(String, String)],
}

impl<'a> From<&'a belljar_images::Root> for OfImage<'a> {
    fn from(root: &'a belljar_images::Root) -> Self {
        OfImage { found: &root.interpreters, env: &root.env }
    }
}

impl<'a> OfImage<'a> {
    pub(crate) fn languages(self) -> Vec<Language> {
        Language::ALL.into_iter().filter(|language| self.of_language(*language).next().is_some()).collect()
    }

    /// Every one by its name, under each language that it runs; a shell is not told.
    pub(crate) fn names(self) -> Vec<(Language, String)> {
        let languages = Language::ALL.into_iter().filter(|language| *language != Language::Shell);
        languages
            .flat_map(|language| self.of_language(language).map(move |found| (language, found.name.clone())))
            .collect()
    }

    /// Every version of Python, such as `3.11`.
    pub(crate) fn pythons(self) -> impl Iterator<Item = String> {
        self.found.iter().filter_map(|found| found.name.strip_prefix("python-")).map(str::to_owned)
    }

    fn of_language(self, language: Language) -> impl Iterator<Item = &'a Found> {
        self.found.iter().filter(move |found| found.language == runs_by(language))
    }

    /// What a sandbox uses: the image's own, but for those named.
    pub(crate) fn choose(self, names: &[String]) -> Result<Chosen, BackendError> {
        let mut named: Vec<&Found> = Vec::new();
        for name in names {
            let is_it = |found: &&Found| {
                let rest = found.name.strip_prefix(name.as_str());
                !name.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
            };
            let found = self.found.iter().find(is_it).ok_or_else(|| {
                let names: Vec<&str> = self.found.iter().map(|found| found.name.as_str()).collect();
                let name: String = name.chars().take(40).collect();
                BackendError::Lacks {
                    what: format!("the image has no interpreter {name:?}"),
                    instead: format!("use one of: {}", names.join(", ")),
                }
            })?;
            named.retain(|other| other.language != found.language);
            named.push(found);
        }
        let used = |language: Language| {
            let of_it = || self.of_language(language);
            of_it().find(|found| named.contains(found)).or_else(|| of_it().next())
        };
        let programs = Language::ALL.into_iter().filter_map(|language| Some((language, used(language)?.path.clone())));
        let own = self.env.iter().find(|(name, _)| name == "PATH").map_or(USUAL_PATH, |(_, value)| value.as_str());
        let fronts = named.iter().map(|found| format!("{FRONTS}/{}/bin:", found.name)).collect::<String>();
        Ok(Chosen { programs: programs.collect(), path: format!("{fronts}{own}") })
    }

    /// Links that give each its plain names, for who names it.
    pub(crate) fn fronts(self) -> impl Iterator<Item = (String, String)> {
        self.found.iter().flat_map(|found| {
            let link = |name: &&str| (format!("{FRONTS}/{}/bin/{name}", found.name), found.path.clone());
            plain_names(found.language).iter().map(link)
        })
    }

    /// The environment of a sandbox's programs: the image's own below ours, and what the caller added above both.
    pub(crate) fn environment(
        self,
        chosen: &Chosen,
        network: &Network,
        trust: Trust,
        added: &[(String, String)],
    ) -> Vec<(String, String)> {
        let mut ours = layout::environment(chosen, network, trust, added);
        let shell = chosen.programs.iter().find(|(language, _)| *language == Language::Shell);
        let is_added = added.iter().any(|(name, _)| name == "SHELL");
        let own = ours.iter_mut().find(|(name, _)| name == "SHELL");
        if let (Some((_, shell)), Some(own), false) = (shell, own, is_added) {
            own.1.clone_from(shell);
        }
        let below = self.env.iter().filter(|(name, _)| !ours.iter().any(|(other, _)| other == name)).cloned();
        below.collect::<Vec<_>>().into_iter().chain(ours).collect()
    }
}
