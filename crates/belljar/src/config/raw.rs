//! The configuration as it is written. A key that nobody knows is refused: it is a mistake, and would do nothing.

use std::collections::BTreeMap;

use belljar_backends::Choice;
use belljar_core::Ground;
use belljar_engine::Wish;
use schemars::JsonSchema;
use serde::Deserialize;

use super::images::RawImages;
use super::network::{RawNetwork, RawSecret};
use super::oauth::RawOauth;
use super::packages::RawPackages;
use super::quota::RawQuota;
use super::records::{RawAudit, RawHistory};
use super::upstreams::{RawPrivacy, RawSkills, RawUpstreams};
use super::walls::{RawDocker, RawGvisor, RawMicrovm, RawWalls, RawWasm, walls};
use super::watching::RawSelfTest;
use crate::complaint::Complaint;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Seconds after which an unused sandbox is removed.
    pub(super) idle_timeout: Option<f64>,
    /// Seconds after which a sandbox is removed, however much it is used.
    pub(super) max_age: Option<f64>,
    /// Sandboxes that may exist at once.
    pub(super) max_sandboxes: Option<usize>,
    /// Seconds after which a run goes on as a job.
    pub(super) yield_after: Option<f64>,
    /// Seconds that programs under way have to come to their end after a signal to end.
    pub(super) shutdown_timeout: Option<f64>,
    /// What the log tells, such as `info` or `belljar_engine=debug`.
    pub(super) log: Option<String>,
    /// The tools of another system in place of Belljar's own.
    #[schemars(extend("enum" = belljar_server::PROFILES))]
    pub(super) profile: Option<String>,
    /// Sandboxes that are opened ahead.
    #[serde(default)]
    pub(super) pool: Pool,
    /// What each principal may have that has no word of its own on it.
    #[serde(default)]
    pub(super) quota: RawQuota,
    /// What sandboxes may reach.
    #[serde(default)]
    pub(super) network: RawNetwork,
    /// Lines of JSON about all that happened, to prove it by.
    #[serde(default)]
    pub(super) audit: RawAudit,
    /// Sandboxes and runs that were, to look back at.
    #[serde(default)]
    pub(super) history: RawHistory,
    /// Values that go out with requests and are never seen inside, by name.
    #[serde(default)]
    pub(super) secrets: BTreeMap<String, RawSecret>,
    /// Packages for programs.
    #[serde(default)]
    pub(super) packages: RawPackages,
    /// Where images come from.
    #[serde(default)]
    pub(super) images: RawImages,
    /// Other MCP servers, whose tools programs may call.
    #[serde(default)]
    pub(super) upstreams: RawUpstreams,
    /// Programs that are kept for later.
    #[serde(default)]
    pub(super) skills: RawSkills,
    /// What the model is not to see.
    #[serde(default)]
    pub(super) privacy: RawPrivacy,
    /// Which wall is around the code.
    #[serde(default)]
    pub(super) walls: RawWalls,
    /// What the wall `docker` is told.
    #[serde(default)]
    pub(super) docker: RawDocker,
    /// What the wall `gvisor` is told.
    #[serde(default)]
    pub(super) gvisor: RawGvisor,
    /// What the wall `microvm` is told.
    #[serde(default)]
    pub(super) microvm: RawMicrovm,
    /// What the wall `wasm` is told.
    #[serde(default)]
    pub(super) wasm: RawWasm,
    /// The authorization server whose tokens are accepted over HTTP.
    #[serde(default)]
    pub(super) oauth: RawOauth,
    /// What is tried before anything is run.
    #[serde(default)]
    pub(super) self_test: RawSelfTest,
    /// Kinds of sandboxes that callers may ask for by name.
    #[serde(default)]
    pub(super) templates: BTreeMap<String, Template>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Pool {
    /// Whether sandboxes are opened ahead.
    pub(super) enabled: Option<bool>,
    /// What prepared sandboxes may take together, by an estimate.
    pub(super) memory_mb: Option<u32>,
    /// Prepared sandboxes at once.
    pub(super) max: Option<usize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Template {
    /// The wall of such sandboxes, if not the server's own.
    #[schemars(extend("enum" = walls()))]
    backend: Option<String>,
    /// The root file system of such sandboxes.
    image: Option<String>,
    /// Interpreters in place of the host's first, such as `python-3.12`.
    #[serde(default)]
    interpreters: Vec<String>,
    /// Variables that programs see.
    #[serde(default)]
    #[schemars(extend("writeOnly" = true))]
    env: BTreeMap<String, String>,
    /// Packages that are there from the start, such as `polars` or `npm:d3`.
    #[serde(default)]
    packages: Vec<String>,
    /// Hosts that such sandboxes may reach.
    #[serde(default)]
    network: Vec<String>,
    /// Limits of such sandboxes whose callers ask for none.
    #[serde(default)]
    limits: Limits,
}

/// In the units that agents use too.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Limits {
    /// Memory of all programs of a sandbox together, and of its files.
    memory_mb: Option<u32>,
    /// Processors, in whole or in part.
    cpus: Option<f64>,
    /// Processes and threads at once.
    processes: Option<u32>,
    /// Files that one process may have open.
    open_files: Option<u32>,
    /// Room for files.
    disk_mb: Option<u32>,
    /// Output that is kept of one run.
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
