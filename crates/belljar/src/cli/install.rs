//! `belljar install`: puts this program into the configuration of an MCP client, or takes it out.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use belljar_backends::WishedWall;
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory};
use serde_json::{Value, json};

use super::Arguments;
use crate::complaint::Complaint;
use crate::install::{
    CLIENTS, Change, Client, Did, Edited, Modes, Places, Scope, Slot, Snapshot, Trouble, Wanted, change, edit, find,
};
use crate::wiring;

const AFTER_HELP: &str = "\
Without CLIENT it lists the clients of this machine, and whether belljar is in each.

Everything else in the client's file stays as it is: other servers, comments, order, line ends.
Before the first change the file is kept beside itself as FILE.belljar-backup.

  belljar install claude-code                    for all your projects
  belljar install cursor --project .             for this project
  belljar install codex --print                  look first
  belljar install zed -- --idle-timeout 600      with arguments for `belljar serve`
  belljar install zed --remove                   take it out again";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Install {
    /// The client to set up
    #[arg(value_name = "CLIENT", value_parser = PossibleValuesParser::new(CLIENTS.iter().map(|client| client.name)))]
    client: Option<String>,
    /// Take belljar out of the client's file again
    #[arg(long, requires = "client")]
    remove: bool,
    /// Write to standard output what the file would hold, and change nothing
    #[arg(long, requires = "client")]
    print: bool,
    /// Edit the file of one project instead of the user's own
    #[arg(long, value_name = "DIR", requires = "client")]
    project: Option<PathBuf>,
    /// The server's name in the client
    #[arg(long, value_name = "NAME", default_value = "belljar", value_parser = server_name)]
    name: String,
    /// The profile to serve, as with `belljar serve --profile`
    #[arg(long, value_name = "NAME", requires = "client", conflicts_with = "remove")]
    profile: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long, conflicts_with = "print")]
    json: bool,
    /// Further arguments for `belljar serve`
    #[arg(last = true, value_name = "SERVE ARGUMENTS", requires = "client", conflicts_with = "remove")]
    serve: Vec<String>,
}

/// A name that every client takes: some fold the case, some refuse anything else.
fn server_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
        return Err("give lower-case letters, digits, - and _, at most 64".to_owned());
    }
    Ok(text.to_owned())
}

impl Install {
    pub(super) fn execute(self, wall: Option<WishedWall>) -> anyhow::Result<ExitCode> {
        let places = wiring::places()?;
        let Some(client) = self.client.as_deref().and_then(Client::named) else {
            return self.list(&places);
        };
        let args = serve_args(wall, self.profile.as_deref(), &self.serve);
        if let Some(error) = refused(&args) {
            error.print()?;
            return Ok(ExitCode::from(2));
        }
        let scope = self.scope()?;
        let Some(path) = client.file(&scope, &places) else {
            let what = format!("{} has no file of its own in a project", client.title);
            return Err(Complaint::new(what, format!("leave --project away: belljar install {}", client.name)).into());
        };
        let wanted = if self.remove {
            Wanted::Absent
        } else {
            Wanted::Present(client.entry(&self.name, &wiring::this_program()?, &args))
        };
        let plan = |snapshot: &Snapshot| plan(client, &path, &self.name, &wanted, snapshot);
        if self.print {
            return print(&path, &plan(&Snapshot::of(&path)?)?);
        }
        let here = client.is_here(&places);
        let modes = match scope {
            Scope::User => Modes { file: 0o600, folder: 0o700 },
            Scope::Project(_) => Modes { file: 0o644, folder: 0o755 },
        };
        let edited = edit(&path, modes, plan)?;
        let told = Told { client, scope: &scope, path: &path, name: &self.name, here, edited: &edited };
        if self.json {
            writeln!(std::io::stdout(), "{:#}", told.as_json())?;
        } else {
            told.write(&mut std::io::stderr())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn scope(&self) -> Result<Scope, Complaint> {
        let Some(folder) = &self.project else { return Ok(Scope::User) };
        if !folder.is_dir() {
            let what = format!("{} is not a folder", folder.display());
            return Err(Complaint::new(what, "give the project's folder: --project DIR"));
        }
        Ok(Scope::Project(folder.clone()))
    }

    fn list(&self, places: &Places) -> anyhow::Result<ExitCode> {
        let program = wiring::this_program()?;
        let found: Vec<Listed> = CLIENTS.iter().map(|client| Listed::of(client, &self.name, places)).collect();
        let mut stdout = std::io::stdout().lock();
        if self.json {
            let clients: Vec<Value> = found.iter().map(|one| one.as_json(&program)).collect();
            writeln!(stdout, "{:#}", json!({ "clients": clients }))?;
            return Ok(ExitCode::SUCCESS);
        }
        for one in &found {
            let (state, detail) = one.told(&program);
            writeln!(stdout, "{state:<10} {:<15} {detail}", one.client.name)?;
        }
        writeln!(std::io::stderr(), "belljar: set one up with: belljar install CLIENT")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What the client gives to this program.
fn serve_args(wall: Option<WishedWall>, profile: Option<&str>, further: &[String]) -> Vec<String> {
    let mut args = vec!["serve".to_owned()];
    if let Some(wall) = wall {
        args.extend(["--backend".to_owned(), wall.to_string()]);
    }
    args.extend(profile.into_iter().flat_map(|profile| ["--profile".to_owned(), profile.to_owned()]));
    args.extend(further.iter().cloned());
    args
}

/// Why a client could not start this program with these arguments: better told now than in the client's log.
fn refused(args: &[String]) -> Option<clap::Error> {
    let mut command = Arguments::command();
    let words = std::iter::once("belljar").chain(args.iter().map(String::as_str));
    match command.try_get_matches_from_mut(words) {
        Err(error) if error.use_stderr() => Some(error),
        Err(_) => Some(command.error(ErrorKind::InvalidValue, "these arguments only show help, and serve nothing")),
        Ok(matches) => {
            let serve = matches.subcommand_matches("serve")?;
            let over_http = serve.value_source("http") == Some(ValueSource::CommandLine);
            let what = "a client that starts belljar talks to it over standard input and output; leave --http away";
            over_http.then(|| command.error(ErrorKind::ArgumentConflict, what))
        }
    }
}

fn plan(client: &Client, path: &Path, name: &str, wanted: &Wanted, now: &Snapshot) -> Result<Change, Complaint> {
    let slot = Slot { servers: client.servers, name };
    change(client.format, slot, wanted, client.command_key(), now.text.as_deref(), now.backup.as_deref())
        .map_err(|trouble| complain(client, path, trouble))
}

fn complain(client: &Client, path: &Path, trouble: Trouble) -> Complaint {
    let shown = path.display();
    match trouble {
        Trouble::NotParsed { line, column, why } => Complaint::new(
            format!("{shown} cannot be read: line {line}, column {column}: {why}"),
            "correct it there, then try again; nothing was changed",
        ),
        Trouble::Unexpected { what } => Complaint::new(
            format!("{shown} {what}"),
            format!("correct it as {} expects it, then try again", client.title),
        ),
        Trouble::Unsupported { what } => Complaint::new(
            format!("{shown} {what}"),
            "edit it by hand: docs/clients.md shows what belongs there; nothing was changed",
        ),
    }
}

fn print(path: &Path, change: &Change) -> anyhow::Result<ExitCode> {
    let mut stderr = std::io::stderr();
    let shown = path.display();
    match (&change.after, change.did) {
        (Some(text), did) => {
            let word = if matches!(did, Did::Unchanged | Did::Missing) { "as it is now" } else { "as it would be" };
            writeln!(stderr, "belljar: {shown}, {word}")?;
            std::io::stdout().write_all(text.as_bytes())?;
        }
        (None, Did::Removed) => writeln!(stderr, "belljar: {shown} would be removed: it holds nothing else")?,
        (None, _) => writeln!(stderr, "belljar: there is no {shown}")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is said when it is done.
struct Told<'a> {
    client: &'static Client,
    scope: &'a Scope,
    path: &'a Path,
    name: &'a str,
    /// Whether the client seemed to be there before we wrote.
    here: bool,
    edited: &'a Edited,
}

impl Told<'_> {
    fn did(&self) -> &'static str {
        match self.edited.change.did {
            Did::Added => "added",
            Did::Updated => "updated",
            Did::Unchanged => "unchanged",
            Did::Removed => "removed",
            Did::Missing => "missing",
        }
    }

    fn is_present(&self) -> bool {
        matches!(self.edited.change.did, Did::Added | Did::Updated | Did::Unchanged)
    }

    fn changed(&self) -> bool {
        !matches!(self.edited.change.did, Did::Unchanged | Did::Missing)
    }

    fn next(&self) -> Option<&'static str> {
        match self.edited.change.did {
            Did::Added | Did::Updated => Some(self.client.next(self.scope)),
            Did::Removed => Some("restart the client, so that it lets go of the server"),
            Did::Unchanged | Did::Missing => None,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let title = self.client.title;
        if self.is_present() && !self.here {
            notes.push(format!("{title} does not seem to be installed here; the file waits for it"));
        }
        if self.changed() && self.is_present() && matches!(self.scope, Scope::Project(_)) {
            notes.push(
                "the file names a path of this machine; who shares the project needs a path of their own".to_owned(),
            );
        }
        let entry = self.edited.change.entry.as_ref().filter(|_| self.is_present());
        let is = |key: &str, value: bool| entry.and_then(|entry| entry.get(key)) == Some(&Value::Bool(value));
        if is("disabled", true) || is("enabled", false) {
            notes.push(format!("the entry is switched off in that file; switch it on in {title}"));
        }
        notes
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (title, path, name) = (self.client.title, self.path.display(), self.name);
        let change = &self.edited.change;
        match change.did {
            Did::Added => writeln!(out, "belljar: added to {title} as {name:?}: {path}")?,
            Did::Updated => {
                let before = change.before.as_ref().map(|entry| self.client.line(entry)).unwrap_or_default();
                writeln!(out, "belljar: updated in {title}: {path}\nbelljar: {name:?} was: {before}")?;
            }
            Did::Unchanged => writeln!(out, "belljar: nothing to do: {title} has it as {name:?}: {path}")?,
            Did::Removed if change.after.is_none() => {
                writeln!(out, "belljar: removed from {title}, and the file with it, which held nothing else: {path}")?;
            }
            Did::Removed => writeln!(out, "belljar: removed from {title}: {path}")?,
            Did::Missing => writeln!(out, "belljar: nothing to do: {title} has no {name:?}: {path}")?,
        }
        if let Some(backup) = self.edited.backup.as_deref().filter(|_| self.changed()) {
            writeln!(out, "belljar: as it was before the first change: {}", backup.display())?;
        }
        for note in self.notes() {
            writeln!(out, "note: {note}")?;
        }
        if let Some(next) = self.next() {
            writeln!(out, "next: {next}")?;
        }
        Ok(())
    }

    fn as_json(&self) -> Value {
        json!({
            "client": self.client.name,
            "file": self.path,
            "name": self.name,
            "did": self.did(),
            "entry": self.edited.change.entry,
            "before": self.edited.change.before,
            "backup": self.edited.backup,
            "notes": self.notes(),
            "next": self.next(),
        })
    }
}

/// A client, as it is on this machine.
struct Listed {
    client: &'static Client,
    path: PathBuf,
    here: bool,
    entry: Result<Option<Value>, String>,
}

impl Listed {
    fn of(client: &'static Client, name: &str, places: &Places) -> Listed {
        let path = client.file(&Scope::User, places).unwrap_or_default();
        let slot = Slot { servers: client.servers, name };
        let found = Snapshot::of(&path).and_then(|now| {
            let text = now.text.unwrap_or_default();
            find(client.format, slot, &text).map_err(|trouble| complain(client, &path, trouble))
        });
        let entry = found.map_err(|complaint| complaint.what);
        Listed { client, path, here: client.is_here(places), entry }
    }

    fn starts(&self, program: &str) -> bool {
        let command = |entry: &Value| entry.get(self.client.command_key()).and_then(Value::as_str) == Some(program);
        matches!(&self.entry, Ok(Some(entry)) if command(entry))
    }

    fn told(&self, program: &str) -> (&'static str, String) {
        let path = self.path.display();
        match &self.entry {
            Ok(Some(entry)) if self.starts(program) => ("set up", format!("{path}: {}", self.client.line(entry))),
            Ok(Some(entry)) => ("differs", format!("{path}: {}", self.client.line(entry))),
            Err(what) => ("UNREADABLE", what.clone()),
            Ok(None) if self.here => ("without", path.to_string()),
            Ok(None) => ("not here", format!("would be {path}")),
        }
    }

    fn as_json(&self, program: &str) -> Value {
        json!({
            "client": self.client.name,
            "file": self.path,
            "found": self.here,
            "entry": self.entry.as_ref().ok(),
            "starts_this_program": self.starts(program),
            "problem": self.entry.as_ref().err(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_serve() {
        let words = |profile, further: &[&str]| {
            let further: Vec<String> = further.iter().map(|word| (*word).to_owned()).collect();
            serve_args(None, profile, &further)
        };
        assert_eq!(words(None, &[]), ["serve"]);
        assert_eq!(
            words(Some("e2b"), &["--idle-timeout", "60"]),
            ["serve", "--profile", "e2b", "--idle-timeout", "60"]
        );
        assert!(refused(&words(None, &["--idle-timeout", "60"])).is_none());
        for bad in [&["--frob"][..], &["--idle-timeout", "never"], &["--http", "127.0.0.1:1"], &["--help"]] {
            assert!(refused(&words(None, bad)).is_some_and(|error| error.use_stderr()), "{bad:?}");
        }
    }

    #[test]
    fn names_that_every_client_takes() {
        assert_eq!(server_name("bell-jar_2"), Ok("bell-jar_2".to_owned()));
        for bad in ["", "Belljar", "a b", "a.b", "a\"b", "é", &"x".repeat(65)] {
            assert!(server_name(bad).is_err(), "{bad}");
        }
    }
}
