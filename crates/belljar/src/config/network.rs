//! What sandboxes may reach, the secrets that go out with it, and where attempts are written down.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use belljar_core::{Grant, PACKAGES};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Value;
use crate::complaint::Complaint;

/// The network as the rest of the program uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) allow: Value<Hosts>,
    pub(crate) default: Value<Vec<Grant>>,
    /// Ranges of addresses that names may stand for though they are not public.
    pub(crate) private: Value<Vec<String>>,
    /// Names that are not asked for, since the operator says where they are.
    pub(crate) hosts: Vec<(String, IpAddr)>,
}

/// Hosts that may be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hosts {
    pub(crate) grants: Vec<Grant>,
    /// Whether the word for the registries is among them.
    pub(crate) packages: bool,
}

impl Hosts {
    /// Of words as a person writes them.
    pub(crate) fn read(words: &[String]) -> Result<Hosts, Complaint> {
        let (packages, hosts): (Vec<_>, Vec<_>) = words.iter().partition(|word| *word == PACKAGES);
        let grant = |word: &String| {
            word.parse().map_err(|error: belljar_core::BadGrant| match error.to_string().split_once("; ") {
                Some((what, hint)) => Complaint::new(what, hint),
                None => Complaint::new(error.to_string(), "docs/network.md shows how hosts are written"),
            })
        };
        Ok(Hosts { grants: hosts.into_iter().map(grant).collect::<Result<_, _>>()?, packages: !packages.is_empty() })
    }

    pub(crate) fn words(&self) -> Vec<String> {
        let packages = self.packages.then(|| PACKAGES.to_owned());
        packages.into_iter().chain(self.grants.iter().map(Grant::to_string)).collect()
    }

    pub(crate) fn and(mut self, other: Hosts) -> Hosts {
        self.grants.extend(other.grants);
        self.packages |= other.packages;
        self
    }
}

/// A secret, and where it may go. Its value is not here: it is read when a server starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    pub(crate) name: String,
    pub(crate) source: SecretSource,
    pub(crate) hosts: Vec<Grant>,
    pub(crate) headers: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SecretSource {
    Environment(String),
    File(PathBuf),
    /// A line for the shell, whose output it is.
    Command(String),
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNetwork {
    /// What callers may ask for: hosts, and the word `packages` for the package registries.
    allow: Option<Vec<String>>,
    /// Hosts for every sandbox whose caller asks for none.
    default: Option<Vec<String>>,
    /// Ranges of addresses that granted names may lead to though they are not public.
    private: Option<Vec<String>>,
    /// Names with their addresses, which are then not looked up.
    #[serde(default)]
    hosts: BTreeMap<String, IpAddr>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSecret {
    /// The variable that has its value.
    env: Option<String>,
    /// The file that has its value, which nobody else may read.
    file: Option<PathBuf>,
    /// A line for the shell that prints its value.
    #[schemars(extend("writeOnly" = true))]
    command: Option<String>,
    /// Where it may go.
    hosts: Vec<String>,
    /// The headers that it may go in; left out: any.
    #[serde(default)]
    headers: Vec<String>,
}

impl Network {
    pub(super) fn resolve(raw: RawNetwork) -> Result<Network, Complaint> {
        let hosts = |words: Option<Vec<String>>| words.map(|words| Hosts::read(&words)).transpose();
        let default = hosts(raw.default)?;
        if default.as_ref().is_some_and(|default| default.packages) {
            let what = "in the configuration: network.default has the word packages";
            return Err(Complaint::new(what, "packages are installed without it; leave it out"));
        }
        Ok(Network {
            allow: Value::of(Hosts::default(), hosts(raw.allow)?),
            default: Value::of(Vec::new(), default.map(|default| default.grants)),
            private: Value::of(Vec::new(), raw.private),
            hosts: raw.hosts.into_iter().collect(),
        })
    }
}

impl RawSecret {
    pub(super) fn named((name, raw): (String, RawSecret)) -> Result<Secret, Complaint> {
        let wrong =
            |why: &str, hint: &str| Complaint::new(format!("in the configuration: the secret {name:?} {why}"), hint);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(wrong("has a name that no variable can have", "use letters, digits and underscores"));
        }
        let source = match (raw.env, raw.file, raw.command) {
            (Some(variable), None, None) => SecretSource::Environment(variable),
            (None, Some(file), None) => SecretSource::File(file),
            (None, None, Some(line)) => SecretSource::Command(line),
            _ => return Err(wrong("has no source, or several", "write one of env, file and command")),
        };
        if raw.hosts.is_empty() {
            return Err(wrong("has no hosts, and could go nowhere", "write hosts = [\"api.example.com\"]"));
        }
        let hosts = Hosts::read(&raw.hosts)?;
        Ok(Secret { name, source, hosts: hosts.grants, headers: raw.headers })
    }
}
