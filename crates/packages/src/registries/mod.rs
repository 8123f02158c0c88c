//! Where packages come from, as this host's own settings have it: what pip, uv, npm, Go and Cargo would use here.
//!
//! The settings have passwords in them. They go into [`Secret`], and from there to whoever sends requests; what a sandbox
//! gets is without them.

mod collect;
mod go_cargo;
mod ini;
mod netrc;
mod npm;
mod python;
#[cfg(test)]
mod tests;
mod url;

use std::fmt;
use std::path::{Path, PathBuf};

use belljar_core::{Grant, Host, PackageKind};

use collect::Collected;

/// The registries, as a sandbox and its guard need them. What is secret is only in `credentials` and `proxy`.
#[derive(Debug, Clone)]
pub struct Registries {
    /// What the word `packages` stands for.
    pub grants: Vec<Grant>,
    /// For the programs of a sandbox that may reach them.
    pub env: Vec<(String, String)>,
    /// Put into requests outside of the sandbox.
    pub credentials: Vec<Credential>,
    /// Certificates, in PEM, of those who sign for the registries.
    pub ca_files: Vec<PathBuf>,
    /// The way out of the host's own network, as `HTTPS_PROXY` has it; may have a name and a password within.
    pub proxy: Option<Secret>,
    /// Hosts that are reached without it, as `NO_PROXY` has them.
    pub no_proxy: String,
    /// The index that Python's packages come from, without credentials.
    pub python_index: String,
    /// The registry of npm's.
    pub node_registry: String,
    /// What the settings say and is not done, each in a sentence for the operator.
    pub ignored: Vec<String>,
}

/// A header that requests to a registry carry.
#[derive(Debug, Clone)]
pub struct Credential {
    pub grant: Grant,
    pub header: String,
    pub value: Secret,
    pub over: Over,
    /// The part of that host that it is for: a directory, with its slash.
    pub below: String,
}

/// How a connection must be for a credential to be sent on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Tls,
    /// The operator's own settings reach it without TLS.
    Either,
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// For the one who sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Where the settings of this host are. What is read is read through this: the environment, and files of the operator's.
pub struct HostSettings<'a> {
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// All variables' names, for those that have a name of the operator's choice within.
    pub env_names: &'a [String],
    /// Reads a file, if it is there.
    pub read: &'a dyn Fn(&Path) -> Option<String>,
    pub home: Option<&'a Path>,
}

impl fmt::Debug for HostSettings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostSettings").finish_non_exhaustive()
    }
}

impl HostSettings<'_> {
    /// A variable that says something.
    fn var(&self, name: &str) -> Option<String> {
        (self.env)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn any_var(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.var(name))
    }

    fn file(&self, path: impl AsRef<Path>) -> Option<String> {
        (self.read)(path.as_ref())
    }

    fn at_home(&self, path: &str) -> Option<String> {
        self.file(self.home?.join(path))
    }

    /// A file below the user's directory of settings.
    fn in_config(&self, path: &str) -> Option<String> {
        match self.var("XDG_CONFIG_HOME") {
            Some(config) => self.file(Path::new(&config).join(path)),
            None => self.at_home(&format!(".config/{path}")),
        }
    }
}

impl Registries {
    /// What this host's settings say; the public registries where they say nothing.
    pub fn read(host: &HostSettings<'_>) -> Registries {
        let mut collected = Collected::new(netrc::read(host));
        let python_index = python::read(host, &mut collected);
        let node_registry = npm::read(host, &mut collected);
        go_cargo::read(host, &mut collected);
        for variable in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"] {
            collected.ca_file(host.var(variable));
        }
        let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];
        let proxy = host.any_var(&names).or_else(|| collected.proxy.take());
        let no_proxy = host.any_var(&["NO_PROXY", "no_proxy"]).or_else(|| collected.no_proxy.take());
        Registries {
            grants: collected.grants,
            env: collected.env,
            credentials: collected.credentials,
            ca_files: collected.ca_files,
            proxy: proxy.map(Secret),
            no_proxy: no_proxy.unwrap_or_default(),
            python_index,
            node_registry,
            ignored: collected.ignored,
        }
    }

    /// The public ones.
    pub fn public() -> Registries {
        Registries::read(&HostSettings { env: &|_| None, env_names: &[], read: &|_| None, home: None })
    }

    /// The host to look for before a build; `None` where only a proxy could tell.
    pub(crate) fn host_of(&self, kind: PackageKind) -> Option<Host> {
        if self.proxy.is_some() {
            return None;
        }
        let address = match kind {
            PackageKind::Python => &self.python_index,
            PackageKind::Node => &self.node_registry,
        };
        url::Address::parse(address).map(|address| address.host)
    }
}
