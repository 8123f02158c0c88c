//! The configuration as it is written. A key that nobody knows is refused: it is a mistake, and would do nothing.

use std::collections::BTreeMap;

use belljar_backends::Choice;
use belljar_core::Ground;
use belljar_engine::Wish;
use serde::Deserialize;

use super::images::RawImages;
use super::network::{RawAudit, RawNetwork, RawSecret};
use super::packages::RawPackages;
use super::upstreams::{RawPrivacy, RawSkills, RawUpstreams};
use super::walls::{RawDocker, RawGvisor, RawMicrovm, RawWalls, RawWasm};
use crate::complaint::Complaint;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) idle_timeout: Option<f64>,
    pub(super) max_age: Option<f64>,
    pub(super) max_sandboxes: Option<usize>,
    pub(super) yield_after: Option<f64>,
    pub(super) profile: Option<String>,
    #[serde(default)]
    pub(super) pool: Pool,
    #[serde(default)]
    pub(super) network: RawNetwork,
    #[serde(default)]
    pub(super) audit: RawAudit,
    #[serde(default)]
    pub(super) secrets: BTreeMap<String, RawSecret>,
    #[serde(default)]
    pub(super) packages: RawPackages,
    #[serde(default)]
    pub(super) images: RawImages,
    #[serde(default)]
    pub(super) upstreams: RawUpstreams,
    #[serde(default)]
    pub(super) skills: RawSkills,
    #[serde(default)]
    pub(super) privacy: RawPrivacy,
    #[serde(default)]
    pub(super) walls: RawWalls,
    #[serde(default)]
    pub(super) docker: RawDocker,
    #[serde(default)]
    pub(super) gvisor: RawGvisor,
    #[serde(default)]
    pub(super) microvm: RawMicrovm,
    #[serde(default)]
    pub(super) wasm: RawWasm,
    #[serde(default)]
    pub(super) templates: BTreeMap<String, Template>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pool {
    pub(super) enabled: Option<bool>,
    pub(super) memory_mb: Option<u32>,
    pub(super) max: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Template {
    backend: Option<String>,
    image: Option<String>,
    #[serde(default)]
    interpreters: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    network: Vec<String>,
    #[serde(default)]
    limits: Limits,
}

/// In the units that agents use too.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    memory_mb: Option<u32>,
    cpus: Option<f64>,
    processes: Option<u32>,
    open_files: Option<u32>,
    disk_mb: Option<u32>,
    output_kb: Option<u32>,
}

impl Template {
    pub(super) fn named((name, template): (String, Template)) -> Result<belljar_engine::Template, Complaint> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            let what = format!("in the configuration: a template's name is {name:?}");
            return Err(Complaint::new(what, "use letters, digits, dots, dashes and underscores, at most 64"));
        }
        let Template { backend, image, interpreters, env, packages, network, limits } = template;
        let cpu_milli = match limits.cpus {
            None => None,
            Some(cpus) if (0.001..=1e6).contains(&cpus) => Some((cpus * 1000.0).round() as u32),
            Some(cpus) => {
                let what = format!("in the configuration: the cpus of template {name} are {cpus}");
                return Err(Complaint::new(what, "write a number above 0, such as cpus = 1.5"));
            }
        };
        let bytes = |amount: Option<u32>, unit: u64| amount.map(|amount| u64::from(amount) * unit);
        let wish = Wish {
            memory_bytes: bytes(limits.memory_mb, 1 << 20),
            cpu_milli,
            processes: limits.processes,
            open_files: limits.open_files,
            disk_bytes: bytes(limits.disk_mb, 1 << 20),
            output_bytes: bytes(limits.output_kb, 1 << 10),
        };
        let env = env.into_iter().collect();
        let ground = Ground { wall: backend.map(|wall| wall_named(&name, &wall)).transpose()?, image, interpreters };
        Ok(belljar_engine::Template { name, ground, wish, env, packages, network })
    }
}

fn wall_named(template: &str, name: &str) -> Result<String, Complaint> {
    let choice: Choice = name.parse().map_err(|error| {
        let what = format!("in the configuration: template {template}: {error}");
        Complaint::new(what, "leave `backend` out for the server's own")
    })?;
    Ok(choice.name().to_owned())
}
