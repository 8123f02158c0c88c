//! `belljar token`: who may call a server over HTTP.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use belljar_access::{Book, BookError, Entry, Issued, Moment, Scope, Scopes, Terms};
use belljar_engine::Quota;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::complaint::Complaint;
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct Token {
    /// The file of tokens, in place of ~/.local/share/belljar/access.json, which `serve --http` uses by itself
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Issue a token; it is printed once, and never again
    Add {
        /// Whose sandboxes it opens: the principal. Several tokens may have the same
        name: String,
        /// What it is good for, separated by commas: read, files or run (each includes those before it), and tools
        #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "run,tools", value_parser = scope)]
        scope: Vec<Scope>,
        /// When it ends: after a time such as 30d, 12h or 15m, or at the beginning of a day such as 2027-01-31 (UTC)
        #[arg(long, value_name = "WHEN", value_parser = expires)]
        expires: Option<Moment>,
        /// What its principal may have, such as sandboxes=4,runs=2,memory_mb=4096,cpu_seconds=600,egress_mb=100,
        /// requests_per_second=10
        #[arg(long, value_name = "KEY=NUMBER,..", value_parser = quota)]
        quota: Option<Quota>,
    },
    /// Show all tokens, but not the tokens themselves
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a token, by its id, or all of a name; the next request with it is refused
    Revoke {
        #[arg(value_name = "NAME|ID")]
        which: String,
    },
}

impl Token {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let path = self.token_file.or_else(wiring::usual_tokens).ok_or_else(|| {
            Complaint::new("HOME does not name your home folder", "name the file of tokens with --token-file FILE")
        })?;
        let book = Book::at(&path);
        match self.action {
            Action::Add { name, scope, expires, quota } => {
                let terms = Terms { scopes: scope.into_iter().collect::<Scopes>(), expires, quota };
                let Issued { token, entry } = book.add(&name, terms).map_err(complain)?;
                let until =
                    entry.expires.map_or("until it is revoked".to_owned(), |expires| format!("until {expires}"));
                let talk = format!(
                    "belljar: token {} of {name}, for {}, {until}; this is the only time that it is shown",
                    entry.id(),
                    words(&entry.scopes)
                );
                // Without a stderr there is still the token.
                let _ = writeln!(std::io::stderr(), "{talk}");
                print(&format!("{token}\n"))?;
            }
            Action::List { json } => {
                let entries = book.entries().map_err(complain)?;
                if json {
                    let all: Vec<Value> = entries.iter().map(as_json).collect();
                    print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
                } else if entries.is_empty() {
                    let _ = writeln!(
                        std::io::stderr(),
                        "belljar: there are no tokens; `belljar token add NAME` issues one"
                    );
                } else {
                    print(&table(&entries))?;
                }
            }
            Action::Revoke { which } => {
                let revoked = book.revoke(&which).map_err(complain)?;
                for entry in &revoked {
                    let _ = writeln!(std::io::stderr(), "belljar: token {} of {} is revoked", entry.id(), entry.name);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("writing to standard output")
}

fn complain(error: BookError) -> Complaint {
    let hint = error.next_step();
    Complaint::new(error.to_string(), hint)
}

fn words(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(",")
}

fn has_expired(entry: &Entry) -> bool {
    entry.expires.is_some_and(|expires| expires <= Moment::now())
}

fn as_json(entry: &Entry) -> Value {
    json!({
        "id": entry.id(),
        "name": entry.name,
        "scopes": entry.scopes,
        "created": entry.created,
        "expires": entry.expires,
        "expired": has_expired(entry),
        "quota": entry.quota.map(|quota| quota_bounds(&quota)),
    })
}

/// Those bounds that there are, under their names in the configuration.
fn quota_bounds(quota: &Quota) -> serde_json::Map<String, Value> {
    let all = serde_json::to_value(quota).ok().and_then(|all| all.as_object().cloned()).unwrap_or_default();
    all.into_iter().filter(|(_, bound)| !bound.is_null()).collect()
}

fn table(entries: &[Entry]) -> String {
    let rows = entries.iter().map(|entry| {
        let expires = match entry.expires {
            None => "never".to_owned(),
            Some(_) if has_expired(entry) => "expired".to_owned(),
            Some(expires) => expires.to_string(),
        };
        let quota = entry.quota.map(|quota| quota_bounds(&quota)).unwrap_or_default();
        let quota: Vec<String> = quota.into_iter().map(|(key, bound)| format!("{key}={bound}")).collect();
        [entry.id(), entry.name.clone(), words(&entry.scopes), entry.created.to_string(), expires, quota.join(",")]
    });
    let head = ["ID", "NAME", "SCOPES", "CREATED", "EXPIRES", "QUOTA"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(rows).collect();
    let widths: Vec<usize> = (0..6).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let line = |row: &[String; 6]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn scope(word: &str) -> Result<Scope, String> {
    word.trim().parse().map_err(|error: belljar_access::UnknownScope| error.to_string())
}

fn expires(text: &str) -> Result<Moment, String> {
    const HOW: &str = "give a time such as 30d, 12h or 15m, or a day such as 2027-01-31";
    let now = Moment::now();
    let units = [('d', 86400), ('h', 3600), ('m', 60), ('s', 1)];
    let after = units.into_iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let moment = match after {
        Some((number, seconds)) => {
            let number: u32 = number.parse().map_err(|_| HOW.to_owned())?;
            now.after(Duration::from_secs(u64::from(number) * seconds))
        }
        None => text.parse().map_err(|_| HOW.to_owned())?,
    };
    if moment <= now { Err("that is over already; give a time to come".to_owned()) } else { Ok(moment) }
}

fn quota(text: &str) -> Result<Quota, String> {
    const HOW: &str = "write key=number, separated by commas, with the keys sandboxes, runs, memory_mb, cpu_seconds, \
                       egress_mb and requests_per_second";
    let mut bounds = serde_json::Map::new();
    for pair in text.split(',') {
        let (key, number) = pair.split_once('=').ok_or(HOW)?;
        let number: u64 = number.trim().parse().map_err(|_| HOW)?;
        if bounds.insert(key.trim().to_owned(), number.into()).is_some() {
            return Err(format!("{} is there twice", key.trim()));
        }
    }
    // Unknown keys and numbers that are too large are refused by the quota itself.
    serde_json::from_value(Value::Object(bounds)).map_err(|_| HOW.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_time_from_now_or_a_day() {
        let hour = expires("1h").unwrap().unix() - Moment::now().unix();
        assert!((3599..=3600).contains(&hour), "{hour}");
        assert_eq!(expires("2999-01-31").unwrap().to_string(), "2999-01-31T00:00:00Z");
        for bad in ["", "d", "0d", "-1d", "1w", "1.5h", "30", "2001-01-01", "99999999999d", "tomorrow"] {
            assert!(expires(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_quota_is_written_by_its_keys() {
        let expected = Quota { sandboxes: Some(4), requests_per_second: Some(10), ..Quota::default() };
        assert_eq!(quota("sandboxes=4, requests_per_second=10"), Ok(expected));
        for bad in ["", "sandboxes", "sandboxes=", "sandboxes=-1", "sandbox=1", "runs=1,runs=2", "runs=99999999999"] {
            assert!(quota(bad).is_err(), "{bad}");
        }
    }
}
