//! What a new configuration changes, and what of that takes effect while a server runs.

use std::collections::{BTreeMap, BTreeSet};

use super::Config;
use super::schema::join;

/// Keys that take effect without a restart; all others are told to need one. A server's tokens and what `serve` reads of
/// other files are read again besides.
const RELOADABLE: [&str; 10] = [
    "idle_timeout",
    "log",
    "max_age",
    "max_sandboxes",
    "quota.cpu_seconds",
    "quota.egress_mb",
    "quota.memory_mb",
    "quota.requests_per_second",
    "quota.runs",
    "quota.sandboxes",
];

/// Keys that are written otherwise than before, by what becomes of that. Values are not among it: they can be secret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Changed {
    pub(crate) in_effect: Vec<String>,
    pub(crate) after_restart: Vec<String>,
    /// The command line goes before them.
    pub(crate) without_effect: Vec<String>,
}

impl Config {
    /// What this one says otherwise than the one before.
    pub(crate) fn changed_since(&self, before: &Config) -> Changed {
        let (old, new) = (leaves(&before.written.table), leaves(&self.written.table));
        let keys: BTreeSet<&String> =
            old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key)).collect();
        let flags: BTreeSet<String> =
            self.rows().into_iter().filter(|row| row.from == "flag").map(|row| row.key).collect();
        let mut changed = Changed::default();
        for key in keys {
            let kind = match key {
                key if flags.contains(key) => &mut changed.without_effect,
                key if RELOADABLE.contains(&key.as_str()) => &mut changed.in_effect,
                _ => &mut changed.after_restart,
            };
            kind.push(key.clone());
        }
        changed
    }
}

/// Every value by its path.
fn leaves(table: &toml::Table) -> BTreeMap<String, &toml::Value> {
    fn gather<'a>(table: &'a toml::Table, at: &str, found: &mut BTreeMap<String, &'a toml::Value>) {
        for (name, value) in table {
            let path = join(at, name);
            match value {
                toml::Value::Table(below) if !below.is_empty() => gather(below, &path, found),
                value => {
                    found.insert(path, value);
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    gather(table, "", &mut found);
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::schema::{keys, schema};
    use super::super::sources::of_text;
    use super::*;

    #[test]
    fn what_changed_is_told_by_what_becomes_of_it() {
        let before =
            of_text("idle_timeout = 5\nmax_age = 9\n[pool]\nmax = 1\n[templates.a]\nnetwork = ['x.test']", &[])
                .unwrap();
        assert_eq!(before.changed_since(&before), Changed::default());
        let text = "# moved down\n\nmax_age = 10\nmax_sandboxes = 3\n[pool]\nmax = 2\n[templates.b]";
        let mut after = of_text(text, &[]).unwrap();
        after.max_sandboxes.or_flag(Some(Some(4)));
        after.yield_after.or_flag(Some(Duration::from_secs(1)));
        let changed = after.changed_since(&before);
        assert_eq!(changed.in_effect, ["idle_timeout", "max_age"]);
        assert_eq!(changed.after_restart, ["pool.max", "templates.a.network", "templates.b"]);
        assert_eq!(changed.without_effect, ["max_sandboxes"]);
    }

    #[test]
    fn a_variable_hides_what_the_file_changes() {
        let with = |text| of_text(text, &[("BELLJAR_MAX_AGE", "7")]).unwrap();
        assert_eq!(with("max_age = 2").changed_since(&with("max_age = 1")), Changed::default());
    }

    #[test]
    fn what_takes_effect_is_a_key() {
        let keys = keys(&schema());
        for key in RELOADABLE {
            assert!(keys.iter().any(|known| known.path == key), "{key}");
        }
    }
}
