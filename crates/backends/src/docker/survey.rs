//! What an image has to run programs with, as a look from inside tells it.

use belljar_core::{BackendError, Language};

use crate::interpreters::{Chosen, USUAL_PATH_OF_IMAGES, runs_by};

const LINES_MAX: usize = 32;
const PATH_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    language: Language,
    program: String,
    /// `python-3.12`; `None` for a shell.
    name: Option<String>,
}

/// The interpreters of an image, one of each language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Survey {
    found: Vec<Found>,
    path: String,
}

impl Survey {
    /// Reads what the survey inside printed. It is the image's word: what does not look as it should is as not there.
    pub(super) fn read(told: &str, path: Option<&str>) -> Survey {
        let mut found: Vec<Found> = Vec::new();
        for line in told.lines().take(LINES_MAX) {
            let mut parts = line.split('\t');
            let (Some(name), Some(program), Some(version), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let is_plain = program.starts_with('/') && program.len() <= PATH_MAX && !program.contains(char::is_control);
            let Some(one) = is_plain.then(|| of(name, program, version)).flatten() else { continue };
            if !found.iter().any(|known| known.language == one.language) {
                found.push(one);
            }
        }
        let path = path.filter(|path| path.len() <= PATH_MAX * 8 && !path.contains(char::is_control));
        Survey { found, path: path.unwrap_or(USUAL_PATH_OF_IMAGES).to_owned() }
    }

    fn runs(&self, language: Language) -> Option<&Found> {
        self.found.iter().find(|found| found.language == runs_by(language))
    }

    pub(super) fn languages(&self) -> Vec<Language> {
        Language::ALL.into_iter().filter(|language| self.runs(*language).is_some()).collect()
    }

    pub(super) fn interpreters(&self) -> Vec<(Language, String)> {
        let named = |language| Some((language, self.runs(language)?.name.clone()?));
        Language::ALL.into_iter().filter_map(named).collect()
    }

    /// The version of its Python, such as `3.12`.
    pub(super) fn python(&self) -> Option<String> {
        self.runs(Language::Python)?.name.as_ref()?.strip_prefix("python-").map(str::to_owned)
    }

    /// Those that a sandbox uses. An image has one of each, so whoever names another wants another image.
    pub(super) fn choose(&self, names: &[String], image: &str) -> Result<Chosen, BackendError> {
        for name in names {
            let is_it = |own: &String| {
                own.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
            };
            if name.is_empty() || !self.found.iter().filter_map(|found| found.name.as_ref()).any(is_it) {
                let all: Vec<&str> = self.found.iter().filter_map(|found| found.name.as_deref()).collect();
                let name: String = name.chars().take(40).collect();
                return Err(BackendError::Unavailable {
                    why: format!("the image {image} has no interpreter {name:?}"),
                    fix: format!(
                        "it has {}; use another image",
                        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
                    ),
                });
            }
        }
        let programs = Language::ALL
            .into_iter()
            .filter_map(|language| Some((language, self.runs(language)?.program.clone())))
            .collect();
        Ok(Chosen { programs, path: self.path.clone() })
    }
}

/// One line of the survey.
fn of(name: &str, program: &str, version: &str) -> Option<Found> {
    let numbers = |count: usize| {
        let start = version.find(|character: char| character.is_ascii_digit())?;
        let text: String =
            version[start..].chars().take_while(|character| character.is_ascii_digit() || *character == '.').collect();
        let parts: Vec<&str> = text.split('.').filter(|part| !part.is_empty()).take(count).collect();
        (parts.len() == count && parts.iter().all(|part| part.len() < 6)).then(|| parts.join("."))
    };
    let (language, name) = match name {
        "python3" => (Language::Python, Some(format!("python-{}", numbers(2)?))),
        "node" => (Language::JavaScript, Some(format!("node-{}", numbers(1)?))),
        "go" => (Language::Go, Some(format!("go-{}", numbers(2)?))),
        "rustc" => (Language::Rust, Some(format!("rust-{}", numbers(2)?))),
        // In the survey bash comes before sh.
        "bash" | "sh" => (Language::Shell, None),
        _ => return None,
    };
    Some(Found { language, program: program.to_owned(), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "python3\t/usr/bin/python3\tPython 3.11.2\nnode\t/usr/bin/node\tv18.20.4\n\
        bash\t/usr/bin/bash\tGNU bash, version 5.2.15(1)-release\nsh\t/usr/bin/sh\t\n";

    #[test]
    fn what_an_image_has_is_read() {
        let survey = Survey::read(TOLD, Some("/opt/bin:/usr/bin"));
        assert_eq!(
            survey.languages(),
            [Language::Python, Language::JavaScript, Language::TypeScript, Language::Shell]
                .into_iter()
                .filter(|language| Language::ALL.contains(language))
                .collect::<Vec<_>>()
        );
        assert_eq!(survey.python().as_deref(), Some("3.11"));
        let chosen = survey.choose(&["python-3".to_owned(), "node-18".to_owned()], "x").unwrap();
        assert!(chosen.programs.contains(&(Language::Shell, "/usr/bin/bash".to_owned())));
        assert_eq!(chosen.path, "/opt/bin:/usr/bin");
        let refused = survey.choose(&["python-3.1".to_owned()], "x").unwrap_err();
        assert!(matches!(refused, BackendError::Unavailable { fix, .. } if fix.contains("python-3.11, node-18")));
    }

    #[test]
    fn what_does_not_look_as_it_should_is_not_there() {
        for told in
            ["", "python3\tusr/bin/python3\t3.1", "python3\t/p\t", "python3\t/p\t3", "perl\t/p\t5.1", "node\t/n\tv1\tx"]
        {
            assert!(Survey::read(told, None).languages().is_empty(), "{told:?}");
        }
    }
}
