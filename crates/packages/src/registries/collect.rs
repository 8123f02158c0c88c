//! What the settings come to, as it is gathered.

use std::path::PathBuf;

use belljar_core::{Grant, Reach};

use super::netrc::Netrc;
use super::url::{Address, basic};
use super::{Credential, Over, Secret};

#[derive(Debug)]
pub(super) struct Collected {
    netrc: Netrc,
    pub(super) grants: Vec<Grant>,
    pub(super) env: Vec<(String, String)>,
    pub(super) credentials: Vec<Credential>,
    pub(super) ca_files: Vec<PathBuf>,
    pub(super) ignored: Vec<String>,
    pub(super) proxy: Option<String>,
    pub(super) no_proxy: Option<String>,
}

impl Collected {
    pub(super) fn new(netrc: Netrc) -> Collected {
        Collected {
            netrc,
            grants: Vec::new(),
            env: Vec::new(),
            credentials: Vec::new(),
            ca_files: Vec::new(),
            ignored: Vec::new(),
            proxy: None,
            no_proxy: None,
        }
    }

    /// Grants a registry's host, and takes the credentials out of its address; `None` where it is none.
    pub(super) fn registry(&mut self, text: &str) -> Option<String> {
        let Some(address) = Address::parse(text) else {
            // It may have a password in it: it is not repeated.
            self.ignore("a registry's address is not used, since it is no http:// or https:// one");
            return None;
        };
        self.grant(&address);
        let from_netrc = || self.netrc.find(&address.host.to_string());
        if let Some((name, password)) = address.user.clone().or_else(from_netrc) {
            self.credential(&address, "authorization", basic(&name, password.reveal()));
        }
        Some(address.text())
    }

    pub(super) fn grant(&mut self, address: &Address) {
        // Whoever set this host up named it, and knows where it is.
        let grant = Grant::host(address.host.clone(), address.port, Reach::Anywhere);
        if !self.grants.contains(&grant) {
            self.grants.push(grant);
        }
    }

    pub(super) fn credential(&mut self, address: &Address, header: &str, value: Secret) {
        let grant = Grant::host(address.host.clone(), address.port, Reach::Anywhere);
        let over = if address.is_tls() { Over::Tls } else { Over::Either };
        let below = directory_of(&address.path);
        // One header for a place: the first that was found is the one that its tool prefers.
        let is_same = |known: &Credential| known.grant == grant && known.header == header && known.below == below;
        if !self.credentials.iter().any(is_same) {
            self.credentials.push(Credential { grant, header: header.to_owned(), value, over, below });
        }
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.push((name.to_owned(), value.into()));
    }

    pub(super) fn ca_file(&mut self, path: Option<String>) {
        if let Some(path) = path.map(PathBuf::from)
            && !self.ca_files.contains(&path)
        {
            self.ca_files.push(path);
        }
    }

    pub(super) fn ignore(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.ignored.contains(&sentence) {
            self.ignored.push(sentence);
        }
    }
}

/// Where an index and its files are. The files are mostly beside an index (`pypi/simple/`, `pypi/files/`), so that it is the
/// directory that holds it; a registry of npm's or Cargo's has them below.
fn directory_of(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let is_index = path.rsplit('/').next().is_some_and(|last| last.trim_start_matches('+') == "simple");
    let directory = if is_index { path.rsplit_once('/').map_or("", |(directory, _)| directory) } else { path };
    format!("{directory}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_within_the_directory_of_its_files() {
        for (path, directory) in [
            ("", "/"),
            ("/", "/"),
            ("/simple", "/"),
            ("/simple/", "/"),
            ("/api/v4/projects/1/packages/pypi/simple", "/api/v4/projects/1/packages/pypi/"),
            ("/root/pypi/+simple/", "/root/pypi/"),
            ("/artifactory/api/npm/repo/", "/artifactory/api/npm/repo/"),
        ] {
            assert_eq!(directory_of(path), directory, "{path}");
        }
    }
}
