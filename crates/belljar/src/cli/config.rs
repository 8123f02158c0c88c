//! `belljar config show`: every setting, and where it came from.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::config::{Config, Value, approve_word};

#[derive(Debug, Args)]
pub(super) struct Configuration {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print every setting, and where it came from
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

impl Configuration {
    pub(super) fn execute(self, config: &Config) -> anyhow::Result<ExitCode> {
        let Action::Show { json: as_json } = self.action;
        let none = || "none".to_owned();
        let rows = [
            row("idle_timeout", &config.idle_timeout, |time| format!("{} s", time.as_secs_f64())),
            row("max_age", &config.max_age, |time| format!("{} s", time.as_secs_f64())),
            row("max_sandboxes", &config.max_sandboxes, |max| max.map_or_else(|| "by open files".to_owned(), shown)),
            row("yield_after", &config.yield_after, |time| format!("{} s", time.as_secs_f64())),
            row("profile", &config.profile, |profile| profile.clone().unwrap_or_else(none)),
            row("walls.backend", &config.walls.backend, |wall| shown(wall)),
            row("walls.allow", &config.walls.allow, |walls| list(&walls.iter().map(shown).collect::<Vec<_>>())),
            row("pool.enabled", &config.pool.enabled, |enabled| shown(enabled)),
            row("pool.memory_mb", &config.pool.memory_mb, |mb| mb.map_or_else(|| "by memory".to_owned(), shown)),
            row("pool.max", &config.pool.max, |max| shown(max)),
            row("network.allow", &config.network.allow, |hosts| list(&hosts.words())),
            row("network.default", &config.network.default, |grants| {
                list(&grants.iter().map(ToString::to_string).collect::<Vec<_>>())
            }),
            row("network.private", &config.network.private, |ranges| list(ranges)),
            row("audit.file", &config.network.audit, |file| {
                file.as_ref().map_or_else(none, |file| file.display().to_string())
            }),
            row("packages.install", &config.packages.install, |install| shown(install)),
            row("packages.infer", &config.packages.infer, |infer| shown(infer)),
            row("packages.cache", &config.packages.cache, |cache| {
                cache.as_ref().map_or_else(|| "usual".to_owned(), |cache| cache.display().to_string())
            }),
            row("packages.cache_gb", &config.packages.cache_gb, |gb| shown(gb)),
            row("images.mirrors", &config.images.mirrors, |mirrors| {
                list(&mirrors.iter().map(|(name, hosts)| format!("{name}: {}", hosts.join(" "))).collect::<Vec<_>>())
            }),
            row("images.insecure", &config.images.insecure, |hosts| list(hosts)),
            row("images.auth", &config.images.auth, |file| {
                file.as_ref().map_or_else(none, |file| file.display().to_string())
            }),
            row("upstreams.files", &config.upstreams.files, |files| {
                list(&files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>())
            }),
            row("upstreams.approve", &config.upstreams.approve, |approve| approve_word(*approve).to_owned()),
            row("upstreams.direct", &config.upstreams.direct, |direct| shown(direct)),
            row("upstreams.calls", &config.upstreams.calls, |calls| shown(calls)),
            row("upstreams.in_flight", &config.upstreams.in_flight, |count| shown(count)),
            row("skills.folder", &config.upstreams.skills, |folder| {
                folder.as_ref().map_or_else(|| "usual".to_owned(), |folder| folder.display().to_string())
            }),
            row("privacy.hide", &config.upstreams.hide, |kinds| list(kinds)),
            row("packages.refresh_days", &config.packages.refresh_days, |days| shown(days)),
        ];
        let templates: Vec<&str> = config.templates.iter().map(|template| template.name.as_str()).collect();
        let file = config.file.as_ref().map(|path| path.display().to_string());
        let mut out = std::io::stdout().lock();
        if as_json {
            let settings: serde_json::Map<_, _> = rows
                .iter()
                .map(|(name, value, whence)| ((*name).to_owned(), json!({"value": value, "from": whence})))
                .collect();
            writeln!(out, "{:#}", json!({"file": file, "settings": settings, "templates": templates}))?;
            return Ok(ExitCode::SUCCESS);
        }
        writeln!(out, "file: {}", file.unwrap_or_else(none))?;
        for (name, value, whence) in rows {
            writeln!(out, "{name:<21} {value:<16} ({whence})")?;
        }
        let templates = if templates.is_empty() { none() } else { templates.join(", ") };
        let secrets: Vec<String> = config.secrets.iter().map(|secret| secret.name.clone()).collect();
        writeln!(out, "{:<21} {}", "secrets", list(&secrets))?;
        writeln!(out, "{:<21} {templates}", "own templates")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn row<T>(name: &'static str, value: &Value<T>, show: impl Fn(&T) -> String) -> (&'static str, String, String) {
    (name, show(&value.value), value.whence.to_string())
}

fn list(words: &[String]) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn shown(value: impl Display) -> String {
    value.to_string()
}
