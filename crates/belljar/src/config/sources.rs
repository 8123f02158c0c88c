//! Which file is read, and what it comes to together with the variables.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::document::Document;
use super::environment::Environment;
use super::value::Origins;
use super::{Config, raw};
use crate::complaint::Complaint;

/// Far more than anyone writes by hand.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The usual names, in the usual directory. Never in the working directory: that may be a stranger's checkout.
const USUAL: [&str; 2] = ["belljar.toml", "config.toml"];

const HINT: &str = "docs/configuration.md shows what it may hold, and `belljar config schema` tells an editor";

/// Where a configuration comes from. Kept, so that it can be read again.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    /// The file that was named, which must be there.
    pub(crate) named: Option<PathBuf>,
    /// The directory of the usual one, which may be there.
    pub(crate) usual: Option<PathBuf>,
    /// All variables; those that are not ours are passed over.
    pub(crate) variables: Vec<(String, String)>,
}

// The variables have other people's secrets among them.
impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").field("named", &self.named).field("usual", &self.usual).finish_non_exhaustive()
    }
}

/// All that was written, of whichever source.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Written {
    pub(super) table: toml::Table,
    pub(super) origins: Origins,
}

// Servers' tokens are in it.
impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Written").field("origins", &self.origins).finish_non_exhaustive()
    }
}

impl Sources {
    /// One file alone, whatever the variables say.
    pub(crate) fn only(file: &Path) -> Sources {
        Sources { named: Some(file.to_owned()), ..Sources::default() }
    }

    /// The file, the variables before it.
    pub(crate) fn read(&self) -> Result<Config, Complaint> {
        let schema = super::schema();
        let file = self.file()?;
        let document = match &file {
            None => Document::default(),
            Some(path) => {
                let shown = path.display();
                let wrong = |what| Complaint::new(format!("in the configuration {shown}: {what}"), HINT);
                Document::read(&text(path)?, &schema).map_err(wrong)?
            }
        };
        let environment = Environment::read(self.variables.iter().cloned(), &schema)?;
        Sources::resolve(file, document, environment)
    }

    fn resolve(file: Option<PathBuf>, document: Document, environment: Environment) -> Result<Config, Complaint> {
        let mut written = Written { table: document.table, origins: document.lines };
        merge(&mut written.table, environment.table);
        written.origins.extend(environment.origins);
        let raw: raw::Config = toml::Value::Table(written.table.clone())
            .try_into()
            .map_err(|error: toml::de::Error| Complaint::new(format!("in the configuration: {error}"), HINT))?;
        Config::resolve(file, written, raw)
    }

    fn file(&self) -> Result<Option<PathBuf>, Complaint> {
        if let Some(named) = &self.named {
            return Ok(Some(named.clone()));
        }
        let Some(directory) = &self.usual else { return Ok(None) };
        let mut there = Vec::new();
        for path in USUAL.map(|name| directory.join(name)) {
            match std::fs::symlink_metadata(&path) {
                Ok(_) => there.push(path),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(unread(&path, &error)),
            }
        }
        if let [one, other] = there.as_slice() {
            let what = format!("there are two configurations: {} and {}", one.display(), other.display());
            return Err(Complaint::new(what, "keep belljar.toml, and remove the other; or name one with --config"));
        }
        Ok(there.pop())
    }
}

fn text(path: &Path) -> Result<String, Complaint> {
    let metadata = std::fs::metadata(path).map_err(|error| unread(path, &error))?;
    let too_much = || {
        let what = format!("the configuration {} is no file of at most {FILE_BYTES_MAX} bytes", path.display());
        Complaint::new(what, HINT)
    };
    if !metadata.is_file() {
        return Err(too_much());
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| unread(path, &error))?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| unread(path, &error))?;
    if text.len() as u64 > FILE_BYTES_MAX { Err(too_much()) } else { Ok(text) }
}

fn unread(path: &Path, error: &std::io::Error) -> Complaint {
    let what = format!("cannot read the configuration {}: {error}", path.display());
    Complaint::new(what, "give another file with --config, or make it readable")
}

/// What is above takes the place of what is below, key by key.
fn merge(below: &mut toml::Table, above: toml::Table) {
    for (name, value) in above {
        match (below.get_mut(&name), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => merge(below, above),
            (_, value) => {
                below.insert(name, value);
            }
        }
    }
}

/// Of a text alone, for tests and fuzzing: any text is read or refused.
#[cfg(test)]
pub(super) fn of_text(text: &str, variables: &[(&str, &str)]) -> Result<Config, Complaint> {
    let schema = super::schema();
    let document = Document::read(text, &schema)
        .map_err(|what| Complaint::new(format!("in the configuration test.toml: {what}"), HINT))?;
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Sources::resolve(Some("/etc/test.toml".into()), document, Environment::read(variables, &schema)?)
}
