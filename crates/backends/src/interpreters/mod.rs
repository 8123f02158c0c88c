//! Which interpreters and compilers this host has, and what of the host a sandbox must see for them.
//!
//! What is below /usr is there anyway. One that lives elsewhere (pyenv, nvm, uv, conda, rustup) is shown with its own
//! directories and nothing else. The first in `PATH` is what a sandbox uses; further versions are found by the names of
//! files and directories alone, since running each to ask would delay every start of the server.

mod default;
mod further;
mod home;
mod image;
mod probe;
mod version;

use std::path::{Path, PathBuf};

use belljar_core::{BackendError, Language};

pub(crate) use self::image::{OfImage, USUAL_PATH as USUAL_PATH_OF_IMAGES};
use self::version::Version;
use crate::host::Host;

/// Where the sandbox has directories with the plain names of an interpreter that does not come by them itself.
const FRONTS: &str = "/belljar";

const USUAL_PATH: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// One that was found. JavaScript's runs TypeScript too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interpreter {
    pub(super) language: Language,
    pub(super) version: Version,
    /// The program, as the sandbox sees it too.
    pub(super) program: PathBuf,
    /// Directories and files outside the system's own that it needs.
    pub(super) homes: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) language: Language,
    pub(super) why: String,
    pub(super) fix: &'static str,
}

#[derive(Debug)]
pub(super) struct Interpreters {
    /// In the order of the languages, each one's default first and then from the newest to the oldest.
    found: Vec<Interpreter>,
    missing: Vec<Missing>,
}

/// What one sandbox uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) programs: Vec<(Language, String)>,
    /// Where programs are looked for inside.
    pub(super) path: String,
}

impl Interpreter {
    /// `python-3.12`, `node-20`, `go-1.22`, `rust-1.95`; `None` for a shell, of which there is nothing to choose.
    pub(super) fn name(&self) -> Option<String> {
        let tool = match self.language {
            Language::Python => "python",
            Language::JavaScript | Language::TypeScript => "node",
            Language::Go => "go",
            Language::Rust => "rust",
            Language::Shell => return None,
        };
        Some(format!("{tool}-{}", self.version.short(self.language)))
    }

    fn runs(&self, language: Language) -> bool {
        self.language == runs_by(language)
    }

    /// Links that give it its plain names, where its own directory has them for another, or not at all.
    fn links(&self) -> Vec<(String, String)> {
        let (Some(name), Some(program)) = (self.name(), self.program.to_str()) else { return Vec::new() };
        let leads_here = |plain: &&str| {
            let here = self.program.parent().map(|directory| directory.join(plain));
            here.and_then(|here| here.canonicalize().ok()) == self.program.canonicalize().ok()
        };
        if plain_names(self.language).iter().all(leads_here) {
            return Vec::new();
        }
        let link = |plain: &&str| (format!("{FRONTS}/{name}/bin/{plain}"), program.to_owned());
        plain_names(self.language).iter().map(link).collect()
    }
}

/// The names by which people and scripts start a language's.
fn plain_names(language: Language) -> &'static [&'static str] {
    match language {
        Language::Python => &["python3", "python"],
        Language::JavaScript | Language::TypeScript => &["node"],
        Language::Go => &["go"],
        Language::Rust => &["rustc"],
        Language::Shell => &[],
    }
}

impl Chosen {
    pub(super) fn has(&self, language: Language) -> bool {
        self.programs.iter().any(|(known, _)| *known == language)
    }
}

impl Interpreters {
    pub(super) fn find(host: &Host) -> Interpreters {
        // At once: each may have to be asked where it lives, and a shim takes its time.
        let tools = [Language::Python, Language::JavaScript, Language::Shell, Language::Go, Language::Rust];
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asked = tools.map(|language| scope.spawn(move || (language, all_of(language, host))));
            asked.into_iter().filter_map(|answer| answer.join().ok()).collect()
        });
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (language, answer) in answers {
            match answer {
                Ok(interpreters) => found.extend(interpreters),
                Err(reason) => missing.push(reason),
            }
            if language == Language::JavaScript
                && let Some(reason) = missing.iter().find(|missing| missing.language == language).cloned()
            {
                missing.push(Missing { language: Language::TypeScript, ..reason });
            }
        }
        Interpreters { found, missing }
    }

    pub(super) fn languages(&self) -> Vec<Language> {
        Language::ALL.into_iter().filter(|language| self.default_of(*language).is_some()).collect()
    }

    /// Every one by its name, under each language that it runs.
    pub(super) fn names(&self) -> Vec<(Language, String)> {
        let of = |language: Language| {
            let those = self.found.iter().filter(move |found| found.runs(language));
            those.filter_map(move |found| Some((language, found.name()?)))
        };
        Language::ALL.into_iter().flat_map(of).collect()
    }

    pub(super) fn missing(&self) -> &[Missing] {
        &self.missing
    }

    pub(super) fn default_of(&self, language: Language) -> Option<&Interpreter> {
        self.found.iter().find(|found| found.runs(language))
    }

    /// Every version of Python, such as `3.12`.
    pub(super) fn pythons(&self) -> impl Iterator<Item = String> {
        let those = self.found.iter().filter(|found| found.language == Language::Python);
        those.map(|found| found.version.short(Language::Python))
    }

    /// What to show besides the system's own, none of it below another.
    pub(super) fn homes(&self) -> Vec<PathBuf> {
        let mut homes: Vec<PathBuf> = Vec::new();
        let mut all: Vec<&PathBuf> = self.found.iter().flat_map(|found| &found.homes).collect();
        all.sort();
        for home in all {
            if !homes.iter().any(|kept| home.starts_with(kept)) {
                homes.push(home.clone());
            }
        }
        homes
    }

    /// Links of the root, as (path, target), for those that may be named.
    pub(super) fn links(&self) -> Vec<(String, String)> {
        self.found.iter().flat_map(Interpreter::links).collect()
    }

    /// The defaults, but for those named.
    pub(super) fn choose(&self, names: &[String]) -> Result<Chosen, BackendError> {
        let mut named: Vec<&Interpreter> = Vec::new();
        for name in names {
            let interpreter = self.by_name(name)?;
            match named.iter().find(|other| other.language == interpreter.language) {
                Some(other) if *other != interpreter => {
                    return Err(BackendError::Unavailable {
                        why: format!("a sandbox has one interpreter for {}, and two were named", interpreter.language),
                        fix: "name one of them, and make another sandbox for the other".to_owned(),
                    });
                }
                Some(_) => {}
                None => named.push(interpreter),
            }
        }
        let used = |language: Language| {
            named.iter().copied().find(|named| named.runs(language)).or_else(|| self.default_of(language))
        };
        let all = || Language::ALL.into_iter().filter_map(|language| Some((language, used(language)?)));
        let programs = all().filter_map(|(language, used)| Some((language, used.program.to_str()?.to_owned())));
        // What was named comes first, by its plain names if it has to; then what is beside each other one.
        let mut path: Vec<String> = Vec::new();
        let beside = |interpreter: &Interpreter| Some(interpreter.program.parent()?.to_str()?.to_owned());
        for interpreter in &named {
            let has_links = !interpreter.links().is_empty();
            path.extend(interpreter.name().filter(|_| has_links).map(|name| format!("{FRONTS}/{name}/bin")));
        }
        let named = named.iter().copied().filter_map(beside);
        let others = all().filter_map(|(_, used)| beside(used));
        let others = named.chain(others).filter(|directory| !USUAL_PATH.contains(&directory.as_str()));
        for directory in others.chain(USUAL_PATH.map(str::to_owned)) {
            if !path.contains(&directory) {
                path.push(directory);
            }
        }
        Ok(Chosen { programs: programs.collect(), path: path.join(":") })
    }

    /// By its name, or the first part of it: `python-3` and `go` are the first that begin so.
    fn by_name(&self, name: &str) -> Result<&Interpreter, BackendError> {
        let is_it = |found: &&Interpreter| {
            let rest = found.name().and_then(|own| Some(own.strip_prefix(name)?.to_owned()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
        };
        self.found.iter().find(is_it).filter(|_| !name.is_empty()).ok_or_else(|| {
            let names: Vec<String> = self.found.iter().filter_map(Interpreter::name).collect();
            let name: String = name.chars().take(40).collect();
            BackendError::Unavailable {
                why: format!("this host has no interpreter {name:?}"),
                fix: format!("use one of: {}", names.join(", ")),
            }
        })
    }
}

/// The language whose interpreter runs it.
pub(crate) fn runs_by(language: Language) -> Language {
    if language == Language::TypeScript { Language::JavaScript } else { language }
}

/// The default first, then the others from the newest to the oldest, one of each name.
fn all_of(language: Language, host: &Host) -> Result<Vec<Interpreter>, Missing> {
    let default = default::find(language, host);
    let mut further = further::find(language, host, default.as_ref().ok());
    further.sort_by(|one, other| other.version.cmp(&one.version));
    let mut all: Vec<Interpreter> = Vec::new();
    let default = match default {
        Ok(default) => Some(default),
        // Nothing in `PATH`, but somewhere else where it is usually installed.
        Err(_) if !further.is_empty() => None,
        Err(why) => return Err(Missing { language, why, fix: fix(language, host) }),
    };
    for interpreter in default.into_iter().chain(further) {
        if !all.iter().any(|kept| kept.name() == interpreter.name()) {
            all.push(interpreter);
        }
    }
    if language == Language::Rust && !has_linker(&all) {
        let why = "rustc is there, but no C compiler (cc), by which it links".to_owned();
        return Err(Missing {
            language,
            why,
            fix: "install one (`apt install gcc libc6-dev`) and start belljar again",
        });
    }
    Ok(all)
}

/// Whether `cc` will be found inside.
fn has_linker(all: &[Interpreter]) -> bool {
    let beside = all.iter().filter_map(|found| found.program.parent());
    beside.chain(USUAL_PATH.map(Path::new)).any(|directory| home::is_executable(&directory.join("cc")))
}

/// How to get it.
fn fix(language: Language, host: &Host) -> &'static str {
    match language {
        Language::Python => "install Python 3.8 or later (`apt install python3`) and start belljar again",
        Language::JavaScript | Language::TypeScript => "install Node.js (`apt install nodejs`) and start belljar again",
        Language::Shell => "install bash (`apt install bash`) and start belljar again",
        Language::Go => "install Go (`apt install golang-go`, or from https://go.dev/dl) and start belljar again",
        Language::Rust if default::has_rustup(host) => {
            "install a toolchain (`rustup default stable`) and start belljar again"
        }
        Language::Rust => "install Rust (from https://rustup.rs, or `apt install rustc gcc`) and start belljar again",
    }
}

#[cfg(test)]
mod tests;
