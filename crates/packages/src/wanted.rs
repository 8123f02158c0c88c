//! What is asked for, and what comes of it.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Ground, PackageKind};

use crate::{Environment, InstallError, InstallErrorKind, names};

/// What a program needs that its interpreter does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// What the program says itself, by a PEP 723 block or `npm:`; these have to be there.
    pub required: Vec<String>,
    /// What its imports make likely; where one cannot be found the program is run without it.
    pub inferred: Vec<String>,
    /// The Python that its PEP 723 block asks for, such as `>=3.12`.
    pub python: Option<String>,
    /// Why its PEP 723 block could not be read.
    pub malformed: Option<String>,
}

impl Needs {
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.inferred.is_empty()
    }
}

/// An environment to find or to build.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub kind: PackageKind,
    /// As in [`belljar_core::Spec::ground`].
    pub ground: Ground,
    /// As pip and npm write them: `pandas>=2`, `lodash@4`.
    pub required: Vec<String>,
    pub inferred: Vec<String>,
    /// Who asks. It decides about nothing but whose turn it is to build.
    pub owner: String,
    /// What is there already and stays: with all it has, in the versions that it has.
    pub on_top_of: Option<Arc<Environment>>,
}

impl Wanted {
    pub fn new(kind: PackageKind, ground: &Ground) -> Wanted {
        Wanted {
            kind,
            ground: ground.clone(),
            required: Vec::new(),
            inferred: Vec::new(),
            owner: String::new(),
            on_top_of: None,
        }
    }
}

/// How far an installation is, for a person to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub words: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Somebody else builds the very same.
    Waiting,
    Preparing,
    Resolving,
    Downloading,
    Building,
    Compiling,
    Storing,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Installed {
    /// To be held as long as a sandbox has its layer. `None` where all that was asked for was inferred, and left out.
    pub environment: Option<Arc<Environment>>,
    pub took: Duration,
    /// Whether it was made now, and not only found.
    pub built: bool,
    /// Inferred names that could not be installed, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// Requirements that one call may have.
const REQUIREMENTS_MAX: usize = 200;
const REQUIREMENT_MAX: usize = 500;

/// As it is asked for in one spelling and order; what is no requirement, but an option, a path or two lines, is refused.
pub(crate) fn checked(mut wanted: Wanted) -> Result<Wanted, InstallError> {
    let bad = |words: String| InstallError::new(InstallErrorKind::NotFound, words);
    if wanted.required.len() + wanted.inferred.len() > REQUIREMENTS_MAX {
        return Err(bad(format!("more than {REQUIREMENTS_MAX} packages at once")));
    }
    for requirement in wanted.required.iter_mut().chain(&mut wanted.inferred) {
        let text = requirement.trim();
        let first = text
            .chars()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric() || (first == '@' && wanted.kind == PackageKind::Node));
        if !first || text.len() > REQUIREMENT_MAX || text.chars().any(char::is_control) {
            let shown = text.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
            let example = match wanted.kind {
                PackageKind::Python => "pandas or pandas>=2",
                PackageKind::Node => "lodash or lodash@4",
            };
            return Err(bad(format!("{shown:?} is no package; write it as {example}")));
        }
        *requirement = match wanted.kind {
            PackageKind::Python if names::of_requirement(text) == names::normal(text) => names::normal(text),
            PackageKind::Python | PackageKind::Node => text.to_owned(),
        };
    }
    for list in [&mut wanted.required, &mut wanted.inferred] {
        list.sort();
        list.dedup();
    }
    if wanted.kind == PackageKind::Python {
        let required = wanted.required.iter().map(|one| names::of_requirement(one)).collect::<Vec<_>>();
        wanted.inferred.retain(|inferred| !required.iter().any(|name| names::stands_for(name, inferred)));
    } else {
        wanted.inferred.retain(|inferred| {
            !wanted.required.iter().any(|one| one.starts_with(&format!("{inferred}@")) || one == inferred)
        });
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(required: &[&str], inferred: &[&str]) -> Wanted {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Wanted {
            required: own(required),
            inferred: own(inferred),
            ..Wanted::new(PackageKind::Python, &Ground::default())
        }
    }

    #[test]
    fn the_same_set_is_asked_for_in_one_way() {
        let one = checked(wanted(&["Pandas ", "numpy>=2", "pandas"], &["cv2_x", "numpy"])).unwrap();
        assert_eq!((one.required, one.inferred), (vec!["numpy>=2".into(), "pandas".into()], vec!["cv2-x".to_owned()]));
    }

    #[test]
    fn what_was_asked_for_is_not_inferred_under_another_name() {
        let one = checked(wanted(&["opencv-python==4"], &["opencv-python-headless", "pillow"])).unwrap();
        assert_eq!(one.inferred, ["pillow"]);
    }

    #[test]
    fn options_paths_and_lines_are_no_packages() {
        for bad in ["--index-url=x", "-r /etc/passwd", "./here", "/there", "a\n--x", "", "  ", "@scope/x"] {
            let error = checked(wanted(&[bad], &[])).unwrap_err();
            assert_eq!(error.kind, InstallErrorKind::NotFound, "{bad:?}");
        }
    }
}
