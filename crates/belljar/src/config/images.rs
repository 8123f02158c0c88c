//! Where images come from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belljar_images::Registries;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Value;
use crate::complaint::Complaint;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Images {
    /// Hosts that have copies of a registry's images, by its name.
    pub(crate) mirrors: Value<BTreeMap<String, Vec<String>>>,
    /// Registries without TLS.
    pub(crate) insecure: Value<Vec<String>>,
    /// Docker's config.json with logins.
    pub(crate) auth: Value<Option<PathBuf>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawImages {
    /// Hosts that have copies of a registry's images, by the registry's name.
    mirrors: Option<BTreeMap<String, Vec<String>>>,
    /// Registries without TLS.
    insecure: Option<Vec<String>>,
    /// Docker's config.json with logins.
    auth: Option<PathBuf>,
}

impl Images {
    pub(super) fn resolve(raw: RawImages) -> Result<Images, Complaint> {
        let mirrors = raw.mirrors.iter().flatten().flat_map(|(name, hosts)| hosts.iter().chain([name]));
        let insecure = raw.insecure.iter().flatten();
        if let Some(wrong) = mirrors.chain(insecure).find(|host| !is_host(host)) {
            let what = format!("in the configuration: a registry below [images] is {wrong:?}");
            return Err(Complaint::new(what, "write its host, with a port if it has one: registry.example.org:5000"));
        }
        Ok(Images {
            mirrors: Value::of(BTreeMap::new(), raw.mirrors),
            insecure: Value::of(Vec::new(), raw.insecure),
            auth: Value::of(None, raw.auth.map(Some)),
        })
    }

    pub(crate) fn registries(&self) -> Registries {
        Registries {
            mirrors: self.mirrors.value.clone(),
            insecure: self.insecure.value.clone(),
            auth: self.auth.value.clone(),
        }
    }
}

fn is_host(host: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    !host.is_empty() && host.len() <= 255 && host.chars().all(is_plain)
}
