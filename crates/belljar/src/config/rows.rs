//! Every key with its value, for `belljar config show`.
//!
//! A key that has a value of its own where nobody wrote one has a line in [`effective`]; all others show what was written.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;

use super::schema::{Kind, below, join, keys, schema};
use super::value::Origin;
use super::{Config, Value, Whence, approve_word};

/// In place of what nobody is to see.
const HIDDEN: &str = "(hidden)";

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) value: String,
    /// Such as `built in`, `belljar.toml:3`, `env BELLJAR_POOL__MAX` or `flag`.
    pub(crate) from: String,
}

impl Config {
    /// In the order of the raw types; tables have a row for each key that was written in them.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let effective: BTreeMap<&str, (String, bool)> =
            effective(self).into_iter().map(|(key, value, by_flag)| (key, (value, by_flag))).collect();
        let schema = schema();
        let mut rows = Vec::new();
        for key in keys(&schema) {
            let steps: Vec<&str> = key.path.split('.').collect();
            let written = steps.iter().skip(1).fold(self.written.table.get(steps[0]), |value, step| value?.get(step));
            let about = steps.iter().try_fold(&schema, |schema, step| below(schema, step)).unwrap_or(&Json::Null);
            match (key.kind, written, effective.get(key.path.as_str())) {
                (Kind::Table, Some(written), _) => self.written_rows(written, about, &key.path, &mut rows),
                (_, _, Some((value, true))) => {
                    rows.push(Row { key: key.path, value: value.clone(), from: "flag".to_owned() });
                }
                (_, _, Some((value, false))) => rows.push(self.row(key.path, value.clone())),
                (_, Some(written), None) => self.written_rows(written, about, &key.path, &mut rows),
                (_, None, None) => rows.push(self.row(key.path, "none".to_owned())),
            }
        }
        rows
    }

    /// What was written, key by key, without what is secret or may be.
    fn written_rows(&self, value: &toml::Value, about: &Json, path: &str, rows: &mut Vec<Row>) {
        let is_open =
            about.get("properties").is_some() || about.get("additionalProperties").is_some_and(Json::is_object);
        match value {
            toml::Value::Table(table) if is_open => {
                let is_secret = about["writeOnly"] == true;
                for (name, value) in table {
                    let path = join(path, name);
                    match below(about, name) {
                        Some(about) if !is_secret => self.written_rows(value, about, &path, rows),
                        _ => rows.push(self.row(path, HIDDEN.to_owned())),
                    }
                }
            }
            value if about["writeOnly"] != true && about["type"].is_string() && about["type"] != "object" => {
                rows.push(self.row(path.to_owned(), words(value)));
            }
            _ => rows.push(self.row(path.to_owned(), HIDDEN.to_owned())),
        }
    }

    fn row(&self, key: String, value: String) -> Row {
        let from = match self.written.origins.get(&key) {
            None => "built in".to_owned(),
            Some(Origin::Variable(name)) => format!("env {name}"),
            Some(Origin::Line(line)) => {
                let name = self.file.as_deref().and_then(|file| file.file_name()).unwrap_or_default();
                format!("{}:{line}", name.display())
            }
        };
        Row { key, value, from }
    }
}

/// The key, what it comes to, and whether the command line said so.
type Effective = (&'static str, String, bool);

fn effective(config: &Config) -> Vec<Effective> {
    let Config { pool, quota, network, audit, history, packages, images, upstreams, walls, oauth, .. } = config;
    let walls_told = &walls.settings;
    let mut all = vec![
        of("idle_timeout", &config.idle_timeout, seconds),
        of("max_age", &config.max_age, seconds),
        of("max_sandboxes", &config.max_sandboxes, |max| or("by open files", *max)),
        of("yield_after", &config.yield_after, seconds),
        of("shutdown_timeout", &config.shutdown_timeout, seconds),
        of("quota.sandboxes", &quota.sandboxes, |max| or("none", *max)),
        of("quota.runs", &quota.runs, |max| or("none", *max)),
        of("quota.memory_mb", &quota.memory_mb, |max| or("none", *max)),
        of("quota.cpu_seconds", &quota.cpu_seconds, |max| or("none", *max)),
        of("quota.egress_mb", &quota.egress_mb, |max| or("none", *max)),
        of("quota.requests_per_second", &quota.requests_per_second, |max| or("none", *max)),
        of("log", &config.log, shown),
        of("profile", &config.profile, |profile| or("none", profile.as_ref())),
        of("walls.backend", &walls.backend, shown),
        of("walls.allow", &walls.allow, |walls| list(walls)),
        of("self_test.enabled", &config.self_test.enabled, shown),
        of("pool.enabled", &pool.enabled, shown),
        of("pool.memory_mb", &pool.memory_mb, |mb| or("by memory", *mb)),
        of("pool.max", &pool.max, shown),
        of("network.allow", &network.allow, |hosts| list(&hosts.words())),
        of("network.default", &network.default, |grants| list(grants)),
        of("network.private", &network.private, |ranges| list(ranges)),
        of("audit.file", &audit.file, |file| path("none", file)),
        of("audit.code", &audit.code, shown),
        of("audit.max_mb", &audit.max_mb, shown),
        of("audit.keep", &audit.keep, shown),
        of("audit.required", &audit.required, shown),
        of("history.enabled", &history.enabled, shown),
        of("history.file", &history.file, |file| path("usual", file)),
        of("history.days", &history.days, shown),
        of("history.max_mb", &history.max_mb, shown),
        of("history.code", &history.code, shown),
        of("packages.install", &packages.install, shown),
        of("packages.infer", &packages.infer, shown),
        of("packages.cache", &packages.cache, |cache| path("usual", cache)),
        of("packages.cache_gb", &packages.cache_gb, shown),
        of("packages.refresh_days", &packages.refresh_days, shown),
        of("images.insecure", &images.insecure, |hosts| list(hosts)),
        of("images.auth", &images.auth, |file| path("none", file)),
        of("upstreams.files", &upstreams.files, |files| {
            list(&files.iter().map(|file| file.display()).collect::<Vec<_>>())
        }),
        of("upstreams.approve", &upstreams.approve, |approve| approve_word(*approve).to_owned()),
        of("upstreams.direct", &upstreams.direct, shown),
        of("upstreams.calls", &upstreams.calls, shown),
        of("upstreams.in_flight", &upstreams.in_flight, shown),
        of("skills.folder", &upstreams.skills, |folder| path("usual", folder)),
        of("oauth.issuer", &oauth.issuer, |issuer| or("none", issuer.as_ref())),
        of("oauth.audience", &oauth.audience, |audience| or("none", audience.as_ref())),
        of("oauth.jwks_uri", &oauth.jwks_uri, |uri| or("looked for", uri.as_ref())),
        of("oauth.principal_claim", &oauth.principal_claim, shown),
        of("privacy.hide", &upstreams.hide, |kinds| list(kinds)),
    ];
    let found = |file: &Option<PathBuf>| path("looked for", file);
    all.extend(
        [
            ("docker.socket", or("looked for", walls_told.docker.socket.as_ref())),
            ("docker.image", or("none", walls_told.docker.image.as_ref())),
            ("docker.runtime", or("the engine's own", walls_told.docker.runtime.as_ref())),
            ("docker.pull", shown(&walls_told.docker.pull)),
            ("gvisor.runsc", found(&walls_told.gvisor.runsc)),
            ("microvm.vmm", found(&walls_told.microvm.vmm)),
            ("microvm.kernel", found(&walls_told.microvm.kernel)),
            ("microvm.modules", found(&walls_told.microvm.modules)),
            ("microvm.image", or("none", walls_told.microvm.image.as_ref())),
            ("microvm.mkfs", found(&walls_told.microvm.mkfs)),
            ("microvm.emulation", shown(&walls_told.microvm.emulation)),
            ("wasm.python", path("usual", &walls_told.wasm.python)),
            ("wasm.javascript", path("usual", &walls_told.wasm.javascript)),
        ]
        .map(|(key, value)| (key, value, false)),
    );
    all
}

fn of<T>(key: &'static str, value: &Value<T>, show: impl Fn(&T) -> String) -> Effective {
    (key, show(&value.value), value.whence == Whence::Flag)
}

fn shown(value: &impl Display) -> String {
    value.to_string()
}

fn or(otherwise: &str, value: Option<impl Display>) -> String {
    value.map_or_else(|| otherwise.to_owned(), |value| value.to_string())
}

fn path(otherwise: &str, path: &Option<PathBuf>) -> String {
    or(otherwise, path.as_ref().map(|path| path.display()))
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn list(words: &[impl Display]) -> String {
    if words.is_empty() {
        return "none".to_owned();
    }
    words.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn words(value: &toml::Value) -> String {
    match value {
        toml::Value::String(word) => word.clone(),
        toml::Value::Array(values) => list(&values.iter().map(words).collect::<Vec<_>>()),
        // Never reached for a table, which has rows of its own.
        toml::Value::Table(_) => HIDDEN.to_owned(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(switch) => switch.to_string(),
        toml::Value::Datetime(time) => time.to_string(),
    }
}

/// The keys that say for themselves what is built in.
#[cfg(test)]
pub(super) fn told(config: &Config) -> Vec<&'static str> {
    effective(config).into_iter().map(|(key, _, _)| key).collect()
}
