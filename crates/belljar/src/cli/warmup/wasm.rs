//! The interpreters of the wasm wall: fetched as packages are, by a sandbox, and compiled once.

use belljar_backends::{Choice, Preload, WishedWall, compile_wasm, fetched_wasm};
use belljar_core::{Ground, PackageKind};
use belljar_engine::Provisions;
use belljar_packages::Wanted;

use super::{Bar, Ready};
use crate::config::Config;
use crate::wiring;

pub(super) async fn prepare(config: &Config) -> anyhow::Result<Vec<Ready>> {
    let host = wiring::host(config);
    let mut ready = Vec::new();
    for fetched in fetched_wasm(&host) {
        let modules = match fetch(config, &fetched.package).await? {
            Ok(modules) => modules,
            Err(why) => {
                ready.push(Ready { name: fetched.package, state: Err(why) });
                continue;
            }
        };
        let compiled = compile_wasm(&host, Some((&fetched, &modules)));
        ready.extend(told(&fetched.package, compiled.map_err(|error| error.to_string())));
    }
    // What was given, and what was there.
    ready.extend(told("given interpreters", compile_wasm(&host, None).map_err(|error| error.to_string())));
    if ready.is_empty() {
        ready.push(Ready { name: "interpreters".to_owned(), state: Ok("all were compiled before".to_owned()) });
    }
    Ok(ready)
}

fn told(name: &str, compiled: Result<Vec<(String, std::path::PathBuf)>, String>) -> Vec<Ready> {
    match compiled {
        Ok(all) => {
            all.into_iter().map(|(name, place)| Ready { name, state: Ok(place.display().to_string()) }).collect()
        }
        Err(why) => vec![Ready { name: name.to_owned(), state: Err(why) }],
    }
}

/// Has a sandbox install it from the registry that the operator's npm uses. Where it then is, or why it is not.
async fn fetch(config: &Config, package: &str) -> anyhow::Result<Result<std::path::PathBuf, String>> {
    const GIVE: &str = "or give the modules yourself: docs/wasm.md shows how";
    // What is fetched is fetched in a place that has a network, and this wall has none.
    let mut config = config.clone();
    config.walls.backend.value = WishedWall::Named(Choice::Native);
    let config = &config;
    let parts = wiring::parts(Preload::No, config)?;
    let (Some(Provisions { packages, .. }), Some(store)) = (parts.provisions, wiring::store(config)?) else {
        return Ok(Err(format!("no packages are installed on this host: set install = true below [packages], {GIVE}")));
    };
    let bar = Bar::new(package);
    let wanted = Wanted { required: vec![package.to_owned()], ..Wanted::new(PackageKind::Node, &Ground::default()) };
    let installed = packages.environment(wanted, |progress| bar.shows(&progress)).await;
    bar.ends();
    Ok(match installed {
        Ok(installed) => match installed.environment {
            Some(environment) => Ok(store.join(&environment.layer.id)),
            None => Err(format!("nothing was installed: try again, {GIVE}")),
        },
        Err(error) => Err(format!("{}; {}, {GIVE}", error.words.trim_end(), error.kind.next_step())),
    })
}
