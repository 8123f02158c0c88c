//! `belljar config`: every setting and where it came from, whether a file is right, and what editors need to know.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::config::{Config, Row, Sources, schema};

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
    /// Tell whether a file can be used, and what is wrong with it
    Check {
        /// The file; without it, the one that would be used, and the variables
        file: Option<PathBuf>,
    },
    /// Print a JSON Schema of the file, for editors
    Schema,
}

impl Configuration {
    pub(super) fn execute(self, config: impl FnOnce() -> anyhow::Result<Config>) -> anyhow::Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        match self.action {
            Action::Schema => writeln!(out, "{:#}", schema())?,
            Action::Check { file } => {
                let config = match file {
                    Some(file) => Sources::only(&file).read()?,
                    None => config()?,
                };
                let shown = config.file.map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
                writeln!(out, "{shown}: ok")?;
            }
            Action::Show { json: true } => writeln!(out, "{:#}", as_json(&config()?))?,
            Action::Show { json: false } => {
                let config = config()?;
                let file = config.file.as_ref().map_or_else(|| "none".to_owned(), |file| file.display().to_string());
                writeln!(out, "file: {}", plain(&file))?;
                let rows = config.rows();
                let widest = rows.iter().map(|row| row.key.chars().count()).max().unwrap_or(0).min(32);
                for Row { key, value, from } in rows {
                    writeln!(out, "{:<widest$} {:<16} ({from})", plain(&key), plain(&value))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn as_json(config: &Config) -> Value {
    let settings: serde_json::Map<_, _> =
        config.rows().into_iter().map(|row| (row.key, json!({"value": row.value, "from": row.from}))).collect();
    let templates: Vec<&str> = config.templates.iter().map(|template| template.name.as_str()).collect();
    let secrets: Vec<&str> = config.secrets.iter().map(|secret| secret.name.as_str()).collect();
    json!({"file": config.file, "settings": settings, "templates": templates, "secrets": secrets})
}

/// A line stays a line.
fn plain(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] }).collect()
}
