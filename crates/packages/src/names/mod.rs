//! Names of packages, and the way from a module's name to the package that has it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Lines of a module, its distribution, and other distributions that have it too; in order.
const MODULES: &str = include_str!("modules.txt");

#[derive(Debug)]
struct Distribution {
    name: &'static str,
    others: Vec<&'static str>,
}

static TABLE: LazyLock<BTreeMap<&'static str, Distribution>> = LazyLock::new(|| {
    let lines = MODULES.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, Distribution { name: words.next()?, others: words.collect() }))
    });
    rows.collect()
});

/// Names that surely mean a file of the program's own. Whoever can have a package of such a name in the registry must not
/// get it into everybody's sandbox.
const LOCAL: [&str; 61] = [
    "analysis",
    "api",
    "app",
    "application",
    "apps",
    "backend",
    "base",
    "client",
    "code",
    "common",
    "conf",
    "config",
    "configs",
    "conftest",
    "const",
    "constants",
    "core",
    "data",
    "database",
    "dataset",
    "db",
    "demo",
    "env",
    "example",
    "examples",
    "exceptions",
    "foo",
    "functions",
    "handlers",
    "helper",
    "helpers",
    "lib",
    "libs",
    "local",
    "local_settings",
    "main",
    "mcp_runtime",
    "model",
    "models",
    "module",
    "my_module",
    "mymodule",
    "plugins",
    "project",
    "schema",
    "schemas",
    "script",
    "scripts",
    "server",
    "services",
    "settings",
    "setup",
    "src",
    "task",
    "tasks",
    "test",
    "tests",
    "tools",
    "util",
    "utils",
    "views",
];

/// The distribution that has a module, given as it is imported: `google.cloud.storage`. `None` where nobody should guess.
pub(crate) fn distribution(module: &str) -> Option<String> {
    let parts = module.split('.').collect::<Vec<_>>();
    let top = *parts.first()?;
    let is_plain = top.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if top.is_empty() || top.len() > 80 || !is_plain || top.starts_with('_') || LOCAL.contains(&top) {
        return None;
    }
    // The longest that is known; of a package that many share, the whole name says nothing.
    for length in (1..=parts.len()).rev() {
        if let Some(found) = TABLE.get(parts.get(..length)?.join(".").as_str()) {
            return Some(found.name.to_owned());
        }
    }
    (!is_shared(top)).then(|| normal(top))
}

/// Whether many distributions have a part of this module.
pub(crate) fn is_shared(top: &str) -> bool {
    let with_dot = format!("{top}.");
    !TABLE.contains_key(top) && TABLE.keys().any(|known| known.starts_with(&with_dot))
}

/// Whether a distribution has the module that `inferred` was inferred for, so that both must not be there.
pub(crate) fn stands_for(distribution: &str, inferred: &str) -> bool {
    let (distribution, inferred) = (normal(distribution), normal(inferred));
    distribution == inferred
        || TABLE
            .values()
            .any(|row| normal(row.name) == inferred && row.others.iter().any(|other| normal(other) == distribution))
}

/// The name within a requirement: `Pandas[x]>=2; marker` is `pandas`.
pub(crate) fn of_requirement(requirement: &str) -> String {
    let end = requirement.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')));
    normal(requirement.get(..end.unwrap_or(requirement.len())).unwrap_or_default())
}

/// An npm package of an import: `@scope/name/part` is `@scope/name`. `None` where it can be none.
pub(crate) fn npm_package(specifier: &str) -> Option<&str> {
    let parts = if specifier.starts_with('@') { 2 } else { 1 };
    let end = specifier.match_indices('/').nth(parts - 1).map_or(specifier.len(), |(at, _)| at);
    let name = specifier.get(..end)?;
    let (scope, bare) = name.strip_prefix('@').map_or(Some(("-", name)), |scoped| scoped.split_once('/'))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '/');
    // `@/part` is somebody's way to write a file of his own.
    let is_named = !scope.is_empty() && !bare.is_empty() && !bare.starts_with(['.', '_']);
    let fits = is_named && name.len() <= 214 && name.chars().all(is_plain);
    fits.then_some(name)
}

/// A name as registries compare it: PEP 503.
pub(crate) fn normal(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for part in name.split(['-', '_', '.']).filter(|part| !part.is_empty()) {
        if !normal.is_empty() {
            normal.push('-');
        }
        normal.push_str(&part.to_ascii_lowercase());
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_each_line_says_something() {
        let rows = MODULES.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
        assert!(rows.len() >= 100 && rows.len() == TABLE.len());
        for pair in rows.windows(2) {
            assert!(pair[0].split(' ').next() < pair[1].split(' ').next(), "{pair:?}");
        }
        for row in rows {
            let words = row.split(' ').collect::<Vec<_>>();
            assert!(words.len() >= 2 && words.iter().all(|word| !word.is_empty()), "{row:?}");
            let says = words.len() > 2 || words[0].contains('.') || normal(words[0]) != normal(words[1]);
            assert!(says, "{row:?}");
        }
        assert!(LOCAL.is_sorted());
    }

    #[test]
    fn modules_lead_to_their_distributions() {
        for (module, wanted) in [
            ("cv2", "opencv-python-headless"),
            ("PIL.Image", "pillow"),
            ("sklearn.linear_model", "scikit-learn"),
            ("yaml", "pyyaml"),
            ("pandas", "pandas"),
            ("sentence_transformers", "sentence-transformers"),
            ("google.cloud.storage", "google-cloud-storage"),
            ("google.cloud.storage.blob", "google-cloud-storage"),
            ("mpl_toolkits.mplot3d", "matplotlib"),
        ] {
            assert_eq!(distribution(module).as_deref(), Some(wanted), "{module}");
        }
        for module in ["utils", "config.here", "_private", "google", "google.unheard_of", "näme", "", "tools"] {
            assert_eq!(distribution(module), None, "{module}");
        }
    }

    #[test]
    fn what_was_asked_for_by_another_name_is_not_inferred_again() {
        assert!(stands_for("opencv-python", "opencv-python-headless"));
        assert!(stands_for("Pandas", "pandas"));
        assert!(!stands_for("numpy", "pandas"));
    }

    #[test]
    fn names_are_found_in_requirements_and_specifiers() {
        assert_eq!(of_requirement("Typing_Extensions[x]>=4; python_version<'3'"), "typing-extensions");
        assert_eq!(npm_package("@scope/name/part"), Some("@scope/name"));
        assert_eq!(npm_package("lodash/fp"), Some("lodash"));
        for bad in ["@scope", "", ".x", "a b", "_x", "@/part/x", "~/x"] {
            assert_eq!(npm_package(bad), None, "{bad:?}");
        }
    }
}
