//! Whether packages are installed, and what is kept of them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packages {
    pub(crate) install: Value<bool>,
    /// Also those that a program only imports.
    pub(crate) infer: Value<bool>,
    /// Without it, below the user's cache directory.
    pub(crate) cache: Value<Option<PathBuf>>,
    pub(crate) cache_gb: Value<u32>,
    /// How old a set without versions may be before it is resolved anew.
    pub(crate) refresh_days: Value<u32>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPackages {
    /// Whether packages are installed.
    install: Option<bool>,
    /// Also those that a program only imports.
    infer: Option<bool>,
    /// Where packages are kept, in a directory `belljar` of ours.
    cache: Option<PathBuf>,
    /// Past this, what was not used for longest goes.
    cache_gb: Option<u32>,
    /// A set without versions is resolved anew after this.
    refresh_days: Option<u32>,
}

impl Packages {
    pub(super) fn resolve(raw: RawPackages) -> Packages {
        Packages {
            install: Value::of(true, raw.install),
            infer: Value::of(true, raw.infer),
            cache: Value::of(None, raw.cache.map(Some)),
            cache_gb: Value::of(10, raw.cache_gb),
            refresh_days: Value::of(7, raw.refresh_days),
        }
    }
}
