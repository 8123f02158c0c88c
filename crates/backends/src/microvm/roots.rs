//! The root file systems that machines have: templates of the store of images, or a directory that the operator named.
//! Nothing of them is run on the host.

use std::path::{Path, PathBuf};

use belljar_core::BackendError;
use belljar_images::{Found, survey};

use super::disk;
use crate::interpreters::OfImage;
use crate::setup;

#[derive(Debug, Clone)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    /// The same for the same content, and for nothing else.
    pub(super) id: String,
    interpreters: Vec<Found>,
    /// What the image's programs are to have.
    env: Vec<(String, String)>,
    /// As long as anybody has it, it is not removed from the store.
    _held: Option<belljar_images::Root>,
}

impl From<belljar_images::Root> for Root {
    fn from(root: belljar_images::Root) -> Self {
        let digits = root.digest.chars().filter(char::is_ascii_hexdigit);
        Root {
            path: root.path.clone(),
            id: format!("image-{}", digits.rev().take(32).collect::<String>()),
            interpreters: root.interpreters.clone(),
            env: root.env.clone(),
            _held: Some(root),
        }
    }
}

impl Root {
    /// A directory that is a root file system.
    pub(super) fn of_directory(path: &Path) -> Result<Root, BackendError> {
        let interpreters = survey(path, &[]);
        if interpreters.is_empty() {
            return Err(BackendError::Unavailable {
                why: format!("{} is no root file system with a shell or an interpreter", path.display()),
                fix: "name the directory of one, such as debootstrap makes: [microvm] image = \"/path/to/root\""
                    .to_owned(),
            });
        }
        let path = path.canonicalize().map_err(|error| setup("looking at an image", &error))?;
        let id = format!("root-{}", &disk::look(&path)?.stamp[..32]);
        Ok(Root { id, interpreters, env: Vec::new(), path, _held: None })
    }

    pub(super) fn inside(&self) -> OfImage<'_> {
        OfImage { found: &self.interpreters, env: &self.env }
    }
}

#[cfg(test)]
mod tests {
    use belljar_core::Language;

    use super::*;

    fn root() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let program = |name: &str| {
            let path = directory.path().join("usr/bin").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        program("python3.11");
        program("python3.12");
        program("bash");
        std::os::unix::fs::symlink("python3.11", directory.path().join("usr/bin/python3")).unwrap();
        let root = Root::of_directory(directory.path()).unwrap();
        (directory, root)
    }

    #[test]
    fn the_images_own_are_used_but_for_those_named() {
        let (_directory, root) = root();
        let inside = root.inside();
        assert_eq!(inside.languages(), [Language::Python, Language::Shell]);
        assert_eq!(inside.pythons().collect::<Vec<_>>(), ["3.11", "3.12"]);
        let chosen = inside.choose(&[]).unwrap();
        assert!(chosen.programs.contains(&(Language::Python, "/usr/bin/python3".to_owned())), "{chosen:?}");
        let chosen = inside.choose(&["python-3.12".to_owned()]).unwrap();
        assert!(chosen.programs.contains(&(Language::Python, "/usr/bin/python3.12".to_owned())), "{chosen:?}");
        assert!(chosen.path.starts_with("/belljar/python-3.12/bin:"));
        let front = ("/belljar/python-3.12/bin/python".to_owned(), "/usr/bin/python3.12".to_owned());
        assert!(inside.fronts().any(|link| link == front));
        assert!(matches!(inside.choose(&["node-20".to_owned()]), Err(BackendError::Lacks { .. })));
    }

    #[test]
    fn a_directory_that_is_none_is_told() {
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(Root::of_directory(empty.path()), Err(BackendError::Unavailable { .. })));
    }
}
