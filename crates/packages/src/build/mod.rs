//! Building a layer: in a sandbox that sees the registries, and can write to one directory that was empty.

mod site;
mod uv;
pub(crate) mod words;

use std::sync::Arc;
use std::time::SystemTime;

use belljar_core::{BUILD, Backend, Ground, Language, PackageKind};
use serde_json::json;

use crate::facts::Facts;
use crate::key::Key;
use crate::store::{Measured, Record, Store, seconds};
use crate::{Environment, InstallError, InstallErrorKind, Settings};

pub(crate) use site::Tell;
use site::{Built, Site};

/// What a build needs of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Builder<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
}

/// What to build, checked.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) kind: PackageKind,
    pub(crate) ground: Ground,
    /// What was asked for, and names this order together with what it is for.
    pub(crate) key: String,
    pub(crate) required: Vec<String>,
    pub(crate) inferred: Vec<String>,
    pub(crate) owner: String,
    pub(crate) below: Option<Arc<Environment>>,
    /// A file of requirements with their hashes, in place of `required`.
    pub(crate) locked: Option<&'static str>,
}

/// How often names that were only inferred are left out and it is tried again.
const ATTEMPTS: usize = 4;

impl Builder<'_> {
    /// Builds it, without those inferred names that stand in the way; `None` where nothing is left then.
    pub(crate) async fn build(
        &self,
        mut order: Order,
        facts: &Facts,
        tell: Tell<'_>,
    ) -> Result<(Option<Arc<Environment>>, Vec<(String, String)>), InstallError> {
        let mut left_out = Vec::new();
        for attempt in 1.. {
            if order.required.is_empty() && order.inferred.is_empty() && order.locked.is_none() {
                return Ok((None, left_out));
            }
            let error = match self.build_once(&order, &left_out, facts, tell).await {
                Ok(built) => return Ok((Some(built), left_out)),
                Err(error) => error,
            };
            let is_theirs = matches!(
                error.kind,
                InstallErrorKind::NotFound | InstallErrorKind::Conflict | InstallErrorKind::Failed
            );
            if !is_theirs || order.inferred.is_empty() {
                return Err(error);
            }
            let mut culprits = words::mentioned(&error.words, &order.inferred).into_iter().cloned().collect::<Vec<_>>();
            if culprits.is_empty() && error.kind == InstallErrorKind::Failed {
                // Whatever failed, it was none of them.
                return Err(error);
            }
            if culprits.is_empty() || attempt >= ATTEMPTS {
                culprits = order.inferred.clone();
            }
            order.inferred.retain(|name| !culprits.contains(name));
            left_out.extend(culprits.into_iter().map(|name| (name, error.words.clone())));
        }
        Ok((None, left_out))
    }

    async fn build_once(
        &self,
        order: &Order,
        left_out: &[(String, String)],
        facts: &Facts,
        tell: Tell<'_>,
    ) -> Result<Arc<Environment>, InstallError> {
        let (language, code) = match order.kind {
            PackageKind::Python => (Language::Python, include_str!("inside/build.py")),
            PackageKind::Node => (Language::JavaScript, include_str!("inside/build.js")),
        };
        let brought = match order.kind {
            PackageKind::Python if facts.uv.is_none() => match self.uv(facts, &order.ground, tell).await {
                Ok(uv) => Some(uv),
                Err(error) if facts.pip && error.kind != InstallErrorKind::NoSpace => {
                    tracing::info!(%error, "packages are installed by pip, since there is no uv");
                    None
                }
                Err(error) => return Err(error),
            },
            PackageKind::Python | PackageKind::Node => None,
        };
        let uv = brought.as_ref().map(|_| format!("{BUILD}/uv")).or_else(|| facts.uv.clone());
        let job = job(order, uv.as_deref());
        let layers = order.below.iter().map(|below| below.layer.clone()).collect();
        let store = self.store.clone();
        let prepare = move |building: &_| brought.map_or(Ok(()), |uv| uv::lend(&store, &uv, building));
        let site = Site::open(self.backend, self.settings, self.store, &order.ground, layers, prepare).await?;
        let built = site.run(self.settings, language, code, &job, tell).await?;

        let all = requirements(order);
        let record_of = {
            let (kind, left_out, made_for) = (order.kind, left_out.to_vec(), facts.made_for.clone());
            move |built, measured| record(kind, built, &all, left_out, measured, made_for)
        };
        // What was asked for is part of the name: what was built may lie about what it is, and must not be taken for
        // what others ask for.
        let resolved = built.packages.iter().flat_map(|(name, version)| [name.as_str(), version.as_str()]);
        let id = Key::new("layer").with(&order.key).with_all(resolved.collect::<Vec<_>>().into_iter()).finish();
        site.publish(self.settings, move |building, measured| building.publish(&id, &record_of(built, measured))).await
    }
}

/// All that was asked for to get it, with what it is on top of.
fn requirements(order: &Order) -> Vec<String> {
    let below = order.below.iter().flat_map(|below| below.requirements.iter());
    let mut all = below.chain(&order.required).chain(&order.inferred).cloned().collect::<Vec<_>>();
    all.sort();
    all.dedup();
    all
}

fn job(order: &Order, uv: Option<&str>) -> serde_json::Value {
    let below = order.below.as_ref().map(|_| order.kind.inside());
    let kept = order.below.iter().flat_map(|below| below.packages.iter()).collect::<Vec<_>>();
    match order.kind {
        PackageKind::Python => {
            let lines = requirements(order).iter().map(|line| format!("{line}\n")).collect::<String>();
            // What is imported already keeps its version.
            let constraints = kept.iter().map(|(name, version)| format!("{name}=={version}\n")).collect::<String>();
            json!({
                "build": BUILD, "below": below, "uv": uv, "hashed": order.locked.is_some(),
                "requirements": order.locked.unwrap_or(&lines), "constraints": constraints,
            })
        }
        PackageKind::Node => {
            let wanted = order.required.iter().chain(&order.inferred).collect::<Vec<_>>();
            json!({ "build": BUILD, "below": below, "requirements": wanted, "constraints": kept })
        }
    }
}

fn record(
    kind: PackageKind,
    built: Built,
    requirements: &[String],
    left_out: Vec<(String, String)>,
    measured: Measured,
    made_for: String,
) -> Record {
    Record {
        kind,
        packages: built.packages,
        modules: built.modules.into_iter().collect(),
        bytes: measured.bytes,
        made: seconds(SystemTime::now()),
        made_for,
        requirements: requirements.to_vec(),
        left_out,
    }
}
