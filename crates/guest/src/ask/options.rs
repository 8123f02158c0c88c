//! The options of `pip install` and of uv, as far as they have to be told apart.

/// What an option means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A file of requirements, or of constraints.
    Requirements,
    Constraints,
    Upgrade,
    Pre,
    Quiet,
    /// Which interpreter it is for.
    Python,
    /// A project in development.
    Editable,
    /// Asks for something else than packages that can be imported.
    Elsewhere,
    /// Says where to fetch from, which is the operator's to say.
    Index,
    /// Makes no difference here.
    Idle,
    /// Would make one, or is unknown.
    Ignored,
}

/// An option as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written<'w> {
    pub(super) name: &'w str,
    pub(super) meaning: Meaning,
    pub(super) value: Value<'w>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value<'w> {
    None,
    Here(&'w str),
    /// The next word is it.
    Next,
}

impl Written<'_> {
    /// `None` for a word that is no option.
    pub(super) fn read(word: &str) -> Option<Written<'_>> {
        if !word.starts_with('-') || word == "-" {
            return None;
        }
        let (name, given) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ if word.starts_with("--") => (word, None),
            // `-rfile`, but `-qq`.
            _ => match word.split_at_checked(2) {
                Some((name, rest)) if !rest.is_empty() && takes_value(name) => (name, Some(rest)),
                _ => (word, None),
            },
        };
        let value = match given {
            Some(value) => Value::Here(value),
            None if takes_value(name) => Value::Next,
            None => Value::None,
        };
        Some(Written { name, meaning: meaning(name), value })
    }
}

fn meaning(name: &str) -> Meaning {
    match name {
        "-r" | "--requirement" | "--requirements" => Meaning::Requirements,
        "-c" | "--constraint" | "--constraints" => Meaning::Constraints,
        "-U" | "--upgrade" => Meaning::Upgrade,
        "--pre" => Meaning::Pre,
        "-q" | "-qq" | "-qqq" | "--quiet" => Meaning::Quiet,
        "-p" | "--python" => Meaning::Python,
        "-e" | "--editable" => Meaning::Editable,
        "-t" | "--target" | "--prefix" | "--root" | "--dry-run" | "--script" => Meaning::Elsewhere,
        "-i" | "--index-url" | "--extra-index-url" | "--index" | "--default-index" | "--index-strategy" | "-f"
        | "--find-links" | "--trusted-host" | "--proxy" | "--no-index" => Meaning::Index,
        "--user"
        | "--no-cache-dir"
        | "--no-cache"
        | "--cache-dir"
        | "-n"
        | "--break-system-packages"
        | "--disable-pip-version-check"
        | "--no-input"
        | "--no-color"
        | "--color"
        | "--no-warn-script-location"
        | "--no-warn-conflicts"
        | "--prefer-binary"
        | "--ignore-installed"
        | "-I"
        | "--force-reinstall"
        | "--reinstall"
        | "--compile"
        | "--compile-bytecode"
        | "--no-compile"
        | "--no-progress"
        | "--progress-bar"
        | "--system"
        | "--isolated"
        | "-v"
        | "-vv"
        | "-vvv"
        | "--verbose"
        | "--dev"
        | "--active"
        | "--group"
        | "--optional"
        | "--root-user-action"
        | "--timeout"
        | "--default-timeout"
        | "--retries"
        | "--log"
        | "--exists-action"
        | "--upgrade-strategy"
        | "--link-mode"
        | "--keyring-provider"
        | "--no-sync"
        | "--frozen" => Meaning::Idle,
        _ => Meaning::Ignored,
    }
}

fn takes_value(name: &str) -> bool {
    matches!(meaning(name), Meaning::Requirements | Meaning::Constraints | Meaning::Python | Meaning::Editable)
        || matches!(
            name,
            "-t" | "--target"
                | "--prefix"
                | "--root"
                | "--script"
                | "-i"
                | "--index-url"
                | "--extra-index-url"
                | "--index"
                | "--default-index"
                | "--index-strategy"
                | "-f"
                | "--find-links"
                | "--trusted-host"
                | "--proxy"
                | "--cache-dir"
                | "--color"
                | "--progress-bar"
                | "--group"
                | "--optional"
                | "--root-user-action"
                | "--timeout"
                | "--default-timeout"
                | "--retries"
                | "--log"
                | "--exists-action"
                | "--upgrade-strategy"
                | "--link-mode"
                | "--keyring-provider"
                | "--only-binary"
                | "--no-binary"
                | "--platform"
                | "--python-version"
                | "--python-platform"
                | "--implementation"
                | "--abi"
                | "--src"
                | "-C"
                | "--config-settings"
                | "--config-setting"
                | "--global-option"
                | "--report"
                | "--resolution"
                | "--prerelease"
                | "--exclude-newer"
                | "--torch-backend"
                | "--extra"
                | "-P"
                | "--upgrade-package"
                | "--override"
                | "--use-feature"
                | "--use-deprecated"
        )
}
