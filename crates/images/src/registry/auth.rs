//! Logins, as `docker login` keeps them. Only those that are in the file itself: a helper is a program, and what it would tell
//! us is the user's whole keyring.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

use crate::error::{ImageError, ImageErrorKind};

const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Default, Deserialize)]
pub(super) struct Logins {
    #[serde(default)]
    auths: BTreeMap<String, Login>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(default, rename = "credsStore")]
    helper: Option<String>,
}

#[derive(Default, Deserialize)]
struct Login {
    #[serde(default)]
    auth: Option<String>,
}

impl Logins {
    pub(super) fn read(file: Option<&Path>) -> Result<Logins, ImageError> {
        let Some(file) = file else { return Ok(Logins::default()) };
        let unread = |why: &dyn std::fmt::Display| {
            ImageError::new(ImageErrorKind::Denied, format!("the logins in {} cannot be read: {why}", file.display()))
        };
        let mut text = Vec::new();
        let opened = File::open(file).map_err(|error| unread(&error))?;
        opened.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(|error| unread(&error))?;
        // Its errors name a place in the file, never what is written there.
        serde_json::from_slice(&text).map_err(|error| unread(&format!("line {}", error.line())))
    }

    /// For the host that is asked, by the name that the file has for it.
    pub(super) fn of(&self, host: &str) -> RegistryAuth {
        let is_it = |(key, _): &(&String, &Login)| host_of(key) == host_of(host);
        let login = self.auths.iter().filter(is_it).find_map(|(_, login)| parse(login.auth.as_deref()?));
        login.map_or(RegistryAuth::Anonymous, |(user, password)| RegistryAuth::Basic(user, password))
    }

    /// With a word on helpers, where one may have what was missing.
    pub(super) fn explain(&self, error: ImageError) -> ImageError {
        if error.kind == ImageErrorKind::Denied && (self.helper.is_some() || !self.helpers.is_empty()) {
            let words = format!("{}; the file of logins names a credential helper, which is not run", error.words);
            return ImageError::new(error.kind, words);
        }
        error
    }
}

/// `https://index.docker.io/v1/` is how docker writes its own registry.
fn host_of(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    match key.split('/').next().unwrap_or(key) {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

fn parse(auth: &str) -> Option<(String, String)> {
    let text = String::from_utf8(BASE64_STANDARD.decode(auth.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.trim_end_matches('\0').to_owned())).filter(|(user, _)| !user.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_found_by_their_host() {
        let text = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "dTpw"}, "registry.test:5000": {"auth": "YTpiOmM="},
                       "empty.test": {}, "broken.test": {"auth": "%%"}}, "credsStore": "desktop"}"#;
        let logins: Logins = serde_json::from_str(text).unwrap();
        let basic = |user: &str, password: &str| RegistryAuth::Basic(user.into(), password.into());
        assert_eq!(logins.of("index.docker.io"), basic("u", "p"));
        assert_eq!(logins.of("registry.test:5000"), basic("a", "b:c"));
        for host in ["empty.test", "broken.test", "registry.test", "other.test"] {
            assert_eq!(logins.of(host), RegistryAuth::Anonymous, "{host}");
        }
        let denied = logins.explain(ImageError::new(ImageErrorKind::Denied, "no"));
        assert!(denied.words.contains("helper"), "{denied}");
    }
}
